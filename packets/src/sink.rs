//! Where packets go: files, a decoder, a recorder in memory, or several of them.

// Every method that fails does so with the same few errors, described at `SinkError`.
#![allow(clippy::missing_errors_doc)]

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};

/// Why a sink takes no more packets.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// It could not be opened.
    #[error("cannot write to {}", path.display())]
    Open {
        /// As given.
        path: PathBuf,
        /// Of the system.
        source: io::Error,
    },
    /// Whoever read it has gone: the orderly end of a pipe.
    #[error("the reader of {name} has gone")]
    Closed {
        /// What was written to.
        name: String,
    },
    /// It cannot take this, whatever the system says.
    #[error("cannot write to {name}: {reason}")]
    Refused {
        /// What was to be written to.
        name: String,
        /// What does not go together, and what does.
        reason: String,
    },
    /// The system refused a write.
    #[error("cannot write to {name}")]
    Write {
        /// What was written to.
        name: String,
        /// Of the system.
        source: io::Error,
    },
}

/// How far a sink has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkProgress {
    /// Packets that arrived where they should.
    pub written: u64,
    /// Packets that were handed over and could not be written, or had to give way.
    pub lost: u64,
    /// Packets that only a further sink did not get, see [`Fanout`].
    pub missed: u64,
    /// Bytes in all files so far, as on disk.
    pub bytes: u64,
    /// Files begun, 0 where there are none.
    pub files: u64,
    /// The file being written.
    pub file: Option<PathBuf>,
    /// Why nothing is written at the moment, for instance a full disk.
    pub waiting: Option<String>,
}

/// Takes packets. The calls come in this order: `section`, `interface` once or more, then packets
/// and further interfaces; perhaps another `section`, and so on; at last `finish`. `counters` and
/// `flush` may come any time after the first `section`.
///
/// No call may wait for long: rings overflow meanwhile. A sink that cannot keep up loses packets,
/// counts them, and goes on.
pub trait PacketSink: Debug {
    /// Begins a section: interfaces are numbered from 0 again. An app that was restarted begins one.
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError>;

    /// Adds the next interface of the section.
    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError>;

    /// Takes a packet of an interface of the section. Times may go back where the clock was set. One
    /// that is refused with an error counts as lost.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError>;

    /// What is known of the interfaces of the section by now; once a second, before a new section
    /// and before the end.
    fn counters(&mut self, statistics: &[InterfaceStatistics]);

    /// Brings out what was collected: nothing more is waiting right now.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// True when more packets are of no use: the reader has gone, or the last file is full.
    fn done(&mut self) -> bool;

    /// False while a packet would be lost for want of room. Rings cannot wait for room; a source
    /// that can, such as a file, does.
    fn ready(&mut self) -> bool {
        true
    }

    /// How far it has come.
    fn progress(&self) -> SinkProgress;

    /// Ends it: everything is brought out, files are complete. Only `progress` may follow. It may
    /// wait for a disk, but not for one that stays full.
    fn finish(&mut self) -> Result<(), SinkError>;
}

/// Counts packets and keeps none.
#[derive(Debug, Default)]
pub struct NullSink {
    packets: u64,
}

impl PacketSink for NullSink {
    fn section(&mut self, _origin: &SectionOrigin) -> Result<(), SinkError> {
        Ok(())
    }

    fn interface(&mut self, _interface: &CaptureInterface) -> Result<(), SinkError> {
        Ok(())
    }

    fn packet(&mut self, _packet: &Packet<'_>) -> Result<(), SinkError> {
        self.packets += 1;
        Ok(())
    }

    fn counters(&mut self, _statistics: &[InterfaceStatistics]) {}

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn done(&mut self) -> bool {
        false
    }

    fn progress(&self) -> SinkProgress {
        SinkProgress { written: self.packets, ..SinkProgress::default() }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A sink among several.
#[derive(Debug)]
struct FanoutMember {
    sink: Box<dyn PacketSink>,
    /// It wants no more, or cannot.
    over: bool,
    /// Packets that came after it had failed.
    missed: u64,
    error: Option<SinkError>,
}

impl FanoutMember {
    /// Does something to the sink unless it is over; an error ends it.
    fn tell(&mut self, what: impl FnOnce(&mut dyn PacketSink) -> Result<(), SinkError>) {
        if !self.over
            && let Err(error) = what(&mut *self.sink)
        {
            self.over = true;
            self.error = Some(error);
        }
    }

    fn failed(&self) -> bool {
        self.error.as_ref().is_some_and(|error| !matches!(error, SinkError::Closed { .. }))
    }
}

/// Hands everything to each of several sinks. One that fails or wants no more is left alone, and
/// the others go on; an error comes out when it was the last, or at the end. Progress is that of
/// the first, which is the one that matters; what the others lost is in `missed`.
#[derive(Debug)]
pub struct Fanout {
    members: Vec<FanoutMember>,
}

impl Fanout {
    /// Sinks, the one that matters first.
    pub fn new(targets: impl IntoIterator<Item = Box<dyn PacketSink>>) -> Self {
        let member = |sink| FanoutMember { sink, over: false, missed: 0, error: None };
        Self { members: targets.into_iter().map(member).collect() }
    }

    fn all(
        &mut self,
        what: impl Fn(&mut dyn PacketSink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        self.members.iter_mut().for_each(|member| member.tell(&what));
        if self.members.iter().all(|member| member.over) { self.error() } else { Ok(()) }
    }

    /// The worst error that has not come out yet. A reader that has gone is none while there are
    /// others.
    fn error(&mut self) -> Result<(), SinkError> {
        let failed = self.members.iter().position(FanoutMember::failed);
        let all_gone = self.members.iter().all(|member| member.error.is_some()).then_some(0);
        match failed.or(all_gone).and_then(|index| self.members.get_mut(index)?.error.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl PacketSink for Fanout {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        self.all(|sink| sink.section(origin))
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        self.all(|sink| sink.interface(interface))
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        for member in self.members.iter_mut().filter(|member| member.failed()) {
            member.missed += 1;
        }
        self.all(|sink| sink.packet(packet))
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        for member in self.members.iter_mut().filter(|member| !member.over) {
            member.sink.counters(statistics);
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.all(|sink| sink.flush())
    }

    fn done(&mut self) -> bool {
        for member in &mut self.members {
            member.over = member.over || member.sink.done();
        }
        self.members.iter().all(|member| member.over)
    }

    fn ready(&mut self) -> bool {
        self.members.iter_mut().all(|member| member.over || member.sink.ready())
    }

    fn progress(&self) -> SinkProgress {
        let mut members = self.members.iter();
        let Some(first) = members.next() else { return SinkProgress::default() };
        let progress = first.sink.progress();
        let missed = members.map(|member| member.missed + member.sink.progress().lost).sum();
        SinkProgress { lost: progress.lost + first.missed, missed, ..progress }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        for member in &mut self.members {
            // One that has failed may still have a file to complete.
            let finished = member.sink.finish();
            member.error = member.error.take().or(finished.err());
        }
        self.error()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// What the test sees of a model.
    #[derive(Clone, Debug, Default)]
    struct Seen {
        packets: Rc<Cell<u64>>,
        finished: Rc<Cell<u64>>,
    }

    /// Takes so many packets, and then fails or wants no more.
    #[derive(Debug)]
    struct Model {
        seen: Seen,
        room: u64,
        error: Option<SinkError>,
    }

    impl PacketSink for Model {
        fn section(&mut self, _origin: &SectionOrigin) -> Result<(), SinkError> {
            Ok(())
        }

        fn interface(&mut self, _interface: &CaptureInterface) -> Result<(), SinkError> {
            Ok(())
        }

        fn packet(&mut self, _packet: &Packet<'_>) -> Result<(), SinkError> {
            if self.seen.packets.get() == self.room
                && let Some(error) = self.error.take()
            {
                return Err(error);
            }
            self.seen.packets.set(self.seen.packets.get() + 1);
            Ok(())
        }

        fn counters(&mut self, _statistics: &[InterfaceStatistics]) {}

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn done(&mut self) -> bool {
            self.seen.packets.get() >= self.room
        }

        fn progress(&self) -> SinkProgress {
            SinkProgress { written: self.seen.packets.get(), lost: 1, ..SinkProgress::default() }
        }

        fn finish(&mut self) -> Result<(), SinkError> {
            self.seen.finished.set(self.seen.finished.get() + 1);
            Ok(())
        }
    }

    fn several(members: [(u64, Option<SinkError>); 2]) -> (Fanout, [Seen; 2]) {
        let seen = [Seen::default(), Seen::default()];
        let model = |((room, error), seen): (_, &Seen)| {
            Box::new(Model { seen: seen.clone(), room, error }) as Box<dyn PacketSink>
        };
        (Fanout::new(members.into_iter().zip(&seen).map(model)), seen)
    }

    fn closed() -> SinkError {
        SinkError::Closed { name: "model".to_owned() }
    }

    fn broken() -> SinkError {
        SinkError::Refused { name: "model".to_owned(), reason: "broken".to_owned() }
    }

    fn put(several: &mut Fanout, count: u64) -> Result<(), SinkError> {
        let data = &[0; 60];
        let packet = Packet {
            interface: 0,
            ns: 0,
            data,
            len: 60,
            dir: 0,
            queue: None,
            lcore: None,
            weight: 1,
            dropped: 0,
            id: 0,
            comment: "",
        };
        (0..count).try_for_each(|_| several.packet(&packet))
    }

    #[test]
    fn one_whose_reader_goes_does_not_end_the_other() {
        let (mut several, seen) = several([(100, None), (2, Some(closed()))]);
        put(&mut several, 5).unwrap();
        assert_eq!((seen[0].packets.get(), seen[1].packets.get()), (5, 2));
        assert!(!several.done());
        let progress = several.progress();
        assert_eq!((progress.written, progress.lost, progress.missed), (5, 1, 1));
        several.finish().unwrap();
        assert_eq!((seen[0].finished.get(), seen[1].finished.get()), (1, 1));
    }

    #[test]
    fn one_that_fails_is_counted_and_told_at_the_end() {
        let (mut several, seen) = several([(2, Some(broken())), (100, None)]);
        put(&mut several, 5).unwrap();
        assert_eq!(seen[1].packets.get(), 5);
        // One packet was lost with the error, two were not even offered.
        assert_eq!((several.progress().written, several.progress().lost), (2, 1 + 2));
        assert!(matches!(several.finish(), Err(SinkError::Refused { .. })));
    }

    #[test]
    fn when_the_last_one_is_gone_the_worst_error_comes_out() {
        let (mut several, _) = several([(1, Some(broken())), (2, Some(closed()))]);
        let error = put(&mut several, 5).unwrap_err();
        assert!(matches!(error, SinkError::Refused { .. }), "{error}");
    }

    #[test]
    fn when_all_readers_are_gone_that_is_the_end() {
        let (mut several, _) = several([(1, Some(closed())), (2, Some(closed()))]);
        assert!(matches!(put(&mut several, 5), Err(SinkError::Closed { .. })));
    }

    #[test]
    fn it_is_done_when_all_are() {
        let (mut several, seen) = several([(1, None), (3, None)]);
        put(&mut several, 1).unwrap();
        assert!(!several.done());
        put(&mut several, 2).unwrap();
        assert!(several.done());
        assert_eq!((seen[0].packets.get(), seen[1].packets.get()), (1, 3));
        several.finish().unwrap();
    }
}
