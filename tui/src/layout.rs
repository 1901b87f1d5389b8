//! Where things are on a screen.

use ratatui::layout::Rect;

use crate::panels::trends;
use crate::state::ViewState;

/// From so many lines on, there are empty lines between tables.
const ROOMY: u16 = 30;

/// Where things are on a screen. Small screens lose the decoration first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScreenLayout {
    pub(crate) header: Option<Rect>,
    pub(crate) time_bar: Option<Rect>,
    pub(crate) tabs: Option<Rect>,
    pub(crate) banner: Option<Rect>,
    pub(crate) body: Rect,
    pub(crate) footer: Option<Rect>,
}

impl ScreenLayout {
    /// The line with the shown moment is needed, however small the screen. Pages that list the
    /// findings need no banner.
    pub(crate) fn of(area: Rect, view: &ViewState) -> Self {
        let mut rest = area;
        let mut take_top = |least: u16| {
            (area.height >= least).then(|| {
                let line = Rect { height: 1, ..rest };
                rest = Rect { y: rest.y + 1, height: rest.height - 1, ..rest };
                line
            })
        };
        let header = take_top(6);
        let time_bar = if view.time_bar.is_some() { take_top(2) } else { None };
        let tabs = take_top(4);
        let banner = if view.tab.lists_findings() { None } else { take_top(8) };
        // What is typed is seen, however small the screen.
        let least = if view.mode.is_typed_below() { 3 } else { 10 };
        let footer = (area.height >= least).then(|| {
            rest.height -= 1;
            Rect { y: rest.y + rest.height, height: 1, ..rest }
        });
        Self { header, time_bar, tabs, banner, body: rest, footer }
    }
}

/// Most lines for the tables of the Overview, and empty lines between two of them.
pub(crate) fn overview_room(view: &ViewState) -> (usize, usize) {
    let body = ScreenLayout::of(Rect::new(0, 0, view.width, view.height), view).body;
    let graphs = trends::least_height(view, usize::from(body.width));
    (usize::from(body.height).saturating_sub(graphs), usize::from(is_spaced(view)))
}

/// Whether there are empty lines between tables.
pub(crate) fn is_spaced(view: &ViewState) -> bool {
    view.height >= ROOMY
}
