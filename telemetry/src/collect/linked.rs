//! What an app with libpmdscope tells: its paged tables.

use crate::endpoint::{Endpoint, Table};
use crate::error::Error;
use crate::leak::{LedgerSample, SiteSample, StageSample};
use crate::reply::Library;
use crate::sample::{LcoreSample, LibrarySample, PoolSample, QueueSample, RingSample, TeeSample};
use crate::table::{FromPage, Page, SCHEMA};

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
    pub(super) tee: Vec<TeeSample>,
    pub(super) ledger: Vec<LedgerSample>,
    pub(super) sites: Vec<SiteSample>,
    pub(super) stages: Vec<StageSample>,
}

/// Reads the tables; `None` when libpmdscope does not answer, so that the app must pass for stock.
pub(super) fn read(round: &mut Round<'_>) -> Option<Tables> {
    let asked = round.request::<Library>(&Endpoint::Library).and_then(supported);
    let library = round.keep(Endpoint::Library, asked)?;
    let served = |table: Table| library.tables.iter().any(|name| name == table.name());
    let mut tables = Tables {
        pools: rows(round, Table::Pools, served(Table::Pools)),
        queues: rows(round, Table::Queues, served(Table::Queues)),
        rings: rows(round, Table::Rings, served(Table::Rings)),
        lcores: rows(round, Table::Lcores, served(Table::Lcores)),
        tee: rows(round, Table::Tee, served(Table::Tee)),
        ledger: rows(round, Table::Leaks, served(Table::Leaks)),
        sites: rows(round, Table::Sites, served(Table::Sites)),
        stages: rows(round, Table::Stages, served(Table::Stages)),
        library: Some(library_sample(library)),
    };
    tables.pools.sort_by(|a, b| a.name.cmp(&b.name));
    tables.queues.sort_by_key(|queue| (queue.port, queue.direction, queue.queue));
    tables.rings.sort_by(|a, b| a.name.cmp(&b.name));
    tables.lcores.sort_by_key(|lcore| lcore.lcore);
    tables.tee.sort_by_key(|tee| (tee.session, tee.lcore));
    tables.ledger.sort_by(|a, b| a.name.cmp(&b.name));
    tables
        .sites
        .sort_by(|a, b| (b.count, b.events).cmp(&(a.count, a.events)).then(a.id.cmp(&b.id)));
    tables.stages.sort_by(|a, b| a.stage.cmp(&b.stage));
    for imbalance in tables.ledger.iter().filter_map(LedgerSample::imbalance) {
        round.note(Endpoint::Page(Table::Leaks, 0), imbalance);
    }
    Some(tables)
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
    }
}

fn rows<T: FromPage>(round: &mut Round<'_>, table: Table, served: bool) -> Vec<T> {
    if !served {
        return Vec::new();
    }
    let read = read_table(round, table);
    round.keep(Endpoint::Page(table, 0), read).unwrap_or_default()
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
