//! All that the user can do, as data: what a key asks for.

use pmdscope_render::Subject;
use tui_input::InputRequest;

use crate::page::PageTab;
use crate::timeline::SeekTarget;

/// Where the selection or an overlay goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionMotion {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// First row.
    Top,
    /// Last row.
    Bottom,
}

impl SelectionMotion {
    /// The other way.
    pub(crate) fn reversed(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
            Self::PageUp => Self::PageDown,
            Self::PageDown => Self::PageUp,
            Self::Top => Self::Bottom,
            Self::Bottom => Self::Top,
        }
    }
}

/// All that the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Leave, with the last screen left on the terminal.
    QuitKeepingScreen,
    /// Show or hide the keys.
    Help,
    /// Show a page.
    Go(PageTab),
    /// Show the next page.
    Next,
    /// Show the previous page.
    Previous,
    /// Move the selection, or scroll an overlay.
    Move(SelectionMotion),
    /// Select one row.
    Select(Subject),
    /// Go to what the selected finding is about, or show the details of another row.
    Open,
    /// Show the details of the selected row.
    Details,
    /// Close an overlay, else clear the filter, else go back to the finding, else unselect.
    Back,
    /// Sort the selected table by its next column.
    Sort,
    /// Sort it by its previous column.
    SortPrevious,
    /// Sort a table by a column, the other way round, or no longer.
    SortBy {
        /// Title of the table.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
    },
    /// Turn the order round.
    Invert,
    /// Give the selected table the whole page, or show all tables again.
    Expand,
    /// Show everything again, in its own order: as it was at first.
    Reset,
    /// Type a filter.
    Filter,
    /// Add a character to the filter.
    Type(char),
    /// Take the last character off the filter.
    Erase,
    /// Keep the filter, if it is valid.
    Accept,
    /// Hold the values, or let them go on.
    Hold,
    /// Show another moment.
    Seek(SeekTarget),
    /// Count totals from now on.
    Mark,
    /// Count totals from the start again.
    Unmark,
    /// Choose columns.
    Columns(ColumnAction),
    /// Show bytes instead of bits, or bits again.
    Bytes,
    /// Show totals instead of rates, or rates again.
    Totals,
    /// Have a helper process beside apps that do not hand out packets themselves, or end it.
    Attach,
    /// Run a task outside of the display.
    Task(TaskAction),
    /// Open the command line, or type on it.
    Prompt(PromptAction),
    /// Stop, as ^Z does elsewhere.
    Suspend,
    /// Sample more often.
    Faster,
    /// Sample less often.
    Slower,
}

/// What is done on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptAction {
    /// Open it.
    Open,
    /// Change what is typed.
    Edit(InputRequest),
    /// Complete what is typed; again: with the next of several ways.
    Complete,
    /// With the previous one.
    CompleteBack,
    /// The command before, of those that were run.
    Older,
    /// The command after.
    Newer,
    /// Run what is typed.
    Run,
}

/// What is done in the window of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnAction {
    /// Open it for the selected table, or close it.
    Window,
    /// Show the column at the cursor, or hide it.
    Toggle,
    /// Move it to the left.
    Left,
    /// Move it to the right.
    Right,
    /// Show the table as it was at first.
    Reset,
}

/// What the keys of tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Prepare a capture of what is selected; end the one that runs.
    Capture,
    /// Write a snapshot, or the lost packets of the selected leak.
    Write,
    /// Arm the stamps of the selected app.
    Arm,
    /// Show who holds the mbufs of the selected pool.
    Holders,
    /// Copy the command line that shows the same.
    Copy,
    /// Show the tasks.
    Show,
    /// Change the command line of a capture.
    Edit(InputRequest),
    /// Capture to a file, or onto the screen.
    Toggle,
    /// Start the capture, unless it would attach to an app.
    Start,
    /// Start it although it attaches to an app.
    Confirm,
}

/// One moment back, and one forward.
pub(crate) const TIME_STEPS: [Action; 2] =
    [Action::Seek(SeekTarget::Step(-1)), Action::Seek(SeekTarget::Step(1))];
