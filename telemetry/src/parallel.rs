//! A small thread pool, which does the same work for many apps.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Limit of concurrent threads; most of the time they wait for an app.
const THREADS: usize = 32;

/// Applies `work` to all items by at most 32 threads, as far as the system grants them, and returns the results in the same order.
///
/// # Panics
/// When `work` does.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = items.len().min(THREADS);
    if threads < 2 {
        // No other thread is needed.
        return items.into_iter().map(work).collect();
    }
    let items = Mutex::new(items.into_iter().enumerate());
    let worker = || {
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        let mut results = Vec::new();
        while let Some((place, item)) = next() {
            results.push((place, work(item)));
        }
        results
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
        let workers: Vec<_> = (0..threads).map_while(start).collect();
        if workers.is_empty() {
            // The system has no thread to spare.
            return worker();
        }
        let joined = workers.into_iter().map(thread::ScopedJoinHandle::join);
        joined.flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn results_keep_their_order_and_threads_are_few() {
        let results = map((0..200).collect(), |item: usize| (item, thread::current().id()));
        assert!(results.iter().map(|(item, _)| *item).eq(0..200));
        let threads: HashSet<_> = results.iter().map(|(_, thread)| *thread).collect();
        assert!(threads.len() <= THREADS, "{}", threads.len());
        assert!(map(Vec::<u8>::new(), |item| item).is_empty());
        assert_eq!(map(vec![1], |_| thread::current().id()), [thread::current().id()]);
    }
}
