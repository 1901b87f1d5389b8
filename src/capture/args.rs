//! The command line of `pmdscope capture`: options of tcpdump, and additional ones.

mod files;
mod refused;
mod source;
mod value;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Subcommand, ValueEnum};
use pmdscope_packets::filter::{FilterCompiler, ProgramListing};
use pmdscope_packets::{DIR_RX, DIR_TX, MAX_SNAPLEN};

use self::files::FileArgs;
pub(crate) use self::refused::explain;
pub(super) use self::source::SourceArgs;
use super::recorder::RecorderArgs;
use super::view::ViewArgs;
use super::{COMMON, say, trigger};
use crate::completions;
use crate::exit::Usage;
use crate::number::whole;

/// Which events are reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventFilter {
    /// Names of complete files, on standard output.
    pub(super) names: bool,
    /// Files that were deleted.
    pub(super) deleted: bool,
    /// That the end waits for a disk or a reader.
    pub(super) waiting: bool,
}

/// Direction as the app sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// Received by the app
    In,
    /// Sent by the app
    Out,
    /// Both
    Inout,
}

impl Direction {
    /// The same as `DIR_*` bits.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::In => DIR_RX,
            Self::Out => DIR_TX,
            Self::Inout => DIR_RX | DIR_TX,
        }
    }
}

/// Fraction of a second in times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Precision {
    Micro,
    Nano,
}

/// Commands for captures that run.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Trigger(trigger::TriggerArgs),
}

const EXAMPLES: &str = "\
Examples:
  pmdscope capture -D
      List the ports of running apps.
  pmdscope capture -nni reflector:0 udp port 53
      Print DNS packets of port 0 of the app with the file-prefix reflector.
  pmdscope capture -i any -w out.pcapng
      Write all packets of all apps to a file.
  pmdscope capture -i reflector:0:1 -Q in -s 96 -C 1G -W 10 -w ring.pcapng.zst
      Keep the last 10 compressed files of packets received on queue 1, 96 bytes of each packet.
  pmdscope capture --before 10s --trigger rx_missed -w drops.pcapng
      Write the packets from 10 seconds before the NIC missed packets.
  pmdscope capture -i rte:0 --parallel 4 -w all
      Read the rings with 4 threads, and write one file per lcore to the directory all.
  pmdscope capture -r all -w all.pcapng
      Merge these files by time.
  pmdscope capture -w - | tshark -r -
      Have another program decode the packets.
  pmdscope capture -r out.pcapng -w dns.pcapng port 53
      Filter a capture file; interface names, queues and comments are kept.

Signals:
  INT, TERM, HUP, PIPE  stop the capture; a second INT, TERM or HUP gives up what
                        a slow disk or reader has not taken, a third exits at once
  USR1                  print the counters
  USR2                  flush buffered packets; with a flight recorder: trigger it

docs/capture.md lists all tcpdump options and the differences.

Exit status: 0 ok, 1 failed or found no interface, 2 wrong usage or configuration.";

/// Capture packets of DPDK apps, with tcpdump's options
///
/// Prints packets with tcpdump(8), or writes them to files with -w. Options are tcpdump's, and may also
/// follow the filter. Packets come from libpmdscope in the app, or from pmdscope-pdump, which attaches to a
/// stock app that has called `rte_pdump_init()`. The app keeps running whatever happens to the capture.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(
    version,
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    after_help = "EXPRESSION: see pcap-filter(7). All options: pmdscope capture --help",
    after_long_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Packet filter, see pcap-filter(7)
    #[arg(value_name = "EXPRESSION", hide_short_help = true)]
    filter: Vec<String>,

    /// Exit after N packets
    #[arg(short, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX))]
    pub(super) count: Option<u64>,

    /// Skip the first N packets that match the filter
    #[arg(
        long, value_name = "N", default_value_t = 0, hide_default_value = true,
        hide_short_help = true, value_parser = whole::<u64>(0..=u64::MAX)
    )]
    pub(super) skip: u64,

    /// Bytes to capture per packet [default: 262144]
    ///
    /// 0 means the default.
    #[arg(
        short, long, value_name = "BYTES", default_value_t = 0, hide_default_value = true,
        value_parser = whole::<u32>(0..=u64::from(MAX_SNAPLEN))
    )]
    snapshot_length: u32,

    /// Direction: in, out or inout (default)
    ///
    /// in is received by the app, out is sent. From a file, in and out select packets with a recorded
    /// direction.
    #[arg(
        short = 'Q',
        long,
        value_name = "DIR",
        value_enum,
        hide_possible_values = true,
        default_value_t = Direction::Inout,
        hide_default_value = true
    )]
    pub(super) direction: Direction,

    /// Print only the number of packets
    ///
    /// --count-only is an alias.
    #[arg(long = "count", hide_short_help = true, alias = "count-only", conflicts_with_all = ["write", "print"])]
    pub(super) count_only: bool,

    /// Read the filter from a file; -: stdin
    ///
    /// A # starts a comment. A filter on the command line is ignored.
    #[arg(short = 'F', long, value_name = "FILE", hide_short_help = true)]
    filter_file: Option<PathBuf>,

    /// Do not optimize the filter
    #[arg(hide_short_help = true, short = 'O', long)]
    no_optimize: bool,

    /// Print the compiled filter and exit
    ///
    /// -d prints BPF instructions, -dd a C array, -ddd decimal numbers.
    #[arg(short = 'd', action = ArgAction::Count, hide_short_help = true)]
    pub(super) dump: u8,

    /// Link type; only EN10MB (Ethernet)
    #[arg(hide_short_help = true, short = 'y', long, value_name = "TYPE", value_parser = value::parse_linktype)]
    linktype: Option<String>,

    /// Print only packets and errors
    #[arg(hide_short_help = true, long)]
    pub(super) quiet: bool,

    /// Drop root privileges to USER
    ///
    /// Takes effect once the apps are connected, before any file is opened.
    #[arg(short = 'Z', long, value_name = "USER", hide_short_help = true)]
    pub(super) relinquish_privileges: Option<String>,

    /// Print the version
    #[arg(hide_short_help = true, long, action = ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Read packets from a capture file; -: stdin
    ///
    /// pcap or pcapng, also compressed with gzip, Zstandard or LZ4. The files of a directory, as --parallel
    /// writes them, are merged by time. Of a bundle, all captures are read in turn; BUNDLE/capture/APP.pcapng
    /// is one of them, BUNDLE/leaks are those of lost mbufs.
    #[arg(short, long, value_name = "FILE", help_heading = COMMON,
          value_hint = clap::ValueHint::AnyPath, add = completions::captures())]
    read: Option<PathBuf>,

    /// Read packets from the files listed in LIST, one per line
    #[arg(
        hide_short_help = true,
        short = 'V',
        long,
        value_name = "LIST",
        conflicts_with = "read",
        help_heading = "Input"
    )]
    read_list: Option<PathBuf>,

    #[command(flatten)]
    pub(super) files: FileArgs,

    #[command(flatten)]
    view: ViewArgs,

    /// Same as --micro or --nano
    #[arg(
        hide_short_help = true,
        long,
        value_name = "PRECISION",
        value_enum,
        conflicts_with_all = ["micro", "nano"],
        help_heading = "Display"
    )]
    time_stamp_precision: Option<Precision>,

    #[command(flatten, next_help_heading = "Flight recorder")]
    pub(super) recorder: RecorderArgs,

    /// List the ports of running apps and exit
    ///
    /// -i also accepts the numbers of the list.
    #[arg(short = 'D', long, help_heading = COMMON)]
    pub(super) list_interfaces: bool,

    /// Print the list of -D, or the statistics at the end, as JSON
    ///
    /// The statistics need -w FILE.
    #[arg(long, help_heading = "Input", hide_short_help = true, conflicts_with_all = ["print", "print_files"])]
    pub(super) json: bool,

    /// List the link types for -y and exit
    #[arg(short = 'L', long, help_heading = "Input", hide_short_help = true)]
    pub(super) list_data_link_types: bool,

    /// List the timestamp types for -j and exit
    #[arg(short = 'J', long, help_heading = "Input", hide_short_help = true)]
    pub(super) list_time_stamp_types: bool,

    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

impl Args {
    /// Refuses what makes sense one by one, but not together.
    pub(super) fn check(&self) -> Result<(), Usage> {
        self.recorder.check()?;
        self.files.check()?;
        if self.reads_files() && self.source.names_only_interfaces() {
            return Err(Usage("-r and -V read files and take no interface: leave out -i"));
        }
        if self.reads_files() && self.source.is_given() {
            return Err(Usage(
                "-r and -V read files: -i, -a, -B, --duration, --exit-with-app, --per-packet-time, \
                 --ring-size and --sample need a running app",
            ));
        }
        if self.reads_files() && self.recorder.wanted() {
            return Err(Usage(
                "the flight recorder captures from running apps: leave out -r and -V",
            ));
        }
        let to_file = self.files.write.as_deref().is_some_and(|path| path != Path::new("-"));
        if self.json && !self.list_interfaces && (self.reads_files() || !to_file) {
            return Err(Usage(
                "--json prints the list of -D, or the statistics of a capture from apps with -w FILE",
            ));
        }
        if self.files.parallel.is_some() { self.check_parallel() } else { Ok(()) }
    }

    /// Refuses what needs all packets at one place.
    fn check_parallel(&self) -> Result<(), Usage> {
        if self.reads_files() {
            return Err(Usage("--parallel captures from running apps: leave out -r and -V"));
        }
        if self.recorder.wanted() {
            return Err(Usage(
                "the flight recorder keeps packets of all lcores in one order: leave out --parallel",
            ));
        }
        if self.count.is_some() || self.skip > 0 {
            return Err(Usage(
                "--parallel does not count packets over all files while it captures: leave out -c and \
                 --skip, or give them to -r DIRECTORY",
            ));
        }
        Ok(())
    }

    /// The filter expression.
    pub(super) fn expression(&self) -> anyhow::Result<String> {
        let Some(file) = &self.filter_file else { return Ok(self.filter.join(" ")) };
        if !self.filter.is_empty() {
            say("pmdscope: using the filter of -F; the filter on the command line is ignored");
        }
        let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let code = |line: &str| line.split('#').next().unwrap_or_default().to_owned();
        Ok(text.lines().map(code).collect::<Vec<_>>().join(" "))
    }

    pub(super) fn compiler(&self) -> FilterCompiler {
        let optimize = !self.no_optimize;
        FilterCompiler { snaplen: self.snaplen(), optimize, ..FilterCompiler::default() }
    }

    /// How to print the filter instead of using it.
    pub(super) fn listing(&self) -> Option<ProgramListing> {
        match self.dump {
            0 => None,
            1 => Some(ProgramListing::Readable),
            2 => Some(ProgramListing::C),
            _ => Some(ProgramListing::Decimal),
        }
    }

    /// Most bytes to keep of a packet.
    pub(super) fn snaplen(&self) -> u32 {
        if self.snapshot_length == 0 { MAX_SNAPLEN } else { self.snapshot_length }
    }

    /// Packets come from files.
    pub(super) fn reads_files(&self) -> bool {
        self.read.is_some() || self.read_list.is_some()
    }

    /// Packets are printed: with `--print`, or for want of another destination.
    pub(super) fn prints_packets(&self) -> bool {
        let elsewhere = self.count_only || self.files.write.is_some() || self.recorder.wanted();
        self.files.print || !elsewhere
    }

    /// The files of `-r` or `-V`.
    pub(super) fn inputs(&self) -> anyhow::Result<Vec<PathBuf>> {
        let Some(list) = &self.read_list else { return Ok(self.read.iter().cloned().collect()) };
        let text = read(list).with_context(|| format!("cannot read {}", list.display()))?;
        let files = text.lines().filter(|line| !line.is_empty()).map(PathBuf::from);
        let files = files.collect::<Vec<_>>();
        anyhow::ensure!(!files.is_empty(), "{} lists no files", list.display());
        Ok(files)
    }

    /// Which events of files are reported.
    pub(super) fn event_filter(&self) -> EventFilter {
        EventFilter {
            names: self.files.print_files,
            deleted: self.view().verbose > 0 && !self.quiet,
            waiting: !self.quiet,
        }
    }

    /// How packets are shown.
    pub(super) fn view(&self) -> ViewArgs {
        let nano = self.view.nano || self.time_stamp_precision == Some(Precision::Nano);
        let micro = self.view.micro || self.time_stamp_precision == Some(Precision::Micro);
        let from_disk = self.read.as_ref().is_some_and(|file| file.is_file());
        ViewArgs { micro, nano, waits: self.reads_files(), from_disk, ..self.view.clone() }
    }
}

/// The text of a file, or of standard input for `-`.
fn read(path: &Path) -> io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    }
}

#[cfg(test)]
mod tests;
