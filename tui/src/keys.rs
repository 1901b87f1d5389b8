//! Key → [`Action`](crate::action::Action): the keys of all modes, and their configured names.

mod key;
mod map;
mod table;

pub use self::key::{Key, KeyError};
pub(crate) use self::map::{Hint, LABEL};
pub use self::map::{KeyConflict, KeyMap};
pub use self::table::{BINDINGS, KeyBinding, KeyContext, KeySection, NamedAction, named_actions};

/// This key ends the program wherever it is, so that no configuration can lock a user in.
pub const ALWAYS_QUITS: Key = Key::ctrl('c');
