//! Local ports that receive.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pmdscope_capture::flow::{Counts, End, Endpoint, Flow, Snapshot, Ways};
use pmdscope_tui::conversation;
use pmdscope_tui::number::{bytes, count, seconds};
use pmdscope_tui::subject::Subject;
use pmdscope_tui::table::{Cell, Column, Table};
use serde::Serialize;

use super::args::Args;
use super::conversations;
use super::moment::{Moment, app_of};
use super::paper::Paper;
use super::words::{self, SCTP, TCP, UDP, some};

/// Flag of a TCP segment that opens or accepts a connection.
const SYN: u8 = 2;

/// A port that others talk to.
#[derive(Debug, Serialize)]
pub(super) struct Listener<'a> {
    app: &'a str,
    proto: String,
    local: Endpoint,
    /// VLANs and tunnel; empty without.
    wrapping: String,
    remotes: usize,
    conversations: u64,
    /// From remote ends.
    rx: Counts,
    /// To remote ends.
    tx: Counts,
    last_ns: u64,
    #[serde(skip)]
    number: u8,
    #[serde(skip)]
    addresses: BTreeSet<IpAddr>,
}

/// The end of a conversation that was talked to, if one is known to have been.
fn receiver(flow: &Flow) -> Option<End> {
    let undirected = flow.rx == Ways::default() && flow.tx == Ways::default();
    let end = match flow.opener? {
        End::Remote => End::Local,
        // In a file without directions either end may be ours.
        End::Local if undirected => End::Remote,
        End::Local => return None,
    };
    let answered = match end {
        End::Local => flow.tcp_flags[0] & SYN != 0,
        End::Remote => flow.tcp_flags[1] & SYN != 0,
    };
    match flow.proto {
        TCP => answered.then_some(end),
        UDP | SCTP => Some(end),
        _ => None,
    }
}

/// All ports that receive, those with most packets first.
pub(super) fn all<'a>(args: &Args, snapshot: &'a Snapshot) -> Vec<Listener<'a>> {
    let mut found = BTreeMap::new();
    for flow in snapshot.flows.iter().filter(|flow| args.picked.takes(flow)) {
        let Some(end) = receiver(flow) else { continue };
        let swapped = end == End::Remote;
        let (local, remote) =
            if swapped { (flow.remote, flow.local) } else { (flow.local, flow.remote) };
        let key = (flow.app, flow.proto, local, flow.vlans, flow.tunnel);
        let listener = found.entry(key).or_insert_with(|| Listener {
            app: app_of(snapshot, flow.app),
            proto: conversation::protocol(flow.proto),
            local,
            wrapping: conversation::wrapping(flow),
            remotes: 0,
            conversations: 0,
            rx: Counts::default(),
            tx: Counts::default(),
            last_ns: 0,
            number: flow.proto,
            addresses: BTreeSet::new(),
        });
        let [mut from_local, mut from_remote] = ends(flow);
        if swapped {
            std::mem::swap(&mut from_local, &mut from_remote);
        }
        listener.conversations += 1;
        listener.addresses.insert(remote.addr);
        listener.remotes = listener.addresses.len();
        listener.rx = listener.rx.plus(from_remote);
        listener.tx = listener.tx.plus(from_local);
        listener.last_ns = listener.last_ns.max(flow.last_ns);
    }
    let mut all = found.into_values().collect::<Vec<_>>();
    all.sort_by_key(|listener| std::cmp::Reverse(listener.rx.packets));
    all
}

/// From the local and from the remote end. What an app forwards is received and sent: it counts once.
fn ends(flow: &Flow) -> [Counts; 2] {
    let larger = |a: Counts, b: Counts| if a.packets >= b.packets { a } else { b };
    let of =
        |way: fn(&Ways) -> Counts| larger(way(&flow.rx), way(&flow.tx)).plus(way(&flow.unknown));
    [of(|ways| ways.from_local), of(|ways| ways.from_remote)]
}

/// The report.
pub(super) fn text(args: &Args, moment: &Moment, paper: &Paper) -> String {
    let columns = vec![
        Column::text("App").drop_at(2),
        Column::text("Proto"),
        Column::text("Local").flex(15),
        Column::text("VLAN/tunnel").drop_at(3),
        Column::number("Remotes"),
        Column::number("Conversations").drop_at(4),
        Column::number("RX-pkts"),
        Column::number("TX-pkts"),
        Column::number("RX-bytes").drop_at(5),
        Column::number("TX-bytes").drop_at(5),
        Column::number("Last").drop_at(6),
    ];
    let mut table = Table::new("Listeners", columns);
    let snapshot = moment.counted();
    let all = all(args, &snapshot);
    let shown = paper.rows(all.len());
    for listener in &all[..shown] {
        let subject = Subject::App { app: listener.app.to_owned() };
        table.push(subject, false, listener.cells(&snapshot));
    }
    if snapshot.apps.len() < 2 {
        table.hide_column("App");
    }
    if all.iter().all(|listener| listener.wrapping.is_empty()) {
        table.hide_column("VLAN/tunnel");
    }
    if shown < all.len() {
        let more = some((all.len() - shown) as u64, "more port");
        table.notes.push(format!("{more} (--all shows all)"));
    }
    table.notes.extend(notes(args, moment, &snapshot));
    paper.table(&table)
}

impl Listener<'_> {
    fn cells(&self, snapshot: &Snapshot) -> Vec<Cell> {
        let ago = snapshot.now_ns.saturating_sub(self.last_ns) as f64 / 1e9;
        vec![
            Cell::text(self.app),
            Cell::text(words::protocol(self.number, self.local.addr)),
            Cell::text(conversation::endpoint(self.local)),
            Cell::text(&self.wrapping),
            Cell::text(count(self.remotes as u64)),
            Cell::text(count(self.conversations)),
            Cell::text(count(self.rx.packets)),
            Cell::text(count(self.tx.packets)),
            Cell::text(bytes(self.rx.bytes)),
            Cell::text(bytes(self.tx.bytes)),
            Cell::text(seconds(ago)),
        ]
    }
}

fn notes(args: &Args, moment: &Moment, snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let running = unknown(args, snapshot);
    if running > 0 {
        notes.push(format!(
            "{} began before: nobody saw which end listens; look for longer (--for) to see others begin",
            some(running, "TCP conversation")
        ));
    }
    notes.push(conversations::total(moment, snapshot));
    notes.extend(moment.caveats());
    notes
}

/// TCP conversations whose beginning was not seen.
pub(super) fn unknown(args: &Args, snapshot: &Snapshot) -> u64 {
    let running = |flow: &&Flow| flow.proto == TCP && flow.opener.is_none();
    snapshot.flows.iter().filter(|flow| args.picked.takes(flow)).filter(running).count() as u64
}

#[cfg(test)]
mod tests;
