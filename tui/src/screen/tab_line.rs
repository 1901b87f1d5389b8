//! The line with the names of the pages, as far as they fit.

use pmdscope_render::Tone;
use ratatui::text::{Line, Span};

use crate::action::Action;
use crate::keys::KeyMap;
use crate::state::{PageTab, ViewState};
use crate::style::ThemeStyle;

/// How much of the names is shown.
#[derive(Clone, Copy)]
enum TabNames {
    /// `1 Overview`.
    Spaced,
    /// `1Overview`.
    Close,
    /// Numbers, and the name of the shown page.
    Numbers,
    /// The shown page alone.
    Current,
}

/// The line in `width` columns, and where each page ends in it.
pub(super) fn draw(view: &ViewState, width: usize) -> (Line<'static>, Vec<(PageTab, usize)>) {
    let fits = |names: &TabNames| line(view, *names).0.width() <= width;
    let names = [TabNames::Spaced, TabNames::Close, TabNames::Numbers].into_iter().find(fits);
    line(view, names.unwrap_or(TabNames::Current))
}

fn line(view: &ViewState, names: TabNames) -> (Line<'static>, Vec<(PageTab, usize)>) {
    let (current, theme) = (view.tab, view.theme);
    let (mut line, mut ends) = (Line::default(), Vec::new());
    let title = theme.style(Tone::Title);
    let mut before = None;
    for tab in PageTab::ALL.into_iter().filter(|tab| names.shows(*tab, current)) {
        line.push_span(separator(before, Some(tab), view));
        if tab == current {
            line.push_span(Span::styled(names.key(tab, &view.keys), title));
            line.push_span(Span::styled(tab.title(), title));
        } else {
            line.push_span(Span::styled(names.key(tab, &view.keys), theme.style(Tone::Label)));
            line.push_span(Span::raw(names.name(tab)));
        }
        // The mark behind a name is part of it.
        ends.push((tab, line.width() + 1));
        before = Some(tab);
    }
    line.push_span(separator(before, None, view));
    (line, ends)
}

/// The separator between two names: marks around the shown page.
fn separator(before: Option<PageTab>, after: Option<PageTab>, view: &ViewState) -> Span<'static> {
    let (current, theme) = (view.tab, view.theme);
    let mark = match (before, after) {
        (_, Some(after)) if after == current => "[",
        (Some(before), _) if before == current => "]",
        _ => " ",
    };
    Span::styled(mark, theme.style(Tone::Title))
}

impl TabNames {
    fn shows(self, tab: PageTab, current: PageTab) -> bool {
        !matches!(self, Self::Current) || tab == current
    }

    /// The key of a page; where names are not shown and it has none, the first letter of its name.
    fn key(self, tab: PageTab, keys: &KeyMap) -> String {
        match (self, keys.label(&Action::Go(tab))) {
            (Self::Spaced, Some(key)) => format!("{key} "),
            (_, Some(key)) => key,
            (Self::Numbers, None) => tab.title().chars().take(1).collect(),
            (_, None) => String::new(),
        }
    }

    fn name(self, tab: PageTab) -> &'static str {
        match self {
            Self::Spaced | Self::Close => tab.title(),
            Self::Numbers | Self::Current => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixture;
    use crate::keys::named_actions;

    fn on(tab: PageTab) -> ViewState {
        ViewState { tab, ..fixture::view() }
    }

    fn text(view: &ViewState, width: usize) -> String {
        draw(view, width).0.to_string()
    }

    #[test]
    fn all_names_fit_into_80_columns_and_the_current_one_into_less() {
        for tab in PageTab::ALL {
            let view = on(tab);
            let key = |tab| view.keys.label(&Action::Go(tab)).unwrap();
            let named = format!("[{}{}]", key(tab), tab.title());
            let line = text(&view, 80);
            assert!(line.chars().count() <= 80 && line.contains('['), "{line}");
            assert!(PageTab::ALL.iter().all(|tab| line.contains(tab.title())), "{line}");
            let line = text(&view, 40);
            assert!(line.chars().count() <= 40 && line.contains(&named), "{line}");
            assert!(PageTab::ALL.iter().all(|tab| line.contains(&key(*tab))), "{line}");
            assert_eq!(text(&view, 12), named);
        }
        assert!(text(&on(PageTab::Overview), 120).starts_with("[1 Overview]2 Ports "));
    }

    #[test]
    fn pages_have_the_keys_that_are_mapped() {
        let mut keys = KeyMap::default();
        for (name, key) in [("page-ports", Some("f2")), ("page-pools", None)] {
            let (_, named) = named_actions().find(|(_, named)| named.name == name).unwrap();
            keys.set(named, key.into_iter().map(|key| key.parse().unwrap()).collect());
        }
        let view = ViewState { keys: Arc::new(keys), ..on(PageTab::Overview) };
        assert!(text(&view, 120).starts_with("[1 Overview]F2 Ports Pools 4 Lcores "));
        assert!(text(&view, 40).starts_with("[1Overview]F2 P 4 5 "));
    }

    #[test]
    fn clicks_hit_the_names() {
        let (line, ends) = draw(&on(PageTab::Pools), 120);
        let text = line.to_string();
        for tab in PageTab::ALL {
            let at = text.find(tab.title()).unwrap();
            let hit = ends.iter().find(|(_, end)| at < *end).unwrap();
            assert_eq!(hit.0, tab);
        }
    }
}
