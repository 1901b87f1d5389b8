//! Progress on a terminal in memory.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use vt100::Parser;

use super::*;

const COLUMNS: u16 = 80;

/// A terminal, and what is drawn on it.
struct Terminal {
    line: &'static TerminalLine,
    screen: Arc<Mutex<Parser>>,
}

impl Terminal {
    fn new(columns: u16) -> Self {
        let screen = Arc::new(Mutex::new(Parser::new(
            NonZero::new(4).unwrap(),
            NonZero::new(columns).unwrap(),
            0,
        )));
        let drawn = Arc::clone(&screen);
        let write = Box::leak(Box::new(move |text: &str| lock(&drawn).process(text.as_bytes())));
        let columns = Box::leak(Box::new(move || usize::from(columns)));
        let line = TerminalLine { owner: Mutex::new(None), write, columns };
        Self { line: Box::leak(Box::new(line)), screen }
    }

    fn shown(&self) -> String {
        lock(&self.screen).screen().contents().trim_end().to_owned()
    }

    fn print(&self, text: &str) {
        self.line.making_room(|| true, || (self.line.write)(&format!("{text}\r\n")));
    }

    fn await_shown(&self, text: &str) {
        let begun = Instant::now();
        while !self.shown().contains(text) {
            assert!(begun.elapsed() < Duration::from_secs(20), "no {text:?} in {:?}", self.shown());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn shown(template: &str, length: Option<u64>, position: u64, columns: u16) -> String {
    let terminal = Terminal::new(columns);
    let progress = Progress::hidden(terminal.line, template, length, "reading a.pcap\x1b[2J");
    terminal.line.offer_to(&progress.bar);
    progress.bar.set_position(position);
    progress.bar.force_draw();
    terminal.shown()
}

#[test]
fn every_template_is_one_line_that_ends_with_the_text() {
    let half = shown(UNTIL_TIME, Some(120_000), 60_000, COLUMNS);
    assert!(half.starts_with("[==========>         ] 0.0s of 2m00s  reading a.pcap?[2J"), "{half}");
    let read = shown(ALL_BYTES, Some(100), 25, COLUMNS);
    assert!(read.starts_with("[=====>              ]  25%, ") && read.contains("B/s, "), "{read}");
    assert!(read.ends_with(" left  reading a.pcap?[2J"), "{read}");
    let some = shown(SOME_BYTES, None, 1 << 20, COLUMNS);
    assert!(some.ends_with(" 0.0s, 1.0 MiB  reading a.pcap?[2J"), "{some}");
    let begun = shown(UNTIL_DONE, None, 0, COLUMNS);
    assert!(begun.ends_with(" 0.0s  reading a.pcap?[2J"), "{begun}");
    for template in [UNTIL_TIME, ALL_BYTES, SOME_BYTES, UNTIL_DONE, TEXT] {
        assert_eq!(shown(template, Some(9), 1, 14), "reading a.p", "room for ^C is left");
    }
}

#[test]
fn what_is_over_soon_is_not_shown() {
    let terminal = Terminal::new(COLUMNS);
    let mut progress = Progress::hidden(terminal.line, UNTIL_DONE, None, "asking");
    progress.draw_after(Duration::from_secs(600), |_| None);
    progress.say("asking again");
    terminal.print("ok");
    drop(progress);
    assert_eq!(terminal.shown(), "ok");
}

#[test]
fn what_takes_long_is_shown_below_what_is_printed_and_cleared_at_its_end() {
    let terminal = Terminal::new(COLUMNS);
    let mut progress = Progress::hidden(terminal.line, UNTIL_TIME, Some(600_000), "watching fwd");
    progress.draw_after(Duration::from_millis(1), |_| Some(300_000));
    terminal.await_shown("[==========>         ]");
    terminal.print("fwd has ended");
    let shown = terminal.shown();
    let (first, second) = shown.split_once('\n').unwrap();
    assert!(first == "fwd has ended" && second.ends_with("of 10m00s  watching fwd"), "{shown}");
    progress.say("watching all");
    terminal.await_shown("watching all");
    drop(progress);
    assert_eq!(terminal.shown(), "fwd has ended");
    terminal.print("ok");
    assert_eq!(terminal.shown(), "fwd has ended\nok");
}

#[test]
fn one_has_the_line_at_a_time() {
    let terminal = Terminal::new(COLUMNS);
    let watch = |what| {
        let mut progress = Progress::hidden(terminal.line, UNTIL_DONE, None, what);
        progress.draw_after(Duration::from_millis(1), |_| None);
        progress
    };
    let first = watch("first");
    terminal.await_shown("first");
    let second = watch("second");
    thread::sleep(2 * REDRAW_INTERVAL);
    assert!(!terminal.shown().contains("second"), "{}", terminal.shown());
    drop(first);
    terminal.await_shown("second");
    let mut status = StatusLine::default();
    status.show_in(terminal.line, "3 packets");
    status.show_in(terminal.line, "4 packets");
    assert_eq!(terminal.shown(), "4 packets");
    drop(second);
    assert_eq!(terminal.shown(), "4 packets");
    drop(status);
    assert_eq!(terminal.shown(), "");
}

#[test]
fn bytes_are_told_by_who_reads_them() {
    let terminal = Terminal::new(COLUMNS);
    let mut progress = Progress::hidden(terminal.line, ALL_BYTES, Some(1), "scan 1");
    progress.draw_after(Duration::from_millis(1), |_| None);
    progress.say_read("scan 1", 1 << 29, 1 << 30);
    terminal.await_shown(" 50%, ");
    progress.say_read("scan 2", 1 << 28, 1 << 30);
    terminal.await_shown("scan 2");
    terminal.await_shown(" 25%, ");
}
