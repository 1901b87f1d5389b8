//! The state of the view: what the user has chosen, and what is shown. Only `update` changes it.

mod columns;
mod drill_origin;
mod filter;
mod prompt;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

pub(crate) use self::columns::kebab;
pub use self::columns::{ColumnChoices, ColumnWindow};
pub use self::drill_origin::DrillOrigin;
pub use self::filter::ViewFilter;
pub use self::prompt::{CommandPrompt, CompletionChoice};
use crate::flows::{
    AppRun, CapturedTraffic, EndpointNames, FlowRequest, RequestedApp, ShownFlows, ShownTime,
};
use crate::keys::KeyMap;
pub use crate::page::{HelpPage, PageTab};
use crate::task::TaskView;
use crate::timeline::time_bar::{TimeBar, TimeBarKind};
use crate::timeline::trends::Trends;
use pmdscope_render::{CounterMode, SortOrder, Subject, Theme};
use pmdscope_telemetry::{FleetState, RepliesByApp, Thresholds, TotalsBaseline};

/// Conversations are published about once a second, and so are the values of a moment.
const NEAR_NS: u64 = 2_000_000_000;

/// What the keys act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InputMode {
    /// The tables.
    #[default]
    Browse,
    /// The line in which the filter is typed; holds what it was before.
    Filter {
        /// Comes back with Esc.
        before: String,
    },
    /// The line in which a command is typed.
    Prompt,
    /// The window of columns.
    Columns(ColumnWindow),
    /// The help overlay.
    Help {
        /// Which page of it is shown.
        page: HelpPage,
        /// The mode below it, whose keys it shows first.
        over: Box<InputMode>,
        /// Lines that were scrolled there.
        scroll: usize,
    },
    /// The details of the selected row.
    Detail(Subject),
    /// The command line of a capture.
    CaptureForm,
    /// The window of tasks.
    Tasks,
    /// The command lines that show and do the same.
    Commands,
}

impl InputMode {
    /// Text is typed in the last line of the screen.
    pub(crate) fn is_typed_below(&self) -> bool {
        matches!(self, Self::Filter { .. } | Self::Prompt)
    }
}

/// The choices of the user.
#[derive(Clone, Debug)]
pub struct ViewState {
    /// Name of the machine whose apps are shown; empty if it is not known.
    pub host: String,
    /// Shown page.
    pub tab: PageTab,
    /// What the keys act on.
    pub mode: InputMode,
    /// Selected row of each page.
    pub selected: BTreeMap<PageTab, Subject>,
    /// Where Esc leads back to after a finding was followed.
    pub origin: Option<DrillOrigin>,
    /// Order of each table, by its title.
    pub sort: BTreeMap<&'static str, SortOrder>,
    /// The table that has the whole page, and that page.
    pub expanded: Option<(PageTab, &'static str)>,
    /// Columns that were chosen.
    pub columns: ColumnChoices,
    /// Rates or totals, bits or bytes.
    pub counters: CounterMode,
    /// What rows must match.
    pub filter: ViewFilter,
    /// The text of the filter at first, and after a reset.
    pub default_filter: String,
    /// The command line.
    pub prompt: CommandPrompt,
    /// Lines scrolled in an overlay.
    pub scroll: usize,
    /// Which moment is shown; `None` for the present.
    pub time_bar: Option<TimeBar>,
    /// The time before the shown moment; `None` in a report.
    pub trends: Option<Trends>,
    /// Totals are counted from here.
    pub baseline: TotalsBaseline,
    /// Conversations.
    pub flows: ShownFlows,
    /// Shows conversations by name; `None` for numbers.
    pub names: Option<Arc<dyn EndpointNames>>,
    /// What apps replied last, while that is shown; `None` where replies are not kept.
    pub replies: Option<RepliesByApp>,
    /// Apps beside which a helper process is wanted, to have their packets, and which runs of them.
    pub attach: BTreeMap<String, AppRun>,
    /// What is done outside.
    pub tasks: TaskView,
    /// Sampling interval, milliseconds.
    pub interval_ms: u64,
    /// From when on a queue is hot.
    pub thresholds: Thresholds,
    /// Which keys do what.
    pub keys: Arc<KeyMap>,
    /// Colours and characters.
    pub theme: Theme,
    /// For times of day.
    pub zone: TimeZone,
    /// Width and height of the terminal.
    pub width: u16,
    /// See `width`.
    pub height: u16,
}

impl ViewState {
    /// The first view.
    pub fn new(theme: Theme, interval_ms: u64, zone: TimeZone) -> Self {
        Self {
            host: String::new(),
            tab: PageTab::default(),
            mode: InputMode::default(),
            selected: BTreeMap::new(),
            origin: None,
            sort: BTreeMap::new(),
            expanded: None,
            columns: ColumnChoices::default(),
            counters: CounterMode::default(),
            filter: ViewFilter::default(),
            default_filter: String::new(),
            prompt: CommandPrompt::default(),
            scroll: 0,
            time_bar: None,
            trends: None,
            baseline: TotalsBaseline::default(),
            flows: ShownFlows::default(),
            names: None,
            replies: None,
            attach: BTreeMap::new(),
            tasks: TaskView::default(),
            interval_ms,
            thresholds: Thresholds::default(),
            keys: Arc::default(),
            theme,
            zone,
            width: 80,
            height: 24,
        }
    }

    /// The only table that the page shows; `None` where it shows all.
    pub(crate) fn expanded_table(&self) -> Option<&'static str> {
        self.expanded.filter(|(tab, _)| *tab == self.tab).map(|(_, title)| title)
    }

    /// Takes in published conversations. A display that is held keeps what it shows.
    pub fn follow(&mut self, traffic: Option<Arc<CapturedTraffic>>) {
        let Some(time_bar) = &self.time_bar else {
            self.flows = ShownFlows { traffic, moment: ShownTime::Present };
            self.forget_attached();
            return;
        };
        let near_ns = NEAR_NS + self.interval_ms * 1_000_000;
        let is_near = |held: &Arc<CapturedTraffic>| {
            held.realtime_ns.abs_diff(time_bar.realtime_ns) <= near_ns
        };
        self.flows.moment = match (&self.flows.traffic, time_bar.place) {
            (Some(held), TimeBarKind::Past { .. }) if is_near(held) => ShownTime::Held,
            _ => ShownTime::Past,
        };
    }

    /// A user who returns to the page after a while is asked again.
    fn forget_attached(&mut self) {
        if self.tab == PageTab::Flows {
            return;
        }
        let traffic = self.flows.traffic.as_ref();
        self.attach.retain(|app, _| traffic.is_some_and(|traffic| traffic.find(app).is_some()));
    }

    /// What the side that captures is to do; the apps are those of the present, and of `before` where
    /// that is not shown.
    pub fn request(&self, fleet: &FleetState, before: &FlowRequest) -> FlowRequest {
        let apps = match self.time_bar {
            None => RequestedApp::of(fleet),
            Some(_) => before.apps.clone(),
        };
        let mut attach = self.attach.clone();
        attach.retain(|app, run| {
            apps.iter().all(|running| running.app != *app || running.run == *run)
        });
        let shown = self.tab == PageTab::Flows && self.flows.moment != ShownTime::Past;
        FlowRequest { shown, apps, attach, over: false }
    }

    /// The details of a queue are shown.
    pub(crate) fn shows_queue(&self) -> bool {
        matches!(&self.mode, InputMode::Detail(Subject::Queue { .. }))
    }

    /// The row that keys act on: that of the details which are shown, else the selected one.
    pub(crate) fn subject(&self) -> Option<&Subject> {
        match &self.mode {
            InputMode::Detail(subject) => Some(subject),
            _ => self.selected(),
        }
    }

    /// The selected row of the shown page.
    pub fn selected(&self) -> Option<&Subject> {
        self.selected.get(&self.tab)
    }
}
