//! Interfaces with their XDP programs, and the removal of one, by rtnetlink. libbpf asks for all interfaces to
//! tell of one, and removes whatever program there is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use pmdscope_telemetry::interface::FilterMode;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;

const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
const ATTRIBUTE_TYPE: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

const ATTACHED_NATIVE: u8 = 1;
const ATTACHED_GENERIC: u8 = 2;
const FLAGS_GENERIC: u32 = 1 << 1;
const FLAGS_NATIVE: u32 = 1 << 2;
const FLAGS_REPLACE: u32 = 1 << 4;
/// Counters of interfaces are not wanted.
const SKIP_STATISTICS: u32 = 1 << 3;
const LOOPBACK: u32 = 0x8;

/// Headers of a message and of what it says of an interface.
const HEADER: usize = 16;
const INTERFACE: usize = 16;

/// The kernel puts at most this much into one message.
const BUFFER: usize = 64 * 1024;

/// An interface of this network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) is_loopback: bool,
    /// Programs that are attached: none, one, or of several modes one each.
    pub(crate) programs: Vec<(FilterMode, u32)>,
    /// A program that runs in the NIC itself.
    pub(crate) is_offloaded: bool,
}

/// All interfaces, by number.
pub(crate) fn links() -> io::Result<Vec<Link>> {
    let mut body = vec![0; INTERFACE];
    attribute(&mut body, IFLA_EXT_MASK, &SKIP_STATISTICS.to_ne_bytes());
    let socket = request(RTM_GETLINK, NLM_F_DUMP, &body)?;
    let mut links = Vec::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        for (kind, body) in messages(&buffer[..length]) {
            match kind {
                RTM_NEWLINK => links.extend(link(body)),
                NLMSG_DONE => return Ok(links),
                NLMSG_ERROR => return answer(body).map(|()| links),
                _ => {}
            }
        }
    }
}

/// Removes the program of an interface, if it is still this one.
pub(crate) fn detach(index: u32, mode: FilterMode, program: BorrowedFd<'_>) -> io::Result<()> {
    let flags = FLAGS_REPLACE
        | match mode {
            FilterMode::Native => FLAGS_NATIVE,
            FilterMode::Generic => FLAGS_GENERIC,
        };
    let mut xdp = Vec::new();
    attribute(&mut xdp, IFLA_XDP_FD, &(-1i32).to_ne_bytes());
    attribute(&mut xdp, IFLA_XDP_FLAGS, &flags.to_ne_bytes());
    attribute(&mut xdp, IFLA_XDP_EXPECTED_FD, &program.as_raw_fd().to_ne_bytes());
    let mut body = vec![0; INTERFACE];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    attribute(&mut body, IFLA_XDP | NESTED, &xdp);
    let socket = request(RTM_SETLINK, NLM_F_ACK, &body)?;
    let mut buffer = vec![0; BUFFER];
    let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    let error = messages(&buffer[..length]).find(|(kind, _)| *kind == NLMSG_ERROR);
    error.map_or(Err(io::ErrorKind::InvalidData.into()), |(_, body)| answer(body))
}

/// Sends a message to the kernel; the socket that its answer comes from.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<OwnedFd> {
    let flags = flags | NLM_F_REQUEST;
    let length = u32::try_from(HEADER + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    // Protocol 0 is rtnetlink.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message, SendFlags::empty())?;
    Ok(socket)
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// What an `NLMSG_ERROR` says: a negative errno, or 0.
fn answer(body: &[u8]) -> io::Result<()> {
    match u32_at(body, 0).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The messages of a datagram: type and body.
fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let message = rest.get(..length)?;
        let found = (u16_at(message, 4)?, message.get(HEADER..)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// The attributes of a message: type and value.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let found = (u16_at(rest, 2)? & ATTRIBUTE_TYPE, rest.get(4..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

fn link(body: &[u8]) -> Option<Link> {
    let flags = u32_at(body, 8)?;
    let mut link =
        Link { index: u32_at(body, 4)?, is_loopback: flags & LOOPBACK != 0, ..Link::default() };
    for (kind, value) in attributes(body.get(INTERFACE..)?) {
        match kind {
            IFLA_IFNAME => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_XDP => programs(&mut link, value),
            _ => {}
        }
    }
    Some(link)
}

fn programs(link: &mut Link, xdp: &[u8]) {
    let (mut attached, mut id) = (0, None);
    for (kind, value) in attributes(xdp) {
        match kind {
            IFLA_XDP_ATTACHED => attached = value.first().copied().unwrap_or(0),
            IFLA_XDP_PROG_ID => id = u32_at(value, 0),
            IFLA_XDP_DRV_PROG_ID => {
                link.programs.extend(u32_at(value, 0).map(|id| (FilterMode::Native, id)));
            }
            IFLA_XDP_SKB_PROG_ID => {
                link.programs.extend(u32_at(value, 0).map(|id| (FilterMode::Generic, id)));
            }
            _ => {}
        }
    }
    match (attached, id) {
        // Kernels before 4.20 do not tell the modes apart otherwise.
        (ATTACHED_NATIVE, Some(id)) if link.programs.is_empty() => {
            link.programs.push((FilterMode::Native, id));
        }
        (ATTACHED_GENERIC, Some(id)) if link.programs.is_empty() => {
            link.programs.push((FilterMode::Generic, id));
        }
        (0, _) => {}
        _ => link.is_offloaded = link.programs.is_empty(),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message_of(name: &str, xdp: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; INTERFACE];
        body[4] = 7;
        attribute(&mut body, IFLA_IFNAME, format!("{name}\0").as_bytes());
        let mut nested = Vec::new();
        for (kind, value) in xdp {
            attribute(&mut nested, *kind, value);
        }
        attribute(&mut body, IFLA_XDP | NESTED, &nested);
        body
    }

    #[test]
    fn programs_are_told_by_mode() {
        let id = 42u32.to_ne_bytes();
        let native = [
            (IFLA_XDP_ATTACHED, &[ATTACHED_NATIVE][..]),
            (IFLA_XDP_PROG_ID, &id),
            (IFLA_XDP_DRV_PROG_ID, &id),
        ];
        let link = link(&message_of("eth0", &native)).unwrap();
        assert_eq!((link.index, link.name.as_str()), (7, "eth0"));
        assert_eq!(link.programs, [(FilterMode::Native, 42)]);
        let none = super::link(&message_of("eth0", &[(IFLA_XDP_ATTACHED, &[0])])).unwrap();
        assert_eq!(none.programs, []);
        assert!(!none.is_offloaded);
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let links = links().unwrap();
        assert!(links.iter().any(|link| link.name == "lo" && link.is_loopback), "{links:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes: Vec<u8>) {
            for (_, body) in messages(&bytes) {
                let _ = (link(body), answer(body));
            }
            let _ = link(&bytes);
        }
    }
}
