//! Network interfaces of the kernel that virtual devices use, looked up in the network namespace of the app.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::process::PROC;
use crate::sample::NetdevState;

/// Longest name of an interface, with the zero behind it.
const NAME_BYTES: usize = 16;

/// Parts of rtnetlink(7): message types, attributes, flags of interfaces, and lengths of headers.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const HEADER: usize = 16;
const INTERFACE: usize = 16;

/// Longest reply: an interface with its statistics.
const REPLY_BYTES: usize = 16 << 10;

/// An interface as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Netdev {
    pub(crate) index: i32,
    pub(crate) name: String,
    pub(crate) state: NetdevState,
}

/// Looks up interfaces in the network namespace of one process.
#[derive(Debug)]
pub(crate) struct NetdevReader {
    socket: OwnedFd,
}

/// What is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NetdevKey<'a> {
    Name(&'a str),
    Index(i32),
}

impl NetdevReader {
    /// Opens a socket in the namespace of this process. For another namespace than that of the tool it needs
    /// `CAP_SYS_ADMIN`.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let namespace = |pid: &str| fs::read_link(format!("{PROC}/{pid}/ns/net"));
        if namespace("self")? == namespace(&pid.to_string())? {
            return Ok(Self { socket: socket()? });
        }
        let path = format!("{PROC}/{pid}/ns/net");
        let theirs = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // A socket stays in the namespace in which it was made; only this thread moves there.
        let enter = move || -> io::Result<OwnedFd> {
            move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Network))?;
            socket()
        };
        let entered = thread::Builder::new().name("netns".to_owned()).spawn(enter)?.join();
        let socket = entered.map_err(|_| io::Error::other("the thread has panicked"))??;
        Ok(Self { socket })
    }

    /// Returns an interface; `None` if there is none with this name or index.
    ///
    /// # Errors
    /// If the kernel refuses to answer, or its answer makes no sense.
    pub(crate) fn find(&self, key: NetdevKey<'_>) -> io::Result<Option<Netdev>> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        send(&self.socket, &request(key), SendFlags::empty())?;
        let mut reply = vec![0; REPLY_BYTES];
        // The kernel has answered when send() returns.
        let (length, _) = recv(&self.socket, &mut reply[..], RecvFlags::DONTWAIT)?;
        let reply = reply.get(..length).ok_or_else(malformed)?;
        match u16_at(reply, 4) {
            Some(NLMSG_ERROR) => {
                let error = u32_at(reply, HEADER).ok_or_else(malformed)?.cast_signed();
                let error = io::Error::from_raw_os_error(error.saturating_neg());
                let is_missing =
                    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error());
                if is_missing { Ok(None) } else { Err(error) }
            }
            Some(RTM_NEWLINK) => netdev(reply).map(Some).ok_or_else(malformed),
            _ => Err(malformed()),
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// A header, a `struct ifinfomsg` and, for a name, an attribute.
fn request(key: NetdevKey<'_>) -> Vec<u8> {
    let (index, name) = match key {
        NetdevKey::Index(index) => (index, None),
        NetdevKey::Name(name) => (0, Some(name)),
    };
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.resize(INTERFACE, 0);
    if let Some(name) = name {
        let mut name: Vec<u8> = name.bytes().take(NAME_BYTES - 1).collect();
        name.push(0);
        let length = u16::try_from(name.len() + 4).unwrap_or(u16::MAX);
        body.extend(length.to_ne_bytes());
        body.extend(IFLA_IFNAME.to_ne_bytes());
        name.resize(name.len().next_multiple_of(4), 0);
        body.extend(name);
    }
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.resize(HEADER, 0);
    message.extend(body);
    message
}

fn netdev(reply: &[u8]) -> Option<Netdev> {
    let index = u32_at(reply, HEADER + 4)?.cast_signed();
    let flags = u32_at(reply, HEADER + 8)?;
    let mut rest = reply.get(HEADER + INTERFACE..)?;
    let name = loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(4..length)?;
        if u16_at(rest, 2)? == IFLA_IFNAME {
            break value.strip_suffix(&[0]).unwrap_or(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    };
    let state = match flags {
        flags if flags & IFF_UP == 0 => NetdevState::Down,
        flags if flags & IFF_LOWER_UP == 0 => NetdevState::NoCarrier,
        _ => NetdevState::Up,
    };
    Some(Netdev { index, name: String::from_utf8_lossy(name).into_owned(), state })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Whether the namespace of a process has an interface with this name, as its files in `/proc` tell; `None` if
/// they cannot be read.
pub(crate) fn exists(pid: u32, name: &str) -> Option<bool> {
    let interfaces = fs::read_to_string(format!("{PROC}/{pid}/net/dev")).ok()?;
    Some(
        interfaces
            .lines()
            .any(|line| line.trim_start().rsplit_once(':').is_some_and(|(own, _)| own == name)),
    )
}

/// Indexes of the interfaces to which the packet sockets of a process are bound, which `net_af_packet` and
/// libpcap have; none for one whose interface was deleted.
pub(crate) fn packet_sockets(pid: u32) -> Vec<i32> {
    let process = Path::new(PROC).join(pid.to_string());
    let links = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links = links.filter_map(|link| fs::read_link(link.path()).ok());
    let inode = |link: &Path| {
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    let own: Vec<String> = links.filter_map(|link| inode(&link)).collect();
    let sockets = fs::read_to_string(process.join("net/packet")).unwrap_or_default();
    let bound = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // sk RefCnt Type Proto Iface R Rmem User Inode
        let is_own = own.iter().any(|own| words.get(8) == Some(&own.as_str()));
        words.get(4)?.parse().ok().filter(|index: &i32| is_own && *index > 0)
    };
    let mut indexes: Vec<i32> = sockets.lines().skip(1).filter_map(bound).collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

/// The interfaces of the tun and tap files of a process, in the order of their descriptors and each once; `None` for
/// all files whose interface was deleted.
pub(crate) fn tun_interfaces(pid: u32) -> Vec<Option<String>> {
    let process = Path::new(PROC).join(pid.to_string());
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let is_tun = |file: &fs::DirEntry| {
        fs::read_link(file.path()).is_ok_and(|to| to == Path::new("/dev/net/tun"))
    };
    let numbers = files.filter(is_tun).filter_map(|file| file.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let mut interfaces = Vec::new();
    for number in numbers {
        let info = fs::read_to_string(process.join("fdinfo").join(number.to_string()));
        let Some(name) = info.ok().as_deref().and_then(tun_interface).map(str::to_owned) else {
            continue;
        };
        let interface = Some(name).filter(|name| !name.is_empty());
        if !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    interfaces
}

/// Returns the name in the description of a tun or tap file, which is empty if its interface was deleted.
fn tun_interface(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("iff:")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tun_files_tell_their_interface() {
        assert_eq!(tun_interface("pos:\t0\nflags:\t02\niff:\tdtap0\n"), Some("dtap0"));
        assert_eq!(tun_interface("pos:\t0\niff:\t\n"), Some(""));
        assert_eq!(tun_interface("pos:\t0\n"), None);
        assert_eq!(tun_interfaces(std::process::id()), []);
    }

    #[test]
    fn the_loopback_interface_is_found_by_name_and_index() {
        let reader = NetdevReader::open(std::process::id()).unwrap();
        let found = reader.find(NetdevKey::Name("lo")).unwrap().unwrap();
        assert_eq!((found.index, found.name.as_str()), (1, "lo"));
        assert_eq!(reader.find(NetdevKey::Index(1)).unwrap(), Some(found));
        assert_eq!(reader.find(NetdevKey::Name("no-such-netdev")).unwrap(), None);
        assert_eq!(reader.find(NetdevKey::Name("a-name-that-is-too-long")).unwrap(), None);
        assert_eq!(exists(std::process::id(), "lo"), Some(true));
        assert_eq!(exists(std::process::id(), "no-such-netdev"), Some(false));
    }

    #[test]
    fn replies_are_checked() {
        let mut reply = vec![0; HEADER + INTERFACE];
        assert_eq!(netdev(&reply), None, "without a name");
        reply[HEADER + 4] = 7;
        reply[HEADER + 8] = 1;
        reply.extend([8, 0, 4, 0, 1, 2, 3, 4]);
        reply.extend([9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
        let found = netdev(&reply).unwrap();
        assert_eq!((found.index, found.name.as_str()), (7, "eth0"));
        assert_eq!(found.state, NetdevState::NoCarrier);
        for length in 0..reply.len() - 3 {
            assert_eq!(netdev(&reply[..length]), None);
        }
        reply[HEADER + INTERFACE] = 0;
        assert_eq!(netdev(&reply), None, "an attribute without a length");
    }
}
