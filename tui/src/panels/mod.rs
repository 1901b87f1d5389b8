//! The graphs above the tables of a page.

pub(crate) mod gaps;
pub(crate) mod pools;
pub(crate) mod trends;
