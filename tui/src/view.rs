//! What the user has chosen to see. Changed only by [`crate::action::update`].

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use crate::subject::Subject;
use crate::table::{Sort, Table};
use crate::tables;
use crate::theme::Theme;
use crate::timeline::strip::Strip;
use pmdscope_telemetry::world::{Baseline, World};

/// The pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tab {
    /// Apps and findings.
    #[default]
    Overview,
    /// Ports, queues and software rings.
    Ports,
    /// Mempools.
    Pools,
    /// Poll loops and captures.
    Lcores,
}

impl Tab {
    /// All, in the order of their keys.
    pub const ALL: [Self; 4] = [Self::Overview, Self::Ports, Self::Pools, Self::Lcores];

    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Ports => "Ports/Queues",
            Self::Pools => "Pools/Leaks",
            Self::Lcores => "Lcores",
        }
    }

    /// The tab `step` places further, round and round.
    #[must_use]
    pub fn step(self, step: usize) -> Self {
        Self::ALL[(self as usize + step) % Self::ALL.len()]
    }
}

/// What the keys act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The tables.
    #[default]
    Browse,
    /// The line in which the filter is typed; holds what it was before.
    Filter {
        /// Comes back with Esc.
        before: String,
    },
    /// The help overlay.
    Help,
    /// The details of the selected row.
    Detail(Subject),
}

/// The choices of the user.
#[derive(Clone, Debug)]
pub struct View {
    /// Shown page.
    pub tab: Tab,
    /// What the keys act on.
    pub mode: Mode,
    /// Selected row of each page.
    pub selected: BTreeMap<Tab, Subject>,
    /// Order of each table, by its title.
    pub sort: BTreeMap<&'static str, Sort>,
    /// Words that rows must match.
    pub filter: String,
    /// Lines scrolled in an overlay.
    pub scroll: usize,
    /// Which moment is shown; `None` for the present.
    pub strip: Option<Strip>,
    /// Totals are counted from here.
    pub baseline: Baseline,
    /// Sampling interval, milliseconds.
    pub interval_ms: u64,
    /// Colours and characters.
    pub theme: Theme,
    /// For times of day.
    pub zone: TimeZone,
    /// Height of the terminal, for page-wise movement.
    pub height: u16,
}

impl View {
    /// The first view.
    pub fn new(theme: Theme, interval_ms: u64, zone: TimeZone) -> Self {
        Self {
            tab: Tab::default(),
            mode: Mode::default(),
            selected: BTreeMap::new(),
            sort: BTreeMap::new(),
            filter: String::new(),
            scroll: 0,
            strip: None,
            baseline: Baseline::default(),
            interval_ms,
            theme,
            zone,
            height: 24,
        }
    }

    /// The tables of the shown page, filtered and sorted.
    pub fn tables(&self, world: &World) -> Vec<Table> {
        let mut tables = tables::of(self.tab, world, self);
        for table in &mut tables {
            table.filter(&self.filter);
            if let Some(sort) = self.sort.get(table.title) {
                table.sort(*sort);
            }
        }
        tables
    }

    /// The selected row of the shown page.
    pub fn selected(&self) -> Option<&Subject> {
        self.selected.get(&self.tab)
    }
}
