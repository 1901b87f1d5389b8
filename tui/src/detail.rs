//! The details of one row, as lines.

mod findings;
mod flows;
mod interfaces;

use std::fmt::Display;

use pmdscope_render::ledger::{explain, stage_ms};
use pmdscope_render::number::{UNKNOWN, bytes, count, known, micros, nanos, seconds, si, signed};
use pmdscope_render::{Subject, Tone, burst_labels, doubling_labels, histogram};
use pmdscope_telemetry::model::{Model, PoolTrend, SiteRates, ThreadRates};
use pmdscope_telemetry::printable::harmless;
use pmdscope_telemetry::sample::{
    CountSource, HighWater, LcoreSample, LibrarySample, LostGroupSample, PoolSample, PortSample,
    QueueDirection, QueueSample, RingSample, Sample, SiteSample, StageSample, TeeSample,
    ThreadSample,
};
use ratatui::text::{Line, Span};

use crate::app_state::missing_ports;
use crate::clock::time_of_day;
use crate::findings::ranking::{RankedFinding, ranked};
use crate::state::ViewState;
use crate::style::{ThemeStyle, styled};
use crate::tables::notes::{NEEDS_LIBRARY, UNSUPPORTED, holders_hint};
use crate::tables::{queue_heat, replies, stolen};
use pmdscope_telemetry::{AppState, FleetState};

const SHARES_CPU: &str = "the control thread may run on the CPU of a polling lcore";

/// In place of a histogram that was not asked for.
const NOT_SAMPLED: &str =
    "no histogram in this sample: it is asked for while these details are shown";

/// Columns of the bars of a histogram.
const BAR: usize = 40;

/// The details of `subject`, or a line that it no longer exists.
pub(crate) fn lines(subject: &Subject, view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    let mut page = DetailPage { view, lines: Vec::new() };
    page.findings_about(subject, fleet);
    let found = match subject {
        Subject::Tap { .. } | Subject::Conversation { .. } | Subject::Load { .. } => {
            page.captured(subject)
        }
        Subject::Finding { app, lint, about } => {
            let ranked = ranked(fleet, &view.thresholds);
            let same = |found: &&RankedFinding| {
                let found = found.finding;
                (&found.app, found.lint, &found.subject) == (app, *lint, about)
            };
            let found = ranked.iter().find(same).map(|found| page.finding_row(found, fleet.now_ns));
            let history =
                page.history(|span| (&span.app, span.lint, &span.about) == (app, *lint, about));
            found.or(history)
        }
        Subject::Reply { app, request } => {
            let replies = view.replies.as_ref().and_then(|replies| replies.get(app));
            let reply = replies.and_then(|replies| replies.get(request));
            reply.map(|reply| {
                for line in replies::details(reply) {
                    page.text(&line, Tone::Plain);
                }
            })
        }
        Subject::Interface { interface, .. } => {
            fleet.interfaces.find(interface).map(|found| page.interface(found, fleet))
        }
        _ => fleet.find(subject.app()).and_then(|app| page.subject(subject, app, fleet.now_ns)),
    };
    if found.is_none() {
        page.text("no longer exists", Tone::Dim);
    }
    page.lines
}

struct DetailPage<'a> {
    view: &'a ViewState,
    lines: Vec<Line<'static>>,
}

impl DetailPage<'_> {
    fn subject(&mut self, subject: &Subject, app: &AppState, now_ns: u64) -> Option<()> {
        self.staleness(app, now_ns);
        if let Subject::App { .. } = subject {
            self.app(app);
            return Some(());
        }
        let model = app.model.as_ref()?;
        if let Subject::Queues { port, direction, .. } = *subject {
            self.queues(app, model, port, direction);
            return Some(());
        }
        self.part(subject, model)
    }

    fn staleness(&mut self, app: &AppState, now_ns: u64) {
        if app.stale() {
            let age = known(app.age_s(now_ns), seconds);
            self.text(&format!("old values: last answer {age} ago"), Tone::Warn);
        }
    }

    fn part(&mut self, subject: &Subject, model: &Model) -> Option<()> {
        let sample = &model.sample;
        match subject {
            Subject::App { .. }
            | Subject::Finding { .. }
            | Subject::Interface { .. }
            | Subject::Queues { .. }
            | Subject::Reply { .. }
            | Subject::Tap { .. }
            | Subject::Conversation { .. }
            | Subject::Load { .. } => return None,
            Subject::Port { port, .. } => {
                self.port(sample.ports.iter().find(|p| p.id == *port)?);
            }
            Subject::Queue { port, queue, direction, .. } => {
                let same = |q: &&QueueSample| {
                    (q.port, q.queue, q.direction) == (*port, *queue, *direction)
                };
                self.queue(sample.queues.iter().find(same)?);
            }
            Subject::Ring { ring, .. } => {
                self.ring(sample.rings.iter().find(|r| r.name == *ring)?);
            }
            Subject::Pool { pool, .. } => {
                let index = sample.pools.iter().position(|p| p.name == *pool)?;
                self.pool(&sample.pools[index], model.pools.get(index));
            }
            Subject::Ledger { pool, .. } => {
                let ledger = sample.ledger.iter().find(|ledger| ledger.name == *pool)?;
                for line in explain(ledger, &sample.stages) {
                    self.text(&line, Tone::Plain);
                }
            }
            Subject::Site { pool, id, kind, .. } => {
                let same = |s: &SiteSample| (&s.pool, s.id, s.kind) == (pool, *id, *kind);
                let index = sample.sites.iter().position(same)?;
                self.site(&sample.sites[index], model.sites.get(index), model);
            }
            Subject::Lost { pool, group, .. } => {
                let mut pools = sample.scanned_pools();
                let pool = pools.find(|scanned| scanned.name == *pool)?;
                self.lost(pool.groups.get(*group)?);
            }
            Subject::Stage { stage, .. } => {
                self.stage(sample.stages.iter().find(|s| s.stage == *stage)?);
            }
            Subject::Lcore { lcore, .. } => {
                let polling = sample.lcores.iter().find(|l| l.lcore == *lcore);
                let mut threads = sample.threads.iter().zip(&model.threads);
                let thread = threads.find(|(thread, _)| thread.lcore == *lcore);
                let role = sample.role_of(*lcore);
                let stolen = stolen::details(model, *lcore, &self.view.zone);
                if polling.is_none() && thread.is_none() && role.is_none() && stolen.is_empty() {
                    return None;
                }
                if let (None, Some(role)) = (polling, role) {
                    self.field("role", role);
                }
                self.lcore(polling, thread, &stolen);
            }
            Subject::Tee { session, lcore, .. } => {
                let same = |t: &&TeeSample| (t.session, t.lcore) == (*session, *lcore);
                self.tee(sample.tee.iter().find(same)?);
            }
        }
        Some(())
    }

    fn app(&mut self, app: &AppState) {
        let Some(model) = &app.model else {
            self.text("no answer yet", Tone::Dim);
            return;
        };
        let sample = &model.sample;
        self.field("process", sample.app.pid);
        let since = time_of_day(sample.app.start_realtime_ns, &self.view.zone);
        self.field("running since", since);
        self.field("executable", sample.app.exe.as_deref().unwrap_or(UNKNOWN));
        if let Some(container) = &sample.app.container {
            self.field("container", &container.id);
            if let Some(pod) = &container.pod {
                self.field("pod", pod);
            }
        }
        self.field("DPDK", &sample.app.dpdk_version);
        self.field("EAL arguments", sample.app.eal_args.join(" "));
        let cost = format!("{} in {} requests", nanos(sample.duration_ns), sample.requests);
        self.field("last scrape", cost);
        for part in &sample.partial {
            self.field("failed part", part);
        }
        for finding in missing_ports(app) {
            self.field("missing port", &finding.subject);
        }
        self.surroundings(sample);
        match &sample.library {
            Some(library) => self.library(library),
            None => self.field("queues, lcores", NEEDS_LIBRARY),
        }
    }

    /// Data of the kernel and the EAL about the app.
    fn surroundings(&mut self, sample: &Sample) {
        for device in &sample.devices {
            let driver = match (device.present, &device.driver) {
                (false, _) => "does not exist",
                (true, None) => "no driver",
                (true, Some(driver)) => driver,
            };
            self.field("PCI device", format!("{}: {driver}", device.address));
        }
        for heap in &sample.heaps {
            let used = format!("{} of {} allocated", bytes(heap.allocated), bytes(heap.size));
            self.field("heap", format!("{}: {used}", heap.name));
        }
        if sample.secondaries > 0 {
            self.field("secondaries", sample.secondaries);
        }
        if sample.control_shares_poll_cpu == Some(true) && sample.library.is_none() {
            self.text(SHARES_CPU, Tone::Warn);
        }
    }

    fn library(&mut self, library: &LibrarySample) {
        self.heading("libpmdscope");
        self.field("version", &library.version);
        let since = time_of_day(library.start_realtime_ns, &self.view.zone);
        self.field("started", since);
        let hertz = (library.tsc_hz > 0).then(|| count(library.tsc_hz));
        self.field("TSC, Hz", hertz.as_deref().unwrap_or("not measured yet"));
        self.field("sampling", format!("every {} ms", library.sample_ms));
        self.field("window", format!("{} ms", library.window_ms));
        self.field("stall threshold", micros(library.stall_us));
        self.field("capture socket", library.tee_socket.as_deref().unwrap_or("none"));
        self.field("foreign polls", count(library.foreign_polls));
        self.field("foreign bursts", count(library.foreign_bursts));
        self.field("abandoned", bytes(library.abandoned_bytes));
        if library.control_shares_poll_cpu {
            self.text(SHARES_CPU, Tone::Warn);
        }
    }

    fn site(&mut self, site: &SiteSample, rates: Option<&SiteRates>, model: &Model) {
        self.field("site", &site.site);
        self.field("function", if site.function.is_empty() { UNKNOWN } else { &site.function });
        self.field("after", if site.operation.is_empty() { UNKNOWN } else { &site.operation });
        self.field("kind", site.kind);
        self.field("pool", &site.pool);
        if site.kind.is_loss() {
            self.field("lost now", count(site.count));
        }
        self.field("found so far", count(site.events));
        self.field("per second", known(rates.and_then(|rates| rates.rate_ps), si));
        if site.kind.is_loss() {
            self.field("pool empty in", known(model.pool_left_s(&site.pool), seconds));
        }
        self.field("oldest", format!("{} ago", seconds(site.oldest_ms as f64 / 1000.0)));
        self.field("newest", format!("{} ago", seconds(site.newest_ms as f64 / 1000.0)));
        let first = time_of_day(site.first_realtime_ns, &self.view.zone);
        self.field("first proven", first);
    }

    fn lost(&mut self, group: &LostGroupSample) {
        let differs = || "differs".to_owned();
        self.field("lost", count(group.mbufs));
        let oldest = seconds(group.oldest_at_least_ms as f64 / 1000.0);
        self.field("oldest", format!("at least {oldest} ago"));
        self.field("received by", group.port.map_or_else(differs, |port| format!("port {port}")));
        self.field("protocol", group.protocol.clone().unwrap_or_else(differs));
        self.field("conversation", group.conversation().unwrap_or_else(differs));
        self.field("conversations", count(group.conversations));
        self.field("bytes", group.lengths());
        self.field("segments", group.segments.map_or_else(differs, |n| n.to_string()));
        self.field("references", group.refcnt.map_or_else(differs, |n| n.to_string()));
    }

    fn stage(&mut self, stage: &StageSample) {
        self.field("held now", count(stage.held));
        self.field("longest", stage_ms(stage.longest_ms));
        if stage.hold {
            self.field("suspect after", "never: declared with pmdscope_stage_hold()");
        } else {
            self.field("suspect after", stage_ms(stage.bound_ms));
        }
    }

    fn port(&mut self, port: &PortSample) {
        self.field("device", &port.device);
        self.field("MTU", port.mtu);
        self.field("queues", format!("{} rx, {} tx", port.rx_queues, port.tx_queues));
        if !port.rx_descriptors.is_empty() {
            let told = port.rx_descriptors.iter();
            let told: Vec<_> = told.map(|told| known(*told, |told| told.to_string())).collect();
            self.field("RX descriptors", told.join(" "));
        }
        self.field("NUMA node", numa(port.numa_node));
        self.field("address", port.mac.as_deref().unwrap_or(UNKNOWN));
        let promiscuous = port.promiscuous.map_or(UNKNOWN, |on| if on { "on" } else { "off" });
        self.field("promiscuous", promiscuous);
        let stats = &port.stats;
        self.field("received", format!("{} packets", count(stats.rx_packets)));
        self.field("", format!("{} bytes", count(stats.rx_bytes)));
        self.field("sent", format!("{} packets", count(stats.tx_packets)));
        self.field("", format!("{} bytes", count(stats.tx_bytes)));
        self.field("missed", count(stats.rx_missed));
        self.field("receive errors", count(stats.rx_errors));
        self.field("send errors", count(stats.tx_errors));
        self.field("no buffer", count(stats.rx_nombuf));
        self.heading("extended counters that are not zero");
        if port.xstats_truncated {
            self.text("incomplete: DPDK cut its reply", Tone::Warn);
        }
        for (name, value) in port.xstats.iter().filter(|(_, value)| *value > 0) {
            self.wide_field(name, count(value));
        }
    }

    fn queues(&mut self, app: &AppState, model: &Model, port: u16, direction: QueueDirection) {
        for finding in queue_heat::findings(app, model, port, direction) {
            self.field("finding", format!("{}: {}", finding.lint, finding.evidence));
            self.since(finding);
            for cause in &finding.causes {
                self.field("cause", format!("{}: {}", cause.title(), cause.evidence));
            }
        }
        self.heading("queues");
        for line in queue_heat::details(model, self.view, port, direction) {
            self.text(&line, Tone::Plain);
        }
    }

    fn queue(&mut self, queue: &QueueSample) {
        let transmit = queue.direction == QueueDirection::Tx;
        self.field(if transmit { "offered" } else { "packets" }, count(queue.packets));
        self.field("bytes", format!("~{}", count(queue.bytes)));
        self.field("polls", count(queue.polls));
        self.field("empty polls", count(queue.empty));
        self.field("depth", queue.depth.map_or_else(|| UNSUPPORTED.to_owned(), count));
        self.high_water(queue.depth_high_water);
        self.field("descriptors", queue.descriptors.map_or_else(|| UNSUPPORTED.to_owned(), count));
        self.heading("packets per burst that was not empty");
        self.histogram(&burst_labels(), &queue.bursts);
        self.heading("packets waiting when a burst began");
        if queue.depth.is_some() {
            self.histogram(&doubling_labels("0", queue.depths.len(), ""), &queue.depths);
        } else {
            self.text("not reported by the driver", Tone::Dim);
        }
    }

    fn ring(&mut self, ring: &RingSample) {
        self.field("used", count(ring.used));
        self.field("capacity", count(ring.capacity));
        self.source(ring.source);
        self.high_water(ring.high_water);
    }

    fn pool(&mut self, pool: &PoolSample, trend: Option<&PoolTrend>) {
        self.field("objects", count(pool.size));
        self.field("of", format!("{} each", bytes(pool.element_bytes)));
        self.field("cache limit", format!("{} per lcore", count(pool.cache_size)));
        self.field("NUMA node", numa(pool.socket));
        match pool.occupancy {
            Some(parts) => {
                self.field("in use", count(parts.in_use));
                self.field("free in caches", count(parts.cached));
                self.field("free in common", count(parts.common));
            }
            None => self.field("occupancy", NEEDS_LIBRARY),
        }
        self.source(pool.source);
        self.high_water(pool.high_water);
        if let Some(trend) = trend {
            self.field("growth per s", known(trend.slope_ps, signed));
            self.field("empty in", known(trend.exhausted_in_s, seconds));
        }
        self.field("holders", holders_hint(self.view));
        if !pool.lcore_caches.is_empty() {
            self.heading("objects in the cache of each lcore");
        }
        for (lcore, &objects) in &pool.lcore_caches {
            self.field(&format!("lcore {lcore}"), count(objects));
        }
    }

    fn lcore(
        &mut self,
        polling: Option<&LcoreSample>,
        thread: Option<(&ThreadSample, &ThreadRates)>,
        stolen: &[(String, String)],
    ) {
        if let Some((thread, rates)) = thread {
            self.field("may run on CPUs", &thread.cpus);
            self.field("ran last on", thread.cpu);
            let switches = |all: u64, per_second| {
                format!("{}, {} per second", count(all), known(per_second, si))
            };
            self.field("preempted", switches(thread.involuntary_switches, rates.involuntary_ps));
            self.field("gave up CPU", switches(thread.voluntary_switches, rates.voluntary_ps));
        }
        for (name, value) in stolen {
            self.field(name, value);
        }
        match polling {
            Some(lcore) => self.polling(lcore),
            None => self.field("polls, gaps", NEEDS_LIBRARY),
        }
    }

    fn polling(&mut self, lcore: &LcoreSample) {
        self.field("role", &lcore.role);
        self.field("thread", lcore.tid);
        self.field("polls", count(lcore.polls));
        self.field("busy polls", count(lcore.busy_polls));
        self.field("packets", count(lcore.packets));
        self.field("idle for", micros(lcore.idle_us));
        let at = time_of_day(lcore.gap_max_realtime_ns, &self.view.zone);
        self.field("worst gap", format!("{} at {at}", micros(lcore.gap_max_us)));
        self.field("stalls", count(lcore.stalls));
        let last = lcore.stall_last_us.iter().zip(&lcore.stall_last_realtime_ns);
        for (us, at) in last.filter(|(us, _)| **us > 0) {
            let at = time_of_day(*at, &self.view.zone);
            self.field("last stalls", format!("{} at {at}", micros(*us)));
        }
        self.heading("time between two turns of the poll loop");
        self.histogram(&doubling_labels("<1us", lcore.gaps.len(), "us"), &lcore.gaps);
    }

    fn tee(&mut self, tee: &TeeSample) {
        self.field("process", tee.pid);
        self.field("state", if tee.armed { "armed" } else { "disarmed" });
        self.field("packets", count(tee.records));
        self.field("dropped", count(tee.dropped));
        self.field("filtered out", count(tee.filtered));
        self.field("sampled out", count(tee.sampled_out));
        self.field("ring", format!("{} of {}", bytes(tee.used_bytes), bytes(tee.ring_bytes)));
    }

    fn source(&mut self, source: Option<CountSource>) {
        if source == Some(CountSource::Xray) {
            self.field("counted", "via xray, in the memory of the app");
        }
    }

    fn high_water(&mut self, high: Option<HighWater>) {
        let text = high.map_or_else(
            || UNSUPPORTED.to_owned(),
            |high| format!("{} in the last window, {} ever", count(high.window), count(high.ever)),
        );
        self.field("highest", text);
    }

    fn histogram(&mut self, labels: &[String], counts: &[u64]) {
        if counts.is_empty() {
            self.text(NOT_SAMPLED, Tone::Dim);
            return;
        }
        for line in histogram(labels, counts, BAR, self.view.theme) {
            self.lines.push(styled(line, self.view.theme));
        }
    }

    fn heading(&mut self, text: &str) {
        self.lines.push(Line::default());
        self.text(text, Tone::Title);
    }

    fn field(&mut self, label: &str, value: impl Display) {
        self.labelled(&format!("{label:<15}"), value);
    }

    fn wide_field(&mut self, label: &str, value: impl Display) {
        self.labelled(&format!("{label:<32}"), value);
    }

    fn labelled(&mut self, label: &str, value: impl Display) {
        let label = Span::styled(harmless(label, &[]), self.view.theme.style(Tone::Label));
        self.lines.push(Line::from(vec![label, Span::raw(harmless(&format!(" {value}"), &[]))]));
    }

    fn text(&mut self, text: &str, tone: Tone) {
        self.lines.push(Line::styled(harmless(text, &[]), self.view.theme.style(tone)));
    }
}

fn numa(node: i64) -> String {
    if node < 0 { UNKNOWN.to_owned() } else { node.to_string() }
}
