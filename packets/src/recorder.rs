//! Flight recorder: keeps the last packets in memory and writes them when something happens.
//!
//! Packets go into blocks of memory; full blocks stay until they are too old, or memory is short.
//! When a trigger fires, a thread writes what is held and what comes after, from the same blocks, so
//! that whoever hands over packets never waits for a disk. Blocks that the thread has not written yet
//! keep their memory; only when all have is a packet lost, and counted.

mod block;
mod history;
mod name;
mod status;
mod trigger;
mod writer;

#[cfg(test)]
mod tests;

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::name::IncidentNameError;
pub use self::status::RecorderStatus;
pub use self::trigger::{PacketTrigger, RecorderTrigger, TriggerAnswer, TriggerSender};
pub use self::writer::SinkOpener;

use self::history::PacketHistory;
use self::trigger::{ArmedTrigger, TriggerQueue};
use self::writer::{RecorderWriter, WriterMessage};
use crate::clock::realtime_ns;
use crate::packet::{CaptureInterface, InterfaceStatistics, Packet, SectionOrigin};
use crate::sink::{PacketSink, SinkError, SinkProgress};

/// Least memory of a recorder, bytes.
pub const MIN_MEMORY: usize = 16 << 20;
/// A file that triggers prolong ends after so many times `after` at the latest.
const LONGEST: u32 = 10;
/// How long ago the moment of a trigger may be: what happens is not noticed at once.
const NOTICE: Duration = Duration::from_secs(2);
/// How long after its end, on a quiet clock, a file still waits for packets that are on their way.
const LATE_PACKET_TIMEOUT: Duration = Duration::from_millis(100);
/// The same while packets come: their times may lag, or the clock was set back.
const BUSY_LATE_PACKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two copies of a block that is still being filled to the file.
const BRING_OUT: Duration = Duration::from_millis(50);
/// Messages that wait when the disk is slow; no copies are made then.
const MAX_COPY_BACKLOG: usize = 4;

/// How to record.
#[derive(Debug)]
pub struct RecorderSettings {
    /// The file of `-w`, from which those of the incidents take their names.
    pub path: PathBuf,
    /// What is kept before a trigger.
    pub before: Duration,
    /// What is written after a trigger.
    pub after: Duration,
    /// Most memory for packets, bytes; at least [`MIN_MEMORY`].
    pub memory: usize,
    /// Files after which the recorder is done.
    pub max_incidents: Option<u64>,
    /// Packets that fire.
    pub filters: Vec<PacketTrigger>,
}

/// Why there is no recorder.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// Memory is short.
    #[error("there are no {0} bytes of memory for packets")]
    Memory(usize),
    /// The files have no names.
    #[error(transparent)]
    Name(#[from] IncidentNameError),
    /// There is no thread.
    #[error("cannot start the thread that writes")]
    Thread(#[from] std::io::Error),
}

/// An incident that is being written.
#[derive(Debug)]
struct Incident {
    path: PathBuf,
    end_ns: u64,
    /// No trigger moves the end beyond.
    limit_ns: u64,
    /// `end_ns` on a clock that nobody sets.
    deadline: Instant,
    /// Bytes of the current block that the writer has.
    sent: usize,
    brought_out: Instant,
}

/// The sink that records.
#[derive(Debug)]
pub struct FlightRecorder {
    settings: RecorderSettings,
    history: PacketHistory,
    writer: RecorderWriter,
    armed: Vec<ArmedTrigger>,
    queue: TriggerQueue,
    status: Arc<RecorderStatus>,
    incident: Option<Incident>,
    incidents: u64,
    triggers: u64,
    /// Time of the packet before.
    last_ns: u64,
    /// Packets by interface that were lost and not told yet.
    owed: Vec<u64>,
    lost: u64,
}

impl FlightRecorder {
    /// A recorder, and what fires it. `open` begins the files.
    ///
    /// # Errors
    /// When memory or a thread is not to be had, or the path names no file.
    pub fn start(
        mut settings: RecorderSettings,
        open: SinkOpener,
    ) -> Result<(Self, TriggerSender), RecorderError> {
        let now_ns = realtime_ns();
        name::incident(&settings.path, now_ns, 1, "")?;
        let before_ns = nanos(settings.before);
        let keep_ns = before_ns.saturating_add(nanos(NOTICE));
        let history = PacketHistory::new(settings.memory, [before_ns, keep_ns], now_ns)
            .ok_or(RecorderError::Memory(settings.memory))?;
        let (fire, queue) = trigger::queue();
        let status = Arc::new(RecorderStatus::new(&settings, &history, now_ns));
        let armed = mem::take(&mut settings.filters).into_iter().map(ArmedTrigger::new).collect();
        let recorder = Self {
            settings,
            history,
            writer: RecorderWriter::start(open)?,
            armed,
            queue,
            status,
            incident: None,
            incidents: 0,
            triggers: 0,
            last_ns: 0,
            owed: Vec::new(),
            lost: 0,
        };
        Ok((recorder, fire))
    }

    /// What it holds and has done, to be looked at while it records.
    pub fn status(&self) -> Arc<RecorderStatus> {
        Arc::clone(&self.status)
    }

    fn exhausted(&self) -> bool {
        self.settings.max_incidents.is_some_and(|most| self.incidents >= most)
    }

    /// Takes what others have fired.
    fn take_triggers(&mut self) {
        while let Some(trigger) = self.queue.next() {
            self.fired(&trigger);
        }
    }

    fn fired(&mut self, trigger: &RecorderTrigger) {
        if self.incident.as_ref().is_some_and(|incident| trigger.moment_ns > incident.limit_ns) {
            self.end_incident();
        }
        let answer = match &self.incident {
            None if self.exhausted() => TriggerAnswer::Done,
            None => self.begin_incident(trigger),
            Some(_) => self.extend(trigger),
        };
        trigger.answer(answer);
    }

    fn begin_incident(&mut self, trigger: &RecorderTrigger) -> TriggerAnswer {
        let number = self.incidents + 1;
        let path =
            match name::incident(&self.settings.path, trigger.moment_ns, number, &trigger.name) {
                Ok(path) => path,
                Err(error) => return TriggerAnswer::Failed(error.to_string()),
            };
        let after_ns = nanos(self.settings.after);
        let end_ns = trigger.moment_ns.saturating_add(after_ns);
        self.writer.send(WriterMessage::Begin {
            path: path.clone(),
            start_ns: trigger.history_end_ns().saturating_sub(nanos(self.settings.before)),
            end_ns,
            mark: trigger.mark().with(&self.history.before(trigger.history_end_ns())),
        });
        self.history.seal();
        self.send_history();
        self.incidents = number;
        self.triggers += 1;
        self.incident = Some(Incident {
            path: path.clone(),
            end_ns,
            limit_ns: trigger.moment_ns.saturating_add(after_ns.saturating_mul(LONGEST.into())),
            deadline: deadline(end_ns),
            sent: 0,
            brought_out: Instant::now(),
        });
        self.status.began(&path, self.triggers);
        // Where the moment is long past, what came after it is held already.
        if self.last_ns > end_ns {
            self.end_incident();
        }
        TriggerAnswer::Writing(path)
    }

    /// Hands over everything that is held, section by section.
    fn send_history(&self) {
        let mut held = self.history.held().peekable();
        let mut last: Option<&history::HistorySection> = None;
        for section in self.history.sections() {
            if let Some(last) = last {
                self.writer.send(WriterMessage::Counters(last.statistics.clone()));
            }
            last = Some(section);
            self.writer.send(WriterMessage::Section(section.origin.clone()));
            for interface in &section.interfaces {
                self.writer.send(WriterMessage::Interface(interface.clone()));
            }
            while let Some(full) = held.next_if(|full| full.section == section.number) {
                self.writer.send(WriterMessage::Block { block: Arc::clone(&full.block), from: 0 });
            }
        }
    }

    fn extend(&mut self, trigger: &RecorderTrigger) -> TriggerAnswer {
        let Some(incident) = &mut self.incident else { return TriggerAnswer::Done };
        let end_ns = trigger.moment_ns.saturating_add(nanos(self.settings.after));
        let end_ns = end_ns.min(incident.limit_ns).max(incident.end_ns);
        (incident.end_ns, incident.deadline) = (end_ns, deadline(end_ns));
        self.triggers += 1;
        self.status.fired(self.triggers);
        self.writer.send(WriterMessage::Extend { end_ns, mark: trigger.mark() });
        TriggerAnswer::Writing(incident.path.clone())
    }

    /// Ends the file at what was taken so far.
    fn end_incident(&mut self) {
        if self.incident.is_none() {
            return;
        }
        self.send_rest();
        self.incident = None;
        if let Some(section) = self.history.section() {
            self.writer.send(WriterMessage::Counters(section.statistics.clone()));
        }
        self.writer.send(WriterMessage::End);
        self.status.ended();
    }

    /// Hands over what the writer does not have yet, which fills the block.
    fn send_rest(&mut self) {
        let sealed = self.history.seal();
        let Some(incident) = &mut self.incident else { return };
        let from = mem::take(&mut incident.sent);
        if let Some(full) = sealed {
            self.writer.send(WriterMessage::Block { block: Arc::clone(&full.block), from });
        }
    }

    /// Hands over a copy of what the writer does not have yet; the block goes on.
    fn bring_out(&mut self) {
        let Some(incident) = &mut self.incident else { return };
        if incident.brought_out.elapsed() < BRING_OUT || self.writer.backlog() > MAX_COPY_BACKLOG {
            return;
        }
        incident.brought_out = Instant::now();
        let bytes = self.history.current().map_or(&[][..], block::PacketBlock::bytes);
        if bytes.len() > incident.sent {
            let first = incident.sent == 0;
            let part = bytes[incident.sent..].to_vec();
            incident.sent = bytes.len();
            self.writer.send(WriterMessage::Part { bytes: part, first });
        }
        self.writer.send(WriterMessage::Flush);
    }

    /// Looks for triggers and for the end of the incident, `grace` after its time.
    fn tend(&mut self, grace: Duration) {
        self.take_triggers();
        if self.incident.as_ref().is_some_and(|i| Instant::now() >= i.deadline + grace) {
            self.end_incident();
        }
        self.bring_out();
        self.status.update(&self.history, self.lost);
    }

    /// Fires where the packet is one that was waited for.
    fn match_packet(&mut self, packet: &Packet<'_>) {
        for index in 0..self.armed.len() {
            if let Some(trigger) = self.armed[index].look(packet) {
                self.fired(&trigger);
            }
        }
    }

    fn keep(&mut self, packet: &Packet<'_>) {
        if self.history.push(packet) {
            return;
        }
        self.send_rest();
        if !self.history.renew(packet.ns) || !self.history.push(packet) {
            self.lose(packet);
        }
    }

    fn lose(&mut self, packet: &Packet<'_>) {
        let index = packet.interface as usize;
        self.owed.resize(self.owed.len().max(index + 1), 0);
        // A packet that was to tell of others tells the next one.
        self.owed[index] = packet.dropped.saturating_add(1);
        self.lost += 1;
    }
}

/// The moment on a clock that nobody sets.
fn deadline(end_ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(end_ns.saturating_sub(realtime_ns()))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl PacketSink for FlightRecorder {
    fn section(&mut self, origin: &SectionOrigin) -> Result<(), SinkError> {
        self.send_rest();
        if let Some(section) = self.history.section().filter(|_| self.incident.is_some()) {
            self.writer.send(WriterMessage::Counters(section.statistics.clone()));
        }
        self.owed.clear();
        self.history.begin(origin);
        if self.incident.is_some() {
            self.writer.send(WriterMessage::Section(origin.clone()));
        }
        self.writer.check()
    }

    fn interface(&mut self, interface: &CaptureInterface) -> Result<(), SinkError> {
        if let Some(section) = self.history.section() {
            section.interfaces.push(interface.clone());
        }
        if self.incident.is_some() {
            self.writer.send(WriterMessage::Interface(interface.clone()));
        }
        Ok(())
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), SinkError> {
        if self.queue.waits() {
            self.take_triggers();
        }
        self.match_packet(packet);
        if self.incident.as_ref().is_some_and(|incident| packet.ns > incident.end_ns) {
            self.end_incident();
        }
        self.last_ns = packet.ns;
        let owed = self.owed.get_mut(packet.interface as usize).map_or(0, mem::take);
        self.keep(&Packet { dropped: packet.dropped.saturating_add(owed), ..*packet });
        self.writer.check()
    }

    fn counters(&mut self, statistics: &[InterfaceStatistics]) {
        if let Some(section) = self.history.section() {
            section.statistics = statistics.to_vec();
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.tend(LATE_PACKET_TIMEOUT);
        self.writer.check()
    }

    fn done(&mut self) -> bool {
        self.tend(BUSY_LATE_PACKET_TIMEOUT);
        self.incident.is_none() && self.exhausted()
    }

    fn progress(&self) -> SinkProgress {
        let progress = self.writer.progress();
        SinkProgress { lost: progress.lost + self.lost, ..progress }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.take_triggers();
        self.end_incident();
        self.status.update(&self.history, self.lost);
        self.writer.finish()
    }
}
