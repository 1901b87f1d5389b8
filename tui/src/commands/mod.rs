//! The command lines that do, or show, the same as the display: for what is selected, at the shown moment.

pub(crate) mod equivalent;
pub(crate) mod holders;
pub(crate) mod moment;
pub(crate) mod target;
pub(crate) mod write;
