//! Runs work that may take long, on files and cgroups, off the agent's task: in order for each key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::{JobId, Run};

/// Queues of work on blocking threads of the runtime; clones share them. An item that hangs blocks its thread and its
/// queue.
#[derive(Clone, Debug, Default)]
pub struct WorkQueues(Arc<Mutex<BTreeMap<WorkKey, Queue>>>);

/// The subject of a work item. Items of one key run one at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKey {
    Execution(JobId, Run),
    Seat(String),
    /// The whole node.
    Node,
}

/// The items queued behind the running one.
#[derive(Default)]
struct Queue(VecDeque<WorkItem>);

type WorkItem = Box<dyn FnOnce() + Send>;

impl WorkQueues {
    /// Runs the item after all earlier items of the same key. Must be called inside a runtime.
    pub fn add(&self, key: WorkKey, work: impl FnOnce() + Send + 'static) {
        let mut queues = self.queues();
        match queues.get_mut(&key) {
            Some(queue) => queue.0.push_back(Box::new(work)),
            None => {
                queues.insert(key.clone(), Queue::default());
                drop(queues);
                let work_queues = self.clone();
                tokio::task::spawn_blocking(move || work_queues.drain(&key, Box::new(work)));
            }
        }
    }

    fn drain(&self, key: &WorkKey, first: WorkItem) {
        let mut next = Some(first);
        while let Some(work) = next {
            work();
            let mut queues = self.queues();
            next = queues.get_mut(key).and_then(|queue| queue.0.pop_front());
            if next.is_none() {
                queues.remove(key);
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<WorkKey, Queue>> {
        // No work item runs while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Queue").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_chore_that_hangs_holds_up_only_what_follows_it() {
        let work_queues = WorkQueues::default();
        let (done, order) = mpsc::channel();
        let (release, hung) = mpsc::channel::<()>();
        let add = |key: WorkKey, n: u32| {
            let done = done.clone();
            work_queues.add(key, move || done.send(n).expect("the test listens"));
        };
        let (one, other) = (WorkKey::Execution(JobId(1), Run(1)), WorkKey::Execution(JobId(2), Run(1)));
        work_queues.add(one.clone(), move || {
            let _released = hung.recv();
        });
        add(one.clone(), 1);
        add(one, 2);
        add(other, 3);
        // They run on other threads, so this one may block.
        assert_eq!(order.recv().ok(), Some(3));
        assert!(order.try_recv().is_err(), "what follows a hanging chore has not been done");
        drop(release);
        assert_eq!((order.recv().ok(), order.recv().ok()), (Some(1), Some(2)));
    }
}
