//! All actions that have keys: their names, their default keys, and their text in the help.

use crossterm::event::KeyCode;

use super::{ALWAYS_QUITS, Key};
use crate::action::{Action, ColumnAction, SelectionMotion, TaskAction};
use crate::page::PageTab;
use crate::timeline::SeekTarget;

/// Where a key does what it does. In one context it does one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyContext {
    /// Wherever keys are taken.
    Anywhere,
    /// On pages, and in the windows over them.
    Page,
    /// While the filter is typed.
    Filter,
    /// In the window of columns.
    Columns,
    /// While the command line of a capture is typed.
    Capture,
    /// While a capture that attaches to an app is to be confirmed.
    Question,
}

impl KeyContext {
    /// A key that has an action in both would have two at once.
    pub fn overlaps(self, other: Self) -> bool {
        self == other || self == Self::Anywhere || other == Self::Anywhere
    }

    /// Characters are typed there: they cannot do anything else.
    pub fn takes_text(self) -> bool {
        matches!(self, Self::Anywhere | Self::Filter | Self::Capture)
    }
}

/// An action that has keys.
#[derive(Debug)]
pub struct NamedAction {
    /// As the configuration calls it.
    pub name: &'static str,
    /// What it does, in a few words.
    pub meaning: &'static str,
    /// The action.
    pub action: Action,
    /// Its keys by default.
    pub default_keys: &'static [Key],
}

/// One line of the help: actions that belong together.
#[derive(Debug)]
pub struct KeyBinding {
    /// Where their keys do that.
    pub context: KeyContext,
    /// The text of the help for all of them; `None` for the meaning of each.
    pub help: Option<&'static str>,
    /// The actions, in the order of the help.
    pub actions: &'static [NamedAction],
}

/// Rows of the table: name, action, default keys, meaning.
macro_rules! actions {
    ($($name:literal $action:expr, [$($key:expr),+], $meaning:literal;)+) => {
        &[$(NamedAction {
            name: $name,
            meaning: $meaning,
            action: $action,
            default_keys: &[$($key),+],
        }),+]
    };
}

const fn page(help: Option<&'static str>, actions: &'static [NamedAction]) -> KeyBinding {
    KeyBinding { context: KeyContext::Page, help, actions }
}

const fn key(character: char) -> Key {
    Key::char(character)
}

const fn code(code: KeyCode) -> Key {
    Key::code(code)
}

const PAGES: &[NamedAction] = actions! {
    "page-overview" Action::Go(PageTab::Overview), [key('1')], "page Overview";
    "page-ports" Action::Go(PageTab::Ports), [key('2')], "page Ports";
    "page-pools" Action::Go(PageTab::Pools), [key('3')], "page Pools";
    "page-lcores" Action::Go(PageTab::Lcores), [key('4')], "page Lcores";
    "page-flows" Action::Go(PageTab::Flows), [key('5')], "page Flows";
    "page-rings" Action::Go(PageTab::Rings), [key('6')], "page Rings";
    "page-captures" Action::Go(PageTab::Captures), [key('7')], "page Captures";
    "page-findings" Action::Go(PageTab::Findings), [key('8')], "page Findings";
    "page-kernel" Action::Go(PageTab::Kernel), [key('9')], "page Kernel";
    "page-raw" Action::Go(PageTab::Raw), [key('0')], "page Raw";
    "page-next" Action::Next, [code(KeyCode::Tab)], "next page";
    "page-previous" Action::Previous, [code(KeyCode::BackTab)], "previous page";
};

const NEXT_PREVIOUS: &[NamedAction] = actions! {
    "select-next" Action::Move(SelectionMotion::Down), [key('j'), code(KeyCode::Down)],
        "select the next row";
    "select-previous" Action::Move(SelectionMotion::Up), [key('k'), code(KeyCode::Up)],
        "select the previous row";
};

const FIRST_LAST: &[NamedAction] = actions! {
    "select-first" Action::Move(SelectionMotion::Top), [key('g')], "first row";
    "select-last" Action::Move(SelectionMotion::Bottom), [key('G')], "last row";
    "select-page-up" Action::Move(SelectionMotion::PageUp),
        [code(KeyCode::PageUp), Key::ctrl('u')], "a page up";
    "select-page-down" Action::Move(SelectionMotion::PageDown),
        [code(KeyCode::PageDown), Key::ctrl('d')], "a page down";
};

const OPEN: &[NamedAction] = actions! {
    "open" Action::Open, [code(KeyCode::Enter)],
        "go to the row that a finding is about; details of other rows";
    "details" Action::Details, [key('i')], "details of the selected row";
    "back" Action::Back, [code(KeyCode::Esc)],
        "close a window; clear the filter; go back to the finding";
};

const TABLE: &[NamedAction] = actions! {
    "sort" Action::Sort, [key('s')], "sort the table by its next column";
    "sort-reverse" Action::Invert, [key('I')], "reverse the order";
    "columns" Action::Columns(ColumnAction::Window), [key('o')],
        "choose the columns of the selected table";
};

const WHOLE: &[NamedAction] = actions! {
    "expand" Action::Expand, [key('e')], "give the selected table the whole page; all tables";
};

const RESET: &[NamedAction] = actions! {
    "reset" Action::Reset, [Key::ctrl('r')], "reset filter, order, selection and totals";
};

const FILTER: &[NamedAction] = actions! {
    "filter" Action::Filter, [key('/')], "filter rows: word, !word, /regex/, column:word, column>1k";
};

const PAUSE: &[NamedAction] = actions! {
    "pause" Action::Hold, [key(' '), key('f')], "pause the display (sampling continues); play a replay";
};

const STEPS: &[NamedAction] = actions! {
    "time-back" Action::Seek(SeekTarget::Step(-1)), [key(','), code(KeyCode::Left)],
        "one step back";
    "time-forward" Action::Seek(SeekTarget::Step(1)), [key('.'), code(KeyCode::Right)],
        "one step forward";
};

const JUMPS: &[NamedAction] = actions! {
    "time-back-10s" Action::Seek(SeekTarget::seconds(-10)), [key('<')], "10 seconds back";
    "time-forward-10s" Action::Seek(SeekTarget::seconds(10)), [key('>')], "10 seconds forward";
    "time-back-1m" Action::Seek(SeekTarget::seconds(-60)), [key('(')], "one minute back";
    "time-forward-1m" Action::Seek(SeekTarget::seconds(60)), [key(')')], "one minute forward";
};

const ENDS: &[NamedAction] = actions! {
    "time-oldest" Action::Seek(SeekTarget::Oldest), [code(KeyCode::Home)], "oldest data";
    "time-newest" Action::Seek(SeekTarget::Newest), [code(KeyCode::End)],
        "the present, or the end of a recording";
};

const MARKS: &[NamedAction] = actions! {
    "finding-next" Action::Seek(SeekTarget::NextMark), [key('n')],
        "the next time a finding began";
    "finding-previous" Action::Seek(SeekTarget::PreviousMark), [key('N')],
        "the previous time a finding began";
};

const TOTALS: &[NamedAction] = actions! {
    "totals-from-now" Action::Mark, [key('z')], "count totals from now";
    "totals-from-start" Action::Unmark, [key('Z')], "count totals from the start of the app";
    "rates-or-totals" Action::Totals, [key('r')], "show totals instead of rates; show rates";
    "bits-or-bytes" Action::Bytes, [key('b')], "show bytes instead of bits; show bits";
};

const INTERVAL: &[NamedAction] = actions! {
    "interval-longer" Action::Slower, [key('+'), key('=')],
        "longer sampling interval; a replay: faster";
    "interval-shorter" Action::Faster, [key('-')], "shorter sampling interval; a replay: slower";
};

const ATTACH: &[NamedAction] = actions! {
    "attach" Action::Attach, [key('P')], "Flows: attach to apps without libpmdscope; detach";
};

const TASKS: &[NamedAction] = actions! {
    "capture" Action::Task(TaskAction::Capture), [key('c')],
        "capture what is selected; end the task that runs";
    "write" Action::Task(TaskAction::Write), [key('w')], "write a snapshot, or packets of a leak";
    "arm" Action::Task(TaskAction::Arm), [key('a')], "arm the stamps of the selected app";
};

const HOLDERS: &[NamedAction] = actions! {
    "holders" Action::Task(TaskAction::Holders), [key('m')],
        "show who holds the mbufs of the selected pool or app";
};

const COMMANDS: &[NamedAction] = actions! {
    "copy" Action::Task(TaskAction::Copy), [key('y')], "copy the command line that shows the same";
    "tasks" Action::Task(TaskAction::Show), [key('t')], "tasks";
};

const HELP: &[NamedAction] = actions! {
    "help" Action::Help, [key('?'), key('h'), code(KeyCode::F(1))], "help";
};

const QUIT: &[NamedAction] = actions! {
    "quit" Action::Quit, [key('q'), ALWAYS_QUITS], "quit";
    "quit-keep-screen" Action::QuitKeepingScreen, [key('Q')],
        "quit, and leave the last screen on the terminal";
};

const SUSPEND: &[NamedAction] = actions! {
    "suspend" Action::Suspend, [Key::ctrl('z')], "stop, until the shell's fg";
};

const TYPED_FILTER: &[NamedAction] = actions! {
    "filter-apply" Action::Accept, [code(KeyCode::Enter)], "apply the typed filter";
    "filter-cancel" Action::Back, [code(KeyCode::Esc)], "leave the filter as it was";
    "filter-erase" Action::Erase, [code(KeyCode::Backspace)], "erase the last character";
};

const CHOSEN_COLUMNS: &[NamedAction] = actions! {
    "column-toggle" Action::Columns(ColumnAction::Toggle), [key(' ')], "show a column; hide it";
    "column-right" Action::Columns(ColumnAction::Right), [key('J'), Key::shift(KeyCode::Down)],
        "move a column to the right";
    "column-left" Action::Columns(ColumnAction::Left), [key('K'), Key::shift(KeyCode::Up)],
        "move a column to the left";
};

const COLUMN_WINDOW: &[NamedAction] = actions! {
    "column-reset" Action::Columns(ColumnAction::Reset), [key('d'), Key::ctrl('r')],
        "show the table's own columns";
    "columns-close" Action::Columns(ColumnAction::Window), [code(KeyCode::Enter), key('o')],
        "close the window of columns";
};

const TYPED_CAPTURE: &[NamedAction] = actions! {
    "capture-start" Action::Task(TaskAction::Start), [code(KeyCode::Enter)], "start the capture";
    "capture-toggle" Action::Task(TaskAction::Toggle), [code(KeyCode::Tab)],
        "capture to a file, or onto the screen";
    "capture-cancel" Action::Back, [code(KeyCode::Esc)], "start no capture";
};

const QUESTION: &[NamedAction] = actions! {
    "attach-confirm" Action::Task(TaskAction::Confirm), [key('P')], "attach and capture";
    "attach-cancel" Action::Back, [code(KeyCode::Esc)],
        "go back to the command line of the capture";
};

/// All of them, in the order of the help.
pub const BINDINGS: &[KeyBinding] = &[
    page(Some("pages; the next, the previous page"), PAGES),
    page(Some("select the next, the previous row"), NEXT_PREVIOUS),
    page(None, FIRST_LAST),
    page(Some("go to the finding's row, or details; details; back"), OPEN),
    page(Some("sort the table by its next column; reverse; choose columns"), TABLE),
    page(None, FILTER),
    page(None, WHOLE),
    page(None, RESET),
    page(None, PAUSE),
    page(Some("one step back, forward; the last 10 minutes are kept"), STEPS),
    page(Some("10 seconds back, forward; a minute back, forward"), JUMPS),
    page(Some("oldest data; the present, or the end of a recording"), ENDS),
    page(Some("the next, the previous time a finding began"), MARKS),
    page(Some("totals from now, the start; rates or totals; bits or bytes"), TOTALS),
    page(Some("longer, shorter sampling interval; a replay: faster, slower"), INTERVAL),
    page(None, ATTACH),
    page(Some("capture the selected; write a snapshot; arm stamps"), TASKS),
    page(None, HOLDERS),
    page(None, COMMANDS),
    page(None, HELP),
    page(Some("quit; quit, and leave the last screen on the terminal"), QUIT),
    KeyBinding { context: KeyContext::Anywhere, help: None, actions: SUSPEND },
    KeyBinding {
        context: KeyContext::Filter,
        help: Some("while a filter is typed: apply, cancel, erase"),
        actions: TYPED_FILTER,
    },
    KeyBinding {
        context: KeyContext::Columns,
        help: Some("while columns are chosen: show or hide, right, left"),
        actions: CHOSEN_COLUMNS,
    },
    KeyBinding {
        context: KeyContext::Columns,
        help: Some("while columns are chosen: the table's own; close"),
        actions: COLUMN_WINDOW,
    },
    KeyBinding {
        context: KeyContext::Capture,
        help: Some("before a capture: start; file or screen; cancel"),
        actions: TYPED_CAPTURE,
    },
    KeyBinding {
        context: KeyContext::Question,
        help: Some("before a capture that attaches: attach, go back"),
        actions: QUESTION,
    },
];

/// All actions that have keys, and where.
pub fn named_actions() -> impl Iterator<Item = (KeyContext, &'static NamedAction)> + Clone {
    BINDINGS.iter().flat_map(|line| line.actions.iter().map(|named| (line.context, named)))
}
