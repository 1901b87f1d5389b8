//! The command lines that do, or show, the same as the display: of what is selected, at that moment.

pub(crate) mod equivalent;
pub(crate) mod holders;
pub(crate) mod moment;
pub(crate) mod target;
pub(crate) mod write;
