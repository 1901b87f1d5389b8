//! The decoder that needs no other program.

use std::fmt::Write as _;
use std::io::Write;

use pmdscope_capture::decode::{self, Style};
use pmdscope_packets::{ETHERNET, SinkError};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::lines::{Prefix, bring_out};
use super::stage::{Batch, Decoder};
use crate::output::StandardOutput;

/// Bytes of text collected before they are written.
const CHUNK: usize = 32 << 10;

pub(super) struct Builtin {
    style: Style,
    prefix: Prefix,
    text: String,
    out: Box<dyn Write + Send>,
}

impl Builtin {
    pub(super) fn new(style: Style, prefix: Prefix, out: Box<dyn Write + Send>) -> Self {
        Self { style, prefix, text: String::new(), out }
    }
}

impl Decoder for Builtin {
    fn decode(&mut self, batch: &Batch) -> Result<(), SinkError> {
        for (head, data) in batch.packets() {
            let interface = &batch.interfaces[head.interface];
            self.prefix.write(&mut self.text, head, &interface.name);
            if interface.linktype == ETHERNET {
                decode::describe(&mut self.text, data, head.len, self.style);
            } else {
                // Writing to a string cannot fail.
                let _ =
                    writeln!(self.text, "link-type {}, length {}", interface.linktype, head.len);
            }
            if self.text.len() >= CHUNK {
                bring_out(&mut *self.out, &mut self.text)?;
            }
        }
        bring_out(&mut *self.out, &mut self.text)
    }

    fn gone(&mut self) -> bool {
        let stdout = StandardOutput;
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
    }

    fn end(mut self: Box<Self>) -> Result<(), SinkError> {
        if self.gone() {
            return Err(SinkError::Closed { name: "standard output".to_owned() });
        }
        Ok(())
    }
}
