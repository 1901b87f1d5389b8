//! Ends a command with an error where the system refuses memory: `ulimit -v`, or the address space of a cgroup.
//!
//! Where an allocation fails, Rust aborts, and where a thread cannot be started, it panics. Both look like a
//! defect, and neither says what to do.
#![allow(unsafe_code)] // An allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use nix::libc;
use pmdscope_render::number;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use crate::exit;

/// Address space that commands need beyond what the program has when it starts, bytes: buffers, and the
/// stacks of some threads.
const NEEDED: u64 = 32 << 20;
/// Stack of the main thread that is taken at the start, bytes: a stack that cannot grow is a fault.
const STACK: usize = 1 << 20;
/// How panics of Rust and of its libraries begin, or go on, where the system refuses memory or threads.
const EXHAUSTED: [&str; 5] = [
    "failed to spawn thread",
    "failed to allocate an alternative stack",
    "failed to set up alternative stack",
    "can't spawn worker thread",
    "Cannot allocate memory",
];

#[global_allocator]
static ALLOCATOR: EndingAllocator = EndingAllocator;

/// The allocator of the system; where that has no memory, the process ends.
struct EndingAllocator;

// SAFETY: all requests go to the allocator of the system as they are. A null pointer is never returned.
unsafe impl GlobalAlloc for EndingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator demands.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn given(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() {
        end(&refusal(size));
    }
    memory
}

/// The error of an allocation, without another one.
fn refusal(size: usize) -> Line {
    let mut line = Line::default();
    line.add(b"pmdscope: error: out of memory: the system refuses ");
    line.add_number(size);
    line.add(b" bytes (see ulimit -v)\n");
    line
}

/// A line of text that needs no memory of the allocator.
struct Line {
    text: [u8; 160],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { text: [0; 160], length: 0 }
    }
}

impl Line {
    fn add(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.text.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn add_number(&mut self, number: usize) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        self.add(&[b'0' + u8::try_from(number % 10).unwrap_or(0)]);
    }
}

/// Prints a line and ends the process, as a failure, whatever its threads do.
fn end(line: &Line) -> ! {
    static ENDS: AtomicBool = AtomicBool::new(false);
    // Several threads may fail at the same time: one line says it.
    if !ENDS.swap(true, Ordering::Relaxed) {
        // SAFETY: the buffer has this many bytes.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.length) };
    }
    // SAFETY: it ends the process without running any code of it.
    unsafe { libc::_exit(exit::FAILED.into()) }
}

/// Makes sure that there is memory to begin with, and that a lack of it later is an error.
///
/// # Errors
/// When the limit of the address space is too low for any command.
pub(crate) fn prepare() -> Result<()> {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |found| {
        if let Some(reason) = exhaustion(found) {
            let mut line = Line::default();
            line.add(b"pmdscope: error: out of memory or threads (see ulimit -v and -u): ");
            line.add(&reason.as_bytes()[..reason.len().min(80)]);
            line.add(b"\n");
            end(&line);
        }
        usual(found);
    }));
    let Some(limit) = getrlimit(Resource::As).current else { return Ok(()) };
    let statm =
        std::fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let used = pages.saturating_mul(page_size() as u64);
    let least = used + NEEDED;
    ensure!(
        limit >= least,
        "pmdscope needs {} of address space, and ulimit -v allows {}",
        number::bytes(least),
        number::bytes(limit)
    );
    take_stack();
    Ok(())
}

/// What the system has refused, if that is why a thread panics.
fn exhaustion<'a>(found: &'a PanicHookInfo<'_>) -> Option<&'a str> {
    let payload = found.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))?;
    let text = text.lines().next().unwrap_or_default();
    EXHAUSTED.iter().any(|begin| text.contains(begin)).then_some(text)
}

#[inline(never)]
#[allow(clippy::large_stack_arrays)] // That is what it is for.
fn take_stack() {
    black_box([0_u8; STACK]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_allocation_is_a_line() {
        let line = refusal(1_234_567);
        let text = str::from_utf8(&line.text[..line.length]).unwrap();
        let expected =
            "pmdscope: error: out of memory: the system refuses 1234567 bytes (see ulimit -v)\n";
        assert_eq!(text, expected);
        assert!(refusal(usize::MAX).text.contains(&b'\n'));
        assert_eq!(refusal(0).text[51], b'0');
    }
}
