//! Interfaces as rtnetlink(7) shows them.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp, XdpAttached};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use pmdscope_telemetry::interface::FilterMode;

use crate::error::BypassError;
use crate::name::InterfaceName;

/// Longest answer about one interface; those with many virtual functions are long.
const ANSWER_BYTES: usize = 256 << 10;

/// An XDP program that is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttachedProgram {
    pub(crate) id: u32,
    pub(crate) mode: FilterMode,
}

/// An interface at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) promiscuous: bool,
    /// Queues it was made with, which may be more than it uses.
    pub(crate) rx_queues: u32,
    pub(crate) rx_packets: Option<u64>,
    pub(crate) rx_dropped: Option<u64>,
    pub(crate) tx_packets: Option<u64>,
    pub(crate) program: Option<AttachedProgram>,
}

/// Reads an interface; `None` if there is none of that name here.
pub(crate) fn read(name: &InterfaceName) -> Result<Option<Link>, BypassError> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
    let failed = |error| BypassError::kernel(format!("read interface {name}"), error);
    match exchange(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST) {
        Ok(Some(answer)) => Ok(Some(parse(&answer))),
        Ok(None) => Err(BypassError::Unexpected(name.to_string())),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            Ok(None)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Detaches the XDP program.
pub(crate) fn detach_program(
    name: &InterfaceName,
    index: u32,
    mode: FilterMode,
) -> Result<(), BypassError> {
    let flags = match mode {
        FilterMode::Generic => 1 << 1, // XDP_FLAGS_SKB_MODE
        FilterMode::Native => 1 << 2,  // XDP_FLAGS_DRV_MODE
    };
    let xdp = LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(flags)]);
    change(name, index, |message| message.attributes.push(xdp), "detach the XDP program of")
}

/// Sets the MTU.
pub(crate) fn set_mtu(name: &InterfaceName, index: u32, mtu: u32) -> Result<(), BypassError> {
    let mtu = LinkAttribute::Mtu(mtu);
    change(name, index, |message| message.attributes.push(mtu), "set the MTU of")
}

/// Ends promiscuous mode.
pub(crate) fn end_promiscuous(name: &InterfaceName, index: u32) -> Result<(), BypassError> {
    let clear = |message: &mut LinkMessage| message.header.change_mask = LinkFlags::Promisc;
    change(name, index, clear, "end promiscuous mode of")
}

fn change(
    name: &InterfaceName,
    index: u32,
    edit: impl FnOnce(&mut LinkMessage),
    what: &str,
) -> Result<(), BypassError> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    edit(&mut message);
    exchange(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK)
        .map(|_| ())
        .map_err(|error| BypassError::kernel(format!("{what} {name}"), error))
}

/// Sends a request and receives the answer; `None` for a bare acknowledgement.
fn exchange(request: RouteNetlinkMessage, flags: u16) -> io::Result<Option<LinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
    packet.header.flags = flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    socket.recv(&mut answer, 0)?;
    answer_of(&answer)
}

fn answer_of(bytes: &[u8]) -> io::Result<Option<LinkMessage>> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(Some(link)),
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        NetlinkPayload::Error(_) => Ok(None),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not about an interface")),
    }
}

fn parse(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        promiscuous: message.header.flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::NumRxQueues(queues) => link.rx_queues = *queues,
            LinkAttribute::Stats64(counters) => {
                link.rx_packets = Some(counters.rx_packets);
                link.rx_dropped = Some(counters.rx_dropped);
                link.tx_packets = Some(counters.tx_packets);
            }
            LinkAttribute::Xdp(attributes) => link.program = program(attributes),
            _ => {}
        }
    }
    link
}

/// The program that sees packets first, if there are two.
fn program(attributes: &[LinkXdp]) -> Option<AttachedProgram> {
    let mode = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(FilterMode::Generic),
        LinkXdp::Attached(XdpAttached::None) | LinkXdp::Fd(_) => None,
        LinkXdp::Attached(_) => Some(FilterMode::Native),
        _ => None,
    })?;
    let id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::HwProgId(id) => Some(*id),
        _ => None,
    })?;
    Some(AttachedProgram { id, mode })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_loopback_interface_is_read() {
        let link = read(&"lo".parse().unwrap()).unwrap().unwrap();
        assert_eq!((link.index, link.program), (1, None));
        assert!(link.mtu > 1500 && link.rx_packets.is_some());
        assert_eq!(read(&"no-such-link".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn the_mode_and_the_id_of_a_program_are_told() {
        let native =
            [LinkXdp::Attached(XdpAttached::Driver), LinkXdp::ProgId(7), LinkXdp::DrvProgId(7)];
        assert_eq!(program(&native), Some(AttachedProgram { id: 7, mode: FilterMode::Native }));
        let generic = [LinkXdp::Attached(XdpAttached::SocketBuffer), LinkXdp::ProgId(8)];
        assert_eq!(program(&generic), Some(AttachedProgram { id: 8, mode: FilterMode::Generic }));
        assert_eq!(program(&[LinkXdp::Attached(XdpAttached::None)]), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_understood_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = answer_of(&bytes);
        }
    }
}
