//! Network interfaces of the kernel and the XDP programs attached to them, by rtnetlink(7).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage, LinkXdp, XdpAttached,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use pmdscope_telemetry::interface::FilterMode;
use rustix::io::Errno;

/// Maximum size of a datagram of the kernel; interfaces with many virtual functions have long messages.
const DATAGRAM_BYTES: usize = 256 << 10;

/// Type of a message about an interface.
const RTM_NEWLINK: u16 = 16;

/// `XDP_FLAGS_*` of the kernel.
const FLAGS_GENERIC: u32 = 1 << 1;
const FLAGS_NATIVE: u32 = 1 << 2;
const FLAGS_REPLACE: u32 = 1 << 4;

/// An interface of this network namespace at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Whether it is the loopback interface.
    pub is_loopback: bool,
    /// Whether promiscuous mode is on.
    pub is_promiscuous: bool,
    /// Maximum transmission unit, bytes.
    pub mtu: u32,
    /// Number of RX queues it was created with, which may be more than it uses.
    pub rx_queues: u32,
    /// Received packets; `None` if the kernel did not report them, as in [`all`].
    pub rx_packets: Option<u64>,
    /// Received packets that the kernel dropped; `None` as above.
    pub rx_dropped: Option<u64>,
    /// Sent packets; `None` as above.
    pub tx_packets: Option<u64>,
    /// Attached XDP programs, at most one per mode, in the order in which they process packets.
    pub programs: Vec<AttachedProgram>,
    /// Whether a program is offloaded to the NIC.
    pub is_offloaded: bool,
}

/// An attached XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Id of the program.
    pub id: u32,
    /// Mode of the program.
    pub mode: FilterMode,
}

/// Reads an interface; `None` if this network namespace has none with that name.
///
/// # Errors
/// If the kernel refuses the request, or its answer is unexpected.
pub fn read(name: &str) -> io::Result<Option<Link>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    match exchange(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST) {
        Ok(Some(answer)) => Ok(Some(link(&answer))),
        Ok(None) => Err(not_understood("no answer about the interface")),
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads all interfaces, by index, without their counters.
///
/// # Errors
/// If the kernel refuses.
pub fn all() -> io::Result<Vec<Link>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let socket = request(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST | NLM_F_DUMP)?;
    let mut links = Vec::new();
    loop {
        let datagram = receive(&socket)?;
        for (kind, message) in messages(&datagram) {
            let message = match message {
                // An interface of a kind that the library cannot decode.
                Err(_) if kind == RTM_NEWLINK => continue,
                message => message?,
            };
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) => {
                    links.push(link(&message));
                }
                NetlinkPayload::Done(_) => return Ok(links),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

/// Detaches the XDP program of an interface; if `expected` is given, only that program.
///
/// # Errors
/// If the kernel refuses, for example because another program is attached.
pub fn detach_program(
    index: u32,
    mode: FilterMode,
    expected: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mode = match mode {
        FilterMode::Generic => FLAGS_GENERIC,
        FilterMode::Native => FLAGS_NATIVE,
    };
    let mut xdp = vec![LinkXdp::Fd(-1)];
    match expected {
        Some(expected) => {
            xdp.push(LinkXdp::Flags(mode | FLAGS_REPLACE));
            xdp.push(LinkXdp::ExpectedFd(expected.as_raw_fd().cast_unsigned()));
        }
        None => xdp.push(LinkXdp::Flags(mode)),
    }
    change(index, |message| message.attributes.push(LinkAttribute::Xdp(xdp)))
}

/// Sets the MTU, bytes.
///
/// # Errors
/// If the kernel refuses.
pub fn set_mtu(index: u32, mtu: u32) -> io::Result<()> {
    change(index, |message| message.attributes.push(LinkAttribute::Mtu(mtu)))
}

/// Disables promiscuous mode.
///
/// # Errors
/// If the kernel refuses.
pub fn end_promiscuous(index: u32) -> io::Result<()> {
    change(index, |message| message.header.change_mask = LinkFlags::Promisc)
}

fn change(index: u32, edit: impl FnOnce(&mut LinkMessage)) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    edit(&mut message);
    exchange(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK).map(|_| ())
}

/// Sends a request and receives the answer; `None` for a bare acknowledgement.
fn exchange(message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<LinkMessage>> {
    answer_of(&receive(&request(message, flags)?)?)
}

/// Sends a message to the kernel; returns the socket to read the answer from.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    Ok(socket)
}

fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
    socket.recv(&mut datagram, 0)?;
    Ok(datagram)
}

/// Returns the messages of a datagram, each with its type.
fn messages(
    datagram: &[u8],
) -> impl Iterator<Item = (u16, io::Result<NetlinkMessage<RouteNetlinkMessage>>)> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(rest).ok()?;
        let (kind, length) = (header.message_type(), header.length() as usize);
        let message = rest.get(..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, message_of(message)))
    })
}

fn message_of(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(|error| not_understood(&error.to_string()))
}

fn not_understood(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn answer_of(bytes: &[u8]) -> io::Result<Option<LinkMessage>> {
    match message_of(bytes)?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(Some(link)),
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        NetlinkPayload::Error(_) => Ok(None),
        _ => Err(not_understood("the answer is not about an interface")),
    }
}

fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        is_loopback: flags.contains(LinkFlags::Loopback),
        is_promiscuous: flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::NumRxQueues(queues) => link.rx_queues = *queues,
            LinkAttribute::Stats64(counters) => {
                link.rx_packets = Some(counters.rx_packets);
                link.rx_dropped = Some(counters.rx_dropped);
                link.tx_packets = Some(counters.tx_packets);
            }
            LinkAttribute::Xdp(attributes) => {
                (link.programs, link.is_offloaded) = programs(attributes);
            }
            _ => {}
        }
    }
    link
}

/// Returns the programs that run on the host, with the one in the driver first, and whether one runs in
/// the NIC.
fn programs(attributes: &[LinkXdp]) -> (Vec<AttachedProgram>, bool) {
    let (mut programs, mut id, mut attached) = (Vec::new(), None, None);
    for attribute in attributes {
        match attribute {
            LinkXdp::Attached(mode) => attached = Some(mode),
            LinkXdp::ProgId(program) => id = Some(*program),
            LinkXdp::DrvProgId(id) => {
                programs.insert(0, AttachedProgram { id: *id, mode: FilterMode::Native });
            }
            LinkXdp::SkbProgId(id) => {
                programs.push(AttachedProgram { id: *id, mode: FilterMode::Generic });
            }
            _ => {}
        }
    }
    // Kernels before 4.20 report the mode only this way.
    let only = match attached {
        Some(XdpAttached::Driver) => Some(FilterMode::Native),
        Some(XdpAttached::SocketBuffer) => Some(FilterMode::Generic),
        _ => None,
    };
    if programs.is_empty() {
        programs.extend(only.zip(id).map(|(mode, id)| AttachedProgram { id, mode }));
    }
    let is_attached = !matches!(attached, None | Some(XdpAttached::None));
    let is_offloaded = is_attached && programs.is_empty();
    (programs, is_offloaded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_loopback_interface_is_read_and_listed() {
        let link = read("lo").unwrap().unwrap();
        assert_eq!((link.index, link.is_loopback, link.programs.len()), (1, true, 0));
        assert!(link.mtu > 1500 && link.rx_packets.is_some());
        assert_eq!(read("no-such-link").unwrap(), None);
        let links = all().unwrap();
        assert!(links.iter().any(|link| link.name == "lo" && link.is_loopback), "{links:?}");
    }

    #[test]
    fn programs_are_told_by_mode() {
        let told = |attributes: &[LinkXdp]| programs(attributes);
        let program = |id, mode| AttachedProgram { id, mode };
        let native =
            [LinkXdp::Attached(XdpAttached::Driver), LinkXdp::ProgId(7), LinkXdp::DrvProgId(7)];
        assert_eq!(told(&native), (vec![program(7, FilterMode::Native)], false));
        let generic = [LinkXdp::Attached(XdpAttached::SocketBuffer), LinkXdp::ProgId(8)];
        assert_eq!(told(&generic), (vec![program(8, FilterMode::Generic)], false));
        let both = [
            LinkXdp::Attached(XdpAttached::Multiple),
            LinkXdp::SkbProgId(8),
            LinkXdp::DrvProgId(7),
        ];
        let first = program(7, FilterMode::Native);
        assert_eq!(told(&both), (vec![first, program(8, FilterMode::Generic)], false));
        assert_eq!(told(&[LinkXdp::Attached(XdpAttached::None)]), (Vec::new(), false));
        let offloaded = [LinkXdp::Attached(XdpAttached::Hardware), LinkXdp::ProgId(9)];
        assert_eq!(told(&offloaded), (Vec::new(), true));
    }

    proptest! {
        #[test]
        fn any_answer_is_understood_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = answer_of(&bytes);
            let _ = messages(&bytes).count();
        }
    }
}
