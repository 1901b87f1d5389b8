//! Options of captures from running apps.

use std::time::Duration;

use pmdscope_capture::layout::TEE_PACKET_TSC;

use crate::attach::policy::AttachArgs;
use crate::capture::COMMON;
use crate::completions;
use crate::config::ConfigArg;
use crate::sampling::SamplingMode;

use super::value::{parse_buffer_size, parse_duration, parse_ring_size, parse_time_stamp_type};

/// Bytes per ring: 170 ms at 1 Mpps of 64 bytes, and 2.7 ms at 4 Mpps of 1500 bytes, which is more than
/// the longest pause between two reads.
const DEFAULT_RING_SIZE: u32 = 16 << 20;

/// What to capture, and how the app is to hand it over.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(next_help_heading = "Input")]
pub(crate) struct SourceArgs {
    /// Port: [PREFIX:]PORT[:QUEUE], PREFIX:any or any
    ///
    /// PREFIX is the app and may be omitted if only one app runs or -a names it. PORT is a port number
    /// or device name, or a number of -D. `PREFIX:any` is all ports of an app, `any` all ports of all
    /// apps. May be repeated. Default: all ports of the only app.
    #[arg(short, long = "interface", value_name = "IFACE", help_heading = COMMON,
          add = completions::interfaces())]
    pub(in super::super) interfaces: Vec<String>,

    /// App for -i without PREFIX
    #[arg(short, long, value_name = "NAME", hide_short_help = true, add = completions::apps())]
    pub(in super::super) app: Option<String>,

    #[command(flatten)]
    pub(in super::super) config: ConfigArg,

    #[command(flatten)]
    pub(in super::super) attach: AttachArgs,

    /// Keep one in N packets that match the filter, or auto
    ///
    /// auto keeps all packets until some are lost, then one in N at random, with N as small as it can
    /// be without losses. The file records each change of N.
    #[arg(long, value_name = "N|auto", hide_short_help = true)]
    sample: Option<SamplingMode>,

    /// Capture ring size per lcore [default: 16M]
    ///
    /// A power of two from 64K to 64M. A larger ring survives longer pauses of the capture; a smaller
    /// ring fits the CPU cache of the lcore.
    #[arg(long, value_name = "BYTES", hide_short_help = true, value_parser = parse_ring_size)]
    ring_size: Option<u32>,

    /// Capture ring size in KiB, rounded up to a power of two
    #[arg(
        hide_short_help = true,
        short = 'B', long, value_name = "KIB", value_parser = parse_buffer_size,
        conflicts_with = "ring_size"
    )]
    buffer_size: Option<u32>,

    /// Timestamp each packet, not each burst
    ///
    /// Costs the app one clock read per packet.
    #[arg(hide_short_help = true, long)]
    per_packet_time: bool,

    /// Stop after TIME
    #[arg(long, value_name = "TIME", hide_short_help = true, value_parser = parse_duration)]
    pub(in super::super) duration: Option<Duration>,

    /// Stop when the apps exit
    ///
    /// Default: wait until they restart.
    #[arg(hide_short_help = true, long)]
    pub(in super::super) exit_with_app: bool,

    /// Accepted for tcpdump compatibility: promiscuous mode is never changed
    #[arg(hide_short_help = true, short = 'p', long)]
    no_promiscuous_mode: bool,

    /// Accepted for tcpdump compatibility: packets are never delayed
    #[arg(hide_short_help = true, long)]
    immediate_mode: bool,

    /// Timestamp type; only host
    #[arg(
        hide_short_help = true,
        short = 'j', long, value_name = "TYPE", value_parser = parse_time_stamp_type,
        hide_possible_values = true
    )]
    time_stamp_type: Option<String>,
}

impl SourceArgs {
    /// Something only a capture from an app can do was asked for.
    pub(super) fn is_given(&self) -> bool {
        !self.interfaces.is_empty() || self.is_given_otherwise()
    }

    /// Nothing but `-i` of the same was asked for.
    pub(super) fn names_only_interfaces(&self) -> bool {
        !self.interfaces.is_empty() && !self.is_given_otherwise()
    }

    fn is_given_otherwise(&self) -> bool {
        let told = [
            self.app.is_some(),
            self.sample.is_some(),
            self.has_ring_size(),
            self.per_packet_time,
            self.duration.is_some(),
            self.exit_with_app,
            self.attach.is_given(),
        ];
        told.contains(&true)
    }

    /// Bytes per ring.
    pub(in super::super) fn ring_size(&self) -> u32 {
        self.ring_size.or(self.buffer_size).unwrap_or(DEFAULT_RING_SIZE)
    }

    /// The user has chosen the bytes per ring.
    pub(in super::super) fn has_ring_size(&self) -> bool {
        self.ring_size.or(self.buffer_size).is_some()
    }

    /// Flags of the request.
    pub(in super::super) fn flags(&self) -> u32 {
        if self.per_packet_time { TEE_PACKET_TSC } else { 0 }
    }

    /// One packet in so many; 0 is all.
    pub(in super::super) fn sample(&self) -> u32 {
        match self.sample {
            Some(SamplingMode::Fixed(sample)) => sample.get(),
            Some(SamplingMode::Auto) | None => 0,
        }
    }

    /// As few packets are left out as can be without losses.
    pub(in super::super) fn samples_by_losses(&self) -> bool {
        self.sample == Some(SamplingMode::Auto)
    }
}
