//! A queue that serves users in turn: one item of each, however many a user has put.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

/// The sending end; dropping it closes the queue.
#[derive(Debug)]
pub struct FairSender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving end.
#[derive(Debug)]
pub struct FairReceiver<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct State<T> {
    by_user: BTreeMap<String, VecDeque<T>>,
    /// The user who was served last: the next user by name is served next.
    last_user: String,
    is_closed: bool,
}

impl<T> FairSender<T> {
    pub fn new() -> FairSender<T> {
        let state = State { by_user: BTreeMap::new(), last_user: String::new(), is_closed: false };
        FairSender { shared: Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() }) }
    }

    pub fn receiver(&self) -> FairReceiver<T> {
        FairReceiver { shared: Arc::clone(&self.shared) }
    }

    /// Puts an item of a user. The queue is bounded by its callers: calls and streams have limits of their own.
    pub fn put(&self, user: &str, item: T) {
        let mut state = self.shared.state.lock().expect("nobody panics with the queue in hand");
        state.by_user.entry(user.to_owned()).or_default().push_back(item);
        self.shared.wake.notify_one();
    }
}

impl<T> Drop for FairSender<T> {
    fn drop(&mut self) {
        self.shared.state.lock().expect("nobody panics with the queue in hand").is_closed = true;
        self.shared.wake.notify_one();
    }
}

impl<T> FairReceiver<T> {
    /// Waits for the next item; `None` once the sending end is gone.
    pub fn next(&self) -> Option<T> {
        let mut state = self.shared.state.lock().expect("nobody panics with the queue in hand");
        loop {
            if let Some(item) = state.take() {
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            state = self.shared.wake.wait(state).expect("nobody panics with the queue in hand");
        }
    }
}

impl<T> State<T> {
    fn take(&mut self) -> Option<T> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.by_user.range::<String, _>((Excluded(&self.last_user), Unbounded)).next();
        let user = after.or_else(|| self.by_user.iter().next()).map(|(user, _)| user.clone())?;
        let items = self.by_user.get_mut(&user)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.by_user.remove(&user);
        }
        self.last_user = user;
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_its_turn() {
        let fair_queue = FairSender::new();
        for (user, item) in [("ann", 1), ("ann", 2), ("ann", 3), ("bob", 10), ("eve", 20)] {
            fair_queue.put(user, item);
        }
        let receiver = fair_queue.receiver();
        drop(fair_queue);
        let last_user: Vec<i32> = std::iter::from_fn(|| receiver.next()).collect();
        assert_eq!(last_user, [1, 10, 20, 2, 3]);
    }
}
