//! What an app with libpmdscope tells: its paged tables.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Instant;

use crate::columns::{FromPage, PageFields, SCHEMA, TablePage};
use crate::commands::{LibraryTable, TelemetryCommand};
use crate::error::TelemetryError;
use crate::reply::LibraryReply;
use crate::sample::{
    LcoreSample, LedgerSample, LibrarySample, PoolSample, PortEventsSample, QueueSample,
    RingSample, SiteSample, StageSample, TeeSample,
};

use super::FACTS_AGE;
use super::cached::Cached;
use super::round::RequestRound;

/// How often a table is read from its start when its rows change between two pages.
const ATTEMPTS: u32 = 4;

/// Pages of one table that are asked for together: more than are under way at once, and few enough to be kept
/// whatever an app puts into them.
const PAGES_AHEAD: usize = 16;

/// So many times smaller than a page is what two of these pages have in common.
const OVERLAP: u64 = 16;

/// Tables of [`SlowTables`].
const SLOW_TABLES: [LibraryTable; 5] = [
    LibraryTable::Tee,
    LibraryTable::Leaks,
    LibraryTable::Sites,
    LibraryTable::Stages,
    LibraryTable::Ports,
];

/// Everything that libpmdscope told.
#[derive(Debug, Default)]
pub(super) struct LibraryTables {
    pub(super) library: Option<LibrarySample>,
    pub(super) pools: Vec<PoolSample>,
    pub(super) queues: Vec<QueueSample>,
    pub(super) rings: Vec<RingSample>,
    pub(super) lcores: Vec<LcoreSample>,
    pub(super) rare: SlowTables,
}

/// What libpmdscope itself finds out over seconds, or what only matters while somebody captures.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowTables {
    pub(super) tee: Vec<TeeSample>,
    pub(super) ledger: Vec<LedgerSample>,
    pub(super) sites: Vec<SiteSample>,
    pub(super) stages: Vec<StageSample>,
    pub(super) port_events: Vec<PortEventsSample>,
}

/// The tables of one app.
#[derive(Debug, Default)]
pub(super) struct LibraryReader {
    slow: Cached<SlowTables>,
    empty: EmptyTables,
    /// As told in the round before.
    library: Option<LibraryReply>,
    /// A table had several pages then.
    is_paged: bool,
}

/// Tables that had no rows, and at which generation: at the same one they still have none.
#[derive(Debug, Default)]
struct EmptyTables(Vec<(LibraryTable, u64)>);

impl EmptyTables {
    fn may_have_rows(&self, library: &LibraryReply, table: LibraryTable) -> bool {
        library.serves(table) && !self.0.contains(&(table, library.generation))
    }

    /// The tables among these that this libpmdscope serves, and that may have rows.
    fn exclude_from(
        &self,
        library: &LibraryReply,
        mut tables: Vec<LibraryTable>,
    ) -> Vec<LibraryTable> {
        tables.retain(|table| self.may_have_rows(library, *table));
        tables
    }

    /// The table was read after the app was at this generation.
    fn note(&mut self, table: LibraryTable, generation: u64, is_empty: bool) {
        self.0.retain(|(known, _)| *known != table);
        if is_empty {
            self.0.push((table, generation));
        }
    }
}

impl LibraryReader {
    /// The requests that [`LibraryReader::read`] makes first; `None` before the first round.
    pub(super) fn requests(&self, histograms: bool) -> Option<Vec<TelemetryCommand>> {
        let library = self.library.as_ref()?;
        let all = self.slow.is_older(Instant::now(), FACTS_AGE);
        let tables = self.empty.exclude_from(library, wanted(library, histograms, all));
        let pages = tables.into_iter().map(|table| TelemetryCommand::Page(table, 0));
        Some(std::iter::once(TelemetryCommand::Library).chain(pages).collect())
    }

    /// Whether [`LibraryReader::read`] makes further requests after these, for all that is known.
    pub(super) fn is_paged(&self) -> bool {
        self.is_paged
    }

    /// Reads the tables, that of queues with `histograms` or, where the library can, without; `None` when
    /// libpmdscope does not answer, so that the app must pass for stock.
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
        tables.pools.sort_by(|a, b| a.name.cmp(&b.name));
        tables.queues.sort_by_key(|queue| (queue.port, queue.direction, queue.queue));
        tables.rings.sort_by(|a, b| a.name.cmp(&b.name));
        tables.lcores.sort_by_key(|lcore| lcore.lcore);
        Some(tables)
    }
}

impl SlowTables {
    /// The tables, and whether all of them could be read.
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

/// The tables that are read: those that change all the time, or `all`.
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

/// The first pages of tables, which are asked for together.
#[derive(Debug)]
struct FirstPages<'a> {
    library: &'a LibraryReply,
    empty: &'a mut EmptyTables,
    pages: Vec<(LibraryTable, TablePage)>,
}

impl<'a> FirstPages<'a> {
    /// Those of `tables`. What fails is asked for again when its rows are read.
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

    /// The rows of a table; none of one that this libpmdscope does not serve, `None` for a failure.
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

/// All rows; `first` is the first page, if it has been read.
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

/// All pages of a table from the first one on; `None` when its rows changed in between.
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

/// Pages of a table that were asked for together, each with the row that it was to begin with.
#[derive(Debug, Default)]
struct PagesAhead(VecDeque<(u64, Result<TablePage, TelemetryError>)>);

impl PagesAhead {
    /// A page with the first of the `wanted` rows and further ones, where a page before had `size` rows.
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
                // The next request will only say that the connection is lost, not why.
                Err(error) if round.is_over() => return Err(error),
                _ => {}
            }
        }
        page(round, table, wanted.start)
    }
}

/// Asks for pages that together have the `wanted` rows, or those of them that come first, if each has about
/// `size` rows: as many as fit into a reply, which depends on their numbers. They overlap, so that a page of
/// fewer rows leaves no gap.
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

/// It is the page that begins with this row.
fn begins_at(fields: &PageFields, offset: u64) -> bool {
    fields.number("offset") == Some(offset)
}
