//! A program on a terminal of its own, whose screen is read as a user sees it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{
    Pid, Signal, ioctl_tiocsctty, kill_process, set_parent_process_death_signal, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vt100::{Callbacks, MouseProtocolMode, Parser, Screen};

use crate::process::wait_until;

const POLL: Duration = Duration::from_millis(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The text that the program copied to the clipboard.
#[derive(Default)]
struct Clipboard(Vec<u8>);

impl Callbacks for Clipboard {
    fn copy_to_clipboard(&mut self, _: &mut Screen, _: &[u8], data: &[u8]) {
        self.0 = data.to_vec();
    }
}

/// A program that has a terminal. Dropping it ends the program.
pub struct TerminalProcess {
    child: Child,
    master: File,
    /// The program's end is kept, so that its modes can be read when the program has ended.
    terminal: File,
    seen: Arc<Mutex<Parser<Clipboard>>>,
}

impl TerminalProcess {
    /// Starts a program as the leader of the session of a new terminal.
    #[allow(unsafe_code)]
    pub fn spawn(command: &mut Command, rows: u16, columns: u16) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).context("open a pseudo terminal")?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let terminal = File::from(ioctl_tiocgptpeer(&master, flags)?);
        let (ws_row, ws_col) = (rows, columns);
        tcsetwinsize(&terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?;
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").env_remove("LC_ALL");
        command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?);
        command.stderr(terminal.try_clone()?);
        // SAFETY: the closure runs between fork and exec and makes system calls only.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::TERM))?;
                setsid()?;
                ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().context("start on a terminal")?;
        let (rows, columns) = (size(rows)?, size(columns)?);
        let parser = Parser::new_with_callbacks(rows, columns, 0, Clipboard::default());
        let seen = Arc::new(Mutex::new(parser));
        let (master, shown) = (File::from(master), Arc::clone(&seen));
        let mut from = master.try_clone()?;
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                lock(&shown).process(&bytes[..count]);
            }
        });
        Ok(Self { child, master, terminal, seen })
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.master.write_all(keys.as_bytes()).with_context(|| format!("press {keys:?}"))
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        lock(&self.seen).screen().contents()
    }

    /// The text that was last copied to the clipboard.
    pub fn clipboard(&self) -> String {
        String::from_utf8_lossy(&lock(&self.seen).callbacks().0).into_owned()
    }

    /// Waits until the screen shows all of these texts.
    pub fn await_shown(&mut self, texts: &[&str], limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if texts.iter().all(|text| screen.contains(text)) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("ended with {status} before it showed {texts:?}:\n{screen}");
            }
            ensure!(start.elapsed() < limit, "did not show {texts:?} within {limit:?}:\n{screen}");
            sleep(POLL);
        }
    }

    /// Waits until the screen shows a text that the program may print just before it ends.
    pub fn await_said(&self, text: &str) -> Result<()> {
        wait_until(text, RESPONSE_TIMEOUT, || Ok(self.screen().contains(text)))
            .map(|_| ())
            .with_context(|| self.screen())
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("pid")?;
        kill_process(pid, signal).context("signal")
    }

    /// Waits for the end of the program.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut status = None;
        wait_until("the end of the program", limit, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .with_context(|| self.screen())?;
        status.context("no status")
    }

    /// Why the terminal is not as it was before the program: another screen, other modes, no cursor.
    pub fn is_restored(&self) -> Result<(), &'static str> {
        let modes = tcgetattr(self.terminal.as_fd()).map_err(|_| "its modes cannot be read")?;
        let cooked = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let seen = lock(&self.seen);
        let screen = seen.screen();
        match () {
            () if !modes.local_modes.contains(cooked) => Err("raw"),
            () if screen.alternate_screen() => Err("on the alternate screen"),
            () if screen.mouse_protocol_mode() != MouseProtocolMode::None => {
                Err("taking the mouse")
            }
            () if screen.hide_cursor() => Err("without a cursor"),
            () => Ok(()),
        }
    }

    /// Waits until it is as before.
    pub fn await_restored(&self, limit: Duration) -> Result<()> {
        let restored = wait_until("the terminal", limit, || Ok(self.is_restored().is_ok()));
        restored.map(|_| ()).with_context(|| {
            format!("the terminal is still {:?}:\n{}", self.is_restored(), self.screen())
        })
    }
}

impl Drop for TerminalProcess {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.signal(Signal::TERM);
            let _ = self.signal(Signal::CONT);
            if self.wait(RESPONSE_TIMEOUT).is_err() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

fn size(cells: u16) -> Result<NonZero<u16>> {
    NonZero::new(cells).context("a terminal without cells")
}

fn lock(seen: &Mutex<Parser<Clipboard>>) -> MutexGuard<'_, Parser<Clipboard>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
