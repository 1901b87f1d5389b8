//! What a theme changes on a page, and what it leaves.

use insta::assert_snapshot;
use pmdscope_render::{Palette, Theme, Tone};

use super::page_tests::{StyleLetter, squeezed, styles};
use super::tests::{on, text};
use super::*;
use crate::action::{Action, SelectionMotion};
use crate::fixture;
use crate::style::severity_look;
use crate::update::update;

/// Of tones with the same style, the first one stands for all.
const TONES: [(char, Tone); 8] = [
    ('.', Tone::Plain),
    ('d', Tone::Dim),
    ('g', Tone::Good),
    ('w', Tone::Warn),
    ('b', Tone::Bad),
    ('t', Tone::Title),
    ('u', Tone::Label),
    ('v', Tone::Graph),
];

fn legend(theme: Theme) -> String {
    let style = |(letter, tone): (char, Tone)| {
        let style = theme.style(tone);
        let color = style.fg.map_or_else(|| "-".to_owned(), |color| color.to_string());
        format!("{letter} {tone:?}: {color} {:?}\n", style.add_modifier)
    };
    TONES.map(style).concat()
}

#[test]
fn the_overview_in_each_theme() {
    let fleet = fixture::fleet();
    for palette in Palette::ALL {
        let mut view = on(PageTab::Overview);
        view.theme = Theme { palette, ascii: false };
        update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
        let letters = TONES.map(|(letter, tone)| -> StyleLetter {
            let style = view.theme.style(tone);
            (letter, style.fg, style.add_modifier)
        });
        let drawn = squeezed(&styles((80, 24), &view, &fleet, &letters));
        assert!(!drawn.contains('X'), "a style of no tone:\n{drawn}");
        assert_snapshot!(format!("overview_{palette}"), legend(view.theme) + &drawn);
    }
}

#[test]
fn no_theme_says_with_colours_what_it_does_not_write() {
    let fleet = fixture::fleet_with_interfaces();
    for ascii in [false, true] {
        for tab in PageTab::ALL {
            let page = |palette| {
                let mut view = on(tab);
                view.theme = Theme { palette, ascii };
                text(120, 40, &view, &fleet)
            };
            for palette in Palette::ALL {
                assert_eq!(page(palette), page(Palette::Mono), "{palette}");
            }
        }
    }
}

#[test]
fn severities_have_signs_of_their_own_in_all_themes() {
    use pmdscope_telemetry::finding::Severity;
    for theme in [Theme::default(), Theme::ASCII] {
        let severities = [Severity::Critical, Severity::Warning, Severity::Info];
        let [critical, warning, info] = severities.map(|of| severity_look(of, theme).0);
        assert!(critical != warning && critical != info && warning != info);
    }
}

#[test]
fn graphs_have_a_tone_of_their_own() {
    let mut view = on(PageTab::Ports);
    view.theme.palette = Palette::Truecolor;
    let graph = view.theme.style(Tone::Graph).fg;
    for tab in [PageTab::Overview, PageTab::Ports, PageTab::Pools, PageTab::Lcores] {
        view.tab = tab;
        let buffer = super::tests::draw(120, 40, &view, &fixture::fleet());
        let drawn = buffer.content().iter().any(|cell| Some(cell.fg) == graph);
        assert!(drawn, "{tab:?}");
    }
}
