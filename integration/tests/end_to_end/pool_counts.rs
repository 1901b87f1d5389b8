//! Pools and rings of an app that does not report them, counted in its memory, with its own dump as the
//! oracle.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use serde_json::Value;

use crate::support::{
    LIMIT, Needs, missing_program, number, pmdscope, pmdscope_json, trial, trial_unless,
};

/// The pool of testpmd.
const POOL: &str = "mb_pool_0";

/// The port, whose packets come back to it.
const LOOP: Setup<'_> = Setup { devices: &["net_ring0"], eal: &[], args: &["--nb-ports=1"] };

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("xray_counts_what_testpmd_dumps", Needs::Testpmd, dumped),
        trial("xray_counts_an_app_that_leaves_no_files", Needs::Testpmd, in_memory),
        trial("xray_counts_pools_on_stacks", Needs::Testpmd, stacks),
        trial("xray_counts_a_busy_pool", Needs::Testpmd, busy),
        trial("the_exporter_counts_pools_when_told_to", Needs::Testpmd, exported),
        trial("a_recording_replays_counts_of_pools", Needs::Testpmd, recorded),
        trial_unless(
            "the_services_count_pools_with_the_rights_of_their_drop_in",
            Needs::Testpmd.missing().or_else(|| missing_program(&["setpriv"])),
            services,
        ),
        trial_unless(
            "without_the_right_to_read_memory_the_rest_is_shown",
            Needs::Testpmd.missing().or_else(|| missing_program(&["setpriv"])),
            refused,
        ),
    ]
}

/// Where the objects of the pool are, as the app itself prints.
#[derive(Debug, PartialEq)]
struct PoolDump {
    common: u64,
    caches: BTreeMap<String, u64>,
}

fn dump(testpmd: &mut Testpmd) -> Result<PoolDump> {
    let dump = testpmd.console(&format!("dump_mempool {POOL}"), "common_pool_count=")?;
    let values = dump.lines().filter_map(|line| line.trim().split_once('='));
    let values: Vec<(&str, u64)> =
        values.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
    let of = |name: &str| values.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    let lcore = |name: &str| Some(name.strip_prefix("cache_count[")?.strip_suffix(']')?.to_owned());
    let caches = values.iter().filter_map(|(name, value)| Some((lcore(name)?, *value)));
    Ok(PoolDump {
        common: of("common_pool_count").with_context(|| format!("no count in {dump}"))?,
        caches: caches.filter(|(_, objects)| *objects > 0).collect(),
    })
}

/// Sends packets round the loop, and stops with some of them in it.
fn loop_and_stop(testpmd: &mut Testpmd) -> Result<()> {
    testpmd.console("start tx_first 4", "packet forwarding")?;
    testpmd.console("stop", "Done.")?;
    Ok(())
}

/// A sample whose counts are complete: on a machine that stalls, an app may not be read in time.
fn sample(scratch: &Scratch, app: &str) -> Result<Value> {
    let mut sample = Value::Null;
    wait_until("counts of pools", LIMIT, || {
        let top = pmdscope_json(scratch, &["top", "-a", app, "--json", "-i", "0"], &[0])?;
        sample = top["apps"][0]["model"]["sample"].clone();
        Ok(sample.is_object() && in_time(&sample))
    })?;
    Ok(sample)
}

/// Whether the app could be read in time.
fn in_time(sample: &Value) -> bool {
    !sample["xray"]["problem"].as_str().is_some_and(|problem| problem.contains("in time"))
}

/// The pool as it was counted, which is as the app dumps it; returns the objects in use.
fn judged(sample: &Value, dump: &PoolDump) -> Result<u64> {
    let pool = &sample["pools"][0];
    ensure!(pool["source"] == "xray" && sample["xray"]["problem"].is_null(), "{sample:#}");
    let (parts, size) = (&pool["occupancy"], number(pool, "size")?);
    let (common, cached) = (number(parts, "common")?, number(parts, "cached")?);
    let of_lcores: BTreeMap<String, u64> = serde_json::from_value(pool["lcore_caches"].clone())?;
    ensure!((common, &of_lcores) == (dump.common, &dump.caches), "{dump:?} is counted as {pool:#}");
    let in_use = number(parts, "in_use")?;
    ensure!(
        cached == of_lcores.values().sum::<u64>() && common + cached + in_use == size,
        "{pool:#}"
    );
    let high_water = number(&pool["high_water"], "ever")?;
    ensure!(high_water >= in_use, "{pool:#}");
    Ok(in_use)
}

/// A stopped app: all numbers are those that it dumps, and what is in use waits in its ring.
fn counted(scratch: &Scratch, setup: Setup<'_>) -> Result<()> {
    let mut testpmd = Testpmd::start(scratch, setup)?;
    let app = testpmd.app().to_owned();
    let fresh = judged(&sample(scratch, &app)?, &dump(&mut testpmd)?)?;
    ensure!(fresh == 0, "{fresh} of a fresh pool are in use");
    loop_and_stop(&mut testpmd)?;
    let sample = sample(scratch, &app)?;
    let in_use = judged(&sample, &dump(&mut testpmd)?)?;
    let rings = sample["rings"].as_array().context("no rings")?;
    ensure!(rings.iter().all(|ring| ring["source"] == "xray"), "{rings:#?}");
    let used = rings.iter().map(|ring| number(ring, "used")).sum::<Result<u64>>()?;
    ensure!(in_use > 0 && used == in_use, "{in_use} in use, {used} in rings: {rings:#?}");
    // Those of the port, and none in which a pool keeps its objects.
    let strange = rings.iter().find(|ring| !ring["name"].to_string().contains("net_ring0"));
    ensure!(strange.is_none() && number(&rings[0], "capacity")? == 1023, "{rings:#?}");
    Ok(())
}

fn dumped(scratch: &Scratch) -> Result<()> {
    counted(scratch, LOOP)
}

fn in_memory(scratch: &Scratch) -> Result<()> {
    counted(scratch, Setup { eal: &["--in-memory"], ..LOOP })
}

fn stacks(scratch: &Scratch) -> Result<()> {
    counted(scratch, Setup { eal: &["--mbuf-pool-ops-name=stack"], ..LOOP })?;
    counted(scratch, Setup { eal: &["--mbuf-pool-ops-name=lf_stack"], ..LOOP })
}

/// While packets flow, the parts add up, and what is in use is what testpmd may have at hand.
fn busy(scratch: &Scratch) -> Result<()> {
    let testpmd = Testpmd::start(scratch, Setup::FLAT_OUT)?;
    let top = ["top", "-a", testpmd.app(), "--json", "-i", "0.1", "-n", "20"];
    let text = pmdscope(scratch, &top, &[0])?;
    let documents = text.lines().map(serde_json::from_str::<Value>);
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let samples = documents.iter().map(|document| &document["apps"][0]["model"]["sample"]);
    let samples: Vec<&Value> = samples.filter(|sample| in_time(sample)).collect();
    ensure!(!samples.is_empty(), "nothing was read in time: {text}");
    for sample in samples {
        let parts = &sample["pools"][0]["occupancy"];
        let names = ["common", "cached", "in_use"];
        let sum = names.iter().map(|name| number(parts, name)).sum::<Result<u64>>()?;
        ensure!(sum == number(&sample["pools"][0], "size")?, "{sample:#}");
        // A burst of 32, and what moves between a cache and the ring while both are read.
        ensure!(number(parts, "in_use")? <= 32 + 512, "{sample:#}");
        ensure!(sample["xray"]["problem"].is_null(), "{sample:#}");
    }
    Ok(())
}

fn exported(scratch: &Scratch) -> Result<()> {
    let mut testpmd = Testpmd::start(scratch, LOOP)?;
    loop_and_stop(&mut testpmd)?;
    let app = testpmd.app().to_owned();
    let value = |metrics: &str, name: &str| {
        let begin = format!("{name}{{app=\"{app}\"");
        metrics
            .lines()
            .filter(|line| line.starts_with(&begin))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let without = pmdscope(scratch, &["export", "--once"], &[0])?;
    ensure!(value(&without, "dpdk_mempool_objects_in_use").is_empty(), "{without}");
    ensure!(value(&without, "dpdk_mempool_objects").len() == 1, "{without}");
    let mut metrics = String::new();
    wait_until("metrics of pools", LIMIT, || {
        metrics = pmdscope(scratch, &["export", "--once", "--xray"], &[0])?;
        Ok(!value(&metrics, "dpdk_mempool_objects_in_use").is_empty())
    })?;
    let in_use = dump(&mut testpmd)?;
    let expected =
        format!("dpdk_mempool_objects_common{{app=\"{app}\",pool=\"{POOL}\"}} {}", in_use.common);
    ensure!(value(&metrics, "dpdk_mempool_objects_common") == [expected], "{metrics}");
    let source = format!("dpdk_mempool_info{{app=\"{app}\",pool=\"{POOL}\",source=\"xray\"}} 1");
    ensure!(value(&metrics, "dpdk_mempool_info") == [source], "{metrics}");
    for name in ["dpdk_mempool_objects_in_use_window_max", "dpdk_ring_used_window_max_objects"] {
        ensure!(!value(&metrics, name).is_empty(), "no {name} in {metrics}");
    }
    let cached = value(&metrics, "dpdk_mempool_lcore_cached_objects");
    ensure!(cached.len() == in_use.caches.len(), "{in_use:?}: {metrics}");
    Ok(())
}

/// What `record --xray` wrote is shown when the app has ended.
fn recorded(scratch: &Scratch) -> Result<()> {
    let mut testpmd = Testpmd::start(scratch, LOOP)?;
    loop_and_stop(&mut testpmd)?;
    let (app, expected) = (testpmd.app().to_owned(), dump(&mut testpmd)?);
    let file = scratch.path("pools.jsonl.zst");
    let file = file.to_str().context("path")?;
    let mut counted = Value::Null;
    wait_until("counts in a recording", LIMIT, || {
        let record = ["record", "--xray", "-a", &app, "-i", "0.1", "--for", "1", "-q", "-w", file];
        pmdscope(scratch, &record, &[0])?;
        let replay = ["top", "--once", "--json", "--replay", file];
        counted = pmdscope_json(scratch, &replay, &[0])?["apps"][0]["model"]["sample"].take();
        let complete = counted["pools"][0]["occupancy"].is_object() && in_time(&counted);
        // The next round takes its name.
        if !complete {
            std::fs::remove_file(file)?;
        }
        Ok(complete)
    })?;
    drop(testpmd);
    judged(&counted, &expected)?;
    let text = pmdscope(scratch, &["top", "--once", "--replay", file], &[0])?;
    ensure!(text.contains("counted via xray"), "{text}");
    let check = pmdscope(scratch, &["check", "--replay", file], &[0, 1])?;
    ensure!(check.contains("ok: 1 app") || check.contains(&app), "{check}");
    Ok(())
}

/// The capabilities that a file of systemd gives.
fn capabilities(unit: &str) -> Result<Vec<String>> {
    let path = programs::root().join("systemd").join(unit);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let given = text.lines().filter_map(|line| line.strip_prefix("AmbientCapabilities="));
    let names = given.flat_map(str::split_whitespace).filter_map(|name| name.strip_prefix("CAP_"));
    Ok(names.map(str::to_lowercase).collect())
}

/// Another user than that of the app, with the capabilities of the service, without and with its drop-in.
fn services(scratch: &Scratch) -> Result<()> {
    let mut testpmd = Testpmd::start(scratch, LOOP)?;
    loop_and_stop(&mut testpmd)?;
    let app = testpmd.app().to_owned();
    let metrics = |files: &[&str]| -> Result<String> {
        let lists = files.iter().map(|file| capabilities(file)).collect::<Result<Vec<_>>>()?;
        let rights: Vec<_> = lists.concat().iter().map(|name| format!(",+{name}")).collect();
        let rights = rights.concat();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        for set in ["inh-caps", "ambient-caps", "bounding-set"] {
            command.arg(format!("--{set}=-all{rights}"));
        }
        command.arg(programs::pmdscope()?).args(["export", "--once", "--xray"]);
        let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
        ensure!(code == 0, "{code}: {err}");
        Ok(out)
    };
    let in_use = format!("dpdk_mempool_objects_in_use{{app=\"{app}\"");
    let without = metrics(&["pmdscope-export.service"])?;
    let partial = format!("dpdk_collect_partial{{app=\"{app}\"}} 1");
    ensure!(without.contains(&partial) && !without.contains(&in_use), "{without}");
    wait_until("counts with the drop-in", LIMIT, || {
        Ok(metrics(&["pmdscope-export.service", "xray.conf"])?.contains(&in_use))
    })?;
    let recorder = capabilities("pmdscope-record.service")?;
    ensure!(recorder == capabilities("pmdscope-export.service")?, "{recorder:?}");
    Ok(())
}

/// Root without CAP_SYS_PTRACE: the app is asked, and not read.
fn refused(scratch: &Scratch) -> Result<()> {
    let testpmd = Testpmd::start(scratch, LOOP)?;
    let check = |args: &[&str]| -> Result<(i32, String, String)> {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
        command.arg(programs::pmdscope()?).args(["check", "-a", testpmd.app(), "--for", "1"]);
        run(command.args(args), scratch.dir(), LIMIT)
    };
    let (code, out, told) = check(&[])?;
    ensure!(code == 0 && told.contains("CAP_SYS_PTRACE"), "{code}: {out}{told}");
    ensure!(told.matches("CAP_SYS_PTRACE").count() == 1, "told more than once: {told}");
    let (code, out, told) = check(&["--no-xray"])?;
    ensure!(code == 0 && !told.contains("CAP_SYS_PTRACE"), "{code}: {out}{told}");
    wait_until("a sample without counts", LIMIT, || {
        let once = ["top", "-a", testpmd.app(), "--json", "-i", "0", "--no-xray"];
        let top = pmdscope_json(scratch, &once, &[0])?;
        let sample = &top["apps"][0]["model"]["sample"];
        Ok(sample["pools"][0]["occupancy"].is_null() && sample["xray"].is_null())
    })?;
    Ok(())
}
