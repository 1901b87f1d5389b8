//! Shows packets on the terminal while they are captured.

// Packets are at most 256 KiB long.
#![allow(clippy::cast_possible_truncation)]

mod beside;
mod builtin;
mod child;
mod lines;
mod stage;
mod tcpdump;
mod tshark;

use std::path::Path;

use anyhow::Context;
use clap::{ArgAction, ValueEnum};
use jiff::tz::TimeZone;
use pmdscope_capture::decode::{Bytes, Clock, Stamps, Style};
use pmdscope_capture::target::Target;

use self::beside::Beside;
use self::builtin::Builtin;
use self::child::Cage;
use self::lines::Prefix;
use self::stage::View;
use self::tcpdump::Tcpdump;
use self::tshark::Tshark;
use super::say;
use crate::Usage;
use crate::output::StandardOutput;

/// MiB that a decoder may use: tshark remembers every conversation.
const TCPDUMP_MEMORY: u32 = 512;
const TSHARK_MEMORY: u32 = 4096;

/// Who turns packets into text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Decoder {
    /// tcpdump where it is installed, the built-in one where not.
    #[default]
    Auto,
    /// tcpdump, locked into a sandbox.
    Tcpdump,
    /// tshark, locked into a sandbox.
    Tshark,
    /// One line per packet, numbers only.
    Builtin,
}

/// How packets are shown.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(next_help_heading = "Packets on the terminal")]
pub(super) struct ViewArgs {
    /// Who decodes packets for the terminal
    #[arg(long, value_enum, default_value_t = Decoder::Auto)]
    pub(super) decoder: Decoder,

    /// Show numbers instead of names of hosts and ports
    #[arg(short = 'n', action = ArgAction::Count)]
    pub(super) numeric: u8,

    /// Show the Ethernet header
    #[arg(short = 'e')]
    pub(super) link_header: bool,

    /// Show more; up to three times
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub(super) verbose: u8,

    /// Show less
    #[arg(short = 'q')]
    pub(super) quick: bool,

    /// Add the bytes in hexadecimal; twice with the Ethernet header
    #[arg(short = 'x', action = ArgAction::Count)]
    pub(super) hex: u8,

    /// Add the bytes in hexadecimal and ASCII; twice with the Ethernet header
    #[arg(short = 'X', action = ArgAction::Count)]
    pub(super) hex_ascii: u8,

    /// Add the bytes in ASCII; twice with the Ethernet header
    #[arg(short = 'A', action = ArgAction::Count)]
    pub(super) ascii: u8,

    /// Time: once none, twice seconds since 1970, three times since the packet before, four times
    /// with the date, five times since the first packet
    #[arg(short = 't', action = ArgAction::Count)]
    pub(super) time: u8,

    /// Show times in microseconds, the default
    #[arg(long, conflicts_with = "nano")]
    pub(super) micro: bool,

    /// Show times in nanoseconds
    #[arg(long)]
    pub(super) nano: bool,

    /// Number the packets
    #[arg(short = '#', long)]
    pub(super) number: bool,

    /// Write every line at once, as is always done here
    #[arg(short = 'l')]
    pub(super) line_buffered: bool,

    /// Show absolute sequence numbers of TCP
    #[arg(short = 'S', long)]
    pub(super) absolute_tcp_sequence_numbers: bool,

    /// Do not check checksums of IP, TCP and UDP
    #[arg(short = 'K', long)]
    pub(super) dont_verify_checksums: bool,

    /// Leave domains off the names of hosts
    #[arg(short = 'N')]
    pub(super) no_domain: bool,

    /// Take packets for this protocol, as tcpdump -T
    #[arg(short = 'T', value_name = "TYPE")]
    pub(super) packet_type: Option<String>,

    /// Show AS numbers of BGP as asdot
    #[arg(short = 'b')]
    pub(super) asdot: bool,

    /// Look for 802.11s mesh headers
    #[arg(short = 'H')]
    pub(super) mesh: bool,

    /// Show undecoded NFS handles
    #[arg(short = 'u')]
    pub(super) nfs_handles: bool,

    /// Packets come from files and wait for a slow decoder; those of rings cannot
    #[arg(skip)]
    pub(super) waits: bool,
}

impl ViewArgs {
    fn prefix(&self, named: bool) -> Result<Prefix, Usage> {
        let clock =
            Clock::of_count(self.time).ok_or(Usage("-t can be given five times at most"))?;
        let stamps = Stamps::new(clock, self.nano, TimeZone::system());
        Ok(Prefix { number: self.number, stamps, named })
    }

    fn style(&self) -> Style {
        let bytes = match (self.hex_ascii, self.hex, self.ascii) {
            (0, 0, 0) => Bytes::None,
            (0, 0, count) => Bytes::Ascii { whole: count > 1 },
            (0, count, _) => Bytes::Hex { whole: count > 1 },
            (count, _, _) => Bytes::HexAscii { whole: count > 1 },
        };
        Style {
            link_header: self.link_header,
            verbose: self.verbose,
            quick: self.quick,
            checksums: !self.dont_verify_checksums,
            bytes,
        }
    }

    fn cage(&self, threads: bool, memory: u32) -> Cage {
        Cage { offline: self.numeric > 0, threads, tell: self.verbose > 0, memory }
    }
}

/// Opens a view that prints to standard output. `named` puts the interface and the direction before
/// every packet, for captures from several interfaces or from `any`.
pub(super) fn open(args: &ViewArgs, named: bool) -> anyhow::Result<Box<dyn Target>> {
    let installed = |program| {
        child::find(program).with_context(|| {
            format!("{program} is not installed: install it, or use --decoder builtin")
        })
    };
    match args.decoder {
        Decoder::Auto => {
            if let Some(program) = child::find("tcpdump") {
                return open_tcpdump(args, named, &program);
            }
            say("pmdscope: tcpdump is not installed, so packets are shown in few words");
            open_builtin(args, named)
        }
        Decoder::Tcpdump => open_tcpdump(args, named, &installed("tcpdump")?),
        Decoder::Tshark => open_tshark(args, named, &installed("tshark")?),
        Decoder::Builtin => open_builtin(args, named),
    }
}

fn open_tcpdump(args: &ViewArgs, named: bool, program: &Path) -> anyhow::Result<Box<dyn Target>> {
    let prefix = args.prefix(named)?;
    let mut command = args.cage(false, TCPDUMP_MEMORY).command(program);
    command.args(tcpdump::flags(args));
    let decoder = Tcpdump::start(command, prefix, Box::new(StandardOutput))?;
    Ok(Box::new(View::new(Box::new(decoder), !args.waits)))
}

fn open_tshark(args: &ViewArgs, named: bool, program: &Path) -> anyhow::Result<Box<dyn Target>> {
    let mut command = args.cage(true, TSHARK_MEMORY).command(program);
    command.args(tshark::flags(args, named)?);
    let decoder = Tshark::start(command, Box::new(StandardOutput))?;
    Ok(Box::new(View::new(Box::new(decoder), !args.waits)))
}

fn open_builtin(args: &ViewArgs, named: bool) -> anyhow::Result<Box<dyn Target>> {
    if args.packet_type.is_some() || args.asdot || args.mesh || args.nfs_handles {
        return Err(
            Usage("the built-in decoder has no -T, -b, -H and -u: they need tcpdump").into()
        );
    }
    if args.numeric == 0 {
        say("pmdscope: the built-in decoder knows no names, as with -n");
    }
    let decoder = Builtin::new(args.style(), args.prefix(named)?, Box::new(StandardOutput));
    Ok(Box::new(View::new(Box::new(decoder), !args.waits)))
}

/// Both at once, for `--print`: the file is what the capture is about, and goes on when the view
/// cannot.
pub(super) fn beside(file: Box<dyn Target>, view: Box<dyn Target>) -> Box<dyn Target> {
    Box::new(Beside { file, view: Some(view) })
}
