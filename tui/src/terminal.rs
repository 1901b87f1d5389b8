//! Sets up the terminal, and restores it on return, on error and on panic.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use pmdscope_telemetry::printable::harmless;
use ratatui::backend::CrosstermBackend;

/// The terminal is ours and must be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What other threads panicked of while the terminal was taken.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A terminal that gives itself back when dropped.
#[derive(Debug)]
pub struct TerminalGuard {
    /// Draws.
    pub inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
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
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enter(mouse);
        if taken.is_err() {
            restore();
        }
        taken
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

#[allow(clippy::disallowed_methods)] // What it draws goes through screen::render.
fn enter(mouse: bool) -> io::Result<TerminalGuard> {
    let mut out = io::stdout();
    execute!(out, EnterAlternateScreen)?;
    if mouse {
        execute!(out, EnableMouseCapture)?;
    }
    Ok(TerminalGuard { inner: ratatui::Terminal::new(CrosstermBackend::new(out))? })
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
