//! Options of captures from apps.

use std::num::NonZeroU32;
use std::time::Duration;

use pmdscope_capture::layout::TEE_PACKET_TSC;

use crate::config::ConfigArg;
use crate::tap::attach::AttachArgs;

use super::value::{parse_buffer_size, parse_ring_size, parse_seconds, parse_time_stamp_type};

/// Bytes per ring: 80 ms at a million packets of 64 bytes per second.
pub(crate) const DEFAULT_RING_SIZE: u32 = 8 << 20;

/// What to capture, and how the app is to hand it over.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
#[command(next_help_heading = "Packets from apps")]
pub(crate) struct SourceArgs {
    /// Port to capture from, by number or device name, or its number in the list of -D; repeat for
    /// several. PREFIX: may be left out when one app runs or -a names it. `PREFIX:any` is all its
    /// ports, and the default; `any` is all ports of all apps
    #[arg(short, long = "interface", value_name = "PREFIX:PORT[:QUEUE]")]
    pub(in super::super) interfaces: Vec<String>,

    /// App of interfaces without a prefix, by its name or DPDK file-prefix
    #[arg(short, long, value_name = "NAME")]
    pub(in super::super) app: Option<String>,

    #[command(flatten)]
    pub(in super::super) config: ConfigArg,

    #[command(flatten)]
    pub(in super::super) attach: AttachArgs,

    /// Keep one packet in N of those that pass the filter
    #[arg(long, value_name = "N")]
    sample: Option<NonZeroU32>,

    /// Memory per polling lcore, a power of two from 64K to 64M. Larger rings bridge longer pauses,
    /// smaller ones keep whole packets in the lcore's cache [default: 8M]
    #[arg(long, value_name = "BYTES", value_parser = parse_ring_size)]
    ring_size: Option<u32>,

    /// The same in KiB, rounded up to what is possible
    #[arg(
        short = 'B', long, value_name = "KIB", value_parser = parse_buffer_size,
        conflicts_with = "ring_size"
    )]
    buffer_size: Option<u32>,

    /// Take the time of every packet, not of every burst; costs the app a read of the clock each
    #[arg(long)]
    per_packet_time: bool,

    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(in super::super) duration: Option<Duration>,

    /// End when the apps end; otherwise their return is waited for
    #[arg(long)]
    pub(in super::super) exit_with_app: bool,

    /// Leave promiscuous mode as it is, as is always done here
    #[arg(short = 'p', long)]
    no_promiscuous_mode: bool,

    /// Hand packets over without delay, as is always done here
    #[arg(long)]
    immediate_mode: bool,

    /// Kind of time stamps: host
    #[arg(
        short = 'j', long, value_name = "TYPE", value_parser = parse_time_stamp_type,
        hide_possible_values = true
    )]
    time_stamp_type: Option<String>,
}

impl SourceArgs {
    /// Something only a capture from an app can do was asked for.
    pub(super) fn is_given(&self) -> bool {
        let told = [
            !self.interfaces.is_empty(),
            self.app.is_some(),
            self.sample.is_some(),
            self.ring_size.or(self.buffer_size).is_some(),
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

    /// Flags of the request.
    pub(in super::super) fn flags(&self) -> u32 {
        if self.per_packet_time { TEE_PACKET_TSC } else { 0 }
    }

    /// One packet in so many; 0 is all.
    pub(in super::super) fn sample(&self) -> u32 {
        self.sample.map_or(0, NonZeroU32::get)
    }
}
