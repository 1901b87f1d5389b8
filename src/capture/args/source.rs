//! Options of captures from apps.

use std::num::NonZeroU32;
use std::time::Duration;

use super::value::{parse_buffer_size, parse_ring_size, parse_seconds, parse_time_stamp_type};

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

    /// App of interfaces without a prefix, by DPDK file-prefix
    #[arg(short, long, value_name = "PREFIX")]
    pub(in super::super) app: Option<String>,

    /// Keep one packet in N of those that pass the filter
    #[arg(long, value_name = "N")]
    sample: Option<NonZeroU32>,

    /// Memory per polling lcore, a power of two from 64K to 64M; the app's default is 1M
    #[arg(long, value_name = "BYTES", value_parser = parse_ring_size)]
    ring_size: Option<u32>,

    /// The same in KiB, rounded up to what is possible
    #[arg(
        short = 'B', long, value_name = "KIB", value_parser = parse_buffer_size,
        conflicts_with = "ring_size"
    )]
    buffer_size: Option<u32>,

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
        let told = [self.sample.is_some(), self.ring_size().is_some(), self.duration.is_some()];
        !self.interfaces.is_empty()
            || self.app.is_some()
            || self.exit_with_app
            || told.contains(&true)
    }

    /// Bytes per ring; `None` leaves it to the app.
    pub(in super::super) fn ring_size(&self) -> Option<u32> {
        self.ring_size.or(self.buffer_size)
    }

    /// One packet in so many; 0 is all.
    pub(in super::super) fn sample(&self) -> u32 {
        self.sample.map_or(0, NonZeroU32::get)
    }
}
