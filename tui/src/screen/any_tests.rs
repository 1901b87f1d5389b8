//! Any screen, any model and any keys: nothing panics.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pmdscope_render::{Palette, Theme};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::{ErrorClass, FleetEvent};
use proptest::prelude::*;

use super::tests::draw;
use super::*;
use crate::action::Action;
use crate::fixture;
use crate::input::action_of;
use crate::timeline::trends::Trends;
use crate::update::update;

/// Keys with a meaning in some mode, and some without.
pub(crate) fn keys() -> impl Strategy<Value = KeyEvent> {
    let codes = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(1),
    ];
    let modifiers = [KeyModifiers::NONE, KeyModifiers::CONTROL, KeyModifiers::SHIFT];
    let code = prop_oneof![
        3 => prop::sample::select("0123456789".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        3 => prop::sample::select("jkgGisIe/:zZ+-?hPcwamytobrdJK <>=%.,()nNfQ".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        3 => prop::sample::select(codes.to_vec()),
        1 => any::<char>().prop_map(KeyCode::Char),
    ];
    let modifiers =
        prop_oneof![5 => Just(modifiers[0]), 1 => prop::sample::select(modifiers.to_vec())];
    (code, modifiers).prop_map(|(code, modifiers)| KeyEvent::new(code, modifiers))
}

/// Takes something away from a model, as when a reply is missing, or makes a number extreme.
pub(crate) fn mutate(model: &mut Model, what: u8, number: u64) {
    let sample = &mut model.sample;
    let length = usize::try_from(number % 3).unwrap_or(0);
    match what % 18 {
        0 => sample.ports.truncate(length),
        1 => sample.pools.truncate(length),
        2 => sample.queues.truncate(length),
        3 => sample.rings.clear(),
        4 => sample.lcores.truncate(length),
        5 => sample.threads.truncate(length),
        6 => sample.sites.truncate(length),
        7 => sample.ledger.clear(),
        8 => sample.library = None,
        9 => model.pools.truncate(length),
        10 => model.queues.truncate(length),
        11 => model.ports.truncate(length),
        12 => {
            for queue in &mut sample.queues {
                (queue.depth, queue.descriptors) = (Some(number), Some(number / 2));
            }
        }
        13 => {
            for lcore in &mut sample.lcores {
                (lcore.gap_max_us, lcore.idle_us, lcore.stalls) = (number, number, number);
                lcore.gaps = vec![number; length];
            }
        }
        14 => {
            for pool in &mut sample.pools {
                (pool.size, pool.name) = (number, "p".repeat(length * 100));
            }
        }
        15 => {
            for trend in &mut model.pools {
                (trend.slope_ps, trend.exhausted_in_s) = (Some(f64::NAN), Some(f64::INFINITY));
                trend.history = vec![number; length];
            }
        }
        16 => {
            for queue in &mut model.queues {
                (queue.share, queue.missed_ps) = (Some(f64::NAN), Some(number as f64));
            }
        }
        _ => model.restarted = true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_screen_model_or_key_panics(
        width in 0_u16..=300,
        height in 0_u16..=100,
        palette in prop::sample::select(&Palette::ALL[..]),
        ascii in any::<bool>(),
        with_trends in 0..3_u8,
        lost in any::<bool>(),
        mutations in prop::collection::vec((any::<u8>(), any::<u64>()), 0..5),
        keys in prop::collection::vec(keys(), 0..16),
        filter in "[!/a-z:<>=0-9%. ()*]{0,12}",
    ) {
        let mut fleet = fixture::fleet_with_interfaces();
        let mut model = fixture::stolen();
        for (what, number) in mutations {
            mutate(&mut model, what, number);
        }
        fleet.apply(fixture::sampled(model, fixture::leaking_findings()));
        if lost {
            fleet.apply(FleetEvent::Lost {
                class: ErrorClass::Timeout,
                app: "reflector".to_owned(),
                reason: "no answer".to_owned(),
                finding: None,
            });
        }
        let theme = Theme { palette, ascii };
        let mut view = ViewState { theme, width, height, ..fixture::view() };
        match with_trends {
            0 => view.trends = None,
            1 => view.trends = Some(Trends::default()),
            _ => {}
        }
        let typed = filter.chars().map(Action::Type);
        for action in [Action::Filter].into_iter().chain(typed).chain([Action::Accept]) {
            update(&mut view, action, &fleet);
            draw(width, height, &view, &fleet);
        }
        for key in keys {
            if let Some(action) = action_of(key, &view) {
                update(&mut view, action, &fleet);
            }
            draw(width, height, &view, &fleet);
        }
        for tab in PageTab::ALL {
            view.tab = tab;
            draw(width, height, &view, &fleet);
            if width > 0 && height > 0 {
                let area = Rect::new(0, 0, width, height);
                for y in [0, 1, height / 2, height - 1] {
                    let target = hit(area, Position { x: width / 2, y }, &view, &fleet);
                    if let Some(ClickTarget::Title { table, column }) = target {
                        update(&mut view, Action::SortBy { table, column }, &fleet);
                    }
                }
            }
        }
        draw(width, height, &view, &FleetState::default());
    }
}
