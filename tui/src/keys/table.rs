//! All actions that have keys: their names, their default keys, and their text in the help.

use crossterm::event::KeyCode;

use super::{ALWAYS_QUITS, Key};
use crate::action::{Action, ColumnAction, PromptAction, SelectionMotion, TaskAction};
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
    /// While a command is typed.
    Prompt,
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
        matches!(self, Self::Anywhere | Self::Filter | Self::Prompt | Self::Capture)
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

/// What the actions of some lines of the help are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySection {
    /// Pages, and rows on them.
    Rows,
    /// What tables show.
    Tables,
    /// Which moment is shown.
    Time,
    /// What numbers count.
    Numbers,
    /// What is done outside of the display.
    Tasks,
    /// The program itself.
    Program,
    /// Where something is typed or chosen.
    Typed,
}

impl KeySection {
    /// Heading of these lines.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rows => "Pages and rows",
            Self::Tables => "Tables",
            Self::Time => "Past and replay",
            Self::Numbers => "Numbers",
            Self::Tasks => "Captures and other tasks",
            Self::Program => "Commands, help, end",
            Self::Typed => "While something is typed or chosen",
        }
    }
}

/// One line of the help: actions that belong together.
#[derive(Debug)]
pub struct KeyBinding {
    /// What they are about; lines of a section are together.
    pub section: KeySection,
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

const fn page(
    section: KeySection,
    help: Option<&'static str>,
    actions: &'static [NamedAction],
) -> KeyBinding {
    KeyBinding { section, context: KeyContext::Page, help, actions }
}

const fn typed(
    context: KeyContext,
    help: Option<&'static str>,
    actions: &'static [NamedAction],
) -> KeyBinding {
    KeyBinding { section: KeySection::Typed, context, help, actions }
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

const SORT: &[NamedAction] = actions! {
    "sort" Action::Sort, [key('s'), code(KeyCode::Right)], "sort the table by its next column";
    "sort-previous" Action::SortPrevious, [code(KeyCode::Left)],
        "sort the table by its previous column";
    "sort-reverse" Action::Invert, [key('I')], "reverse the order";
};

const TABLE: &[NamedAction] = actions! {
    "columns" Action::Columns(ColumnAction::Window), [key('o')],
        "choose the columns of the selected table";
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
    "time-back" Action::Seek(SeekTarget::Step(-1)), [key(','), Key::shift(KeyCode::Left)],
        "one step back";
    "time-forward" Action::Seek(SeekTarget::Step(1)), [key('.'), Key::shift(KeyCode::Right)],
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

const PROMPT: &[NamedAction] = actions! {
    "command" Action::Prompt(PromptAction::Open), [key(':')],
        "type a command: a page, filter, sort, columns, any action";
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

const TYPED_COMMAND: &[NamedAction] = actions! {
    "command-run" Action::Prompt(PromptAction::Run), [code(KeyCode::Enter)], "run the typed command";
    "command-complete" Action::Prompt(PromptAction::Complete), [code(KeyCode::Tab)],
        "complete the typed command; the next of several ways";
    "command-cancel" Action::Back, [code(KeyCode::Esc)], "run no command";
};

const OTHER_COMMANDS: &[NamedAction] = actions! {
    "command-complete-back" Action::Prompt(PromptAction::CompleteBack), [code(KeyCode::BackTab)],
        "complete the typed command; the previous of several ways";
    "command-older" Action::Prompt(PromptAction::Older), [code(KeyCode::Up)],
        "the command that was run before";
    "command-newer" Action::Prompt(PromptAction::Newer), [code(KeyCode::Down)],
        "the command that was run after";
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
    page(KeySection::Rows, Some("pages; the next, the previous page"), PAGES),
    page(KeySection::Rows, Some("select the next, the previous row"), NEXT_PREVIOUS),
    page(KeySection::Rows, None, FIRST_LAST),
    page(KeySection::Rows, Some("go to the finding's row, or details; details; back"), OPEN),
    page(KeySection::Tables, Some("sort by the next, the previous column; reverse"), SORT),
    page(KeySection::Tables, Some("choose columns; whole page, all tables"), TABLE),
    page(KeySection::Tables, None, FILTER),
    page(KeySection::Tables, None, RESET),
    page(KeySection::Time, None, PAUSE),
    page(KeySection::Time, Some("one step back, forward; the last 10 minutes are kept"), STEPS),
    page(KeySection::Time, Some("10 seconds back, forward; a minute back, forward"), JUMPS),
    page(KeySection::Time, Some("oldest data; the present, or the end of a recording"), ENDS),
    page(KeySection::Time, Some("the next, the previous time a finding began"), MARKS),
    page(
        KeySection::Numbers,
        Some("totals from now, the start; rates or totals; bits or bytes"),
        TOTALS,
    ),
    page(
        KeySection::Numbers,
        Some("longer, shorter sampling interval; a replay: faster, slower"),
        INTERVAL,
    ),
    page(KeySection::Tasks, None, ATTACH),
    page(KeySection::Tasks, Some("capture the selected; write a snapshot; arm stamps"), TASKS),
    page(KeySection::Tasks, None, HOLDERS),
    page(KeySection::Tasks, None, COMMANDS),
    page(KeySection::Program, None, PROMPT),
    page(KeySection::Program, None, HELP),
    page(KeySection::Program, Some("quit; quit, and leave the last screen on the terminal"), QUIT),
    KeyBinding {
        section: KeySection::Program,
        context: KeyContext::Anywhere,
        help: None,
        actions: SUSPEND,
    },
    typed(KeyContext::Filter, Some("while a filter is typed: apply, cancel, erase"), TYPED_FILTER),
    typed(
        KeyContext::Prompt,
        Some("while a command is typed: run, complete, cancel"),
        TYPED_COMMAND,
    ),
    typed(
        KeyContext::Prompt,
        Some("the same: complete otherwise; older, newer commands"),
        OTHER_COMMANDS,
    ),
    typed(
        KeyContext::Columns,
        Some("while columns are chosen: show or hide, right, left"),
        CHOSEN_COLUMNS,
    ),
    typed(
        KeyContext::Columns,
        Some("while columns are chosen: the table's own; close"),
        COLUMN_WINDOW,
    ),
    typed(
        KeyContext::Capture,
        Some("before a capture: start; file or screen; cancel"),
        TYPED_CAPTURE,
    ),
    typed(KeyContext::Question, Some("before a capture that attaches: attach, go back"), QUESTION),
];

/// All actions that have keys, and where.
pub fn named_actions() -> impl Iterator<Item = (KeyContext, &'static NamedAction)> + Clone {
    BINDINGS.iter().flat_map(|line| line.actions.iter().map(|named| (line.context, named)))
}
