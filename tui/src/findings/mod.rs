//! Findings: in which order to look at them.

pub(crate) mod ranking;
