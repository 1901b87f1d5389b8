//! `make bench-xdp`: packets per second that one CPU drops by the XDP filter, and by nftables and
//! iptables, on the same veth, alternately.
//!
//! The sender runs on the same CPU, as the kernel receives on the sending CPU of a veth. Its time
//! is part of each rate; the cost of a drop is the time above that of a program that only drops.
//! The numbers are informative: a slow machine does not count as a failure.

mod dropper;
mod sender;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::bpf;
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority};
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::spread::Spread;
use pmdscope_integration::{oracle, programs};

use self::dropper::{Dropper, far};

const HELP: &str = "\
Usage: pmdscope-bench-xdp [options]

Measures packets per second that CPU 1 drops: by the XDP filter, and by nftables and iptables, with one rule
for the same prefix. Needs root, two CPUs, clang, ethtool, nftables and iptables ('devtools/setup.sh xdp');
without them it says so and ends with status 0. One minute.

  --quick           ten seconds
  --rounds N        so many rounds (11; with --quick 3)
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
";

/// Packets per run of the sender.
const PACKETS: u32 = 3_000_000;
const QUICK_PACKETS: u32 = 500_000;

/// The CPU that sends and drops.
const CPU: &str = "1";

fn main() -> ExitCode {
    let options = ["--quick", "--rounds", "--pmdscope", "--"];
    command::main("pmdscope-bench-xdp", HELP, &options, &[], run)
}

fn run(options: &BenchOptions) -> Result<()> {
    if let Some(("send", args)) = options.args.split_first().map(|(word, rest)| (&**word, rest)) {
        return sender::send(args);
    }
    let Some(machine) = Machine::new()?.filter(|_| rustix::process::geteuid().is_root()) else {
        println!("SKIP: bench-xdp: needs root and two CPUs");
        return Ok(());
    };
    let programs = Dropper::ALL.iter().filter_map(|dropper| dropper.program());
    let missing = programs.chain(["clang", "ethtool"]).find(|program| !oracle::installed(program));
    if let Some(program) = missing {
        println!("SKIP: bench-xdp: {program} is not installed: devtools/setup.sh xdp");
        return Ok(());
    }
    println!("Packets dropped by one CPU, on {}. Median and quartiles.", machine.describe());
    let _priority = Priority::raise()?;
    let bench = DropBench::new(options)?;
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 11 });
    for is_forged in [false, true] {
        let mut rates = vec![Vec::new(); Dropper::ALL.len()];
        for _ in 0..rounds {
            for (dropper, rates) in Dropper::ALL.iter().zip(&mut rates) {
                rates.push(bench.measure(*dropper, is_forged)?);
            }
        }
        print(is_forged, &rates);
    }
    Ok(())
}

/// Packets per microsecond of each dropper, by round.
fn print(is_forged: bool, rates: &[Vec<f64>]) {
    let sources = if is_forged { "65,536 forged sources" } else { "one source" };
    println!(
        "\n{sources:36} Mpps                     ns above the floor       ratio to the filter, native"
    );
    let floor = &rates[0];
    for (dropper, own) in Dropper::ALL.iter().zip(rates) {
        let mpps = format!("{:.2}", Spread::of(own.iter().copied()));
        let above = floor.iter().zip(own).map(|(floor, own)| 1e3 / own - 1e3 / floor);
        let above = format!("{:.0}", Spread::of(above));
        let ratio = Spread::of(rates[1].iter().zip(own).map(|(native, own)| own / native));
        println!("  {:34} {mpps:24} {above:24} {ratio:.2}", dropper.name());
    }
}

struct DropBench {
    pair: NamespacePair,
    pmdscope: PathBuf,
    object: PathBuf,
    floor: PathBuf,
    packets: u32,
    _scratch: Scratch,
}

impl DropBench {
    fn new(options: &BenchOptions) -> Result<Self> {
        let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
        let scratch = Scratch::new()?;
        let object = bpf::compile("integration/bench/xdp/flood.bpf.c", scratch.dir())?;
        let floor = bpf::compile("integration/bench/xdp/drop.bpf.c", scratch.dir())?;
        let pair = NamespacePair::new(&[Side::Near, Side::Far])?;
        // Otherwise a veth takes no packets from XDP programs, unless it has one itself.
        far(&pair, "ethtool", &["-K", INTERFACE, "gro", "on"])?;
        let packets = if options.quick { QUICK_PACKETS } else { PACKETS };
        Ok(Self { pair, pmdscope, object, floor, packets, _scratch: scratch })
    }

    /// Dropped packets per microsecond.
    fn measure(&self, dropper: Dropper, is_forged: bool) -> Result<f64> {
        dropper.begin(&self.pair, &self.pmdscope, &self.floor)?;
        let measured = self.flood(is_forged).and_then(|ns| {
            let counted = dropper.dropped(&self.pair, &self.pmdscope)?;
            let counted = counted.unwrap_or(self.packets.into());
            // Packets lost in the veth's ring would make the rest look faster.
            let least = u64::from(self.packets) / 100 * 99;
            ensure!(counted >= least, "{}: dropped {counted} of {}", dropper.name(), self.packets);
            Ok(counted as f64 * 1e3 / ns)
        });
        dropper.end(&self.pair, &self.pmdscope)?;
        measured
    }

    /// Sends the packets; returns the nanoseconds.
    fn flood(&self, is_forged: bool) -> Result<f64> {
        let mut command = self.pair.command(Side::Near, "taskset");
        command.args(["-c", CPU]).arg(std::env::current_exe()?).args(["--", "send"]);
        command.arg(&self.object).args([INTERFACE, &self.packets.to_string()]);
        let out = command.arg(is_forged.to_string()).output()?;
        let told = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "sender: {told}");
        String::from_utf8_lossy(&out.stdout).trim().parse().context("sender")
    }
}
