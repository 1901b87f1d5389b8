//! Sets up the terminal, and restores it on return, on error, on panic, and while the process is stopped.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::style::{ContentStyle, PrintStyledContent};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use pmdscope_telemetry::printable::harmless;
use ratatui::Frame;
use ratatui::backend::{CrosstermBackend, IntoCrossterm};
use ratatui::buffer::{Buffer, Cell};
use ratatui::text::Span;
use rustix::process::{Signal, kill_current_process_group};

/// The terminal is ours and must be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Panics of other threads while the terminal was taken.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the display needs of a terminal.
pub(crate) trait DisplayTerminal {
    /// Draws a frame.
    ///
    /// # Errors
    ///
    /// When the terminal does not obey.
    fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()>;

    /// Gives the terminal back and stops, as `^Z` does elsewhere; takes it again when the process goes on.
    ///
    /// # Errors
    ///
    /// When the terminal does not obey.
    fn suspend(&mut self) -> io::Result<()>;

    /// Takes the terminal as if it were new: another program may have used it.
    ///
    /// # Errors
    ///
    /// When the terminal does not obey.
    fn take_again(&mut self) -> io::Result<()>;

    /// Draws a frame, gives the terminal back, and leaves the frame on it as text.
    ///
    /// # Errors
    ///
    /// When the terminal does not obey.
    fn keep(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()>;

    /// Gives a text to the clipboard. Not all terminals take it, and none reports that.
    ///
    /// # Errors
    ///
    /// When nothing can be written.
    fn copy(&mut self, text: &str) -> io::Result<()>;
}

/// A terminal that gives itself back when dropped.
#[derive(Debug)]
pub(crate) struct TerminalGuard {
    /// Draws.
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

impl TerminalGuard {
    /// Switches to the alternate screen and raw mode.
    ///
    /// # Errors
    ///
    /// When standard output or input is no terminal, or does not obey.
    pub(crate) fn take(mouse: bool) -> io::Result<Self> {
        restore_on_panic(thread::current().id());
        // Our theme obeys NO_COLOR itself. Left to it, crossterm 0.29 would reset bold and reverse
        // wherever it leaves out a colour, and with them the selection.
        crossterm::style::force_color_output(true);
        Ok(Self { inner: enter(mouse)?, mouse })
    }
}

impl DisplayTerminal for TerminalGuard {
    fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.inner.draw(render).map(|_| ())
    }

    fn suspend(&mut self) -> io::Result<()> {
        restore();
        // The whole job, which a shell waits for. Without a shell that could let it go on, this does nothing.
        kill_current_process_group(Signal::TSTP)?;
        self.take_again()
    }

    fn take_again(&mut self) -> io::Result<()> {
        // Modes that a shell has set meanwhile are those to give back.
        disable_raw_mode()?;
        self.inner = enter(self.mouse)?;
        Ok(())
    }

    #[allow(clippy::disallowed_methods)] // What it prints went through screen::render.
    fn keep(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        let text = printed(self.inner.draw(render)?.buffer)?;
        restore();
        let mut out = io::stdout();
        out.write_all(&text)?;
        out.flush()
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.inner.backend_mut(), CopyToClipboard::to_clipboard_from(text))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// A screen as lines of text with their styles, without what is empty at their ends.
fn printed(screen: &Buffer) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for row in screen.content.chunks(usize::from(screen.area.width).max(1)) {
        let is_empty = |cell: &Cell| *cell == Cell::default();
        let end = row.iter().rposition(|cell| !is_empty(cell)).map_or(0, |last| last + 1);
        for run in row[..end].chunk_by(|a, b| a.style() == b.style()) {
            let style: ContentStyle = run[0].style().into_crossterm();
            // Lines have the colour of their text.
            let style = ContentStyle { underline_color: None, ..style };
            queue!(out, PrintStyledContent(style.apply(text_of(run))))?;
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// The text of cells. Behind a letter that is two columns wide, the second one is empty.
fn text_of(cells: &[Cell]) -> String {
    let mut covered = 0;
    let shown = cells.iter().filter(|cell| {
        if covered > 0 {
            covered -= 1;
            return false;
        }
        covered = Span::raw(cell.symbol()).width().saturating_sub(1);
        true
    });
    shown.map(Cell::symbol).collect()
}

/// Takes the terminal; on failure it is as before.
fn enter(mouse: bool) -> io::Result<ratatui::Terminal<CrosstermBackend<Stdout>>> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let entered = show_alternate_screen(mouse);
    if entered.is_err() {
        restore();
    }
    entered
}

#[allow(clippy::disallowed_methods)] // What it draws goes through screen::render.
fn show_alternate_screen(mouse: bool) -> io::Result<ratatui::Terminal<CrosstermBackend<Stdout>>> {
    let mut out = io::stdout();
    execute!(out, EnterAlternateScreen, Clear(ClearType::All))?;
    if mouse {
        execute!(out, EnableMouseCapture)?;
    }
    ratatui::Terminal::new(CrosstermBackend::new(out))
}

#[allow(clippy::disallowed_methods)] // Text from outside is made harmless.
/// Gives the terminal back if it is taken. Errors are of no use here: there is nowhere to show them.
fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
    for text in panics().drain(..) {
        let _ = writeln!(io::stderr(), "{}", harmless(&text, &['\n']));
    }
}

fn panics() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `drawing` is the thread that uses the terminal. A panic of another one, which may be caught and
/// shown, does not end the display: it is reported when the terminal has been given back.
fn restore_on_panic(drawing: ThreadId) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if TAKEN.load(Ordering::SeqCst) && thread::current().id() != drawing {
                panics().push(info.to_string());
                return;
            }
            restore();
            print(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};

    use super::*;

    #[test]
    fn a_screen_is_printed_with_its_styles_and_without_empty_ends() {
        let mut screen = Buffer::empty(Rect::new(0, 0, 12, 3));
        screen.set_string(0, 0, "a 漢b", Style::new());
        screen.set_string(2, 2, "red", Style::new().fg(Color::Red));
        let printed = String::from_utf8(printed(&screen).unwrap()).unwrap();
        let lines = printed.lines().collect::<Vec<_>>();
        assert_eq!(lines.len(), 3, "{printed:?}");
        assert!(lines[0].contains("a 漢b") && !lines[0].contains("b "), "{printed:?}");
        assert_eq!(lines[1], "");
        let (before, after) = lines[2].split_once("red").unwrap();
        let mut red = Vec::new();
        let color = crossterm::style::Color::DarkRed;
        queue!(red, crossterm::style::SetForegroundColor(color)).unwrap();
        assert!(before.ends_with(std::str::from_utf8(&red).unwrap()), "{printed:?}");
        assert!(after.contains("\x1b["), "the style ends with the text: {printed:?}");
    }
}
