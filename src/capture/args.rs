//! The command line of `pmdscope capture`: tcpdump's, and what tcpdump lacks.

mod files;
mod refused;
mod source;
mod value;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Subcommand, ValueEnum};
use pmdscope_capture::filter::{Compiler, Listing};
use pmdscope_capture::layout::{DIR_RX, DIR_TX, MAX_SNAPLEN};

use self::files::FileArgs;
pub(crate) use self::refused::explain;
pub(crate) use self::source::DEFAULT_RING_SIZE;
pub(super) use self::source::SourceArgs;
pub(crate) use self::value::parse_bytes;
use super::recorder::RecorderArgs;
use super::say;
use super::trigger;
use super::view::ViewArgs;
use crate::Usage;

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
      What there is to capture from.
  pmdscope capture -nni reflector:0 udp port 53
      Show DNS of port 0 of the app with the file-prefix reflector.
  pmdscope capture -i any -w out.pcapng
      Write all packets of all apps into a file; a line on the terminal tells how it goes.
  pmdscope capture -i reflector:0:1 -Q in -s 96 -C 1G -W 10 -w ring.pcapng.zst
      Keep the newest 10 files of what queue 1 receives, compressed, 96 bytes of each packet.
  pmdscope capture --before 10s --trigger rx_missed -w drops.pcapng
      Write what happened from 10 seconds before the NIC dropped packets.
  pmdscope capture -w - | tshark -r -
      Hand packets to another program.
  pmdscope capture -r out.pcapng -w dns.pcapng port 53
      Pick packets from a file; names, queues and comments stay.

Signals:
  INT, TERM, HUP, PIPE  end in order; the second INT, TERM or HUP ends at once
  USR1                  tell the counters
  USR2                  write out what was collected; with a recorder: trigger it

Exit codes: 0 all is well, 1 failed or found no interface, 2 wrong usage.
docs/capture.md has all options of tcpdump, and what differs.";

/// Capture packets of DPDK apps, as tcpdump does for the kernel's interfaces
///
/// Shows packets, or writes them into files with -w. Options are those of tcpdump and may stand
/// behind the filter, too. An app that embeds libpmdscope hands out its packets; a stock app must have
/// called `rte_pdump_init()`, and is attached to by a helper. Either goes on as before, whatever
/// becomes of the capture.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(
    version,
    disable_version_flag = true,
    args_override_self = true,
    infer_long_args = true,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Filter, as in pcap-filter(7); words are joined with spaces
    #[arg(value_name = "EXPRESSION")]
    filter: Vec<String>,

    /// Stop after this many packets
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,

    /// Leave out the first N packets that pass the filter
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) skip: u64,

    /// Keep this many bytes of each packet; 0 is 262144
    #[arg(
        short, long, value_name = "BYTES", default_value_t = 0, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_SNAPLEN))
    )]
    snapshot_length: u32,

    /// Packets received by the app, sent, or both. Of a file, those whose direction it tells
    #[arg(
        short = 'Q',
        long,
        value_enum,
        default_value_t = Direction::Inout,
        hide_default_value = true
    )]
    pub(super) direction: Direction,

    /// Print the number of packets, and neither show nor write them
    #[arg(long = "count", visible_alias = "count-only", conflicts_with_all = ["write", "print"])]
    pub(super) count_only: bool,

    /// Take the filter from a file, or from standard input for -; # begins a comment. One on the
    /// command line is ignored then
    #[arg(short = 'F', long, value_name = "FILE")]
    filter_file: Option<PathBuf>,

    /// Do not optimise the filter
    #[arg(short = 'O', long)]
    no_optimize: bool,

    /// Print the filter as a program and exit: once for people, twice for C, three times as numbers
    #[arg(short = 'd', action = ArgAction::Count)]
    pub(super) dump: u8,

    /// Link type of the packets: EN10MB
    #[arg(short = 'y', long, value_name = "TYPE", value_parser = value::parse_linktype)]
    linktype: Option<String>,

    /// Print nothing but packets and errors
    #[arg(long)]
    pub(super) quiet: bool,

    /// Become this user once the apps are connected, before any file is opened
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(super) relinquish_privileges: Option<String>,

    /// Print the version
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Read packets from this file instead of an app, or from standard input for -. pcap and
    /// pcapng, also in gzip or Zstandard
    #[arg(short, long, value_name = "FILE", help_heading = "Packets from files")]
    read: Option<PathBuf>,

    /// Read packets from the files that this file names, one per line
    #[arg(
        short = 'V',
        long,
        value_name = "LIST",
        conflicts_with = "read",
        help_heading = "Packets from files"
    )]
    read_list: Option<PathBuf>,

    #[command(flatten)]
    pub(super) files: FileArgs,

    #[command(flatten)]
    view: ViewArgs,

    /// Same as --micro or --nano
    #[arg(
        long,
        value_name = "PRECISION",
        value_enum,
        conflicts_with_all = ["micro", "nano"],
        help_heading = "Packets on the terminal"
    )]
    time_stamp_precision: Option<Precision>,

    #[command(flatten, next_help_heading = "Flight recorder")]
    pub(super) recorder: RecorderArgs,

    /// List the interfaces of the running apps and exit; -i takes their numbers, too
    #[arg(short = 'D', long, help_heading = "Lists")]
    pub(super) list_interfaces: bool,

    /// Print -D as one line of JSON
    #[arg(long, requires = "list_interfaces", help_heading = "Lists")]
    pub(super) json: bool,

    /// List the link types for -y and exit
    #[arg(short = 'L', long, help_heading = "Lists")]
    pub(super) list_data_link_types: bool,

    /// List the kinds of time stamps for -j and exit
    #[arg(short = 'J', long, help_heading = "Lists")]
    pub(super) list_time_stamp_types: bool,

    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

impl Args {
    /// Refuses what makes sense one by one, but not together.
    pub(super) fn check(&self) -> Result<(), Usage> {
        self.recorder.check()?;
        self.files.check()?;
        if self.reads_files() && self.source.is_given() {
            return Err(Usage(
                "-r and -V read files: -i, -a, -B, --duration, --exit-with-app, --per-packet-time, \
                 --ring-size and --sample are for captures from apps",
            ));
        }
        if self.reads_files() && self.recorder.wanted() {
            return Err(Usage(
                "the flight recorder records apps; files have been recorded already",
            ));
        }
        Ok(())
    }

    /// The filter expression.
    pub(super) fn expression(&self) -> anyhow::Result<String> {
        let Some(file) = &self.filter_file else { return Ok(self.filter.join(" ")) };
        if !self.filter.is_empty() {
            say("pmdscope: the filter of -F is used, the one on the command line ignored");
        }
        let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let code = |line: &str| line.split('#').next().unwrap_or_default().to_owned();
        Ok(text.lines().map(code).collect::<Vec<_>>().join(" "))
    }

    pub(super) fn compiler(&self) -> Compiler {
        let optimize = !self.no_optimize;
        Compiler { snaplen: self.snaplen(), optimize, ..Compiler::default() }
    }

    /// How to print the filter instead of using it.
    pub(super) fn listing(&self) -> Option<Listing> {
        match self.dump {
            0 => None,
            1 => Some(Listing::Readable),
            2 => Some(Listing::C),
            _ => Some(Listing::Decimal),
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

    /// The files of `-r` or `-V`.
    pub(super) fn inputs(&self) -> anyhow::Result<Vec<PathBuf>> {
        let Some(list) = &self.read_list else { return Ok(self.read.iter().cloned().collect()) };
        let text = read(list).with_context(|| format!("cannot read {}", list.display()))?;
        let files = text.lines().filter(|line| !line.is_empty()).map(PathBuf::from);
        let files = files.collect::<Vec<_>>();
        anyhow::ensure!(!files.is_empty(), "{} names no files", list.display());
        Ok(files)
    }

    /// How packets are shown.
    pub(super) fn view(&self) -> ViewArgs {
        let nano = self.view.nano || self.time_stamp_precision == Some(Precision::Nano);
        let micro = self.view.micro || self.time_stamp_precision == Some(Precision::Micro);
        ViewArgs { micro, nano, waits: self.reads_files(), ..self.view.clone() }
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
