//! Prints packets on the terminal during a capture.

// Packets are at most 256 KiB long.
#![allow(clippy::cast_possible_truncation)]

mod child;
mod file_and_view;
mod lines;
mod link_types;
mod stage;
mod tcpdump;
mod timestamp;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use clap::ArgAction;
use jiff::tz::TimeZone;
use pmdscope_packets::PacketSink;

use self::file_and_view::FileAndView;
use self::lines::LinePrefix;
use self::link_types::TcpdumpPerLinkType;
use self::stage::View;
use self::tcpdump::{Tcpdump, parse_packet_type};
use self::timestamp::{Clock, Stamps};
use super::COMMON;
use crate::exit::Usage;
use crate::output::StandardOutput;

/// How packets are shown.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(next_help_heading = "Display")]
pub(super) struct ViewArgs {
    /// Do not resolve names
    #[arg(short = 'n', help_heading = COMMON, action = ArgAction::Count)]
    pub(super) numeric: u8,

    /// Print the Ethernet header
    #[arg(short = 'e', hide_short_help = true)]
    pub(super) link_header: bool,

    /// More output; up to -vvv
    #[arg(short = 'v', long, help_heading = COMMON, action = ArgAction::Count)]
    pub(super) verbose: u8,

    /// Less output
    #[arg(short = 'q', hide_short_help = true)]
    pub(super) quick: bool,

    /// Print packets in hex; -xx: with Ethernet header
    #[arg(hide_short_help = true, short = 'x', action = ArgAction::Count)]
    pub(super) hex: u8,

    /// Print packets in hex and ASCII
    ///
    /// -XX: with the Ethernet header.
    #[arg(hide_short_help = true, short = 'X', action = ArgAction::Count)]
    pub(super) hex_ascii: u8,

    /// Print packets in ASCII; -AA: with Ethernet header
    #[arg(hide_short_help = true, short = 'A', action = ArgAction::Count)]
    pub(super) ascii: u8,

    /// No timestamp; -tt to -ttttt: other formats
    ///
    /// -tt: seconds since 1970; -ttt: since the previous packet; -tttt: with date; -ttttt: since the
    /// first packet.
    #[arg(short = 't', hide_short_help = true, action = ArgAction::Count)]
    pub(super) time: u8,

    /// Print timestamps in microseconds (default)
    #[arg(hide_short_help = true, long, conflicts_with = "nano")]
    pub(super) micro: bool,

    /// Print timestamps in nanoseconds
    #[arg(hide_short_help = true, long)]
    pub(super) nano: bool,

    /// Print packet numbers
    #[arg(hide_short_help = true, short = '#', long)]
    pub(super) number: bool,

    /// Print lines of a file one by one, not in blocks
    #[arg(hide_short_help = true, short = 'l')]
    pub(super) line_buffered: bool,

    /// Print absolute TCP sequence numbers
    #[arg(hide_short_help = true, short = 'S', long)]
    pub(super) absolute_tcp_sequence_numbers: bool,

    /// Do not verify IP, TCP and UDP checksums
    #[arg(hide_short_help = true, short = 'K', long)]
    pub(super) dont_verify_checksums: bool,

    /// Do not print domain names of hosts
    #[arg(hide_short_help = true, short = 'N')]
    pub(super) no_domain: bool,

    /// Decode packets as TYPE, like tcpdump -T
    #[arg(hide_short_help = true, short = 'T', value_name = "TYPE", value_parser = parse_packet_type)]
    pub(super) packet_type: Option<String>,

    /// Print BGP AS numbers in asdot notation
    #[arg(hide_short_help = true, short = 'b')]
    pub(super) asdot: bool,

    /// Detect 802.11s mesh headers
    #[arg(hide_short_help = true, short = 'H')]
    pub(super) mesh: bool,

    /// Print undecoded NFS handles
    #[arg(hide_short_help = true, short = 'u')]
    pub(super) nfs_handles: bool,

    /// Packets come from files and wait for a slow decoder; those of rings cannot
    #[arg(skip)]
    pub(super) waits: bool,

    /// Packets come from a file on a disk, so that nobody waits for single lines
    #[arg(skip)]
    pub(super) from_disk: bool,
}

impl ViewArgs {
    fn prefix(&self, named: bool) -> Result<LinePrefix, Usage> {
        let clock =
            Clock::of_count(self.time).ok_or(Usage("-t may be given at most five times"))?;
        let stamps = Stamps::new(clock, self.nano, TimeZone::system());
        Ok(LinePrefix { number: self.number, stamps, named })
    }
}

/// Where tcpdump is, which decodes packets.
pub(super) fn find_tcpdump() -> anyhow::Result<PathBuf> {
    child::find("tcpdump")
        .context("tcpdump not found: install the package tcpdump, or write packets with -w")
}

/// Opens a view that prints to standard output. `named` puts the interface and the direction before
/// every packet, for captures from several interfaces or from `any`.
pub(super) fn open(args: &ViewArgs, named: bool) -> anyhow::Result<Box<dyn PacketSink>> {
    let prefix = args.prefix(named)?;
    let program = find_tcpdump()?;
    let (flags, offline) = (tcpdump::flags(args), args.numeric > 0);
    let (prefix, mut tell) = (Arc::new(Mutex::new(prefix)), args.verbose > 0);
    let start = move |at_once: bool| {
        // What the sandbox lacks is reported once.
        let mut command = child::sandboxed(&program, offline, std::mem::take(&mut tell));
        command.args(&flags).args(at_once.then_some(tcpdump::AT_ONCE));
        Tcpdump::start(command, at_once, Arc::clone(&prefix), Box::new(StandardOutput))
    };
    let decoder = TcpdumpPerLinkType::new(Box::new(start), args.line_buffered || !args.from_disk)?;
    Ok(Box::new(View::new(Box::new(decoder), !args.waits)))
}

/// Both at once, for `--print`: the file is what the capture is about, and goes on when the view
/// cannot.
pub(super) fn file_and_view(
    file: Box<dyn PacketSink>,
    view: Box<dyn PacketSink>,
) -> Box<dyn PacketSink> {
    Box::new(FileAndView { file, view: Some(view) })
}
