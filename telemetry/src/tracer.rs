//! Tracers of the kernel, which add to samples.

use std::fmt::Debug;

use crate::sample::Sample;

/// Traces the threads of lcores of all sampled apps, in the background. Shared by the threads that
/// sample.
pub trait LcoreTracer: Debug + Send + Sync {
    /// Sets [`Sample::tracing`] from the results so far, and traces the threads of
    /// [`Sample::threads`] from now on. Does not block: it is called in each round of each app.
    fn complete(&self, sample: &mut Sample);
}
