//! Moves the packets of files into a target.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::item::Item;
use super::reader::{ReadError, Reader};
use crate::control::Control;
use crate::filter::{Compiler, FilterError, OfflineFilter};
use crate::packet::{DIR_RX, DIR_TX, Interface, Origin, Packet, Statistics};
use crate::target::{Progress, Target, TargetError};

/// How long to wait for a target that has no room, before looking again.
const PAUSE: Duration = Duration::from_millis(1);

/// What to take from files.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Filter expression; empty takes everything.
    pub filter: String,
    /// Let libpcap's optimiser at the filter.
    pub optimize: bool,
    /// `DIR_*` bits. Packets of unknown direction pass when both are set only.
    pub dirs: u8,
    /// Most bytes to keep of a packet.
    pub snaplen: u32,
    /// Leave out the first packets that pass.
    pub skip: u64,
    /// Stop after so many packets.
    pub count: Option<u64>,
}

/// Why files were not read to their end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A file cannot be read, or is broken.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The filter is wrong for the link type of an interface.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The packets could not be written.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// What became of the packets, or has so far.
#[derive(Debug, Default)]
pub struct Report {
    /// Packets in the files, up to where they were read.
    pub read: u64,
    /// Packets put out, without those that could then not be written.
    pub captured: u64,
    /// Packets that pass the filter, and are left out because the file does not tell their direction.
    pub undirected: u64,
    /// What the target did.
    pub progress: Progress,
    /// Why it ended early.
    pub failure: Option<Failure>,
}

/// What comes before a packet.
#[derive(Debug)]
enum Head {
    Section(Origin),
    Interface(Interface),
    Statistics(Statistics),
}

/// Files that are about to be moved into a target.
#[derive(Debug)]
pub struct Replay {
    control: Control,
    files: VecDeque<PathBuf>,
    reader: Reader,
    settings: Settings,
    filters: HashMap<u16, OfflineFilter>,
    /// Link types of the interfaces of the section being read.
    linktypes: Vec<u16>,
    /// What was read and not yet told to the target.
    heads: VecDeque<Head>,
    /// The reader is at a packet that passes.
    at_packet: bool,
    /// What ended the look ahead.
    broken: Option<ReadError>,
    begin_ns: Option<u64>,
    read: u64,
    undirected: u64,
    taken: u64,
    /// Statistics of the interfaces of the section being told.
    statistics: Vec<Statistics>,
}

impl Replay {
    /// Opens the first file, and reads on to the first packet that passes.
    ///
    /// # Errors
    /// When there is no file or the first cannot be read at all, or when the filter is wrong.
    pub fn open(
        files: impl IntoIterator<Item = PathBuf>,
        settings: Settings,
        control: &Control,
    ) -> Result<Self, Failure> {
        let mut files = files.into_iter().collect::<VecDeque<_>>();
        let reader = Reader::open_until(&files.pop_front().unwrap_or_default(), &control.stop)?;
        Self::begin(reader, files, settings, control)
    }

    pub(super) fn begin(
        reader: Reader,
        files: VecDeque<PathBuf>,
        settings: Settings,
        control: &Control,
    ) -> Result<Self, Failure> {
        let mut replay = Self {
            control: control.clone(),
            files,
            reader,
            settings,
            filters: HashMap::new(),
            linktypes: Vec::new(),
            heads: VecDeque::new(),
            at_packet: false,
            broken: None,
            begin_ns: None,
            read: 0,
            undirected: 0,
            taken: 0,
            statistics: Vec::new(),
        };
        match replay.seek() {
            Err(Failure::Read(error)) => replay.broken = Some(error),
            other => other?,
        }
        Ok(replay)
    }

    /// Time of the first packet that passes, if there is one.
    pub fn begin_ns(&self) -> Option<u64> {
        self.begin_ns
    }

    /// Interfaces that come before the first packet.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.heads.iter().filter_map(|head| match head {
            Head::Interface(interface) => Some(interface),
            Head::Section(_) | Head::Statistics(_) => None,
        })
    }

    /// Moves packets until the files end, the count is reached, it is told to stop, or something
    /// fails; then finishes the target. `asked` is called when someone wants to know.
    pub fn run(mut self, target: &mut dyn Target, asked: &mut dyn FnMut(&Report)) -> Report {
        let result = self.pump(target, asked);
        let told = self.tell_heads(target).map_err(Failure::from);
        target.counters(&self.statistics);
        let finished = target.finish().map_err(Failure::from);
        self.report(target, result.and(told).and(finished).err())
    }

    fn pump(
        &mut self,
        target: &mut dyn Target,
        asked: &mut dyn FnMut(&Report),
    ) -> Result<(), Failure> {
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
            if self.control.flush.swap(false, Ordering::Relaxed) || self.reader.drained() {
                target.flush()?;
            }
            match self.seek() {
                // Where it was told to stop, a pipe ends anywhere.
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

    /// Goes on to the next packet that passes.
    fn seek(&mut self) -> Result<(), Failure> {
        self.at_packet = false;
        loop {
            if self.reader.advance()? {
                if self.look()? {
                    self.at_packet = true;
                    return Ok(());
                }
            } else if let Some(file) = self.files.pop_front() {
                self.reader = Reader::open_until(&file, &self.control.stop)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Takes note of an item; true for a packet that passes.
    fn look(&mut self) -> Result<bool, Failure> {
        match self.reader.item()? {
            Item::Section(origin) => {
                self.linktypes.clear();
                self.heads.push_back(Head::Section(origin));
            }
            Item::Interface(mut interface) => {
                interface.snaplen = interface.snaplen.min(self.settings.snaplen);
                self.linktypes.push(interface.linktype);
                let compiler = Compiler {
                    linktype: interface.linktype,
                    optimize: self.settings.optimize,
                    ..Compiler::default()
                };
                if !self.filters.contains_key(&interface.linktype) {
                    let filter = OfflineFilter::compiled(&self.settings.filter, &compiler)?;
                    self.filters.insert(interface.linktype, filter);
                }
                if !self.settings.filter.trim().is_empty() {
                    interface.filter = both(&interface.filter, &self.settings.filter);
                }
                self.heads.push_back(Head::Interface(interface));
            }
            Item::Statistics(statistics) => self.heads.push_back(Head::Statistics(statistics)),
            Item::Other => {}
            Item::Packet(packet) => {
                self.read += 1;
                let linktype = self.linktypes.get(packet.interface as usize);
                let filter = linktype.and_then(|linktype| self.filters.get(linktype));
                let matches = filter.is_none_or(|filter| filter.matches(packet.data, packet.len));
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

    fn tell_heads(&mut self, target: &mut dyn Target) -> Result<(), TargetError> {
        while let Some(head) = self.heads.pop_front() {
            match head {
                Head::Section(origin) => {
                    if !self.statistics.is_empty() {
                        target.counters(&self.statistics);
                        self.statistics.clear();
                    }
                    target.section(&origin)?;
                }
                Head::Interface(interface) => {
                    let number = u32::try_from(self.statistics.len()).unwrap_or(u32::MAX);
                    self.statistics.push(Statistics { interface: number, ..Statistics::default() });
                    target.interface(&interface)?;
                }
                Head::Statistics(told) => {
                    if let Some(known) = self.statistics.get_mut(told.interface as usize) {
                        *known = Statistics { delivered: known.delivered, ..told };
                    }
                }
            }
        }
        Ok(())
    }

    fn tell_packet(&mut self, target: &mut dyn Target) -> Result<(), Failure> {
        let Item::Packet(packet) = self.reader.item()? else { return Ok(()) };
        if let Some(known) = self.statistics.get_mut(packet.interface as usize) {
            known.delivered += 1;
            known.end_ns = known.end_ns.max(packet.ns);
            known.start_ns = if known.start_ns == 0 { packet.ns } else { known.start_ns };
        }
        let kept = packet.data.len().min(self.settings.snaplen as usize);
        self.taken += 1;
        Ok(target.packet(&Packet { data: &packet.data[..kept], ..packet })?)
    }

    fn report(&self, target: &dyn Target, failure: Option<Failure>) -> Report {
        let closed = matches!(failure, Some(Failure::Target(TargetError::Closed { .. })));
        let progress = target.progress();
        Report {
            read: self.read,
            captured: self.taken.saturating_sub(progress.lost),
            undirected: self.undirected,
            failure: failure.filter(|_| !closed),
            progress,
        }
    }
}

fn is_wanted(dir: u8, wanted: u8) -> bool {
    wanted == DIR_RX | DIR_TX || dir & wanted != 0
}

/// What passed one filter and then another.
fn both(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("({first}) and ({second})") }
}
