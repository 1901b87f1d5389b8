//! A stock app survives whatever happens to the processes that capture from it, and is as before.

use std::process::Command;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::baseline::Baseline;
use pmdscope_integration::container::Container;
use pmdscope_integration::pdump::{Helper, helpers, kill, maps_locks};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::spread::Spread;
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};

use crate::pdump::{await_hooks, capture_once};
use crate::support::{LIMIT, Needs, trial};

/// Rounds where `PMDSCOPE_KILL_ROUNDS` is not set: what fits into ten seconds.
const ROUNDS: u64 = 10;
/// Cycles where `PMDSCOPE_ATTACH_CYCLES` is not set: what fits into ten seconds.
const CYCLES: u64 = 20;
/// Latest time of a kill, microseconds: attaching takes less.
const LATEST: u64 = 250_000;
/// The message about an app that did not answer in time, and is not attached to.
const LATE: &str = "does not answer";
/// Growth of an app that counts as unchanged: caches of its C library.
const ROOM: u64 = 2 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stock_app_survives_attaching_again_and_again", Needs::Pdump, cycles),
        trial("a_stock_app_survives_deaths_at_any_moment", Needs::Pdump, deaths),
        trial("a_stock_app_in_a_container_survives_deaths", Needs::Pdump, deaths_in_container),
    ]
}

fn setting<T: FromStr>(name: &str, usual: T) -> Result<T> {
    match std::env::var(name) {
        Err(_) => Ok(usual),
        Ok(text) => text.parse().ok().with_context(|| format!("{name}={text} is no number")),
    }
}

/// Attaches and detaches in order, at full rate.
fn cycles(scratch: &Scratch) -> Result<()> {
    let cycles = setting("PMDSCOPE_ATTACH_CYCLES", CYCLES)?;
    let mut testpmd = Testpmd::start(scratch, Setup::FLAT_OUT)?;
    // The first one makes what stays for the others, such as threads of the app that answer.
    once(scratch, &mut testpmd)?;
    let before = Baseline::take(&mut testpmd)?;
    let (begin, mut late) = (Instant::now(), 0);
    for cycle in 1..=cycles {
        if let Err(error) = once(scratch, &mut testpmd) {
            // On a busy machine, the app's own thread may be late to answer what it is asked first.
            late += u64::from(format!("{error:#}").contains(LATE));
            let answer = telemetry::ask(testpmd.app(), "/info");
            let threads = threads(testpmd.pid());
            ensure!(
                format!("{error:#}").contains(LATE) && answer.is_ok() && late <= cycles / 100,
                "cycle {cycle} of {cycles}: {error:#}; then {answer:?}; {threads}"
            );
        }
        if cycle % 50 == 0 {
            before.await_again(&mut testpmd).with_context(|| format!("after {cycle} cycles"))?;
        }
    }
    let each = begin.elapsed() / u32::try_from(cycles.max(1))?;
    before.await_again(&mut testpmd).with_context(|| format!("after {cycles} cycles"))?;
    let after = Baseline::take(&mut testpmd)?;
    let (was, is) = (before.resident, after.resident);
    eprintln!(
        "{cycles} cycles of {each:?}, {late} not begun; resident {was} then {is}; rate {:.4} then {:.4}",
        before.rate, after.rate
    );
    ensure!(is < was + ROOM, "the app's memory grew from {was} to {is} bytes in {cycles} cycles");
    Ok(())
}

/// The states of the threads of a process: a lock that is still held is visible here.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lines = tasks.map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{} {} {}", read("comm").trim(), read("wchan").trim(), read("schedstat").trim())
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn once(scratch: &Scratch, testpmd: &mut Testpmd) -> Result<()> {
    let (code, said) = capture_once(scratch, testpmd.app(), &scratch.path("cycle.pcapng"))?;
    if let Some(status) = testpmd.process.exited()? {
        bail!("testpmd ended ({status}):\n{}", testpmd.process.output());
    }
    ensure!(
        code == 0 && said.contains("100 packets captured"),
        "capture ended with {code}: {said}"
    );
    Ok(())
}

/// The processes to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victims {
    Pmdscope,
    /// The one that pmdscope has started: outside of a container, the only one that watches.
    First,
    Watchers,
    Attached,
    AllHelpers,
    Everyone,
}

const VICTIMS: [Victims; 6] = [
    Victims::Pmdscope,
    Victims::First,
    Victims::Watchers,
    Victims::Attached,
    Victims::AllHelpers,
    Victims::Everyone,
];

impl Victims {
    /// Kills them; returns how many, and whether a helper is left that cleans up before the next
    /// capture does.
    fn take(self, pmdscope: &Process, app: &str) -> Result<(usize, bool)> {
        let helpers = helpers(app)?;
        for helper in &helpers {
            ensure!(!maps_locks(helper.pid), "{helper:?} could take a lock of the app");
        }
        let mut pids = Vec::new();
        if matches!(self, Self::Pmdscope | Self::Everyone) {
            pids.push(pmdscope.pid());
        }
        let dies = |helper: &Helper| match self {
            Self::Pmdscope => false,
            Self::First => helper.is_first,
            Self::Watchers => helper.watches,
            Self::Attached => !helper.watches,
            Self::AllHelpers | Self::Everyone => true,
        };
        pids.extend(helpers.iter().filter(|helper| dies(helper)).map(|helper| helper.pid));
        for pid in &pids {
            kill(*pid);
        }
        let is_left = helpers.is_empty() || helpers.iter().any(|helper| !dies(helper));
        Ok((pids.len(), is_left))
    }
}

/// Kills at random moments. The remaining processes clean up; the next capture always works; the app is as
/// before.
fn deaths(scratch: &Scratch) -> Result<()> {
    deaths_of(scratch, ROUNDS, &|setup| Testpmd::start(scratch, setup))
}

/// The same in other namespaces, in which helpers have the rights of the app.
fn deaths_in_container(scratch: &Scratch) -> Result<()> {
    let container = Container::start(scratch, 1)?;
    deaths_of(scratch, ROUNDS / 2, &|setup| Testpmd::start_in(scratch, &container, setup))
}

fn deaths_of(
    scratch: &Scratch,
    rounds: u64,
    start: &dyn Fn(Setup<'_>) -> Result<Testpmd>,
) -> Result<()> {
    let rounds = setting("PMDSCOPE_KILL_ROUNDS", rounds)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos();
    let seed = setting("PMDSCOPE_KILL_SEED", u64::from(now))?;
    eprintln!("PMDSCOPE_KILL_SEED={seed} PMDSCOPE_KILL_ROUNDS={rounds}");
    let mut random = Random(seed);
    let eal = setting("PMDSCOPE_KILL_EAL", String::new())?;
    let eal = eal.split_whitespace().collect::<Vec<_>>();
    let setup = Setup { eal: &eal, ..Setup::FLAT_OUT };
    let mut testpmd = start(setup)?;
    once(scratch, &mut testpmd)?;
    let before = Baseline::take(&mut testpmd)?;
    let mut times = Vec::new();
    for round in 1..=rounds {
        let victims = VICTIMS[usize::try_from(random.below(VICTIMS.len() as u64))?];
        let delay = Duration::from_micros(random.below(LATEST));
        let round = format!("round {round} of {rounds}, seed {seed}: {victims:?} after {delay:?}");
        times.push(die(scratch, &mut testpmd, &before, victims, delay).context(round)?);
    }
    let times = Spread::of(times.iter().map(Duration::as_secs_f64));
    eprintln!("{rounds} rounds; seconds from death to the app as it was: {times:.2}");
    Ok(())
}

/// Kills once; returns the time until the app was as before.
fn die(
    scratch: &Scratch,
    testpmd: &mut Testpmd,
    before: &Baseline,
    victims: Victims,
    delay: Duration,
) -> Result<Duration> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args([
        "capture",
        "-i",
        &format!("{}:0", testpmd.app()),
        "--ring-size",
        "1M",
        "-w",
        "/dev/null",
    ]);
    let mut pmdscope = Process::spawn("victim", &mut command, scratch.dir())?;
    // Half of the moments are such of attaching, the others come when packets flow.
    if delay.as_micros().is_multiple_of(2) {
        await_hooks(&mut pmdscope, testpmd)?;
    }
    sleep(delay);
    let (taken, cleans_up) = victims.take(&pmdscope, testpmd.app())?;
    let begin = Instant::now();
    if taken == 0 || matches!(victims, Victims::First | Victims::Watchers) {
        // The remaining processes may go on, and end when asked to.
        let _ = pmdscope.signal(rustix::process::Signal::INT);
    }
    pmdscope.wait(LIMIT)?;
    wait_until("the helpers to end", LIMIT, || Ok(helpers(testpmd.app())?.is_empty()))?;
    if cleans_up {
        before.await_again(testpmd).context("after the death")?;
    }
    once(scratch, testpmd).context("the next capture")?;
    before.await_again(testpmd).context("after the next capture")?;
    Ok(begin.elapsed())
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
