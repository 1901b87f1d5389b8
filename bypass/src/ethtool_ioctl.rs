//! The ioctl SIOCETHTOOL. This is the only module with `unsafe`; `ethtool.rs` builds the requests.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::name::{InterfaceName, NAME_SIZE};

const SIOCETHTOOL: rustix::ioctl::Opcode = 0x8946;

/// Additional space after a request for the answer of the kernel. It writes all current strings and
/// counters of the driver, which may be more than it reported before; they take at most half of this.
const SLACK: usize = 64 << 10;

/// `struct ifreq` with a data pointer.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_SIZE],
    data: *mut u64,
    unused: [u8; 16],
}

/// A request that the kernel overwrites with its answer.
pub(crate) struct EthtoolRequest {
    words: Vec<u64>,
    bytes: usize,
}

impl EthtoolRequest {
    /// Returns a request of `bytes` bytes, including the space for the answer, all 0 except the
    /// command.
    pub(crate) fn new(command: u32, bytes: usize) -> Self {
        let words = vec![0; (bytes * 2 + SLACK).div_ceil(8)];
        let mut request = Self { words, bytes: bytes.max(4) };
        request.set_u32(0, command);
        request
    }

    /// Sets four bytes; bytes beyond the request are ignored.
    pub(crate) fn set_u32(&mut self, offset: usize, value: u32) {
        self.set(offset, &value.to_ne_bytes());
    }

    /// Sets bytes; bytes beyond the request are ignored.
    pub(crate) fn set(&mut self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..self.bytes).zip(bytes) {
            let (word, shift) = (at / 8, at % 8);
            let mut whole = self.words[word].to_ne_bytes();
            whole[shift] = *byte;
            self.words[word] = u64::from_ne_bytes(whole);
        }
    }

    /// Returns the request, or its answer after the request.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(self.bytes).collect()
    }
}

/// A socket for requests about interfaces of this network namespace.
pub(crate) struct EthtoolSocket(OwnedFd);

impl EthtoolSocket {
    pub(crate) fn open() -> io::Result<Self> {
        let kind = (AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC);
        Ok(Self(socket_with(kind.0, kind.1, kind.2, None)?))
    }

    /// Makes a request; its answer replaces it.
    pub(crate) fn request(
        &self,
        name: &InterfaceName,
        request: &mut EthtoolRequest,
    ) -> io::Result<()> {
        let mut interface = InterfaceRequest {
            name: [0; NAME_SIZE],
            data: request.words.as_mut_ptr(),
            unused: [0; 16],
        };
        // A name is shorter than the field, so it ends with a NUL byte.
        interface.name.iter_mut().zip(name.as_str().bytes()).for_each(|(to, byte)| *to = byte);
        // SAFETY: the operation code says that the argument is a `struct ifreq`, which
        // `InterfaceRequest` is, with a pointer to a request. The kernel reads and writes there
        // what the command says: the fixed parts are within `bytes`, and of strings, counters and
        // rules as many as the driver has, for which `words` has twice the room that the driver
        // asked for, and `SLACK`. Both live, and are not borrowed elsewhere, until the call
        // returns.
        unsafe {
            let update = Updater::<SIOCETHTOOL, InterfaceRequest>::new(&mut interface);
            ioctl(&self.0, update)?;
        }
        Ok(())
    }
}
