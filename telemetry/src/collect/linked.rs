//! Reads the tables of an app with libpmdscope, page by page.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Instant;

use crate::columns::{FromPage, PageFields, SCHEMA, TablePage};
use crate::commands::{LibraryTable, TelemetryCommand};
use crate::error::TelemetryError;
use crate::reply::LibraryReply;
use crate::sample::{
    FedQueue, LcoreSample, LedgerSample, LibrarySample, PoolSample, PortEventsSample,
    QueueDirection, QueueSample, RingSample, SiteSample, StageSample, TeeSample,
};

use super::FACTS_AGE;
use super::cached::Cached;
use super::round::RequestRound;

/// Attempts to read a table with rows that change between two pages.
const ATTEMPTS: u32 = 4;

/// Pages of one table that are requested together: more than are outstanding at the same time, and
/// few enough to keep in memory whatever the app puts into them.
const PAGES_AHEAD: usize = 16;

/// Two adjacent pages that are requested together overlap by this fraction of a page: one in 16.
const OVERLAP: u64 = 16;

/// The tables of [`SlowTables`].
const SLOW_TABLES: [LibraryTable; 5] = [
    LibraryTable::Tee,
    LibraryTable::Leaks,
    LibraryTable::Sites,
    LibraryTable::Stages,
    LibraryTable::Ports,
];

/// All tables of libpmdscope.
#[derive(Debug, Default)]
pub(super) struct LibraryTables {
    pub(super) library: Option<LibrarySample>,
    pub(super) pools: Vec<PoolSample>,
    pub(super) queues: Vec<QueueSample>,
    pub(super) rings: Vec<RingSample>,
    pub(super) lcores: Vec<LcoreSample>,
    pub(super) rare: SlowTables,
}

/// Tables that libpmdscope itself updates only every few seconds, or that matter only during captures.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowTables {
    pub(super) tee: Vec<TeeSample>,
    pub(super) ledger: Vec<LedgerSample>,
    pub(super) sites: Vec<SiteSample>,
    pub(super) stages: Vec<StageSample>,
    pub(super) port_events: Vec<PortEventsSample>,
}

/// Reads the tables of one app.
#[derive(Debug, Default)]
pub(super) struct LibraryReader {
    slow: Cached<SlowTables>,
    empty: EmptyTables,
    /// The reply of the previous round.
    library: Option<LibraryReply>,
    /// Whether a table had several pages in that round.
    is_paged: bool,
}

/// Tables without rows, each with the generation at which it was empty: at the same one it still is.
#[derive(Debug, Default)]
struct EmptyTables(Vec<(LibraryTable, u64)>);

impl EmptyTables {
    fn may_have_rows(&self, library: &LibraryReply, table: LibraryTable) -> bool {
        library.serves(table) && !self.0.contains(&(table, library.generation))
    }

    /// Returns those of `tables` that this libpmdscope serves, and that may have rows.
    fn exclude_from(
        &self,
        library: &LibraryReply,
        mut tables: Vec<LibraryTable>,
    ) -> Vec<LibraryTable> {
        tables.retain(|table| self.may_have_rows(library, *table));
        tables
    }

    /// Notes whether a table is empty, which was read after the app was at this generation.
    fn note(&mut self, table: LibraryTable, generation: u64, is_empty: bool) {
        self.0.retain(|(known, _)| *known != table);
        if is_empty {
            self.0.push((table, generation));
        }
    }
}

impl LibraryReader {
    /// Returns the requests that [`LibraryReader::read`] makes first; `None` before the first round.
    pub(super) fn requests(&self, histograms: bool) -> Option<Vec<TelemetryCommand>> {
        let library = self.library.as_ref()?;
        let all = self.slow.is_older(Instant::now(), FACTS_AGE);
        let tables = self.empty.exclude_from(library, wanted(library, histograms, all));
        let pages = tables.into_iter().map(|table| TelemetryCommand::Page(table, 0));
        Some(std::iter::once(TelemetryCommand::Library).chain(pages).collect())
    }

    /// Whether [`LibraryReader::read`] will probably make further requests after these.
    pub(super) fn is_paged(&self) -> bool {
        self.is_paged
    }

    /// Reads the tables; that of queues without histograms if `histograms` is false and the library
    /// can omit them. `None` when libpmdscope does not answer, so that the app must be treated as a
    /// stock app.
    pub(super) fn read(
        &mut self,
        round: &mut RequestRound<'_>,
        histograms: bool,
    ) -> Option<LibraryTables> {
        let asked = round.request::<LibraryReply>(&TelemetryCommand::Library).and_then(supported);
        self.library = None;
        let library = round.keep(TelemetryCommand::Library, asked)?;
        let now = Instant::now();
        let all = self.slow.is_older(now, FACTS_AGE);
        let wanted = self.empty.exclude_from(&library, wanted(&library, histograms, all));
        let queues = queue_table(&library, histograms);
        let mut pages = FirstPages::read(round, &library, &wanted, &mut self.empty);
        self.is_paged = pages.pages.iter().any(|(_, page)| page.next.is_some());
        let mut tables = LibraryTables {
            pools: pages.rows(round, LibraryTable::Pools).unwrap_or_default(),
            queues: pages.rows(round, queues).unwrap_or_default(),
            rings: pages.rows(round, LibraryTable::Rings).unwrap_or_default(),
            lcores: pages.rows(round, LibraryTable::Lcores).unwrap_or_default(),
            ..LibraryTables::default()
        };
        if all {
            let (slow, complete) = SlowTables::read(round, &mut pages);
            self.slow.set(now, slow);
            if !complete {
                self.slow.forget();
            }
        }
        tables.rare = self.slow.value().clone();
        tables.library = Some(library_sample(&library));
        self.library = Some(library);
        note_feeds(&mut tables.pools, &tables.queues);
        tables.pools.sort_by(|a, b| a.name.cmp(&b.name));
        tables.queues.sort_by_key(|queue| (queue.port, queue.direction, queue.queue));
        tables.rings.sort_by(|a, b| a.name.cmp(&b.name));
        tables.lcores.sort_by_key(|lcore| lcore.lcore);
        Some(tables)
    }
}

impl SlowTables {
    /// Reads the tables; returns them, and whether all of them could be read.
    fn read(round: &mut RequestRound<'_>, pages: &mut FirstPages<'_>) -> (Self, bool) {
        let tee = pages.rows(round, LibraryTable::Tee);
        let ledger = pages.rows(round, LibraryTable::Leaks);
        let sites = pages.rows(round, LibraryTable::Sites);
        let stages = pages.rows(round, LibraryTable::Stages);
        let port_events = pages.rows(round, LibraryTable::Ports);
        let complete = tee.is_some()
            && ledger.is_some()
            && sites.is_some()
            && stages.is_some()
            && port_events.is_some();
        let mut rare = Self {
            tee: tee.unwrap_or_default(),
            ledger: ledger.unwrap_or_default(),
            sites: sites.unwrap_or_default(),
            stages: stages.unwrap_or_default(),
            port_events: port_events.unwrap_or_default(),
        };
        rare.sort();
        for imbalance in rare.ledger.iter().filter_map(LedgerSample::imbalance) {
            round.note(TelemetryCommand::Page(LibraryTable::Leaks, 0), imbalance);
        }
        (rare, complete)
    }

    fn sort(&mut self) {
        self.tee.sort_by_key(|tee| (tee.session, tee.lcore));
        self.ledger.sort_by(|a, b| a.name.cmp(&b.name));
        self.sites
            .sort_by(|a, b| (b.count, b.events).cmp(&(a.count, a.events)).then(a.id.cmp(&b.id)));
        self.stages.sort_by(|a, b| a.stage.cmp(&b.stage));
        self.port_events.sort_by_key(|row| row.port);
    }
}

/// Notes which receive queues each pool feeds, while the pools are in the order of their table.
fn note_feeds(pools: &mut [PoolSample], queues: &[QueueSample]) {
    for queue in queues.iter().filter(|queue| queue.direction == QueueDirection::Rx) {
        if let Some(pool) = queue.pool_row.and_then(|row| pools.get_mut(row)) {
            pool.feeds.push(FedQueue { port: queue.port, queue: queue.queue });
        }
    }
}

/// Returns the tables to read: those that always change, or `all`.
fn wanted(library: &LibraryReply, histograms: bool, all: bool) -> Vec<LibraryTable> {
    let queues = queue_table(library, histograms);
    let fast = [LibraryTable::Pools, queues, LibraryTable::Rings, LibraryTable::Lcores];
    let slow: &[LibraryTable] = if all { &SLOW_TABLES } else { &[] };
    [&fast, slow].concat()
}

fn queue_table(library: &LibraryReply, histograms: bool) -> LibraryTable {
    if !histograms && library.serves(LibraryTable::QueueCounters) {
        LibraryTable::QueueCounters
    } else {
        LibraryTable::Queues
    }
}

fn supported(library: LibraryReply) -> Result<LibraryReply, TelemetryError> {
    match library.schema {
        SCHEMA => Ok(library),
        other => Err(TelemetryError::Schema(other)),
    }
}

fn library_sample(library: &LibraryReply) -> LibrarySample {
    LibrarySample {
        version: library.version.clone(),
        tsc_hz: library.tsc_hz,
        start_realtime_ns: library.start_realtime_ns,
        sample_ms: library.sample_ms,
        window_ms: library.window_ms,
        stall_us: library.stall_us,
        tee_socket: Some(library.tee_socket.clone()).filter(|path| !path.is_empty()),
        foreign_polls: library.foreign_polls,
        foreign_bursts: library.foreign_bursts,
        control_shares_poll_cpu: library.control_shares_poll_cpu != 0,
        abandoned_bytes: library.abandoned_bytes,
        traced_units: library.traced_units,
    }
}

/// The first pages of tables, which are requested together.
#[derive(Debug)]
struct FirstPages<'a> {
    library: &'a LibraryReply,
    empty: &'a mut EmptyTables,
    pages: Vec<(LibraryTable, TablePage)>,
}

impl<'a> FirstPages<'a> {
    /// Requests the first pages of `tables`. Pages that fail are requested again when their rows are read.
    fn read(
        round: &mut RequestRound<'_>,
        library: &'a LibraryReply,
        tables: &[LibraryTable],
        empty: &'a mut EmptyTables,
    ) -> Self {
        let mut first = Self { library, empty, pages: Vec::new() };
        let request =
            |table: &LibraryTable| (TelemetryCommand::Page(*table, 0), PhantomData::<PageFields>);
        let requests: Vec<_> = tables.iter().map(request).collect();
        let replies = round.request_each(&requests).into_iter();
        let pages = replies.zip(&requests).filter_map(|(reply, (command, _))| {
            let fields = reply.ok().filter(|fields| begins_at(fields, 0))?;
            let TelemetryCommand::Page(table, _) = command else { return None };
            Some((*table, TablePage::parse(fields).ok()?))
        });
        first.pages = pages.collect();
        first
    }

    /// Reads the rows of a table; empty if this libpmdscope does not serve it, `None` if it failed.
    fn rows<T: FromPage>(
        &mut self,
        round: &mut RequestRound<'_>,
        table: LibraryTable,
    ) -> Option<Vec<T>> {
        if !self.empty.may_have_rows(self.library, table) {
            return Some(Vec::new());
        }
        let at = self.pages.iter().position(|(known, _)| *known == table);
        let first = at.map(|at| self.pages.swap_remove(at).1);
        let read = read_table(round, table, first);
        let rows: Option<Vec<T>> = round.keep(TelemetryCommand::Page(table, 0), read);
        let is_empty = rows.as_ref().is_some_and(Vec::is_empty);
        self.empty.note(table, self.library.generation, is_empty);
        rows
    }
}

/// Reads all rows of a table; `first` is the first page, if it was read already.
fn read_table<T: FromPage>(
    round: &mut RequestRound<'_>,
    table: LibraryTable,
    mut first: Option<TablePage>,
) -> Result<Vec<T>, TelemetryError> {
    for _ in 0..ATTEMPTS {
        let first = match first.take() {
            Some(first) => first,
            None => page(round, table, 0)?,
        };
        if let Some(rows) = read_pages(round, table, first)? {
            return Ok(rows);
        }
    }
    Err(TelemetryError::Unstable { attempts: ATTEMPTS })
}

/// Reads all pages of a table, beginning with the first; `None` if its rows changed in between.
fn read_pages<T: FromPage>(
    round: &mut RequestRound<'_>,
    table: LibraryTable,
    mut page: TablePage,
) -> Result<Option<Vec<T>>, TelemetryError> {
    let (generation, total) = (page.generation, page.total);
    let mut ahead = PagesAhead::default();
    let (mut rows, mut known) = (Vec::new(), 0_u64);
    loop {
        let (offset, size, next) = (page.offset, page.end() - page.offset, page.next);
        let rest = T::from_page(page)?.into_iter();
        rows.extend(rest.skip(usize::try_from(known.saturating_sub(offset)).unwrap_or(usize::MAX)));
        let Some(next) = next else { return Ok(Some(rows)) };
        known = next;
        page = match ahead.page(round, table, next..total, size) {
            Ok(page) if (page.generation, page.total) == (generation, total) => page,
            // The table has shrunk below this offset.
            Ok(_) | Err(TelemetryError::Null) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
}

/// Pages of a table that were requested together, each with the row at which it should begin.
#[derive(Debug, Default)]
struct PagesAhead(VecDeque<(u64, Result<TablePage, TelemetryError>)>);

impl PagesAhead {
    /// Returns a page with the first of the `wanted` rows and later ones; the page before had `size` rows.
    fn page(
        &mut self,
        round: &mut RequestRound<'_>,
        table: LibraryTable,
        wanted: Range<u64>,
        size: u64,
    ) -> Result<TablePage, TelemetryError> {
        if self.0.is_empty() {
            self.0 = ask_ahead(round, table, wanted.clone(), size);
        }
        while let Some((offset, _)) = self.0.front()
            && *offset <= wanted.start
            && let Some((offset, asked)) = self.0.pop_front()
        {
            match asked {
                Ok(page) if page.offset == offset && page.end() > wanted.start => return Ok(page),
                // Later requests fail only because the connection is lost; this error has the reason.
                Err(error) if round.is_over() => return Err(error),
                _ => {}
            }
        }
        page(round, table, wanted.start)
    }
}

/// Requests pages that together contain the `wanted` rows, or the first of them, if each has about
/// `size` rows. How many rows fit into a reply depends on their numbers, so the pages overlap: a page
/// with fewer rows leaves no gap.
fn ask_ahead(
    round: &mut RequestRound<'_>,
    table: LibraryTable,
    wanted: Range<u64>,
    size: u64,
) -> VecDeque<(u64, Result<TablePage, TelemetryError>)> {
    let step = usize::try_from(size - size / OVERLAP).map_or(1, |step| step.max(1));
    let offsets: Vec<u64> = wanted.step_by(step).take(PAGES_AHEAD).collect();
    let request = |offset| (TelemetryCommand::Page(table, offset), PhantomData::<PageFields>);
    let requests: Vec<_> = offsets.iter().copied().map(request).collect();
    let replies = offsets.iter().copied().zip(round.request_each(&requests));
    replies.map(|(offset, reply)| (offset, reply.and_then(TablePage::parse))).collect()
}

fn page(
    round: &mut RequestRound<'_>,
    table: LibraryTable,
    offset: u64,
) -> Result<TablePage, TelemetryError> {
    let about = |fields: &PageFields| begins_at(fields, offset);
    TablePage::parse(round.request_about(&TelemetryCommand::Page(table, offset), about)?)
}

/// Whether it is the page that begins with this row.
fn begins_at(fields: &PageFields, offset: u64) -> bool {
    fields.number("offset") == Some(offset)
}
