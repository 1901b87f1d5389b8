//! tcpdump as a decoder: one process for each link type, because a file that tcpdump reads has only one.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use pmdscope_packets::{ETHERNET, SinkError};

use super::stage::{Batch, Decoder};
use super::tcpdump::{Tcpdump, ended_early};

/// Most processes at a time.
const MOST_PROCESSES: usize = 8;

/// Starts a process; its lines come out at once, or else in blocks.
pub(super) type StartTcpdump = Box<dyn FnMut(bool) -> anyhow::Result<Tcpdump> + Send>;

/// Prints packets in their order, by the process of their link type.
pub(super) struct TcpdumpPerLinkType {
    start: StartTcpdump,
    /// The last one prints the current packets, and all others have printed theirs.
    processes: Vec<Tcpdump>,
    /// Link types whose process has failed: tcpdump does not print all that exist.
    failed: BTreeSet<u16>,
    /// Why the first of them failed.
    failure: Option<SinkError>,
    /// Names of the interfaces of all batches.
    names: Vec<Arc<str>>,
}

impl TcpdumpPerLinkType {
    /// Starts the first process, for the link type of the first packet. If its lines come out in blocks, it ends
    /// before packets of another link type, and the others print at once.
    pub(super) fn new(mut start: StartTcpdump, at_once: bool) -> anyhow::Result<Self> {
        let (processes, names) = (vec![start(at_once)?], Vec::new());
        Ok(Self { start, processes, failed: BTreeSet::new(), failure: None, names })
    }

    /// The process for a link type becomes the last one.
    fn switch_to(&mut self, linktype: u16) -> Result<(), SinkError> {
        if let Some(last) = self.processes.last_mut() {
            if last.linktype().is_none() {
                last.begin(linktype);
                return Ok(());
            }
            if !last.is_at_once() {
                self.end_last()?;
            } else if last.drain().is_err() {
                self.remove_last()?;
            }
        }
        let is_meant = |process: &Tcpdump| process.linktype() == Some(linktype);
        if let Some(found) = self.processes.iter().position(is_meant) {
            let process = self.processes.remove(found);
            self.processes.push(process);
            return Ok(());
        }
        if self.processes.len() >= MOST_PROCESSES {
            // It has printed everything; a failure now loses no packet.
            let _ = self.processes.remove(0).end();
        }
        let started = (self.start)(true).map_err(|error| SinkError::Write {
            name: "tcpdump".to_owned(),
            source: io::Error::other(format!("{error:#}")),
        });
        let mut process = started?;
        process.begin(linktype);
        self.processes.push(process);
        Ok(())
    }

    /// Ends the last process, which prints what is left. An error if its output is no longer read.
    fn end_last(&mut self) -> Result<(), SinkError> {
        let Some(process) = self.processes.pop() else { return Ok(()) };
        let linktype = process.linktype().unwrap_or(ETHERNET);
        process.end().or_else(|error| self.fail(linktype, error))
    }

    /// Gives up the link type of the last process. An error if its output is no longer read.
    fn remove_last(&mut self) -> Result<(), SinkError> {
        self.processes.pop().map_or(Ok(()), |process| self.give_up(process))
    }

    fn give_up(&mut self, process: Tcpdump) -> Result<(), SinkError> {
        let linktype = process.linktype().unwrap_or(ETHERNET);
        let error = process.end().err().unwrap_or_else(ended_early);
        self.fail(linktype, error)
    }

    fn fail(&mut self, linktype: u16, error: SinkError) -> Result<(), SinkError> {
        self.failed.insert(linktype);
        match error {
            closed @ SinkError::Closed { .. } => Err(closed),
            failure => {
                self.failure.get_or_insert(failure);
                Ok(())
            }
        }
    }
}

impl Decoder for TcpdumpPerLinkType {
    fn decode(&mut self, batch: &Batch) -> Result<(), SinkError> {
        let added = batch.interfaces.iter().skip(self.names.len());
        self.names.extend(added.map(|interface| Arc::from(interface.name.as_str())));
        for (head, data) in batch.packets() {
            let linktype = batch.interfaces[head.interface].linktype;
            if self.failed.contains(&linktype) {
                continue;
            }
            if self.processes.last().and_then(Tcpdump::linktype) != Some(linktype) {
                self.switch_to(linktype)?;
            }
            if let Some(process) = self.processes.last_mut() {
                process.packet(head, data, Arc::clone(&self.names[head.interface]));
            }
        }
        if self.processes.last_mut().is_some_and(|process| process.flush().is_err()) {
            self.remove_last()?;
        }
        let is_shown = |linktype: u16| !self.failed.contains(&linktype);
        if batch.interfaces.iter().any(|interface| is_shown(interface.linktype)) {
            return Ok(());
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn has_ended(&mut self) -> bool {
        let ended =
            self.processes.extract_if(.., |process| process.has_ended()).collect::<Vec<_>>();
        for process in ended {
            if let Err(closed) = self.give_up(process) {
                self.failure = Some(closed);
                return true;
            }
        }
        self.processes.is_empty()
    }

    fn end(self: Box<Self>) -> Result<(), SinkError> {
        let ended = self.processes.into_iter().map(Tcpdump::end);
        let ended = ended.fold(Ok(()), Result::and);
        self.failure.map_or(ended, Err)
    }
}
