//! Debug information of the executables and libraries of an app.

pub(crate) mod offsets;
pub(crate) mod places;
