//! Encodes conversations as messages.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::message::{IpfixMessage, MessageHeader};
use super::record::{FlowRecord, interface};
use super::template::{
    self, INTERFACES, NAME, OPTIONS_TEMPLATES, SAMPLING, TEMPLATES, TemplateShape,
};
use crate::Flow;
use crate::listener::FlowEndReason;

/// Most interfaces with stored names.
const NAMES: usize = 1024;

/// Most flow ids whose tunnels are remembered; then they are sent again.
const TUNNELS: usize = 16_384;

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) bytes: Vec<u8>,
    /// Number of data records of conversations in the message.
    pub(super) records: u32,
}

/// Counts of the records of one conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordCounts {
    pub(super) records: u64,
    /// Records with rounded counts.
    pub(super) rounded: u64,
}

/// Fills messages, and passes full ones to a function that sends them.
#[derive(Debug)]
pub(super) struct FlowEncoder {
    domain: u32,
    sample: u32,
    limit: usize,
    /// Returns the seconds since 1970.
    clock: fn() -> u32,
    sequence: u32,
    message: IpfixMessage,
    /// Buffer for one record.
    record: Vec<u8>,
    names: BTreeMap<u32, String>,
    /// Ends of the tunnel that were sent for a flow id since templates were sent.
    tunnels: HashMap<u64, [IpAddr; 2]>,
    /// Templates and options must be sent before the next records.
    unannounced: bool,
}

impl FlowEncoder {
    pub(super) fn new(domain: u32, sample: u32, limit: usize, clock: fn() -> u32) -> Self {
        Self {
            domain,
            sample: sample.max(1),
            limit,
            clock,
            sequence: 0,
            message: IpfixMessage::new(limit),
            record: Vec::new(),
            names: BTreeMap::new(),
            tunnels: HashMap::new(),
            unannounced: true,
        }
    }

    /// Has templates and options sent again.
    pub(super) fn announce(&mut self) {
        self.unannounced = true;
        self.tunnels.clear();
    }

    /// Adds a conversation.
    pub(super) fn flow(
        &mut self,
        flow: &Flow,
        apps: &[String],
        reason: FlowEndReason,
        send: &mut impl FnMut(Datagram),
    ) -> RecordCounts {
        self.name(flow, apps);
        if self.tunnels.len() >= TUNNELS {
            self.tunnels.clear();
        }
        let mut encoded = RecordCounts::default();
        for mut record in FlowRecord::all(flow, reason) {
            encoded.records += 1;
            encoded.rounded += u64::from(!record.divide(self.sample));
            self.record.clear();
            if let Some(tunnel) = record.tunnel()
                && self.tunnels.insert(tunnel.id, tunnel.ends) != Some(tunnel.ends)
            {
                tunnel.write(&mut self.record);
                let set = template::tunnels_id(tunnel.ends[0].is_ipv6());
                if !self.message.add(set, &self.record) {
                    self.flush(send);
                    self.message.add(set, &self.record);
                }
                self.record.clear();
            }
            record.write(&mut self.record);
            let set = record.shape().id();
            if !self.message.add_flow(set, &self.record) {
                self.flush(send);
                self.message.add_flow(set, &self.record);
            }
        }
        encoded
    }

    /// Sends the current message, after templates and options if these are due.
    pub(super) fn flush(&mut self, send: &mut impl FnMut(Datagram)) {
        if std::mem::take(&mut self.unannounced) {
            self.announcement(send);
        }
        if !self.message.is_empty() {
            let (bytes, records, flows) = self.message.seal(self.head());
            self.sequence = self.sequence.wrapping_add(records);
            send(Datagram { bytes, records: flows });
        }
    }

    fn head(&self) -> MessageHeader {
        MessageHeader { time: (self.clock)(), sequence: self.sequence, domain: self.domain }
    }

    fn announcement(&mut self, send: &mut impl FnMut(Datagram)) {
        let mut message = IpfixMessage::new(self.limit);
        for shape in TemplateShape::all() {
            self.put(&mut message, TEMPLATES, &shape.template(), send);
        }
        // nfdump reads only one options template of a set.
        let tunnels = [false, true].map(template::tunnels);
        let options = [template::sampling(), template::interfaces()].into_iter().chain(tunnels);
        for template in options {
            message.close_set();
            self.put(&mut message, OPTIONS_TEMPLATES, &template, send);
        }
        let sampling = [self.domain, self.sample].map(u32::to_be_bytes).concat();
        self.put(&mut message, SAMPLING, &sampling, send);
        let names = std::mem::take(&mut self.names);
        for (number, name) in &names {
            let mut option = [self.domain, *number].map(u32::to_be_bytes).concat();
            option.extend(name.bytes());
            option.resize(option.len() + NAME - name.len(), 0);
            self.put(&mut message, INTERFACES, &option, send);
        }
        self.names = names;
        self.ship(&mut message, send);
    }

    fn put(
        &mut self,
        message: &mut IpfixMessage,
        set: u16,
        record: &[u8],
        send: &mut impl FnMut(Datagram),
    ) {
        if !message.add(set, record) {
            self.ship(message, send);
            message.add(set, record);
        }
    }

    fn ship(&mut self, message: &mut IpfixMessage, send: &mut impl FnMut(Datagram)) {
        let (bytes, options, _) = message.seal(self.head());
        self.sequence = self.sequence.wrapping_add(options);
        send(Datagram { bytes, records: 0 });
    }

    /// Stores the names of new interfaces, and has them sent.
    fn name(&mut self, flow: &Flow, apps: &[String]) {
        for place in [flow.rx_place, flow.tx_place].into_iter().flatten() {
            let Some(number) = interface(flow.app, place.port) else { continue };
            if self.names.len() < NAMES && !self.names.contains_key(&number) {
                let app = apps.get(usize::from(flow.app)).map_or("", String::as_str);
                self.names.insert(number, shorten(format!("{app}:{}", place.port)));
                self.unannounced = true;
            }
        }
    }
}

/// Truncates a name so that a zero byte fits after it.
fn shorten(mut name: String) -> String {
    let end = (0..NAME).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or(0));
    name
}
