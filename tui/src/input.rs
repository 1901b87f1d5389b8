//! Key press → [`Action`], by what the keys act on at the moment.

use crossterm::event::{Event, KeyEvent, KeyEventKind};
use tui_input::backend::crossterm::to_input_request;

use crate::action::{Action, PromptAction, TaskAction};
use crate::keys::{Key, KeyContext};
use crate::state::{InputMode, ViewState};

/// What a key means where the view is.
pub(crate) fn action_of(event: KeyEvent, view: &ViewState) -> Option<Action> {
    let context = context(view);
    let action = view.keys.action_of(event, context).or_else(|| typing_action(event, context));
    match context {
        KeyContext::Columns => action.or_else(|| window_action(event, view)),
        _ => action,
    }
}

/// What keys of pages do in a window with keys of its own.
fn window_action(event: KeyEvent, view: &ViewState) -> Option<Action> {
    let action = view.keys.action_of(event, KeyContext::Page)?;
    let is_kept = matches!(
        action,
        Action::Move(_) | Action::Back | Action::Help | Action::Quit | Action::QuitKeepingScreen
    );
    is_kept.then_some(action)
}

fn context(view: &ViewState) -> KeyContext {
    match view.mode {
        InputMode::Filter { .. } => KeyContext::Filter,
        InputMode::Prompt => KeyContext::Prompt,
        InputMode::Columns(_) => KeyContext::Columns,
        InputMode::CaptureForm if view.tasks.form.asks => KeyContext::Question,
        InputMode::CaptureForm => KeyContext::Capture,
        _ => KeyContext::Page,
    }
}

/// What a key means that has no action of its own, where text is typed.
fn typing_action(event: KeyEvent, context: KeyContext) -> Option<Action> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    match context {
        KeyContext::Filter => {
            let key = Key::of(event);
            key.character().filter(|_| key.is_typed()).map(Action::Type)
        }
        KeyContext::Prompt => to_input_request(&Event::Key(event))
            .map(|request| Action::Prompt(PromptAction::Edit(request))),
        KeyContext::Capture => to_input_request(&Event::Key(event))
            .map(|request| Action::Task(TaskAction::Edit(request))),
        _ => None,
    }
}
