//! Passes the packets of files to a sink.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ByteOrder;
use super::item::FileItem;
use super::merged::ReplayInput;
use super::reader::{CaptureFile, ReadError};
use crate::control::RunControl;
use crate::filter::{FilterCompiler, OfflineFilter, PacketFilterError};
use crate::packet::{
    CaptureInterface, DIR_RX, DIR_TX, ETHERNET, InterfaceStatistics, Packet, SectionOrigin,
};
use crate::sink::{PacketSink, SinkError, SinkProgress};

/// Time between two checks whether the sink has space.
const PAUSE: Duration = Duration::from_millis(1);

/// Link types for which most filters can be compiled: Ethernet, IP alone, Linux cooked captures, and IEEE
/// 802.11 with radiotap. An expression that fits none of them is wrong.
const LINK_TYPES_OF_FILTERS: [u16; 4] = [ETHERNET, 101, 113, 127];

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// Filter expression; empty takes everything.
    pub filter: String,
    /// Optimise the filter with libpcap.
    pub optimize: bool,
    /// `DIR_*` bits. Packets of unknown direction pass only if both are set.
    pub dirs: u8,
    /// Most bytes to keep of a packet.
    pub snaplen: u32,
    /// Number of packets that pass to leave out first.
    pub skip: u64,
    /// Stop after this many packets.
    pub count: Option<u64>,
}

/// Why files were not read to their end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read, or is malformed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The filter cannot be compiled for the link type of an interface.
    #[error(transparent)]
    Filter(#[from] PacketFilterError),
    /// The packets could not be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// The result of a replay, or its state so far.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// Packets read from the files.
    pub read: u64,
    /// Packets passed to the sink, without those that it lost or that came after the last file.
    pub captured: u64,
    /// Packets that pass the filter, but are left out because their direction is unknown.
    pub undirected: u64,
    /// Progress of the sink.
    pub progress: SinkProgress,
    /// Why the replay ended early.
    pub failure: Option<ReplayError>,
}

/// Link type and byte order of packets, which a filter program depends on.
type FilterKey = (u16, ByteOrder);

/// An item before a packet.
#[derive(Debug)]
enum PendingHead {
    Section(SectionOrigin),
    Interface(CaptureInterface),
    Statistics(InterfaceStatistics),
}

/// A replay of files into a sink.
#[derive(Debug)]
pub struct FileReplay {
    control: RunControl,
    files: VecDeque<CaptureFile>,
    reader: ReplayInput,
    settings: ReplaySettings,
    filters: Vec<(FilterKey, Result<OfflineFilter, PacketFilterError>)>,
    /// Index of a filter that could not be compiled, and there was a packet for it.
    unfiltered: Option<usize>,
    /// The interfaces of the section being read: index of the filter of each.
    interface_filters: Vec<usize>,
    /// Items that were read, and not yet passed to the sink.
    heads: VecDeque<PendingHead>,
    /// The current item of the reader is a packet that passes.
    at_packet: bool,
    /// The error of [`FileReplay::begin`] when it read the first packet.
    broken: Option<ReadError>,
    begin_ns: Option<u64>,
    read: u64,
    undirected: u64,
    taken: u64,
    /// Statistics of the interfaces of the section that was passed to the sink.
    statistics: Vec<InterfaceStatistics>,
}

impl FileReplay {
    /// Opens the first file, and reads up to the first packet that passes. A directory is read as the
    /// capture files in it, merged by time.
    ///
    /// # Errors
    /// Fails if there is no file, if the first cannot be read at all, or if the filter is invalid.
    pub fn open(
        files: impl IntoIterator<Item = PathBuf>,
        settings: ReplaySettings,
        control: &RunControl,
    ) -> Result<Self, ReplayError> {
        Self::open_named(files.into_iter().map(CaptureFile::from), settings, control)
    }

    /// Opens files as [`FileReplay::open`], with other names in messages than their paths.
    ///
    /// # Errors
    /// As [`FileReplay::open`].
    pub fn open_named(
        files: impl IntoIterator<Item = CaptureFile>,
        settings: ReplaySettings,
        control: &RunControl,
    ) -> Result<Self, ReplayError> {
        let mut files = files.into_iter().collect::<VecDeque<_>>();
        let reader = ReplayInput::open(&files.pop_front().unwrap_or_default(), control)?;
        Self::begin(reader, files, settings, control)
    }

    pub(super) fn begin(
        reader: impl Into<ReplayInput>,
        files: VecDeque<CaptureFile>,
        settings: ReplaySettings,
        control: &RunControl,
    ) -> Result<Self, ReplayError> {
        let mut replay = Self {
            control: control.clone(),
            files,
            reader: reader.into(),
            settings,
            filters: Vec::new(),
            unfiltered: None,
            interface_filters: Vec::new(),
            heads: VecDeque::new(),
            at_packet: false,
            broken: None,
            begin_ns: None,
            read: 0,
            undirected: 0,
            taken: 0,
            statistics: Vec::new(),
        };
        match replay.seek(&mut || Ok(())) {
            Err(ReplayError::Read(error)) => replay.broken = Some(error),
            other => other?,
        }
        // Nothing passes because the filter fits no packet.
        if !replay.at_packet && replay.broken.is_none() {
            replay.filter_failure().map_or(Ok(()), Err)?;
        }
        Ok(replay)
    }

    /// Returns the time of the first packet that passes, if there is one.
    pub fn begin_ns(&self) -> Option<u64> {
        self.begin_ns
    }

    /// Returns the interfaces before the first packet.
    pub fn interfaces(&self) -> impl Iterator<Item = &CaptureInterface> {
        self.heads.iter().filter_map(|head| match head {
            PendingHead::Interface(interface) => Some(interface),
            PendingHead::Section(_) | PendingHead::Statistics(_) => None,
        })
    }

    /// Passes packets to the sink until the files end, the count is reached, `stop` is set, or an error
    /// occurs; then finishes the sink. `asked` is called when a report is requested.
    pub fn run(
        mut self,
        target: &mut dyn PacketSink,
        asked: &mut dyn FnMut(&ReplayReport),
    ) -> ReplayReport {
        let result = self.run_loop(target, asked);
        let told = self.tell_heads(target).map_err(ReplayError::from);
        target.counters(&self.statistics);
        let finished = target.finish().map_err(ReplayError::from);
        let failure = result.and(told).and(finished).err().or_else(|| self.filter_failure());
        self.report(target, failure)
    }

    fn run_loop(
        &mut self,
        target: &mut dyn PacketSink,
        asked: &mut dyn FnMut(&ReplayReport),
    ) -> Result<(), ReplayError> {
        self.tell_heads(target)?;
        while self.at_packet && self.settings.count.is_none_or(|count| self.taken < count) {
            while !target.ready() && !self.stopped() {
                std::thread::sleep(PAUSE);
            }
            if self.control.report.swap(false, Ordering::Relaxed) {
                asked(&self.report(target, None));
            }
            if self.stopped() || target.done() {
                return Ok(());
            }
            self.tell_packet(target)?;
            if self.control.flush.swap(false, Ordering::Relaxed) {
                target.flush()?;
            }
            match self.seek(&mut || target.flush()) {
                // After a stop, a pipe may end within a block.
                Err(_) if self.stopped() => return Ok(()),
                other => other?,
            }
            self.tell_heads(target)?;
        }
        self.broken.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn stopped(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed)
    }

    /// Advances to the next packet that passes. `before_wait` is called before a read that may block.
    fn seek(
        &mut self,
        before_wait: &mut dyn FnMut() -> Result<(), SinkError>,
    ) -> Result<(), ReplayError> {
        self.at_packet = false;
        loop {
            if self.reader.may_wait() {
                before_wait()?;
            }
            if self.reader.advance()? {
                if self.look()? {
                    self.at_packet = true;
                    return Ok(());
                }
            } else if let Some(file) = self.files.pop_front() {
                self.reader = ReplayInput::open(&file, &self.control)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Processes an item; returns true for a packet that passes.
    fn look(&mut self) -> Result<bool, ReplayError> {
        let order = self.reader.byte_order();
        match self.reader.item()? {
            FileItem::Section(origin) => {
                self.interface_filters.clear();
                self.heads.push_back(PendingHead::Section(origin));
            }
            FileItem::Interface(mut interface) => {
                interface.snaplen = interface.snaplen.min(self.settings.snaplen);
                let key = (interface.linktype, order);
                let filter = self.compile(key)?;
                self.interface_filters.push(filter);
                if !self.settings.filter.trim().is_empty() {
                    interface.filter = both(&interface.filter, &self.settings.filter);
                }
                self.heads.push_back(PendingHead::Interface(interface));
            }
            FileItem::Statistics(statistics) => {
                self.heads.push_back(PendingHead::Statistics(statistics));
            }
            FileItem::Other => {}
            FileItem::Packet(packet) => {
                self.read += 1;
                let at = self.interface_filters.get(packet.interface as usize).copied();
                let matches = match at.map(|at| &self.filters[at].1) {
                    Some(Ok(filter)) => filter.matches(packet.data, packet.len),
                    Some(Err(_)) => {
                        self.unfiltered = at;
                        false
                    }
                    None => true,
                };
                let wanted = is_wanted(packet.dir, self.settings.dirs);
                self.undirected += u64::from(matches && !wanted && packet.dir == 0);
                let passes = matches && wanted;
                if passes && self.settings.skip > 0 {
                    self.settings.skip -= 1;
                    return Ok(false);
                }
                self.begin_ns = self.begin_ns.or(passes.then_some(packet.ns));
                return Ok(passes);
            }
        }
        Ok(false)
    }

    /// Compiles the filter for packets of a link type, and returns its index. If it cannot be compiled for any
    /// other either, this fails; otherwise only packets of this link type are an error.
    fn compile(&mut self, key: FilterKey) -> Result<usize, PacketFilterError> {
        if let Some(at) = self.filters.iter().position(|(known, _)| *known == key) {
            return Ok(at);
        }
        let (linktype, order) = key;
        let compiler = FilterCompiler {
            linktype,
            optimize: self.settings.optimize,
            file_order: Some(order),
            ..FilterCompiler::default()
        };
        let filter = OfflineFilter::compiled(&self.settings.filter, &compiler);
        let fits = |linktype| {
            let compiler = FilterCompiler { linktype, ..compiler };
            OfflineFilter::compiled(&self.settings.filter, &compiler).is_ok()
        };
        if let Err(error) = &filter
            && !self.filters.iter().any(|(_, filter)| filter.is_ok())
            && !LINK_TYPES_OF_FILTERS.into_iter().any(fits)
        {
            return Err(error.clone());
        }
        self.filters.push((key, filter));
        Ok(self.filters.len() - 1)
    }

    /// Returns an error if packets are missing because the filter could not be compiled for their link
    /// type.
    fn filter_failure(&mut self) -> Option<ReplayError> {
        let (_, filter) = self.filters.get(self.unfiltered.take()?)?;
        filter.as_ref().err().cloned().map(ReplayError::from)
    }

    fn tell_heads(&mut self, target: &mut dyn PacketSink) -> Result<(), SinkError> {
        while let Some(head) = self.heads.pop_front() {
            match head {
                PendingHead::Section(origin) => {
                    if !self.statistics.is_empty() {
                        target.counters(&self.statistics);
                        self.statistics.clear();
                    }
                    target.section(&origin)?;
                }
                PendingHead::Interface(interface) => {
                    let number = u32::try_from(self.statistics.len()).unwrap_or(u32::MAX);
                    self.statistics.push(InterfaceStatistics {
                        interface: number,
                        ..InterfaceStatistics::default()
                    });
                    target.interface(&interface)?;
                }
                PendingHead::Statistics(told) => {
                    if let Some(known) = self.statistics.get_mut(told.interface as usize) {
                        *known = InterfaceStatistics { delivered: known.delivered, ..told };
                    }
                }
            }
        }
        Ok(())
    }

    fn tell_packet(&mut self, target: &mut dyn PacketSink) -> Result<(), ReplayError> {
        let FileItem::Packet(packet) = self.reader.item()? else { return Ok(()) };
        if let Some(known) = self.statistics.get_mut(packet.interface as usize) {
            known.delivered += 1;
            known.end_ns = known.end_ns.max(packet.ns);
            known.start_ns = if known.start_ns == 0 { packet.ns } else { known.start_ns };
        }
        let kept = packet.data.len().min(self.settings.snaplen as usize);
        self.taken += 1;
        Ok(target.packet(&Packet { data: &packet.data[..kept], ..packet })?)
    }

    fn report(&self, target: &dyn PacketSink, failure: Option<ReplayError>) -> ReplayReport {
        let closed = matches!(failure, Some(ReplayError::Sink(SinkError::Closed { .. })));
        let progress = target.progress();
        ReplayReport {
            read: self.read,
            captured: self.taken.saturating_sub(progress.lost + progress.after_end),
            undirected: self.undirected,
            failure: failure.filter(|_| !closed),
            progress,
        }
    }
}

fn is_wanted(dir: u8, wanted: u8) -> bool {
    wanted == DIR_RX | DIR_TX || dir & wanted != 0
}

/// Combines two filters.
fn both(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("({first}) and ({second})") }
}
