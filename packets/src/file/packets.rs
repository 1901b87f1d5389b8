//! Writes packets into the blocks of a file.

use super::{CaptureFiles, FileFormat, pcap};
use crate::packet::PacketWith;
use crate::pcapng;
use crate::shared::{PacketData, SharedBytes};
use crate::sink::SinkError;

/// Packets of at least this many bytes are written faster as a vector of their own than as a copy.
const LARGE: usize = 512;

impl CaptureFiles {
    /// Writes a packet, or counts it as lost.
    pub(super) fn take_packet<D: PacketData>(
        &mut self,
        packet: &PacketWith<'_, D>,
    ) -> Result<(), SinkError> {
        if self.complete {
            self.after_end += 1;
            return Ok(());
        }
        let put = match self.queue.check() {
            Ok(()) => self.try_packet(packet),
            Err(error) => Err(error),
        };
        match put {
            Ok(true) => {}
            Ok(false) => self.lose(packet),
            Err(error) => {
                self.lose(packet);
                return Err(error);
            }
        }
        if self.packet_buffered {
            self.hand_over(None);
        }
        Ok(())
    }

    /// Returns whether `size` bytes around shared ones fit, or another buffer is free.
    fn has_room_around(&mut self, size: usize, data: &SharedBytes<'_>) -> bool {
        self.batch.as_ref().is_some_and(|batch| batch.has_room_around(size, data))
            || self.make_room(size)
    }

    /// Writes a packet; returns false if there is no space for it.
    fn try_packet<D: PacketData>(&mut self, packet: &PacketWith<'_, D>) -> Result<bool, SinkError> {
        let Some((interface, gap)) = self.section.place_of(packet) else {
            return Err(self.refused("the interface of a packet is not known"));
        };
        let adapted =
            PacketWith { interface, dropped: packet.dropped.saturating_add(gap), ..*packet };
        let size = match self.format {
            FileFormat::Pcapng => pcapng::packet_size(&adapted),
            FileFormat::Pcap { .. } => pcap::packet_size(&adapted),
        };
        if !self.fits(packet)? {
            self.other_linktypes += 1;
            return Ok(false);
        }
        if matches!(self.format, FileFormat::Pcap { .. }) && !pcap::has_time(packet.ns) {
            self.too_late += 1;
            return Ok(false);
        }
        let shared =
            packet.data.shared().filter(|data| data.size() >= LARGE && self.queue.shares());
        let there = match &shared {
            None => self.has_room(size),
            Some(data) => self.has_room_around(size - data.size(), data),
        };
        if !there || !self.rotate_for(packet, size)? {
            return Ok(false);
        }
        if self.complete {
            self.after_end += 1;
            return Ok(true);
        }
        match self.format {
            FileFormat::Pcapng => {
                if self.section.must_turn_for(packet) {
                    let blocks = self.section.turn_for(packet);
                    self.put(&blocks);
                }
                let head = pcapng::HEAD_SIZE;
                match shared {
                    None => self.put_packet(size, |room| pcapng::put_packet(room, &adapted)),
                    Some(data) => self.put_shared(size, head, &data, |room| {
                        pcapng::put_packet_around(room, &adapted);
                    }),
                }
            }
            FileFormat::Pcap { nanos } => {
                self.put_header(self.section.linktype_of(packet));
                let head = pcap::RECORD_SIZE;
                match shared {
                    None => self.put_packet(size, |room| pcap::put_packet(room, packet, nanos)),
                    Some(data) => self.put_shared(size, head, &data, |room| {
                        pcap::put_head(room, packet, nanos);
                    }),
                }
            }
        }
        self.section.delivered(packet);
        Ok(true)
    }

    #[cold]
    fn lose<D>(&mut self, packet: &PacketWith<'_, D>) {
        self.lost += 1;
        self.section.lost(packet);
    }

    fn put_packet(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) {
        let Some(room) = self.room(size) else { return };
        fill(room);
        self.count_packet();
    }

    /// Writes a packet as [`Self::put_packet`], but leaves its data in shared memory: they follow the
    /// first `head` of the bytes that `fill` writes.
    fn put_shared(
        &mut self,
        size: usize,
        head: usize,
        data: &SharedBytes<'_>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let own = size - data.size();
        // Blocks that were written before may have used the space of the batch.
        let batch = self.batch_with_room(own);
        let Some(room) = batch.and_then(|batch| batch.room_around(own, head, data)) else { return };
        fill(room);
        self.position += size as u64;
        self.count_packet();
    }

    fn count_packet(&mut self) {
        if let Some(batch) = &mut self.batch {
            batch.packets += 1;
        }
        self.handed += 1;
        self.packets += 1;
    }
}
