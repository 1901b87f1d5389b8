//! Every key that ends or stops `pmdscope top`, pressed on every page and in windows.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::programs;
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::Scratch;
use pmdscope_tui::action::Action;
use pmdscope_tui::keys::{Key, NamedAction, named_actions};
use pmdscope_tui::state::PageTab;

use crate::support::{Needs, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("keys_that_end_or_stop_top_work_on_every_page", Needs::Apps, ends)]
}

/// Longest time until a key has its effect.
const LIMIT: Duration = Duration::from_secs(10);

/// Esc once: what follows a single one would be a key with Alt.
pub(crate) const ESC: &str = "\x1b\x1b";

/// No key can be pressed afterwards.
fn ends_or_stops(named: &NamedAction) -> bool {
    matches!(named.action, Action::Quit | Action::QuitKeepingScreen | Action::Suspend)
}

/// What a terminal sends for a key.
fn sent(key: &Key) -> Result<String> {
    let name = key.to_string();
    let letter = |text: &str| text.chars().next().filter(|_| text.len() == 1);
    match (letter(&name), name.strip_prefix("ctrl-").and_then(letter)) {
        (Some(letter), _) => Ok(letter.to_string()),
        (None, Some(letter)) => Ok(char::from(u8::try_from(letter)? & 0x1f).to_string()),
        _ => bail!("this test does not know what terminals send for {name}"),
    }
}

/// The key of a page.
pub(crate) fn digit(page: PageTab) -> usize {
    (page as usize + 1) % PageTab::ALL.len()
}

/// Its name as the line of pages shows it while it is shown.
pub(crate) fn tab(page: PageTab) -> String {
    format!("[{} {}]", digit(page), page.title())
}

/// `top` on a terminal on which all tables and the whole last line have room.
fn start(scratch: &Scratch, args: &[&str]) -> Result<TerminalProcess> {
    let mut command = Command::new(programs::pmdscope()?);
    command.arg("top").args(args).current_dir(scratch.dir());
    TerminalProcess::spawn(&mut command, 50, 160)
}

/// Each key that ends it gives the terminal back, whatever page is shown; so does the one that stops it.
fn ends(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix("nobody");
    let mut keys = named_actions()
        .filter(|(_, named)| ends_or_stops(named) && named.action != Action::Suspend)
        .flat_map(|(_, named)| named.default_keys.iter().map(move |key| (named, key)))
        .cycle();
    for page in PageTab::ALL {
        let (named, key) = keys.next().context("no key ends it")?;
        let name = page.title().to_lowercase();
        let mut top = start(scratch, &["-a", &app, "--page", &name])?;
        top.await_shown(&[&tab(page), "? help"], LIMIT)?;
        top.press(&sent(key)?)?;
        ensure!(top.wait(LIMIT)?.success(), "{key}: {}", top.screen());
        top.await_restored(LIMIT)?;
        if named.action == Action::QuitKeepingScreen {
            top.await_said(&tab(page))?;
        }
    }
    stops(scratch, &app)
}

/// A shell lets it go on each time, and then waits for a line: keys pressed meanwhile would be that line.
fn stops(scratch: &Scratch, app: &str) -> Result<()> {
    let suspend = named_actions().find(|(_, named)| named.action == Action::Suspend);
    let (_, suspend) = suspend.context("no key stops it")?;
    // A job that is stopped ends the loops around it.
    let mut script = format!("set -m; PS1=; '{}' top -a {app}", programs::pmdscope()?.display());
    for stop in 0..PageTab::ALL.len() {
        script.push_str("; echo stopped=");
        script.push_str(&stop.to_string());
        script.push_str("; read; fg");
    }
    let mut shell = Command::new("bash");
    shell.args(["--norc", "-c", &script]).current_dir(scratch.dir());
    let mut shell = TerminalProcess::spawn(&mut shell, 50, 160)?;
    let windows = ["", "?", "y", "t", "/x", ":x"];
    let shown = ["? help", "[Keys]", " Commands ", " Tasks ", "/x▏", ":x "];
    for (stop, page) in PageTab::ALL.into_iter().enumerate() {
        let window = stop % windows.len();
        shell.await_shown(&["  0 apps, 0 ports"], LIMIT)?;
        shell.press(&format!("{ESC}{ESC}{}{}", digit(page), windows[window]))?;
        shell.await_shown(&[&tab(page), shown[window]], LIMIT)?;
        shell.press(&sent(&suspend.default_keys[stop % suspend.default_keys.len()])?)?;
        shell.await_shown(&[&format!("stopped={stop}")], LIMIT)?;
        shell.is_restored().map_err(anyhow::Error::msg).context("it is stopped")?;
        shell.press("\n")?;
    }
    shell.await_shown(&["  0 apps, 0 ports"], LIMIT)?;
    shell.press(&format!("{ESC}q"))?;
    shell.wait(LIMIT)?;
    shell.await_restored(LIMIT)
}
