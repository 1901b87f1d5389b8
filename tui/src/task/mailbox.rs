//! Connects the display and the thread that runs tasks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::progress::Task;
use super::request::TaskRequest;

/// Passes requests to the thread that runs tasks, and tasks back.
#[derive(Clone, Debug, Default)]
pub struct TaskMailbox(Arc<MailboxState>);

#[derive(Debug, Default)]
struct MailboxState {
    requests: Mutex<VecDeque<TaskRequest>>,
    asked: Condvar,
    tasks: Mutex<Arc<Vec<Task>>>,
}

impl TaskMailbox {
    /// Asks for something.
    pub fn ask(&self, request: TaskRequest) {
        lock(&self.0.requests).push_back(request);
        self.0.asked.notify_all();
    }

    /// The next request, which is waited for so long, or for ever.
    pub fn next(&self, timeout: Option<Duration>) -> Option<TaskRequest> {
        let none = |requests: &mut VecDeque<TaskRequest>| requests.is_empty();
        let requests = lock(&self.0.requests);
        let mut requests = match timeout {
            None => self.0.asked.wait_while(requests, none).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.0.asked.wait_timeout_while(requests, timeout, none);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        requests.pop_front()
    }

    /// Publishes the states of all tasks, the oldest first.
    pub fn publish(&self, tasks: Vec<Task>) {
        *lock(&self.0.tasks) = Arc::new(tasks);
    }

    /// The tasks that were published last.
    pub fn tasks(&self) -> Arc<Vec<Task>> {
        Arc::clone(&lock(&self.0.tasks))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn requests_are_served_in_order_and_waited_for() {
        let mailbox = TaskMailbox::default();
        assert!(mailbox.next(Some(Duration::from_millis(1))).is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| (mailbox.next(None), mailbox.next(None)));
            mailbox.ask(TaskRequest::Stop);
            mailbox.ask(TaskRequest::Over);
            let served = waits.join().unwrap();
            assert!(matches!(served, (Some(TaskRequest::Stop), Some(TaskRequest::Over))));
        });
        assert!(mailbox.tasks().is_empty());
        mailbox.publish(vec![Task::new(&[], true)]);
        assert_eq!(mailbox.clone().tasks().len(), 1);
    }
}
