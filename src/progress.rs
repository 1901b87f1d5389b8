//! Progress on the terminal of standard error: one line that is drawn over itself, and makes room for all that
//! [`output`](crate::output) prints. Nothing is drawn where standard error is no terminal. At its end the line is
//! cleared, also by a signal that ends the command.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use pmdscope_render::Tone;
use pmdscope_render::number::{UNKNOWN, bytes, seconds, si};

use crate::color::Color;
use crate::output::{self, one_line};
use crate::terminal;

/// How long something takes before its progress is shown.
const DELAY: Duration = Duration::from_secs(2);

/// Time between two drawings.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Most drawings per second, however often there is news.
const DRAWINGS_PER_SECOND: u8 = 10;

/// Columns that stay free for the `^C` that a terminal echoes: on a line of its own, the line could not be cleared.
const ECHO: usize = 3;

/// Templates of indicatif. The text comes last and is cut where it does not fit.
const TEXT: &str = "{wide_msg}";
const UNTIL_DONE: &str = "{spinner} {took}  {wide_msg}";
const UNTIL_TIME: &str = "BAR {took} of {time}  {wide_msg}";
const ALL_BYTES: &str = "BAR {percent:>3}%, {rate}, {left} left  {wide_msg}";
const SOME_BYTES: &str = "{spinner} {took}, {bytes}  {wide_msg}";
const BAR: &str = "[{bar:20}]";

/// Columns below which there is room for the text only.
const NARROW: usize = 60;

static STANDARD_ERROR: TerminalLine =
    TerminalLine { owner: Mutex::new(None), write: &output::draw, columns: &terminal::columns };

/// Prints something in the place of the line, if that is shown and what is printed goes `to_terminal`; the line
/// follows below.
pub(crate) fn making_room<T>(to_terminal: impl FnOnce() -> bool, print: impl FnOnce() -> T) -> T {
    STANDARD_ERROR.making_room(to_terminal, print)
}

/// The progress of something that may take a while, from the third second on. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    line: &'static TerminalLine,
    /// Its end ends the thread that draws; `None` where nothing is drawn.
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Of something that takes nobody knows how long.
    pub(crate) fn begin(what: &str, quiet: bool) -> Self {
        Self::start(UNTIL_DONE, None, what, quiet, |_| None)
    }

    /// Of something that takes so long.
    pub(crate) fn watch(what: &str, length: Duration, quiet: bool) -> Self {
        let position = |bar: &ProgressBar| Some(millis(bar.elapsed()));
        Self::start(UNTIL_TIME, Some(millis(length)), what, quiet, position)
    }

    /// Of the reading of so many bytes, if their number is known; `read` returns how many were read.
    pub(crate) fn read(
        what: &str,
        total: Option<u64>,
        read: impl Fn() -> u64 + Send + 'static,
        quiet: bool,
    ) -> Self {
        let template = if total.is_some() { ALL_BYTES } else { SOME_BYTES };
        Self::start(template, total, what, quiet, move |_| Some(read()))
    }

    /// Of the reading of bytes by a function that says how far it is: [`Progress::say_read`].
    pub(crate) fn read_in_steps(what: &str, quiet: bool) -> Self {
        Self::start(ALL_BYTES, Some(1), what, quiet, |_| None)
    }

    /// Says what is being done now.
    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(one_line(what));
    }

    /// Says what is being read now, how many bytes of it were read, and of how many.
    pub(crate) fn say_read(&self, what: &str, read: u64, total: u64) {
        if self.drawing.is_none() {
            return;
        }
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
        }
        self.bar.set_position(read);
        if self.bar.message() != what {
            self.say(what);
        }
    }

    fn start(
        template: &str,
        length: Option<u64>,
        what: &str,
        quiet: bool,
        position: impl Fn(&ProgressBar) -> Option<u64> + Send + 'static,
    ) -> Self {
        let mut progress = Self::hidden(&STANDARD_ERROR, template, length, what);
        if !quiet && terminal::is_on_stderr() {
            progress.draw_after(DELAY, position);
        }
        progress
    }

    fn hidden(
        line: &'static TerminalLine,
        template: &str,
        length: Option<u64>,
        what: &str,
    ) -> Self {
        let bar = hidden_bar(line, template, length);
        bar.set_message(one_line(what));
        Self { bar, line, drawing: None }
    }

    /// Draws it in a thread of its own, because what takes long may have no time for that. Without the thread,
    /// there is no progress.
    fn draw_after(
        &mut self,
        delay: Duration,
        position: impl Fn(&ProgressBar) -> Option<u64> + Send + 'static,
    ) {
        let (end, ended) = channel();
        let (bar, line) = (self.bar.clone(), self.line);
        let thread = thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || draw(&bar, line, delay, &ended, &position));
        self.drawing = thread.ok().map(|thread| (end, thread));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.drawing.take() {
            drop(end);
            // Its panic was reported on standard error.
            let _ = thread.join();
        }
        self.line.take_from(&self.bar);
    }
}

/// Draws until the end of `ended`, at the position that a function returns, or where the bar is.
fn draw(
    bar: &ProgressBar,
    line: &'static TerminalLine,
    delay: Duration,
    ended: &Receiver<()>,
    position: &dyn Fn(&ProgressBar) -> Option<u64>,
) {
    let mut pause = delay;
    while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        line.offer_to(bar);
        match position(bar) {
            Some(position) => bar.set_position(position),
            None => bar.tick(),
        }
        pause = REDRAW_INTERVAL;
    }
}

/// A line that says how things are, from the first text on. Dropping it clears it.
#[derive(Debug, Default)]
pub(crate) struct StatusLine(Option<(&'static TerminalLine, ProgressBar)>);

impl StatusLine {
    /// Shows a text, cut to the width of the terminal, in the place of any progress.
    pub(crate) fn show(&mut self, text: &str) {
        if terminal::is_on_stderr() {
            self.show_in(&STANDARD_ERROR, text);
        }
    }

    fn show_in(&mut self, line: &'static TerminalLine, text: &str) {
        let (line, bar) = self.0.get_or_insert_with(|| (line, hidden_bar(line, TEXT, None)));
        line.give_to(bar);
        bar.set_message(one_line(text));
    }

    /// Makes room for anything else.
    pub(crate) fn clear(&mut self) {
        if let Some((line, bar)) = self.0.take() {
            line.take_from(&bar);
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The one line of a terminal that progress is drawn in.
struct TerminalLine {
    /// The bar that has the line; all others are hidden.
    owner: Mutex<Option<ProgressBar>>,
    write: &'static (dyn Fn(&str) + Send + Sync),
    columns: &'static (dyn Fn() -> usize + Send + Sync),
}

impl fmt::Debug for TerminalLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TerminalLine").finish_non_exhaustive()
    }
}

impl TerminalLine {
    fn making_room<T>(&self, to_terminal: impl FnOnce() -> bool, print: impl FnOnce() -> T) -> T {
        let owner = lock(&self.owner).clone();
        match owner.filter(|_| to_terminal()) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Gives the line to a bar, if no other has it.
    fn offer_to(&'static self, bar: &ProgressBar) {
        let mut owner = lock(&self.owner);
        if owner.is_none() {
            bar.set_draw_target(self.draw_target());
            *owner = Some(bar.clone());
        }
    }

    /// Gives the line to a bar, whoever has it: the other does not come back.
    fn give_to(&'static self, bar: &ProgressBar) {
        if bar.is_hidden() {
            if let Some(before) = lock(&self.owner).take() {
                before.finish_and_clear();
                before.set_draw_target(ProgressDrawTarget::hidden());
            }
            self.offer_to(bar);
        }
    }

    /// Ends a bar, and clears the line if that bar has it.
    fn take_from(&self, bar: &ProgressBar) {
        let mut owner = lock(&self.owner);
        bar.finish_and_clear();
        if !bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            *owner = None;
        }
    }

    fn draw_target(&'static self) -> ProgressDrawTarget {
        let canvas = LineCanvas { line: self, drawing: Mutex::default() };
        ProgressDrawTarget::term_like_with_hz(Box::new(canvas), DRAWINGS_PER_SECOND)
    }
}

/// What indicatif draws on. There is one line, so no movement of the cursor has an effect.
#[derive(Debug)]
struct LineCanvas {
    line: &'static TerminalLine,
    drawing: Mutex<Drawing>,
}

#[derive(Debug, Default)]
struct Drawing {
    /// What is being drawn.
    text: String,
    /// There is a line on the terminal.
    is_shown: bool,
}

impl TermLike for LineCanvas {
    fn width(&self) -> u16 {
        let columns = (self.line.columns)().saturating_sub(ECHO).max(1);
        u16::try_from(columns).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        lock(&self.drawing).text.push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    /// Replaces the line in one piece. The cursor stays behind the text.
    fn flush(&self) -> io::Result<()> {
        let mut drawing = lock(&self.drawing);
        let text = std::mem::take(&mut drawing.text);
        let text = text.trim_end();
        let was_shown = std::mem::replace(&mut drawing.is_shown, !text.is_empty());
        if drawing.is_shown {
            pmdscope_signals::line_is_drawn(true)?;
        }
        if was_shown || drawing.is_shown {
            (self.line.write)(&format!("\r{text}\x1b[K"));
        }
        if was_shown && !drawing.is_shown {
            pmdscope_signals::line_is_drawn(false)?;
        }
        Ok(())
    }
}

fn hidden_bar(line: &TerminalLine, template: &str, length: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
    let template = if (line.columns)() < NARROW { TEXT } else { template };
    let template = template.replace("BAR", &Color::of_stderr().paint(BAR, Tone::Title));
    // The tests draw all templates.
    let style = ProgressStyle::with_template(&template);
    bar.with_style(keys(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
}

/// Characters, and numbers as all commands write them.
fn keys(style: ProgressStyle) -> ProgressStyle {
    type Out<'a> = &'a mut dyn fmt::Write;
    // Writing to a string cannot fail.
    let took = |bar: &ProgressState, out: Out<'_>| {
        let _ = out.write_str(&seconds(bar.elapsed().as_secs_f64()));
    };
    let time = |bar: &ProgressState, out: Out<'_>| {
        let _ = out.write_str(&seconds(bar.len().unwrap_or_default() as f64 / 1000.0));
    };
    let read = |bar: &ProgressState, out: Out<'_>| {
        let _ = out.write_str(&bytes(bar.pos()));
    };
    let rate = |bar: &ProgressState, out: Out<'_>| {
        let _ = write!(out, "{}B/s", si(bar.per_sec()));
    };
    let left = |bar: &ProgressState, out: Out<'_>| {
        let known = bar.per_sec() > 0.0;
        let left = if known { seconds(bar.eta().as_secs_f64()) } else { UNKNOWN.to_owned() };
        let _ = out.write_str(&left);
    };
    style
        .tick_chars("|/-\\ ")
        .progress_chars("=> ")
        .with_key("took", took)
        .with_key("time", time)
        .with_key("bytes", read)
        .with_key("rate", rate)
        .with_key("left", left)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
