//! A model of the producer, for tests: makes rings and sessions as an app does, also invalid ones.
#![allow(unsafe_code)] // Writes memory that the code under test maps.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType,
};

use pmdscope_packets::MAX_SNAPLEN;

use crate::layout::*;
use crate::records::tests::encode;

/// A ring as the app sees it.
pub(crate) struct Producer {
    pub(crate) data: File,
    pub(crate) tail: File,
    map: MmapRaw,
    tail_map: MmapRaw,
    size: u64,
    head: u64,
    gap: u32,
}

fn sealed(name: &str, len: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create(name, flags).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    fd.into()
}

impl Producer {
    pub(crate) fn new(size: u32, lcore: u16) -> Self {
        let data = sealed("data", RING_HEADER_SIZE as u64 + u64::from(size));
        let tail = sealed("tail", 4096);
        let map = MmapRaw::map_raw(&data).unwrap();
        let tail_map = MmapRaw::map_raw(&tail).unwrap();
        let ring = Self { data, tail, map, tail_map, size: size.into(), head: 0, gap: 0 };
        let mut header = RING_MAGIC.to_ne_bytes().to_vec();
        header.extend(VERSION.to_ne_bytes());
        header.extend((RING_HEADER_SIZE as u16).to_ne_bytes());
        header.extend(size.to_ne_bytes());
        header.extend((RECORD_SIZE as u16).to_ne_bytes());
        header.extend(lcore.to_ne_bytes());
        let features = FEATURE_GAPS | FEATURE_RESAMPLE | FEATURE_IN_BURST;
        header.extend(features.to_ne_bytes());
        header.extend(MAX_SNAPLEN.to_ne_bytes());
        ring.poke(0, &header);
        ring
    }

    /// Like [`Producer::new`], but of a library that does not support changes of the sampling, nor
    /// tell about bursts.
    pub(crate) fn old(size: u32, lcore: u16) -> Self {
        let ring = Self::new(size, lcore);
        ring.poke(16, &FEATURE_GAPS.to_ne_bytes());
        ring
    }

    /// Overwrites bytes of the data memfd.
    pub(crate) fn poke(&self, offset: usize, bytes: &[u8]) {
        self.data.write_all_at(bytes, offset as u64).unwrap();
    }

    /// Writes both anchors under the seqlock.
    pub(crate) fn anchor(&self, first: ClockAnchor, last: ClockAnchor) {
        Self::write_anchors(&self.data, first, last);
    }

    /// Like [`Producer::anchor`], for use from another thread.
    pub(crate) fn write_anchors(data: &File, first: ClockAnchor, last: ClockAnchor) {
        let triple =
            |a: ClockAnchor| [a.tsc, a.realtime_ns, a.raw_ns].map(u64::to_ne_bytes).concat();
        let put = |offset: usize, bytes: &[u8]| data.write_all_at(bytes, offset as u64).unwrap();
        put(ANCHOR_SEQ, &1u32.to_ne_bytes());
        put(ANCHORS, &[triple(first), triple(last)].concat());
        put(ANCHOR_SEQ, &2u32.to_ne_bytes());
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: offset is a constant of the layout, within the mapped header.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    pub(crate) fn set_head(&mut self, head: u64) {
        self.head = head;
        self.word(HEAD).store(head, Ordering::Release);
    }

    /// Sets whether a burst has its time stamp and is not published.
    pub(crate) fn set_in_burst(&self, in_burst: bool) {
        self.poke(IN_BURST, &u32::from(in_burst).to_ne_bytes());
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn tail(&self) -> u64 {
        // SAFETY: the mapping has a whole page.
        unsafe { AtomicU64::from_ptr(self.tail_map.as_mut_ptr().cast()) }.load(Ordering::Acquire)
    }

    fn write(&mut self, bytes: &[u8]) {
        let offset = RING_HEADER_SIZE + (self.head % self.size) as usize;
        // SAFETY: records are contiguous and fit, as `push` has checked.
        unsafe { self.map.as_mut_ptr().add(offset).copy_from(bytes.as_ptr(), bytes.len()) };
        self.head += bytes.len() as u64;
    }

    /// Writes a packet or counts a drop, without publishing.
    pub(crate) fn push(&mut self, record: RingRecord, payload: &[u8]) -> bool {
        let caplen = payload.len() as u32;
        let size = (RECORD_SIZE as u32 + caplen).next_multiple_of(RING_ALIGN);
        let len = record.len.max(caplen);
        self.push_raw(RingRecord { size, kind: RECORD_PACKET, caplen, len, ..record }, payload)
    }

    /// Writes a sampling record and publishes it; returns false when there is no room.
    pub(crate) fn resample(&mut self, sample: u32) -> bool {
        let size = RECORD_SIZE as u32;
        let marker = RingRecord { size, kind: RECORD_SAMPLE, len: sample, ..RingRecord::default() };
        let fits = self.reserve(size);
        if fits {
            self.write(&encode(&marker, &[]));
            self.publish();
        }
        fits
    }

    /// Like [`Producer::push`], for a record that is complete except for its gap.
    pub(crate) fn push_raw(&mut self, record: RingRecord, payload: &[u8]) -> bool {
        if !self.reserve(record.size) {
            self.gap += 1;
            self.word(DROPPED).fetch_add(1, Ordering::Relaxed);
            self.word(PORT_DROPPED + 8 * usize::from(record.port)).fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let gap = std::mem::take(&mut self.gap);
        self.write(&encode(&RingRecord { gap, ..record }, payload));
        self.word(RECORDS).fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Makes room for a contiguous record at the head; returns false when there is none.
    fn reserve(&mut self, size: u32) -> bool {
        let size = u64::from(size);
        let left = self.size - self.head % self.size;
        let pad = if size > left { left } else { 0 };
        if self.head + pad + size - self.tail() > self.size {
            return false;
        }
        if pad > 0 {
            let filler = RingRecord { size: 32, kind: RECORD_PAD, ..RingRecord::default() };
            let filler = encode(&filler, &[]);
            self.write(&[&(pad as u32).to_ne_bytes()[..], &filler[4..8]].concat());
            self.head += pad - 8;
        }
        true
    }

    pub(crate) fn publish(&self) {
        self.word(HEAD).store(self.head, Ordering::Release);
    }

    /// Returns the descriptors that the consumer gets.
    pub(crate) fn fds(&self) -> (OwnedFd, OwnedFd) {
        (self.data.try_clone().unwrap().into(), self.tail.try_clone().unwrap().into())
    }
}

/// Returns the bytes of a message to a consumer.
pub(crate) fn message(kind: u16, value: u32, text: &str) -> Vec<u8> {
    let mut bytes = TEE_MAGIC.to_ne_bytes().to_vec();
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(text.as_bytes());
    bytes.resize(MESSAGE_SIZE, 0);
    bytes
}

/// The listening side of a capture socket.
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn bind(path: &Path) -> Self {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&fd, 4).unwrap();
        Self(fd)
    }

    /// Accepts one consumer and its request.
    pub(crate) fn accept(&self) -> (Peer, Vec<u8>) {
        let fd = rustix::net::accept(&self.0).unwrap();
        let mut request = [0; 8192];
        let (len, _) = rustix::net::recv(&fd, &mut request, RecvFlags::empty()).unwrap();
        (Peer(fd), request[..len].to_vec())
    }
}

/// The app's end of a session.
pub(crate) struct Peer(OwnedFd);

impl Peer {
    pub(crate) fn send(&self, bytes: &[u8], fds: &[&File]) {
        let fds = fds.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let bytes = [IoSlice::new(bytes)];
        match rustix::net::sendmsg(&self.0, &bytes, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::PIPE) => {} // A consumer may close at any time.
            sent => assert!(sent.is_ok(), "{sent:?}"),
        }
    }

    /// Receives the next message of the consumer; `None` once it has closed.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = [0; 8192];
        let (len, _) = rustix::net::recv(&self.0, &mut bytes, RecvFlags::empty()).ok()?;
        (len > 0).then(|| bytes[..len].to_vec())
    }

    pub(crate) fn send_ring(&self, ring: &Producer) {
        self.send(&message(TEE_RING, 0, ""), &[&ring.data, &ring.tail]);
    }
}
