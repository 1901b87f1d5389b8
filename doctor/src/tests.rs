//! Tests the checks on hosts of all kinds: good ones, and with one mistake each.

mod hosts;
mod mistakes;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use insta::assert_snapshot;
use pmdscope_render::TextLine;
use proptest::prelude::*;

use self::mistakes::{Mistake, mistakes};
use crate::check::CheckStatus;
use crate::collect::collect_from;
use crate::fixture::{HostFixture, results_of, status_of};
use crate::{Baseline, Examination, HostTree, Report, catalogue, examine};

/// Returns the good host, to be compared with itself.
fn compared() -> HostFixture {
    static GOOD: LazyLock<Baseline> = LazyLock::new(|| HostFixture::good().examine().1);
    let mut host = HostFixture::good();
    host.of.baseline = Some(GOOD.clone());
    host
}

fn text(report: &Report, verbose: bool) -> String {
    let lines = report.lines(verbose);
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

#[test]
fn on_a_good_host_every_check_passes() {
    let report = compared().report();
    let other: Vec<_> = report.results.iter().filter(|r| r.status != CheckStatus::Pass).collect();
    assert!(other.is_empty() && report.ok, "{other:#?}");
    let checks: BTreeSet<_> = report.results.iter().map(|result| result.check).collect();
    assert_eq!(checks, catalogue().map(|(id, ..)| id).collect(), "every check was run");
    assert_snapshot!("good_host", text(&report, true));
    assert_eq!(text(&report, false).lines().count(), 1, "passes are counted");
}

#[test]
fn narrow_reports_break_between_words_and_keep_commands_whole() {
    for Mistake { name, make, .. } in mistakes() {
        let mut host = compared();
        make(&mut host);
        let report = host.report();
        let all = |lines: Vec<TextLine>| {
            lines.iter().map(|line| line.to_string() + "\n").collect::<String>()
        };
        let (wide, narrow) = (all(report.lines(false)), all(report.fitted_lines(false, Some(80))));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&wide), words(&narrow), "{name}");
        let is_command =
            |line: &str| ["fix now:", "for good:"].iter().any(|l| line.trim().starts_with(l));
        for line in narrow.lines() {
            let long_word = line.split_whitespace().any(|word| word.chars().count() > 60);
            assert!(is_command(line) || long_word || line.chars().count() <= 80, "{name}: {line}");
        }
        for command in wide.lines().filter(|line| is_command(line)) {
            assert!(narrow.contains(command), "{name}: {command}");
        }
    }
}

#[test]
fn every_check_has_a_mistake_that_it_finds() {
    let mistakes = mistakes();
    let found: BTreeSet<_> = mistakes.iter().map(|mistake| mistake.check).collect();
    assert_eq!(found, catalogue().map(|(id, ..)| id).collect());
    assert!(mistakes.len() >= 16);
}

/// The snapshot lists all checks that find a mistake, so that a check that reports the mistake of
/// another one is noticed.
#[test]
fn each_mistake_is_found_and_changes_nothing_else() {
    let mut table = String::new();
    for Mistake { name, check, status, make } in mistakes() {
        let mut host = compared();
        make(&mut host);
        let report = host.report();
        assert_eq!(status_of(&report, check), Some(status), "{name}: {}", text(&report, false));
        for result in results_of(&report, check).filter(|result| result.status == status) {
            let fix = result
                .fix
                .as_ref()
                .map(|fix| fix.now.len() + fix.persistent.len() + fix.advice.len());
            assert!(fix > Some(0), "{name}: no fix in {result:?}");
        }
        let bad = report.results.iter().filter(|result| result.status > CheckStatus::Skip);
        let bad: BTreeSet<_> = bad.map(|result| result.check).collect();
        let bad: Vec<_> = bad.into_iter().collect();
        writeln!(table, "{name}: {}", bad.join(", ")).unwrap();
    }
    assert_snapshot!("mistakes", table);
}

/// Returns a host with several mistakes.
fn bad() -> HostFixture {
    let mut host = compared();
    let wanted = [
        "NIC left on its kernel driver",
        "kernel update",
        "interrupt on a poll CPU",
        "THP forced",
        "CPU quota in cgroup v2",
    ];
    for mistake in mistakes().into_iter().filter(|mistake| wanted.contains(&mistake.name)) {
        (mistake.make)(&mut host);
    }
    host
}

#[test]
fn the_report_shows_failures_first_with_reason_and_fix() {
    let report = bad().report();
    assert!(!report.ok);
    assert_snapshot!("bad_host", text(&report, false));
}

#[test]
fn json_has_schema_verdict_and_fixes() {
    let json = serde_json::to_value(bad().report()).unwrap();
    assert_eq!((&json["schema"], &json["ok"]), (&1.into(), &false.into()));
    let results = json["results"].as_array().unwrap();
    let driver = results.iter().find(|result| result["check"] == "nic_driver").unwrap();
    assert_eq!((&driver["status"], &driver["group"]), (&"fail".into(), &"nics".into()));
    assert_eq!(driver["fix"]["persistent"][0], "driverctl set-override 0000:03:00.0 vfio-pci");
    assert_eq!(
        json["counts"]["fail"].as_u64(),
        Some(results.iter().filter(|r| r["status"] == "fail").count() as u64)
    );
}

/// Returns the errors of a shell that only parses a script.
fn syntax(script: &str) -> String {
    let mut shell = Command::new("sh");
    let mut shell = shell.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success() == output.stderr.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_fix_script_is_a_shell_script_for_every_mistake() {
    let script = bad().report().fix_script();
    assert_snapshot!("fix_script", script);
    for mistake in mistakes() {
        let mut host = compared();
        (mistake.make)(&mut host);
        assert_eq!(syntax(&host.report().fix_script()), "", "{}", mistake.name);
    }
    assert!(compared().report().fix_script().contains("# Nothing to fix."));
}

#[test]
fn names_from_the_host_are_no_commands() {
    let host = compared();
    let evil = "x';touch evil\ntouch evil #";
    host.irq(26, evil, "2");
    host.write("proc/4242/cgroup", "0::/a';touch evil;'$(touch evil)");
    host.write("sys/fs/cgroup/a';touch evil;'$(touch evil)/cpu.max", "50000 100000");
    host.driver(crate::fixture::NIC, Some(evil));
    let script = host.report().fix_script();
    assert_eq!(syntax(&script), "");
    let commands = script.lines().filter(|line| !line.starts_with('#') && line.contains("evil"));
    let commands: Vec<_> = commands.collect();
    let expected = r"echo max > '/sys/fs/cgroup/a'\'';touch evil;'\''$(touch evil)/cpu.max'";
    assert_eq!(commands, [expected], "{script}");
}

#[test]
fn a_collected_tree_gives_the_same_report() {
    for make in [None, Some(10), Some(20)] {
        let mut host = HostFixture::good();
        if let Some(mistake) = make.and_then(|number| mistakes().into_iter().nth(number)) {
            (mistake.make)(&mut host);
        }
        let copy = tempfile::tempdir().unwrap();
        let into = copy.path().join("host");
        collect_from(host.path(), &into, host.of.apps.as_deref()).unwrap();
        let report = examine(&HostTree::open(&into).unwrap(), &Examination::default()).0;
        let place = |report: &Report, dir: &std::path::Path| {
            serde_json::to_string(report).unwrap().replace(dir.to_str().unwrap(), "")
        };
        assert_eq!(place(&report, &into), place(&host.report(), host.path()));
    }
}

#[test]
fn this_machine_is_collected_and_checked() {
    let copy = tempfile::tempdir().unwrap();
    crate::collect(copy.path(), Some(&[])).unwrap();
    let report = examine(&HostTree::open(copy.path()).unwrap(), &Examination::default()).0;
    let here = Examination { apps: Some(Vec::new()), ..Examination::default() };
    let here = examine(&HostTree::open("/".as_ref()).unwrap(), &here).0;
    let statuses = |report: &Report| {
        report.results.iter().map(|result| (result.check, result.status)).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&report), statuses(&here));
}

#[test]
fn links_of_a_tree_do_not_lead_out_of_it() {
    let host = HostFixture::good();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let secret = outside.path().join("secret");
    for target in [secret.to_str().unwrap(), "../../../../../../../../../../etc/passwd"] {
        host.remove("proc/sys/kernel/osrelease");
        host.link("proc/sys/kernel/osrelease", target);
        assert_eq!(host.examine().1.kernel_release, None, "{target}");
    }
}

#[test]
fn a_saved_run_is_read_again_and_a_damaged_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("good.json");
    let baseline = HostFixture::good().examine().1;
    baseline.save(&file).unwrap();
    assert_eq!(Baseline::load(&file).unwrap(), baseline);
    fs::write(&file, "{\"schema\":").unwrap();
    assert!(Baseline::load(&file).unwrap_err().to_string().contains("is damaged"));
    fs::write(&file, serde_json::to_vec(&Baseline { schema: 99, ..baseline }).unwrap()).unwrap();
    assert!(Baseline::load(&file).unwrap_err().to_string().contains("has version 99"));
    fs::remove_file(&file).unwrap();
    assert!(Baseline::load(&file).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn the_manual_lists_every_check() {
    let manual = include_str!("../../docs/doctor.md");
    let rows =
        catalogue().map(|(id, _, title, matters)| format!("| `{id}` | {title} | {matters} |\n"));
    let table: String = rows.collect();
    assert!(manual.contains(&table), "put this into docs/doctor.md:\n{table}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_bytes_in_any_file_are_checked(
        files in prop::collection::vec((any::<prop::sample::Index>(), bytes()), 1..12),
    ) {
        let host = compared();
        let all = host.files();
        for (file, bytes) in files {
            let path = file.get(&all);
            let _ = fs::remove_file(path);
            fs::write(path, bytes).unwrap();
        }
        let report = host.report();
        let _ = text(&report, true);
        prop_assert_eq!(syntax(&report.fix_script()), "");
    }

    #[test]
    fn any_kind_of_file_is_checked(file in any::<prop::sample::Index>(), kind in 0..4) {
        let host = compared();
        let all = host.files();
        let path = file.get(&all);
        fs::remove_file(path).unwrap();
        match kind {
            0 => {}
            1 => fs::create_dir(path).unwrap(),
            2 => std::os::unix::fs::symlink(path, path).unwrap(),
            _ => drop(std::os::unix::net::UnixListener::bind(path)),
        }
        let report = host.report();
        prop_assert!(report.results.len() >= catalogue().count());
    }
}

/// Bytes, numbers and lists that resemble those of the kernel.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        "[0-9a-f,-]{0,40}".prop_map(String::into_bytes),
        any::<u64>().prop_map(|number| number.to_string().into_bytes()),
        "[0-9A-Za-z:./=' \n\\[\\]$\"-]{0,60}".prop_map(String::into_bytes),
    ]
}
