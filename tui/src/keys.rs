//! Key → [`Action`]: the keys of all modes.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::action::{Action, SelectionMotion};
use crate::task::{self, TaskAction};
use crate::timeline::SeekTarget;
use crate::view::{InputMode, PageTab};

/// Nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// One line of the key table: what the help shows is what the keys do.
#[derive(Debug)]
pub struct KeyBinding {
    /// As the help names the keys.
    pub label: &'static str,
    /// What the help says.
    pub help: &'static str,
    keys: &'static [(KeyCode, Action)],
}

impl KeyBinding {
    /// What its keys do.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.keys.iter().map(|(_, action)| action)
    }
}

const fn key(character: char) -> KeyCode {
    KeyCode::Char(character)
}

/// The keys of [`InputMode::Browse`]; overlays obey those for moving, leaving and help too.
pub const BINDINGS: &[KeyBinding] = &[
    KeyBinding {
        label: "0-9 Tab S-Tab",
        help: "pages, by their numbers; next, previous",
        keys: &[
            (key('1'), Action::Go(PageTab::Overview)),
            (key('2'), Action::Go(PageTab::Ports)),
            (key('3'), Action::Go(PageTab::Pools)),
            (key('4'), Action::Go(PageTab::Lcores)),
            (key('5'), Action::Go(PageTab::Flows)),
            (key('6'), Action::Go(PageTab::Rings)),
            (key('7'), Action::Go(PageTab::Captures)),
            (key('8'), Action::Go(PageTab::Findings)),
            (key('9'), Action::Go(PageTab::Kernel)),
            (key('0'), Action::Go(PageTab::Raw)),
            (KeyCode::Tab, Action::Next),
            (KeyCode::BackTab, Action::Previous),
        ],
    },
    KeyBinding {
        label: "j k arrows",
        help: "select a row",
        keys: &[
            (key('j'), Action::Move(SelectionMotion::Down)),
            (KeyCode::Down, Action::Move(SelectionMotion::Down)),
            (key('k'), Action::Move(SelectionMotion::Up)),
            (KeyCode::Up, Action::Move(SelectionMotion::Up)),
        ],
    },
    KeyBinding {
        label: "g G PgUp PgDn",
        help: "first, last row; a page up, down",
        keys: &[
            (key('g'), Action::Move(SelectionMotion::Top)),
            (key('G'), Action::Move(SelectionMotion::Bottom)),
            (KeyCode::PageUp, Action::Move(SelectionMotion::PageUp)),
            (KeyCode::PageDown, Action::Move(SelectionMotion::PageDown)),
        ],
    },
    KeyBinding {
        label: "Enter i Esc",
        help: "open: go to the finding's row, details of others; details; back",
        keys: &[
            (KeyCode::Enter, Action::Open),
            (key('i'), Action::Details),
            (KeyCode::Esc, Action::Back),
        ],
    },
    KeyBinding {
        label: "s I",
        help: "sort the selected table by the next column; reverse",
        keys: &[(key('s'), Action::Sort), (key('I'), Action::Invert)],
    },
    KeyBinding {
        label: "/",
        help: "filter rows: word, !word, column:word",
        keys: &[(key('/'), Action::Filter)],
    },
    KeyBinding {
        label: "space",
        help: "pause the display (sampling continues); play a replay",
        keys: &[(key(' '), Action::Hold)],
    },
    KeyBinding {
        label: "Left Right , .",
        help: "one step back, forward; the last 10 minutes are kept",
        keys: &[
            (KeyCode::Left, Action::Seek(SeekTarget::Step(-1))),
            (key(','), Action::Seek(SeekTarget::Step(-1))),
            (KeyCode::Right, Action::Seek(SeekTarget::Step(1))),
            (key('.'), Action::Seek(SeekTarget::Step(1))),
        ],
    },
    KeyBinding {
        label: "< > ( )",
        help: "10 seconds back, forward; a minute back, forward",
        keys: &[
            (key('<'), Action::Seek(SeekTarget::By(-10 * SECOND))),
            (key('>'), Action::Seek(SeekTarget::By(10 * SECOND))),
            (key('('), Action::Seek(SeekTarget::By(-60 * SECOND))),
            (key(')'), Action::Seek(SeekTarget::By(60 * SECOND))),
        ],
    },
    KeyBinding {
        label: "Home End n N",
        help: "oldest data, present; next, previous new finding",
        keys: &[
            (KeyCode::Home, Action::Seek(SeekTarget::Oldest)),
            (KeyCode::End, Action::Seek(SeekTarget::Newest)),
            (key('n'), Action::Seek(SeekTarget::NextMark)),
            (key('N'), Action::Seek(SeekTarget::PreviousMark)),
        ],
    },
    KeyBinding {
        label: "z Z",
        help: "count totals from now; from the start of the app",
        keys: &[(key('z'), Action::Mark), (key('Z'), Action::Unmark)],
    },
    KeyBinding {
        label: "+ -",
        help: "longer, shorter sampling interval; a replay: faster, slower",
        keys: &[(key('+'), Action::Slower), (key('='), Action::Slower), (key('-'), Action::Faster)],
    },
    KeyBinding {
        label: "P",
        help: "flows: attach to apps without libpmdscope; detach",
        keys: &[(key('P'), Action::Attach)],
    },
    KeyBinding {
        label: "c w a",
        help: "capture the selected; write a snapshot, or packets of a leak; arm stamps",
        keys: &[
            (key('c'), Action::Task(TaskAction::Capture)),
            (key('w'), Action::Task(TaskAction::Write)),
            (key('a'), Action::Task(TaskAction::Arm)),
        ],
    },
    KeyBinding {
        label: "y t",
        help: "copy the command line that shows the same; tasks",
        keys: &[
            (key('y'), Action::Task(TaskAction::Copy)),
            (key('t'), Action::Task(TaskAction::Show)),
        ],
    },
    KeyBinding {
        label: "? h",
        help: "this help",
        keys: &[(key('?'), Action::Help), (key('h'), Action::Help), (KeyCode::F(1), Action::Help)],
    },
    KeyBinding { label: "q ^C ^Z", help: "quit; stop until fg", keys: &[(key('q'), Action::Quit)] },
];

/// What a key means in the mode that the view is in.
pub fn action_of(event: KeyEvent, mode: &InputMode) -> Option<Action> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    if *mode == InputMode::CaptureForm
        && !(is_control && matches!(event.code, KeyCode::Char('c' | 'z')))
    {
        return task::action_of(event);
    }
    if is_control {
        return control_action(event.code);
    }
    if matches!(mode, InputMode::Filter { .. }) {
        return typing_action(event.code);
    }
    let keys = BINDINGS.iter().flat_map(|binding| binding.keys);
    keys.clone().find(|(code, _)| *code == event.code).map(|(_, action)| action.clone())
}

fn control_action(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Char('c') => Some(Action::Quit),
        KeyCode::Char('z') => Some(Action::Suspend),
        KeyCode::Char('d') => Some(Action::Move(SelectionMotion::PageDown)),
        KeyCode::Char('u') => Some(Action::Move(SelectionMotion::PageUp)),
        _ => None,
    }
}

fn typing_action(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Char(character) => Some(Action::Type(character)),
        KeyCode::Backspace => Some(Action::Erase),
        KeyCode::Enter => Some(Action::Accept),
        KeyCode::Esc => Some(Action::Back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let codes: Vec<_> = BINDINGS.iter().flat_map(|b| b.keys).map(|(code, _)| *code).collect();
        let distinct: std::collections::HashSet<_> = codes.iter().collect();
        assert_eq!(codes.len(), distinct.len());
    }
}
