//! Findings: in which order to look at them, how they read, and which rows they are about.

pub(crate) mod ranking;
pub(crate) mod rows;
pub(crate) mod text;
