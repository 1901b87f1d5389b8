//! Runs a decoder in a separate thread, so that a slow decoder loses packets on the terminal and
//! none in the capture.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pmdscope_packets::{
    CaptureInterface, InterfaceStatistics, Packet, PacketSink, SectionOrigin, SinkError,
    SinkProgress,
};

use crate::output::say;

/// Bytes of a full batch.
const BATCH: usize = 64 << 10;
/// Batches that may wait for the decoder.
const QUEUE: usize = 64;
/// Time between checks of a decoder that has nothing to do.
const IDLE: Duration = Duration::from_millis(100);

/// A packet of a batch, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Index among the interfaces of the batch.
    pub(super) interface: usize,
    /// Nanoseconds since 1970.
    pub(super) ns: u64,
    /// Bytes on the wire.
    pub(super) len: u32,
    pub(super) dir: u8,
    /// Interfaces of several names were there before it.
    pub(super) named: bool,
    /// Number in the capture, from 0.
    pub(super) id: u64,
    kept: usize,
}

/// Packets on their way to a decoder.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// All interfaces so far; there are only ever more.
    pub(super) interfaces: Arc<Vec<CaptureInterface>>,
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

impl Batch {
    /// The packets with their bytes.
    pub(super) fn packets(&self) -> impl Iterator<Item = (&Head, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.heads.iter().map(move |head| {
            let (data, after) = rest.split_at(head.kept);
            rest = after;
            (head, data)
        })
    }

    fn push(&mut self, interface: usize, named: bool, packet: &Packet<'_>) {
        self.heads.push(Head {
            interface,
            ns: packet.ns,
            len: packet.len,
            dir: packet.dir,
            named,
            id: packet.id,
            kept: packet.data.len(),
        });
        self.bytes.extend_from_slice(packet.data);
    }
}

/// Turns packets into text on standard output.
pub(super) trait Decoder: Send {
    /// Shows packets; may wait.
    fn decode(&mut self, batch: &Batch) -> Result<(), SinkError>;

    /// It shows nothing any more.
    fn has_ended(&mut self) -> bool;

    /// Shows what is left, and ends. Its error is the reason of those before.
    fn end(self: Box<Self>) -> Result<(), SinkError>;
}

/// A target that shows packets.
pub(super) struct View {
    sender: Option<SyncSender<Batch>>,
    worker: Option<JoinHandle<Result<(), SinkError>>>,
    batch: Batch,
    /// Index of the interfaces of this section among all.
    section: Vec<usize>,
    /// Interfaces have several names.
    named: bool,
    /// Packets do not wait for the decoder.
    live: bool,
    shown: u64,
    missed: u64,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl View {
    pub(super) fn new(decoder: Box<dyn Decoder>, live: bool) -> Self {
        let (sender, receiver) = sync_channel(QUEUE);
        Self {
            sender: Some(sender),
            worker: Some(std::thread::spawn(move || work(decoder, &receiver))),
            batch: Batch::default(),
            section: Vec::new(),
            named: false,
            live,
            shown: 0,
            missed: 0,
        }
    }

    /// Hands over the batch. When the decoder is behind, packets of a ring wait in their place.
    fn pass(&mut self) {
        let Some(sender) = self.sender.as_ref().filter(|_| !self.batch.heads.is_empty()) else {
            return;
        };
        let interfaces = Arc::clone(&self.batch.interfaces);
        let batch = std::mem::replace(&mut self.batch, Batch { interfaces, ..Batch::default() });
        let count = batch.heads.len() as u64;
        let sent = if self.live {
            sender.try_send(batch)
        } else {
            sender.send(batch).map_err(|error| TrySendError::Disconnected(error.0))
        };
        match sent {
            Ok(()) => self.shown += count,
            Err(TrySendError::Full(batch)) => self.batch = batch,
            Err(TrySendError::Disconnected(_)) => self.missed += count,
        }
    }
}

fn work(mut decoder: Box<dyn Decoder>, batches: &Receiver<Batch>) -> Result<(), SinkError> {
    let shown = loop {
        match batches.recv_timeout(IDLE) {
            Ok(batch) => {
                if let Err(error) = decoder.decode(&batch) {
                    break Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Err(RecvTimeoutError::Timeout) if decoder.has_ended() => {
                let source = std::io::Error::other("it ended early");
                break Err(SinkError::Write { name: "the decoder".to_owned(), source });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    decoder.end().and(shown)
}

impl PacketSink for View {
    fn section(&mut self, _origin: &SectionOrigin) -> Result<(), SinkError> {
        self.section.clear();
        Ok(())
    }

    /// An interface of the same name in a later section is the same to people.
    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        let same = |known: &CaptureInterface| {
            (&known.name, known.linktype) == (&interface.name, interface.linktype)
        };
        let known = &mut self.batch.interfaces;
        let index = known.iter().position(same).unwrap_or_else(|| {
            Arc::make_mut(known).push(interface.clone());
            known.len() - 1
        });
        self.section.push(index);
        let names = self.batch.interfaces.iter().map(|known| known.name.as_str());
        let first = names.clone().find(|name| !name.is_empty());
        self.named = names.into_iter().any(|name| !name.is_empty() && Some(name) != first);
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        let Some(interface) = self.section.get(packet.interface as usize) else { return Ok(()) };
        if self.batch.bytes.len() < BATCH {
            self.batch.push(*interface, self.named, packet);
        } else {
            self.missed += 1;
        }
        if self.batch.bytes.len() >= BATCH {
            self.pass();
        }
        Ok(())
    }

    fn counters(&mut self, _statistics: &[InterfaceStatistics]) {}

    fn flush(&mut self) -> Result<(), SinkError> {
        self.pass();
        Ok(())
    }

    fn done(&mut self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Packets that are not shown are no loss of the capture; they are reported at the end.
    fn progress(&self) -> SinkProgress {
        SinkProgress { written: self.shown, ..SinkProgress::default() }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        let (Some(sender), Some(worker)) = (self.sender.take(), self.worker.take()) else {
            return Ok(());
        };
        let batch = std::mem::take(&mut self.batch);
        let count = batch.heads.len() as u64;
        match sender.send(batch) {
            Ok(()) => self.shown += count,
            Err(_) => self.missed += count,
        }
        drop(sender);
        let result = worker.join().unwrap_or_else(|_| {
            let source = std::io::Error::other("its thread panicked");
            Err(SinkError::Write { name: "the decoder".to_owned(), source })
        });
        if self.missed > 0 && result.is_ok() {
            let missed = self.missed;
            say(format_args!("pmdscope: {missed} packets not shown: the decoder was too slow"));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Seen = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

    /// Remembers what it was given; waits until it may.
    struct Slow(Seen);

    impl Decoder for Slow {
        fn decode(&mut self, batch: &Batch) -> Result<(), SinkError> {
            let name = |head: &Head| batch.interfaces[head.interface].name.clone();
            let packets = batch.packets().map(|(head, data)| (name(head), data.to_vec()));
            self.0.lock().unwrap().extend(packets);
            Ok(())
        }

        fn has_ended(&mut self) -> bool {
            false
        }

        fn end(self: Box<Self>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn interface(name: &str) -> CaptureInterface {
        CaptureInterface {
            name: name.to_owned(),
            description: String::new(),
            filter: String::new(),
            comment: String::new(),
            options: Vec::new(),
            snaplen: 0,
            linktype: 1,
        }
    }

    fn packet(interface: u32, data: &[u8]) -> Packet<'_> {
        let len = u32::try_from(data.len()).unwrap();
        let (ns, dir, queue, lcore, weight, dropped, id, comment) = (0, 1, None, None, 1, 0, 0, "");
        let options = &[];
        Packet {
            interface,
            ns,
            data,
            len,
            dir,
            queue,
            lcore,
            weight,
            dropped,
            id,
            comment,
            options,
        }
    }

    #[test]
    fn packets_keep_their_interface_across_sections() {
        let seen = Arc::default();
        let mut view = View::new(Box::new(Slow(Arc::clone(&seen))), true);
        let origin = SectionOrigin::default();
        view.section(&origin).unwrap();
        view.interface(&interface("a")).unwrap();
        view.interface(&interface("b")).unwrap();
        view.packet(&packet(1, b"one")).unwrap();
        view.section(&origin).unwrap();
        view.interface(&interface("b")).unwrap();
        view.interface(&interface("c")).unwrap();
        view.packet(&packet(0, b"two")).unwrap();
        view.packet(&packet(1, b"three")).unwrap();
        view.finish().unwrap();
        let expected = [("b", "one"), ("b", "two"), ("c", "three")]
            .map(|(name, data)| (name.to_owned(), data.as_bytes().to_vec()));
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!((view.shown, view.missed), (3, 0));
    }

    #[test]
    fn packets_of_a_file_wait_for_a_slow_decoder() {
        let seen = Seen::default();
        let mut view = View::new(Box::new(Slow(Arc::clone(&seen))), false);
        view.section(&SectionOrigin::default()).unwrap();
        view.interface(&interface("a")).unwrap();
        let data = vec![0; BATCH / 4];
        let count = 16 * QUEUE as u64;
        (0..count).for_each(|_| view.packet(&packet(0, &data)).unwrap());
        view.finish().unwrap();
        assert_eq!((view.shown, seen.lock().unwrap().len() as u64), (count, count));
    }

    #[test]
    fn a_slow_decoder_misses_packets_and_holds_up_nobody() {
        let seen = Arc::default();
        let mut view = View::new(Box::new(Slow(Arc::clone(&seen))), true);
        view.section(&SectionOrigin::default()).unwrap();
        view.interface(&interface("a")).unwrap();
        let held = seen.lock().unwrap();
        let data = vec![0; BATCH / 4];
        let count = 4 * (QUEUE as u64 + 10);
        for _ in 0..count {
            view.packet(&packet(0, &data)).unwrap();
        }
        assert!(view.missed > 0);
        drop(held);
        view.finish().unwrap();
        assert_eq!(view.shown + view.missed, count);
        assert_eq!(seen.lock().unwrap().len() as u64, view.shown);
    }
}
