//! Keys in the windows of tasks.

use crossterm::event::{Event, KeyCode, KeyEvent};
use tui_input::backend::crossterm::to_input_request;

use super::TaskAction;
use crate::action::Action;

/// What a key means while a capture is prepared; `asks` is true while that waits for an answer.
pub(crate) fn action_of(event: KeyEvent) -> Option<Action> {
    let action = match event.code {
        KeyCode::Esc => return Some(Action::Back),
        KeyCode::Enter => TaskAction::Start,
        KeyCode::Tab => TaskAction::Toggle,
        _ => TaskAction::Edit(to_input_request(&Event::Key(event))?),
    };
    Some(Action::Task(action))
}
