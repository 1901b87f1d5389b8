//! The windows of tasks, as lines.

use pmdscope_render::Tone;
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{CLOSE, SCROLL};
use crate::action::{Action, TaskAction};
use crate::commands::equivalent;
use crate::keys::{Hint, KeyContext};
use crate::state::{InputMode, ViewState};
use crate::style::{ThemeStyle, edited};
use crate::task::Task;

/// The heading of the window and what its keys do; `None` in other modes.
pub(super) fn titles(view: &ViewState) -> Option<(&'static str, String)> {
    let hints = |context, entries: &[Hint]| view.keys.phrase(context, entries);
    let capture = Action::Task(TaskAction::Capture);
    Some(match view.mode {
        InputMode::CaptureForm if view.tasks.form.asks => {
            let keys: &[Hint] = &[
                (&[Action::Task(TaskAction::Confirm)], "attaches and captures"),
                (&[Action::Back], "goes back"),
            ];
            ("Attach?", hints(KeyContext::Question, keys))
        }
        InputMode::CaptureForm => {
            let keys: &[Hint] = &[
                (&[Action::Task(TaskAction::Start)], "starts"),
                (&[Action::Task(TaskAction::Toggle)], "switches file and screen"),
                (&[Action::Back], "cancels"),
            ];
            ("Capture", hints(KeyContext::Capture, keys))
        }
        InputMode::Tasks if view.tasks.is_running() => {
            ("Tasks", hints(KeyContext::Page, &[SCROLL, (&[capture], "ends the task"), CLOSE]))
        }
        InputMode::Tasks => ("Tasks", hints(KeyContext::Page, &[SCROLL, CLOSE])),
        InputMode::Commands => ("Commands", hints(KeyContext::Page, &[CLOSE])),
        _ => return None,
    })
}

/// The command line of a capture, and what it costs.
pub(super) fn form(view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    let form = &view.tasks.form;
    let (text, cursor) = form.text();
    let label = Span::styled("pmdscope ", view.theme.style(Tone::Label));
    let typed = std::iter::once(label).chain(edited(text, cursor));
    let mut lines = vec![typed.collect(), Line::default()];
    let said = form.remark.into_iter().map(str::to_owned).chain([form.cost.clone()]);
    lines.extend(said.filter(|text| !text.is_empty()).map(|text| Line::raw(harmless(&text, &[]))));
    if form.asks {
        let style = view.theme.style(Tone::Warn);
        lines.push(Line::styled(
            "This attaches pmdscope-pdump, a DPDK process, to the app. The app then copies every packet, \
             whatever the filter, which may reduce its packet rate considerably.",
            style,
        ));
    } else if form.may_attach(fleet) == Ok(true) {
        let text = "This needs pmdscope-pdump: you are asked before it attaches.";
        lines.push(Line::styled(text, view.theme.style(Tone::Warn)));
    }
    lines
}

/// All tasks, the newest last: a command, what it printed, how it goes.
pub(super) fn all_tasks(view: &ViewState) -> Vec<Line<'static>> {
    if view.tasks.tasks.is_empty() {
        let keys: &[Hint] = &[
            (&[Action::Task(TaskAction::Capture)], "captures"),
            (&[Action::Task(TaskAction::Write)], "writes a snapshot"),
            (&[Action::Task(TaskAction::Arm)], "arms stamps"),
        ];
        let keys = view.keys.remark(KeyContext::Page, keys);
        return vec![Line::raw(format!("No task yet.{keys}"))];
    }
    view.tasks.tasks.iter().flat_map(|task| one(task, view)).collect()
}

fn one(task: &Task, view: &ViewState) -> Vec<Line<'static>> {
    let label = view.theme.style(Tone::Label);
    let commands = task.commands.iter().map(|line| Line::styled(harmless(line, &[]), label));
    let printed = task.lines.iter().map(|line| Line::raw(harmless(line, &[])));
    let state = Line::styled(harmless(&task.line(), &[]), view.theme.style(task.tone()));
    commands.chain(printed).chain([state]).collect()
}

/// The command of what is shown first, then those of the page and of the keys, then the keys without one.
pub(crate) fn commands(view: &ViewState, fleet: &FleetState) -> Vec<Line<'static>> {
    let (label, dim) = (view.theme.style(Tone::Label), view.theme.style(Tone::Dim));
    let shown = equivalent::shown(view, fleet).to_string();
    let copied = "Copied, if the terminal lets programs do that (OSC 52).";
    let mut lines = vec![
        Line::styled(harmless(&shown, &[]), view.theme.style(Tone::Title)),
        Line::styled(copied, dim),
    ];
    if view.time_bar.is_some() && view.tasks.context.recording.is_none() {
        let present = "Commands are about the present. pmdscope record keeps the past.";
        lines.push(Line::styled(present, dim));
    }
    lines.push(Line::default());
    let line = |what: &str, text: &str, style| {
        let what = Span::styled(format!("{what:<9} "), label);
        Line::from(vec![what, Span::styled(harmless(text, &[]), style)])
    };
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for (what, command) in equivalent::commands(view, fleet) {
        match command {
            Ok(command) => lines.push(line(&what, &command.to_string(), Style::new())),
            Err(why) => match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, keys)) => keys.push(what),
                None => reasons.push((why, vec![what])),
            },
        }
    }
    lines.extend(reasons.iter().map(|(why, keys)| line(&keys.join(" "), why, dim)));
    lines
}
