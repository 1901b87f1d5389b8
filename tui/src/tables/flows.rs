//! Captures, their conversations, and the load of queues.

use std::cmp::Ordering;

use pmdscope_flows::{Flow, FlowPlace, FlowSnapshot, PacketCounts, QueueCounts, UnlistedPackets};
use pmdscope_render::cells::{alarm, number, rate, share};
use pmdscope_render::conversation::{
    TrafficRate, WINDOW_TITLES, endpoint, flow_state, place, protocol, relative_error, rx_counts,
    rx_speed, speed, tx_counts, tx_speed, window_bps, wrapping,
};
use pmdscope_render::number::{UNKNOWN, count, known, percent, seconds};
use pmdscope_render::{
    Cell, Column, ColumnUnit, ConversationKey, CounterMode, Graph, SortOrder, Subject, TableRow,
    TextTable, Theme, Tone, direction_name,
};
use pmdscope_telemetry::Thresholds;
use pmdscope_telemetry::finding::balance::QueueBalance;

use crate::action::Action;
use crate::clock::time_of_day;
use crate::flows::{AppTraffic, CaptureAccess, CapturedTraffic, EndpointNames, ShownTime};
use crate::keys::KeyMap;
use crate::state::ViewState;

/// Rows of conversations; others are reached by sorting or filtering.
const ROWS: usize = 256;

/// The heading of the conversations.
pub(crate) const CONVERSATIONS: &str = "Conversations";

/// The tables of the page.
pub(super) fn page(view: &ViewState) -> Vec<TextTable> {
    match view.flows.shown() {
        Ok(traffic) => {
            vec![taps(traffic, view), conversations(traffic, view), queues(traffic, view)]
        }
        Err(reason) => {
            let mut table = TextTable::new(CONVERSATIONS, Vec::new());
            table.notes.push(reason.to_owned());
            vec![table]
        }
    }
}

/// One row per app.
fn taps(traffic: &CapturedTraffic, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Capture"),
        Column::number("1 in"),
        Column::events("pps", "Packets"),
        Column::traffic(["bit/s", "B/s", "bits", "bytes"]).drop_at(3),
        Column::number("Flows").drop_at(4),
        Column::number("Packets"),
        Column::number("Error").unit(ColumnUnit::Share).drop_at(2),
        Column::number("Other").unit(ColumnUnit::Share).drop_at(1),
        Column::number("Lost"),
    ];
    let mut table = TextTable::new("Captured packets", columns);
    for tap in &traffic.taps {
        let stale = tap.access == CaptureAccess::Ended;
        table.push(Subject::Tap { app: tap.app.clone() }, stale, tap_cells(tap, view));
    }
    note_access(&mut table, traffic, &view.keys);
    table
}

fn tap_cells(tap: &AppTraffic, view: &ViewState) -> Vec<Cell> {
    let mut cells = vec![Cell::text(&tap.app), access(&tap.access, &view.keys)];
    let counted = &tap.counted;
    if counted.begin_ns == 0 {
        cells.resize_with(10, || Cell::text(UNKNOWN).tone(Tone::Dim));
        return cells;
    }
    let (recent, packets) = (recent(counted), counted.total.packets);
    let other = other(&counted.other).packets;
    let speed = speed(counted, recent, counted.total);
    let lost = number(counted.lost);
    cells.extend([
        Cell::number(Some(f64::from(counted.sample)), counted.sample.max(1).to_string()),
        rate(speed.map(|speed| speed.pps)).with_total(number(packets)),
        rate(speed.map(|speed| speed.bps)).with_bytes(Some(counted.total.bytes)),
        number(counted.flows.len() as u64),
        number(packets),
        error(packets, counted.variance, view.theme),
        share((packets > 0).then(|| other as f64 / packets as f64)),
        alarm(lost, counted.lost > 0, Tone::Warn),
    ]);
    cells
}

/// Standard error as a share; unknown where there is none.
fn error(packets: u64, variance: u64, theme: Theme) -> Cell {
    let error = relative_error(packets, variance);
    let text = known(error, |error| format!("{}{}", theme.plus_minus(), percent(error)));
    Cell::number(error, text)
}

fn access(access: &CaptureAccess, keys: &KeyMap) -> Cell {
    match access {
        CaptureAccess::Opening => Cell::text("asking ...").tone(Tone::Dim),
        CaptureAccess::Armed { via: None } => Cell::text("armed").tone(Tone::Good),
        CaptureAccess::Armed { via: Some(via) } => {
            Cell::text(format!("armed via {via}")).tone(Tone::Good)
        }
        CaptureAccess::Offered => {
            let key = keys.label(&Action::Attach);
            let text =
                key.map_or_else(|| "not attached".to_owned(), |key| format!("{key} to attach"));
            Cell::text(text).tone(Tone::Warn)
        }
        CaptureAccess::Refused { .. } => Cell::text("none").tone(Tone::Bad).flag(),
        CaptureAccess::Ended => Cell::text("app exited").tone(Tone::Warn),
    }
}

/// Why there are no packets of an app, and what to do.
fn note_access(table: &mut TextTable, traffic: &CapturedTraffic, keys: &KeyMap) {
    if traffic.taps.is_empty() {
        table.notes.push("No app to capture packets from.".to_owned());
    }
    let offered = traffic.apps(|access| *access == CaptureAccess::Offered).collect::<Vec<_>>();
    if !offered.is_empty() {
        let offered = offered.join(", ");
        let key = keys.label(&Action::Attach).unwrap_or_else(|| "The action attach".to_owned());
        table.notes.push(format!(
            "{offered}: without libpmdscope. {key} starts a helper beside it, a DPDK secondary process \
             (pmdscope-pdump) that has it copy all its packets, which may cost much of its rate; {key} \
             again, or leaving the page, ends it.",
        ));
    }
    for tap in &traffic.taps {
        if let CaptureAccess::Refused { reason } = &tap.access {
            table.notes.push(reason.clone());
        }
    }
}

/// What was counted in the interval.
fn recent(counted: &FlowSnapshot) -> PacketCounts {
    counted
        .queues
        .iter()
        .map(|queue| queue.recent)
        .fold(PacketCounts::default(), PacketCounts::plus)
}

/// What is in no conversation of the list.
pub(crate) fn other(other: &UnlistedPackets) -> PacketCounts {
    let UnlistedPackets { evicted, expired, not_ip, unreadable, unknown_link, .. } = *other;
    let parts = [evicted, expired, not_ip, unreadable, unknown_link];
    parts.into_iter().fold(PacketCounts::default(), PacketCounts::plus)
}

/// A conversation, and what it is part of.
#[derive(Clone, Copy)]
struct ConversationRow<'a> {
    tap: &'a AppTraffic,
    flow: &'a Flow,
    theme: Theme,
}

impl<'a> ConversationRow<'a> {
    fn all(tap: &'a AppTraffic, theme: Theme) -> impl Iterator<Item = Self> {
        tap.counted.flows.iter().map(move |flow| Self { tap, flow, theme })
    }
}

impl ConversationRow<'_> {
    fn rx(&self) -> Option<TrafficRate> {
        rx_speed(&self.tap.counted, self.flow)
    }

    fn tx(&self) -> Option<TrafficRate> {
        tx_speed(&self.tap.counted, self.flow)
    }

    /// Packets per second, both ways.
    fn pps(&self) -> Option<f64> {
        Some(self.rx()?.pps + self.tx()?.pps)
    }

    fn place(&self) -> Option<FlowPlace> {
        self.flow.rx_place.or(self.flow.tx_place)
    }

    fn subject(&self) -> Subject {
        Subject::Conversation { app: self.tap.app.clone(), key: ConversationKey::of(self.flow) }
    }

    fn ago(&self, then_ns: u64) -> Cell {
        let age = self.tap.counted.now_ns.saturating_sub(then_ns) as f64 / 1e9;
        Cell::number(Some(age), seconds(age))
    }

    fn lcore(&self) -> Cell {
        let lcore = self.place().and_then(|place| place.lcore);
        Cell::number(lcore.map(f64::from), known(lcore, |lcore| lcore.to_string()))
    }

    /// Bit/s over a window, by its number.
    fn window(&self, at: usize) -> Cell {
        rate(window_bps(&self.tap.counted, self.flow).map(|bps| bps[at]))
    }

    fn error(&self) -> Cell {
        error(self.flow.total().packets, self.flow.variance, self.theme)
    }
}

fn pps(speed: Option<TrafficRate>, total: PacketCounts) -> Cell {
    rate(speed.map(|speed| speed.pps)).with_total(number(total.packets))
}

fn bps(speed: Option<TrafficRate>, total: PacketCounts) -> Cell {
    rate(speed.map(|speed| speed.bps)).with_bytes(Some(total.bytes))
}

/// [`WINDOW_TITLES`] in bytes.
const WINDOW_BYTES: [&str; 3] = ["B/s 2s", "B/s 10s", "B/s 40s"];

/// A column, and what is in it.
type ConversationColumn = (Column, fn(&ConversationRow<'_>) -> Cell);

const FIELDS: [ConversationColumn; 19] = [
    (Column::text("App"), |talk| Cell::text(&talk.tap.app)),
    (Column::text("Proto"), |talk| Cell::text(protocol(talk.flow.proto))),
    (Column::text("Local").flex(15), |talk| Cell::text(endpoint(talk.flow.local))),
    (Column::text("Remote").flex(19), |talk| Cell::text(endpoint(talk.flow.remote))),
    (Column::events("RX pps", "RX total"), |talk| pps(talk.rx(), rx_counts(talk.flow))),
    (Column::traffic(["RX bit/s", "RX B/s", "RX bits", "RX bytes"]).drop_at(6), |talk| {
        bps(talk.rx(), rx_counts(talk.flow))
    }),
    (Column::events("TX pps", "TX total"), |talk| pps(talk.tx(), tx_counts(talk.flow))),
    (Column::traffic(["TX bit/s", "TX B/s", "TX bits", "TX bytes"]).drop_at(6), |talk| {
        bps(talk.tx(), tx_counts(talk.flow))
    }),
    (Column::speed(WINDOW_TITLES[0], WINDOW_BYTES[0]).drop_at(5), |talk| talk.window(0)),
    (Column::speed(WINDOW_TITLES[1], WINDOW_BYTES[1]).drop_at(5), |talk| talk.window(1)),
    (Column::speed(WINDOW_TITLES[2], WINDOW_BYTES[2]).drop_at(5), |talk| talk.window(2)),
    (Column::text("State").drop_at(2), |talk| Cell::text(flow_state(talk.flow))),
    (Column::text("Queue").drop_at(3), |talk| {
        Cell::text(talk.place().as_ref().map_or_else(|| UNKNOWN.to_owned(), place))
    }),
    (Column::number("Lcore").drop_at(4), |talk| talk.lcore()),
    (Column::number("Age").unit(ColumnUnit::SECONDS).drop_at(5), |talk| {
        talk.ago(talk.flow.first_ns)
    }),
    (Column::number("Idle").unit(ColumnUnit::SECONDS).drop_at(1), |talk| {
        talk.ago(talk.flow.last_ns)
    }),
    (Column::number("Packets").drop_at(7), |talk| number(talk.flow.total().packets)),
    (Column::number("Error").unit(ColumnUnit::Share).drop_at(7), |talk| talk.error()),
    (Column::text("Within").drop_at(8), |talk| Cell::text(wrapping(talk.flow))),
];

/// One row per conversation that counts most, by the order that was chosen.
fn conversations(traffic: &CapturedTraffic, view: &ViewState) -> TextTable {
    let all = traffic.taps.iter().flat_map(|tap| ConversationRow::all(tap, view.theme));
    let mut talks = all.collect::<Vec<_>>();
    let fields = fields(traffic, &talks);
    let mode = view.counters;
    order(&mut talks, &fields, mode, view.sort.get(CONVERSATIONS).copied());

    let mut table = TextTable::new(
        CONVERSATIONS,
        fields.iter().map(|(column, _)| column.counting(mode)).collect(),
    );
    table.remark = remark(traffic, view);
    table.of_conversations = true;
    let filter = view.filter.rows().bind(&table.columns);
    let rows = talks.iter().filter_map(|talk| {
        let row = TableRow {
            subject: talk.subject(),
            cells: fields.iter().map(|(column, cell)| cell(talk).counting(column, mode)).collect(),
            stale: talk.tap.access == CaptureAccess::Ended,
            notes: Vec::new(),
        };
        filter.passes_conversation(&row, &talk.tap.app, talk.flow).then_some(row)
    });
    table.rows = rows.take(ROWS).collect();
    note_rows(&mut table, talks.len());
    note_other(&mut table, traffic);
    table
}

/// Puts names into the rows of conversations.
pub(crate) fn name_ends(table: &mut TextTable, names: &dyn EndpointNames) {
    let place = |name: &str| table.columns.iter().position(|column| column.name() == name);
    let places = [place("Local"), place("Remote")];
    for row in &mut table.rows {
        let Subject::Conversation { key, .. } = &row.subject else { continue };
        for (place, end) in places.into_iter().zip([key.local, key.remote]) {
            if let Some(cell) = place.and_then(|place| row.cells.get_mut(place)) {
                *cell = Cell::text(names.endpoint(key.proto, end));
            }
        }
    }
}

/// All columns of conversations, also those that some of them do not need.
pub(crate) fn conversation_columns() -> impl Iterator<Item = Column> {
    FIELDS.into_iter().map(|(column, _)| column)
}

/// The columns that tell rows apart.
fn fields(traffic: &CapturedTraffic, talks: &[ConversationRow<'_>]) -> Vec<ConversationColumn> {
    let windows = traffic.taps.iter().any(|tap| tap.counted.windows_s.is_some());
    let needed = |column: &Column| match column.name() {
        title if WINDOW_TITLES.contains(&title) => windows,
        "App" => traffic.taps.len() > 1,
        "Error" => talks.iter().any(|talk| talk.flow.variance > 0),
        "Within" => talks.iter().any(|t| t.flow.tunnel.is_some() || t.flow.vlans != [0; 2]),
        _ => true,
    };
    FIELDS.into_iter().filter(|(column, _)| needed(column)).collect()
}

/// Sorts by a column, else the fastest first.
fn order(
    talks: &mut Vec<ConversationRow<'_>>,
    fields: &[ConversationColumn],
    mode: CounterMode,
    sort: Option<SortOrder>,
) {
    let chosen = sort.and_then(|sort| {
        let field = fields.iter().find(|(column, _)| column.name() == sort.column)?;
        Some((field, sort.descending))
    });
    if let Some(((column, cell), descending)) = chosen {
        let sorted = talks.iter().map(|talk| (cell(talk).counting(column, mode), *talk));
        let mut sorted = sorted.collect::<Vec<_>>();
        sorted.sort_by(|(a, _), (b, _)| column.compare(a, b, descending));
        *talks = sorted.into_iter().map(|(_, talk)| talk).collect();
    } else {
        let weight =
            |talk: &ConversationRow| (talk.pps().unwrap_or(0.0), talk.flow.total().packets);
        let mut sorted = talks.iter().map(|talk| (weight(talk), *talk)).collect::<Vec<_>>();
        sorted.sort_by(|(a, _), (b, _)| heavier(*a, *b));
        *talks = sorted.into_iter().map(|(_, talk)| talk).collect();
    }
}

fn heavier(a: (f64, u64), b: (f64, u64)) -> Ordering {
    b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
}

/// What the page costs the apps.
fn remark(traffic: &CapturedTraffic, view: &ViewState) -> String {
    let is_armed = |tap: &&AppTraffic| matches!(tap.access, CaptureAccess::Armed { .. });
    let armed = || traffic.taps.iter().filter(is_armed);
    let rates = || armed().map(|tap| tap.counted.sample.max(1));
    let capture = match (rates().min(), rates().max()) {
        (Some(least), Some(most)) if least == most => format!("capture armed, 1 in {least}"),
        (Some(least), Some(most)) => format!("capture armed, 1 in {least} to {most}"),
        _ => "no capture armed".to_owned(),
    };
    match view.flows.moment {
        ShownTime::Held => {
            let at = time_of_day(traffic.realtime_ns, &view.zone);
            format!("paused at {at}, {capture}")
        }
        ShownTime::Present | ShownTime::Past => capture,
    }
}

fn note_rows(table: &mut TextTable, all: usize) {
    if all > table.rows.len() && table.rows.len() == ROWS {
        let all = count(all as u64);
        table.notes.push(format!(
            "the first {ROWS} of {all} conversations: s changes the order, / filters all"
        ));
    }
}

/// Packets that are in no row.
fn note_other(table: &mut TextTable, traffic: &CapturedTraffic) {
    let is_silent = |tap: &&AppTraffic| {
        matches!(tap.access, CaptureAccess::Armed { .. }) && tap.counted.total.packets == 0
    };
    for tap in traffic.taps.iter().filter(is_silent) {
        table.notes.push(format!("{}: no packet since the capture was armed", tap.app));
    }
    for tap in traffic.taps.iter().filter(|tap| tap.counted.begin_ns > 0) {
        let counted = &tap.counted;
        let UnlistedPackets { evicted, expired, not_ip, unreadable, .. } = counted.other;
        let of = |name: &str, counts: PacketCounts| {
            (counts.packets > 0).then(|| format!("{} {name}", count(counts.packets)))
        };
        let parts = [
            of("of evicted conversations", evicted),
            of("of expired conversations", expired),
            of("not IP", not_ip),
            of("unreadable", unreadable),
            (counted.lost > 0).then(|| format!("{} lost, not counted", count(counted.lost))),
        ];
        let parts = parts.into_iter().flatten().collect::<Vec<_>>();
        if !parts.is_empty() {
            table.notes.push(format!("{}: packets in no row: {}", tap.app, parts.join(", ")));
        }
    }
}

/// One row per queue: how the NIC spreads the packets.
fn queues(traffic: &CapturedTraffic, view: &ViewState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Port"),
        Column::text("Dir"),
        Column::number("Queue"),
        Column::number("Lcore").drop_at(3),
        Column::events("pps", "Packets"),
        Column::traffic(["bit/s", "B/s", "bits", "bytes"]).drop_at(2),
        Column::number("Packets").drop_at(1),
        Column::number("Share").unit(ColumnUnit::Share),
        Column::text("Load").flex(6).drop_at(4),
    ];
    let mut table = TextTable::new("RSS balance", columns);
    for tap in &traffic.taps {
        let mut queues = tap.counted.queues.clone();
        queues.sort_by_key(|queue| (queue.port, queue.dir, queue.queue));
        for queue in &queues {
            let cells = queue_cells(tap, queue, &view.thresholds);
            table.push(load(tap, queue), tap.access == CaptureAccess::Ended, cells);
        }
    }
    if traffic.taps.len() == 1 {
        table.hide_column("App");
    }
    table
}

fn load(tap: &AppTraffic, queue: &QueueCounts) -> Subject {
    let QueueCounts { port, dir, queue, .. } = *queue;
    Subject::Load { app: tap.app.clone(), port, dir, queue }
}

fn queue_cells(tap: &AppTraffic, queue: &QueueCounts, thresholds: &Thresholds) -> Vec<Cell> {
    let speed = speed(&tap.counted, queue.recent, queue.total);
    let optional = |value: Option<u16>| {
        Cell::number(value.map(f64::from), known(value, |value| value.to_string()))
    };
    let (part, balance) = part_of_port(&tap.counted, queue);
    let hot = balance.is_hot(part as f64, thresholds);
    vec![
        Cell::text(&tap.app),
        Cell::number(Some(f64::from(queue.port)), queue.port.to_string()),
        Cell::text(direction_name(queue.dir)),
        optional(queue.queue),
        optional(queue.lcore),
        rate(speed.map(|speed| speed.pps)).with_total(number(queue.total.packets)),
        rate(speed.map(|speed| speed.bps)).with_bytes(Some(queue.total.bytes)),
        number(queue.total.packets),
        alarm(share(balance.share(part as f64)), hot, Tone::Warn),
        Cell::graph(Graph::Bar { used: part, cached: 0, size: balance.packets() }),
    ]
}

/// Packets of a queue and of all queues of its port in the same direction: in the interval, or ever when there were
/// none in it.
pub(crate) fn part_of_port(counted: &FlowSnapshot, queue: &QueueCounts) -> (u64, QueueBalance) {
    let same = |other: &&QueueCounts| (other.port, other.dir) == (queue.port, queue.dir);
    let all = |of: fn(&QueueCounts) -> u64| {
        counted.queues.iter().filter(same).map(|queue| of(queue) as f64).collect::<QueueBalance>()
    };
    let recent = all(|queue| queue.recent.packets);
    if recent.share(0.0).is_some() {
        return (queue.recent.packets, recent);
    }
    (queue.total.packets, all(|queue| queue.total.packets))
}
