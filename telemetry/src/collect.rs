//! Turns the replies of one app into a sample.
