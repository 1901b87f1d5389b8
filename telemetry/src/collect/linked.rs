//! What an app with libpmdscope tells: its paged tables.

use std::time::Instant;

use crate::columns::{FromPage, Page, SCHEMA};
use crate::commands::{Endpoint, Table};
use crate::error::Error;
use crate::reply::Library;
use crate::sample::{
    LcoreSample, LedgerSample, LibrarySample, PoolSample, PortEventsSample, QueueSample,
    RingSample, SiteSample, StageSample, TeeSample,
};

use super::FACTS_AGE;
use super::aged::Aged;
use super::round::Round;

/// How often a table is read from its start when its rows change between two pages.
const ATTEMPTS: u32 = 4;

/// Everything that libpmdscope told.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) library: Option<LibrarySample>,
    pub(super) pools: Vec<PoolSample>,
    pub(super) queues: Vec<QueueSample>,
    pub(super) rings: Vec<RingSample>,
    pub(super) lcores: Vec<LcoreSample>,
    pub(super) rare: Rare,
}

/// What libpmdscope itself finds out over seconds, or what only matters while somebody captures.
#[derive(Clone, Debug, Default)]
pub(super) struct Rare {
    pub(super) tee: Vec<TeeSample>,
    pub(super) ledger: Vec<LedgerSample>,
    pub(super) sites: Vec<SiteSample>,
    pub(super) stages: Vec<StageSample>,
    pub(super) port_events: Vec<PortEventsSample>,
}

/// The tables of one app.
#[derive(Debug, Default)]
pub(super) struct Linked(Aged<Rare>);

impl Linked {
    /// Reads the tables; `None` when libpmdscope does not answer, so that the app must pass for stock.
    pub(super) fn read(&mut self, round: &mut Round<'_>) -> Option<Tables> {
        let asked = round.request::<Library>(&Endpoint::Library).and_then(supported);
        let library = round.keep(Endpoint::Library, asked)?;
        let mut tables = Tables {
            pools: rows(round, &library, Table::Pools).unwrap_or_default(),
            queues: rows(round, &library, Table::Queues).unwrap_or_default(),
            rings: rows(round, &library, Table::Rings).unwrap_or_default(),
            lcores: rows(round, &library, Table::Lcores).unwrap_or_default(),
            rare: self.rare(round, &library),
            library: Some(library_sample(library)),
        };
        tables.pools.sort_by(|a, b| a.name.cmp(&b.name));
        tables.queues.sort_by_key(|queue| (queue.port, queue.direction, queue.queue));
        tables.rings.sort_by(|a, b| a.name.cmp(&b.name));
        tables.lcores.sort_by_key(|lcore| lcore.lcore);
        Some(tables)
    }

    fn rare(&mut self, round: &mut Round<'_>, library: &Library) -> Rare {
        let now = Instant::now();
        if self.0.is_older(now, FACTS_AGE) {
            let (rare, complete) = Rare::read(round, library);
            self.0.set(now, rare);
            if !complete {
                self.0.forget();
            }
        }
        self.0.value().clone()
    }
}

impl Rare {
    /// The tables, and whether all of them could be read.
    fn read(round: &mut Round<'_>, library: &Library) -> (Self, bool) {
        let tee = rows(round, library, Table::Tee);
        let ledger = rows(round, library, Table::Leaks);
        let sites = rows(round, library, Table::Sites);
        let stages = rows(round, library, Table::Stages);
        let port_events = rows(round, library, Table::Ports);
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
            round.note(Endpoint::Page(Table::Leaks, 0), imbalance);
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

fn supported(library: Library) -> Result<Library, Error> {
    match library.schema {
        SCHEMA => Ok(library),
        other => Err(Error::Schema(other)),
    }
}

fn library_sample(library: Library) -> LibrarySample {
    LibrarySample {
        version: library.version,
        tsc_hz: library.tsc_hz,
        start_realtime_ns: library.start_realtime_ns,
        sample_ms: library.sample_ms,
        window_ms: library.window_ms,
        stall_us: library.stall_us,
        tee_socket: Some(library.tee_socket).filter(|path| !path.is_empty()),
        foreign_polls: library.foreign_polls,
        foreign_bursts: library.foreign_bursts,
        control_shares_poll_cpu: library.control_shares_poll_cpu != 0,
        abandoned_bytes: library.abandoned_bytes,
        traced_units: library.traced_units,
    }
}

/// The rows of a table; none of one that this libpmdscope does not serve, `None` for a failure.
fn rows<T: FromPage>(round: &mut Round<'_>, library: &Library, table: Table) -> Option<Vec<T>> {
    if !library.tables.iter().any(|name| name == table.name()) {
        return Some(Vec::new());
    }
    let read = read_table(round, table);
    round.keep(Endpoint::Page(table, 0), read)
}

fn read_table<T: FromPage>(round: &mut Round<'_>, table: Table) -> Result<Vec<T>, Error> {
    for _ in 0..ATTEMPTS {
        if let Some(rows) = read_pages(round, table)? {
            return Ok(rows);
        }
    }
    Err(Error::Unstable { attempts: ATTEMPTS })
}

/// All pages of a table; `None` when its rows changed in between.
fn read_pages<T: FromPage>(round: &mut Round<'_>, table: Table) -> Result<Option<Vec<T>>, Error> {
    let mut page = page(round, table, 0)?;
    let (generation, total) = (page.generation, page.total);
    let mut rows = Vec::new();
    loop {
        let next = page.next;
        rows.extend(T::from_page(page)?);
        let Some(offset) = next else { return Ok(Some(rows)) };
        page = match self::page(round, table, offset) {
            Ok(page) if (page.generation, page.total) == (generation, total) => page,
            // The table has shrunk below this offset.
            Ok(_) | Err(Error::Null) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
}

fn page(round: &mut Round<'_>, table: Table, offset: u64) -> Result<Page, Error> {
    let about = |columns: &serde_json::Map<String, serde_json::Value>| {
        columns.get("offset").and_then(serde_json::Value::as_u64) == Some(offset)
    };
    Page::parse(&round.request_about(&Endpoint::Page(table, offset), about)?)
}
