//! Flight recorder: keeps the last packets in memory, and writes them when a trigger fires.
//!
//! Packets are stored in blocks of memory; full blocks are kept until they are too old, or until memory
//! is short. When a trigger fires, a thread writes the stored packets and those that follow, from the
//! same blocks, so the capture never waits for a disk. Blocks that are not yet written keep their
//! memory; a packet is lost, and counted, only if all blocks wait for the writer.

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
/// Limit of a file that further triggers extend, as a multiple of `after`.
const LONGEST: u32 = 10;
/// Additional history, because triggers arrive some time after the event.
const NOTICE: Duration = Duration::from_secs(2);
/// Time after the end of an incident until its file is closed while no packets arrive: some may be
/// late.
const LATE_PACKET_TIMEOUT: Duration = Duration::from_millis(100);
/// The same while packets arrive: their time stamps may lag, or the clock was set back.
const BUSY_LATE_PACKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two copies of the current block to the file.
const BRING_OUT: Duration = Duration::from_millis(50);
/// Number of waiting messages above which no copies are made, because the disk is slow.
const MAX_COPY_BACKLOG: usize = 4;

/// Settings of a recorder.
#[derive(Debug)]
pub struct RecorderSettings {
    /// The file of `-w`; the names of incident files are derived from it.
    pub path: PathBuf,
    /// History to keep before a trigger.
    pub before: Duration,
    /// Time to write after a trigger.
    pub after: Duration,
    /// Most memory for packets, bytes; at least [`MIN_MEMORY`].
    pub memory: usize,
    /// Number of files after which the recorder is done.
    pub max_incidents: Option<u64>,
    /// Packet filters that trigger.
    pub filters: Vec<PacketTrigger>,
}

/// Why a recorder could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The memory could not be allocated.
    #[error("there are no {0} bytes of memory for packets")]
    Memory(usize),
    /// The path does not give valid file names.
    #[error(transparent)]
    Name(#[from] IncidentNameError),
    /// The writer thread could not be started.
    #[error("cannot start the thread that writes")]
    Thread(#[from] std::io::Error),
}

/// An incident that is being written.
#[derive(Debug)]
struct Incident {
    path: PathBuf,
    end_ns: u64,
    /// Upper limit of `end_ns`.
    limit_ns: u64,
    /// `end_ns` on the monotonic clock.
    deadline: Instant,
    /// Bytes of the current block that were passed to the writer.
    sent: usize,
    brought_out: Instant,
}

/// The recorder, as a sink.
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
    /// Time of the last packet.
    last_ns: u64,
    /// Lost packets by interface that were not yet reported.
    owed: Vec<u64>,
    lost: u64,
}

impl FlightRecorder {
    /// Starts a recorder; returns it, and a sender for triggers. `open` opens the files.
    ///
    /// # Errors
    /// Fails if memory or the thread is not available, or if the path is not a file name.
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

    /// Returns the status, which may be read while it records.
    pub fn status(&self) -> Arc<RecorderStatus> {
        Arc::clone(&self.status)
    }

    fn exhausted(&self) -> bool {
        self.settings.max_incidents.is_some_and(|most| self.incidents >= most)
    }

    /// Processes the waiting triggers.
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
        // The trigger was late: packets after the end of the incident are already stored.
        if self.last_ns > end_ns {
            self.end_incident();
        }
        TriggerAnswer::Writing(path)
    }

    /// Passes all stored packets to the writer, section by section.
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

    /// Ends the file with the packets received so far.
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

    /// Seals the current block, and passes what the writer does not have yet.
    fn send_rest(&mut self) {
        let sealed = self.history.seal();
        let Some(incident) = &mut self.incident else { return };
        let from = mem::take(&mut incident.sent);
        if let Some(full) = sealed {
            self.writer.send(WriterMessage::Block { block: Arc::clone(&full.block), from });
        }
    }

    /// Passes a copy of what the writer does not have yet; the block remains current.
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

    /// Processes triggers, and ends the incident at `grace` after its deadline.
    fn tend(&mut self, grace: Duration) {
        self.take_triggers();
        if self.incident.as_ref().is_some_and(|i| Instant::now() >= i.deadline + grace) {
            self.end_incident();
        }
        self.bring_out();
        self.status.update(&self.history, self.lost);
    }

    /// Fires the packet filters that match.
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
        // The next packet also reports the losses that this packet would have reported.
        self.owed[index] = packet.dropped.saturating_add(1);
        self.lost += 1;
    }
}

/// Converts a wall clock time to the monotonic clock.
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
