//! The line with the names of the pages, as far as they fit.

use pmdscope_render::{Theme, Tone};
use ratatui::text::{Line, Span};

use crate::style::ThemeStyle;
use crate::view::PageTab;

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
pub(crate) fn draw(
    current: PageTab,
    width: usize,
    theme: Theme,
) -> (Line<'static>, Vec<(PageTab, usize)>) {
    let fits = |names: &TabNames| line(current, *names, theme).0.width() <= width;
    let names = [TabNames::Spaced, TabNames::Close, TabNames::Numbers].into_iter().find(fits);
    line(current, names.unwrap_or(TabNames::Current), theme)
}

fn line(current: PageTab, names: TabNames, theme: Theme) -> (Line<'static>, Vec<(PageTab, usize)>) {
    let (mut line, mut ends) = (Line::default(), Vec::new());
    let title = theme.style(Tone::Title);
    let mut before = None;
    for tab in PageTab::ALL.into_iter().filter(|tab| names.shows(*tab, current)) {
        line.push_span(separator(before, Some(tab), current, theme));
        if tab == current {
            line.push_span(Span::styled(names.key(tab), title));
            line.push_span(Span::styled(tab.title(), title));
        } else {
            line.push_span(Span::styled(names.key(tab), theme.style(Tone::Label)));
            line.push_span(Span::raw(names.name(tab)));
        }
        // The mark behind a name is part of it.
        ends.push((tab, line.width() + 1));
        before = Some(tab);
    }
    line.push_span(separator(before, None, current, theme));
    (line, ends)
}

/// What stands between two names: marks around the shown page.
fn separator(
    before: Option<PageTab>,
    after: Option<PageTab>,
    current: PageTab,
    theme: Theme,
) -> Span<'static> {
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

    fn key(self, tab: PageTab) -> String {
        let space = if matches!(self, Self::Spaced) { " " } else { "" };
        format!("{}{space}", tab.key())
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
    use super::*;

    fn text(current: PageTab, width: usize) -> String {
        draw(current, width, Theme::default()).0.to_string()
    }

    #[test]
    fn all_names_fit_into_80_columns_and_the_current_one_into_less() {
        for tab in PageTab::ALL {
            let named = format!("[{}{}]", tab.key(), tab.title());
            let line = text(tab, 80);
            assert!(line.chars().count() <= 80 && line.contains('['), "{line}");
            assert!(PageTab::ALL.iter().all(|tab| line.contains(tab.title())), "{line}");
            let line = text(tab, 40);
            assert!(line.chars().count() <= 40 && line.contains(&named), "{line}");
            assert!(PageTab::ALL.iter().all(|tab| line.contains(tab.key())), "{line}");
            assert_eq!(text(tab, 12), named);
        }
        assert!(text(PageTab::Overview, 120).starts_with("[1 Overview]2 Ports "));
    }

    #[test]
    fn clicks_hit_the_names() {
        let (line, ends) = draw(PageTab::Pools, 120, Theme::default());
        let text = line.to_string();
        for tab in PageTab::ALL {
            let at = text.find(tab.title()).unwrap();
            let hit = ends.iter().find(|(_, end)| at < *end).unwrap();
            assert_eq!(hit.0, tab);
        }
    }
}
