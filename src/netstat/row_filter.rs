//! The filter of rows: which conversations are shown.

use pmdscope_flows::Flow;
use pmdscope_flows::filter::FlowFilter;

use super::format::{SCTP, TCP, UDP};

/// Conversations of these kinds. Unlike a filter it knows what is behind VLAN tags and in tunnels, and
/// leaves the totals alone.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Rows")]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
pub(super) struct ConversationFilter {
    /// Only conversations that match a filter of ss(8)
    ///
    /// Such as 'sport = :443 and dst 10.0.0.0/8' or 'state established': src and sport are the local end,
    /// dst and dport the remote one. docs/netstat.md lists the words.
    #[arg(long = "where", value_name = "FILTER", hide_short_help = true, value_parser = FlowFilter::parse)]
    pub(super) asked: Option<FlowFilter>,

    /// Only IPv4
    #[arg(short = '4', long = "ipv4", hide_short_help = true)]
    v4: bool,

    /// Only IPv6; -4 -6: both
    #[arg(short = '6', long = "ipv6", hide_short_help = true)]
    v6: bool,

    /// Only TCP; -t -u: both
    #[arg(short, long, hide_short_help = true)]
    tcp: bool,

    /// Only UDP
    #[arg(short, long, hide_short_help = true)]
    udp: bool,

    /// Only SCTP
    #[arg(long, hide_short_help = true)]
    sctp: bool,
}

impl ConversationFilter {
    /// The conversation is to be shown.
    pub(super) fn takes(&self, flow: &Flow) -> bool {
        let any_version = self.v4 == self.v6;
        let any_protocol = !(self.tcp || self.udp || self.sctp);
        let version = if flow.local.addr.is_ipv4() { self.v4 } else { self.v6 };
        let protocol = match flow.proto {
            TCP => self.tcp,
            UDP => self.udp,
            SCTP => self.sctp,
            _ => false,
        };
        (any_version || version) && (any_protocol || protocol)
    }
}
