//! Sets up the terminal, and restores it on return, on error, on panic, and while the process is stopped.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use pmdscope_telemetry::printable::harmless;
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use rustix::process::{Signal, kill_current_process_group};

/// The terminal is ours and must be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What other threads panicked of while the terminal was taken.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the display needs of a terminal.
pub trait DisplayTerminal {
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

    /// Takes the terminal as if it were new: somebody else may have used it.
    ///
    /// # Errors
    ///
    /// When the terminal does not obey.
    fn take_again(&mut self) -> io::Result<()>;

    /// Gives a text to the clipboard. Not all terminals take it, and none says so.
    ///
    /// # Errors
    ///
    /// When nothing can be written.
    fn copy(&mut self, text: &str) -> io::Result<()>;
}

/// A terminal that gives itself back when dropped.
#[derive(Debug)]
pub struct TerminalGuard {
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
    pub fn take(mouse: bool) -> io::Result<Self> {
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

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(self.inner.backend_mut(), CopyToClipboard::to_clipboard_from(text))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
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

#[allow(clippy::disallowed_methods)] // What others said is made harmless.
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
/// shown, does not end the display: it is told when the terminal has been given back.
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
