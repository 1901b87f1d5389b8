//! Snapshots of all pages, on terminals of several sizes, with their styles.

use insta::assert_snapshot;
use pmdscope_render::Theme;
use ratatui::style::{Color, Modifier, Style};

use super::tests::{draw, on, text};
use super::*;
use crate::action::{Action, SelectionMotion};
use crate::fixture;
use crate::update::update;

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];
const MONO: Theme = Theme::ASCII;

/// A letter, and the style that it stands for.
pub(crate) type StyleLetter = (char, Option<Color>, Modifier);

/// What the letters of most snapshots stand for, in their order.
const LETTERS: [StyleLetter; 9] = [
    ('.', None, Modifier::empty()),
    ('d', None, Modifier::DIM),
    ('g', Some(Color::Green), Modifier::empty()),
    ('w', Some(Color::Yellow), Modifier::empty()),
    ('R', Some(Color::LightRed), Modifier::BOLD),
    ('T', Some(Color::Cyan), Modifier::BOLD),
    ('B', None, Modifier::BOLD),
    ('x', None, Modifier::BOLD.union(Modifier::UNDERLINED)),
    ('u', None, Modifier::UNDERLINED),
];

/// A screen, without most of the lines where there is nothing.
pub(crate) fn squeezed(screen: &str) -> String {
    let (mut lines, mut empty) = (Vec::new(), 0);
    for line in screen.lines() {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        match empty {
            0..=2 => lines.push(line),
            3 => lines.push("~"),
            _ => {}
        }
    }
    lines.join("\n") + "\n"
}

/// What the page shows best.
fn fleet_for(tab: PageTab) -> FleetState {
    if tab == PageTab::Kernel { fixture::fleet_with_interfaces() } else { fixture::fleet() }
}

/// A letter for the style of each cell.
pub(crate) fn styles(
    (width, height): (u16, u16),
    view: &ViewState,
    fleet: &FleetState,
    letters: &[StyleLetter],
) -> String {
    let buffer = draw(width, height, view, fleet);
    let letter = |x, y| {
        let Style { fg, add_modifier, .. } = buffer[(x, y)].style();
        let colour = fg.filter(|colour| *colour != Color::Reset);
        let known = letters.iter().find(|(_, fg, modifier)| {
            (*fg, *modifier) == (colour, add_modifier - Modifier::REVERSED)
        });
        match known {
            Some((letter, ..)) if add_modifier.contains(Modifier::REVERSED) => {
                letter.to_ascii_uppercase()
            }
            Some((letter, ..)) => *letter,
            None => 'X',
        }
    };
    let row = |y| (0..width).map(|x| letter(x, y)).collect::<String>();
    (0..height).map(|y| row(y).trim_end_matches('.').to_owned() + "\n").collect()
}

#[test]
fn every_page_on_every_size() {
    for tab in PageTab::ALL {
        let fleet = fleet_for(tab);
        let mut view = on(tab);
        let mut screens: Vec<_> = SIZES
            .iter()
            .map(|&(width, height)| {
                let screen = squeezed(&text(width, height, &view, &fleet));
                format!("{width}x{height}\n{screen}")
            })
            .collect();
        view.theme = MONO;
        for (width, height) in &SIZES {
            let screen = text(*width, *height, &view, &fleet);
            assert!(screen.is_ascii(), "{screen}");
            screens.push(format!("{width}x{height}, ascii\n{}", squeezed(&screen)));
        }
        assert_snapshot!(format!("{tab:?}").to_lowercase(), screens.join("----\n"));
    }
}

#[test]
fn every_page_has_its_styles() {
    for tab in PageTab::ALL {
        let fleet = fleet_for(tab);
        let mut view = on(tab);
        let mut screens = Vec::new();
        for (name, theme) in [("colors", Theme::default()), ("mono", MONO)] {
            view.theme = theme;
            for size in SIZES {
                let styles = styles(size, &view, &fleet, &LETTERS);
                let (width, height) = size;
                screens.push(format!("{width}x{height}, {name}\n{}", squeezed(&styles)));
            }
        }
        assert_snapshot!(format!("{tab:?}_styles").to_lowercase(), screens.join("----\n"));
    }
}

#[test]
fn details_of_every_kind_of_row() {
    for tab in PageTab::ALL {
        let (mut view, fleet) = (on(tab), fleet_for(tab));
        update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
        let mut screens = Vec::new();
        for _ in tables::shown(&view, &fleet).iter().flat_map(|table| &table.rows) {
            update(&mut view, Action::Details, &fleet);
            screens.push(squeezed(&text(100, 44, &view, &fleet)));
            update(&mut view, Action::Back, &fleet);
            update(&mut view, Action::Move(SelectionMotion::Down), &fleet);
        }
        assert_snapshot!(format!("details_{tab:?}").to_lowercase(), screens.join("----\n"));
    }
}

#[test]
fn an_empty_page_says_why() {
    let fleet = fixture::fleet_of(fixture::stock(), Vec::new());
    for tab in [PageTab::Rings, PageTab::Captures, PageTab::Kernel] {
        let screen = text(80, 24, &on(tab), &fleet);
        assert!(screen.contains("\nNo "), "{screen}");
    }
}
