//! `pmdscope capture`: tcpdump for ports that the kernel does not see.

pub(crate) mod interface;
mod report;

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use pmdscope_capture::file::{FileSettings, Files};
use pmdscope_capture::filter;
use pmdscope_capture::layout::{
    ANY, DIR_RX, DIR_TX, Insn, MAX_SNAPLEN, RING_MAX_SIZE, RING_MIN_SIZE, Request, Select,
};
use pmdscope_capture::pump::{Control, Pump, Settings, Source};
use pmdscope_capture::session::Session;
use pmdscope_capture::target::Discard;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::interface::{Target, Wanted};
use crate::Usage;

/// How long an app may take to answer a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Direction as the app sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// Received by the app.
    In,
    /// Sent by the app.
    Out,
    /// Both.
    Inout,
}

impl Direction {
    fn bits(self) -> u16 {
        match self {
            Self::In => DIR_RX.into(),
            Self::Out => DIR_TX.into(),
            Self::Inout => (DIR_RX | DIR_TX).into(),
        }
    }
}

/// Capture packets of DPDK apps into a pcapng file.
///
/// Needs an app that embeds libpmdscope; the app goes on as before. The options are those of
/// tcpdump where tcpdump has them.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(after_help = "Examples:
  pmdscope capture -i reflector:0 -w out.pcapng udp port 53
  pmdscope capture -i reflector:0:1 -Q in -c 100 -w - | tcpdump -nr -
  pmdscope capture -D")]
pub(crate) struct Args {
    /// Port to capture from, by number or device name; repeat for several. `any` is all ports, and
    /// the default. PREFIX: may be left out when one app runs or -a names it
    #[arg(short, long = "interface", value_name = "PREFIX:PORT[:QUEUE]")]
    interfaces: Vec<String>,

    /// App of interfaces without a prefix, by DPDK file-prefix
    #[arg(short, long, value_name = "PREFIX")]
    app: Option<String>,

    /// List the interfaces of the running apps
    #[arg(short = 'D', long)]
    list_interfaces: bool,

    /// File to write, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Count packets and write none
    #[arg(long, conflicts_with = "write")]
    count_only: bool,

    /// Stop after this many packets
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Keep this many bytes of each packet; 0 is 262144
    #[arg(
        short, long, value_name = "BYTES", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SNAPLEN))
    )]
    snapshot_length: u32,

    /// Packets received, sent, or both
    #[arg(short = 'Q', long, value_enum, default_value_t = Direction::Inout)]
    direction: Direction,

    /// Keep one packet in N of those that pass the filter
    #[arg(long, value_name = "N")]
    sample: Option<NonZeroU32>,

    /// Memory per polling lcore, a power of two from 64K to 64M; the app's default is 1M
    #[arg(long, value_name = "BYTES", value_parser = parse_ring_size)]
    ring_size: Option<u32>,

    /// Write every packet at once, for a reader that waits for it
    #[arg(short = 'U', long)]
    packet_buffered: bool,

    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// Filter, as in pcap-filter(7)
    #[arg(value_name = "EXPRESSION", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// Captures until told to stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list_interfaces {
        return report::list_interfaces(&interface::running());
    }
    if args.write.is_none() && !args.count_only {
        return Err(Usage(
            "decoding packets on the terminal is not built in yet: give -w FILE, or pipe with \
             -w - | tcpdump -nr -",
        )
        .into());
    }
    if args.write.as_deref() == Some(Path::new("-")) && io::stdout().is_terminal() {
        return Err(Usage(
            "pcapng is not for a terminal: give -w FILE, or pipe with -w - | tcpdump -nr -",
        )
        .into());
    }
    let expression = args.filter.join(" ");
    let snaplen = if args.snapshot_length == 0 { MAX_SNAPLEN } else { args.snapshot_length };
    let compiler = filter::Compiler { snaplen, ..filter::Compiler::default() };
    let program = compiler.compile_for_app(&expression)?;
    let wanted = interface::resolve(&args.interfaces, args.app.as_deref())?;
    let control = stop_at_signals()?;
    capture(args, &wanted, &expression, &program, &control)
}

fn capture(
    args: &Args,
    wanted: &[Wanted],
    expression: &str,
    program: &[Insn],
    control: &Control,
) -> anyhow::Result<ExitCode> {
    let sources = wanted
        .iter()
        .map(|wanted| open(args, wanted, program))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let target: Box<dyn pmdscope_capture::target::Target> = match &args.write {
        None => Box::new(Discard::default()),
        Some(path) => {
            let packet_buffered = args.packet_buffered;
            let settings = FileSettings { packet_buffered, ..FileSettings::new(path) };
            Box::new(Files::create(&settings)?)
        }
    };
    let settings = Settings {
        snaplen: args.snapshot_length,
        skip: 0,
        count: args.count,
        duration: args.duration,
        filter: expression.to_owned(),
        outgoing: args.direction != Direction::In,
    };
    if !args.quiet {
        report::started(wanted, settings.effective_snaplen());
    }
    let report = Pump::new(sources, settings, target).run(control, &mut ());
    if !args.quiet {
        report::ended(&report);
    }
    match report.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure.into()),
    }
}

fn open(args: &Args, wanted: &Wanted, program: &[Insn]) -> anyhow::Result<Source> {
    let select = |target: &Target| Select {
        port: target.port.unwrap_or(ANY),
        queue: target.queue.unwrap_or(ANY),
        dirs: args.direction.bits(),
    };
    let request = Request {
        snaplen: args.snapshot_length,
        sample: args.sample.map_or(0, NonZeroU32::get),
        ring_size: args.ring_size.unwrap_or(0),
        lease_ms: 0,
        selects: wanted.targets.iter().map(select).collect(),
        program: program.to_vec(),
        flags: 0,
    };
    let session = Session::open(&wanted.socket, &request, TIMEOUT)
        .with_context(|| format!("cannot capture from {}", wanted.app))?;
    Ok(Source { app: wanted.app.clone(), ports: wanted.ports(), session, reopen: None })
}

/// The first signal ends the capture in order, the second at once.
fn stop_at_signals() -> anyhow::Result<Control> {
    let control = Control::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&control.stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&control.stop)))
            .context("cannot handle signals")?;
    }
    Ok(control)
}

fn parse_ring_size(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 10),
        Some(digits) => (digits, 20),
        None => (text, 0),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| bytes.is_power_of_two())
        .filter(|bytes| (RING_MIN_SIZE..=RING_MAX_SIZE).contains(bytes))
        .ok_or_else(|| "not a power of two from 64K to 64M".to_owned())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "not a number of seconds above 0".to_owned())
}

/// Prints a line for people; a closed terminal is no reason to fail.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from([&["capture"], words].concat()).map(|cli| cli.args)
    }

    #[test]
    fn options_are_those_of_tcpdump_and_the_rest_is_the_filter() {
        let words = "-i a:0 -i a:1:2 -w out -c 5 -s 96 -Q in -U udp port 53 and not -x".split(' ');
        let args = parse(&words.collect::<Vec<_>>()).unwrap();
        assert_eq!(args.interfaces, ["a:0", "a:1:2"]);
        assert_eq!((args.count, args.snapshot_length, args.packet_buffered), (Some(5), 96, true));
        assert_eq!(args.direction.bits(), u16::from(DIR_RX));
        assert_eq!(args.filter.join(" "), "udp port 53 and not -x");
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let bad = [
            ["-s", "262145"],
            ["-c", "0"],
            ["--sample", "0"],
            ["--ring-size", "100000"],
            ["--ring-size", "128M"],
            ["--duration", "0"],
            ["--duration", "nan"],
            ["-Q", "up"],
        ];
        for words in bad {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn ring_sizes_have_units() {
        assert_eq!(parse_ring_size("64K"), Ok(RING_MIN_SIZE));
        assert_eq!(parse_ring_size("2m"), Ok(2 << 20));
        assert_eq!(parse_ring_size("1048576"), Ok(1 << 20));
        assert!(parse_ring_size("4096M").is_err() && parse_ring_size("").is_err());
    }
}
