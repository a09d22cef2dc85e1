//! A queue that serves users in turn: one item of each, however many one of them has put.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};

/// The putting end; when the last one goes, the other end is told.
#[derive(Debug)]
pub struct Turns<T> {
    shared: Arc<Shared<T>>,
}

/// The taking end.
#[derive(Debug)]
pub struct Waiting<T> {
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
    /// Who was served last: the next one by name is next.
    served: String,
    is_closed: bool,
}

impl<T> Turns<T> {
    pub fn new() -> Turns<T> {
        let state = State { by_user: BTreeMap::new(), served: String::new(), is_closed: false };
        Turns { shared: Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new() }) }
    }

    pub fn waiting(&self) -> Waiting<T> {
        Waiting { shared: Arc::clone(&self.shared) }
    }

    /// How many of a user may wait, those bound who let him ask: calls and streams have their limits.
    pub fn put(&self, user: &str, item: T) {
        let mut state = self.shared.state.lock().expect("nobody panics with the queue in hand");
        state.by_user.entry(user.to_owned()).or_default().push_back(item);
        self.shared.wake.notify_one();
    }
}

impl<T> Drop for Turns<T> {
    fn drop(&mut self) {
        self.shared.state.lock().expect("nobody panics with the queue in hand").is_closed = true;
        self.shared.wake.notify_one();
    }
}

impl<T> Waiting<T> {
    /// The next item, when there is one; `None` once nobody can put any more.
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
        let after = self.by_user.range::<String, _>((Excluded(&self.served), Unbounded)).next();
        let user = after.or_else(|| self.by_user.iter().next()).map(|(user, _)| user.clone())?;
        let items = self.by_user.get_mut(&user)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.by_user.remove(&user);
        }
        self.served = user;
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_its_turn() {
        let turns = Turns::new();
        for (user, item) in [("ann", 1), ("ann", 2), ("ann", 3), ("bob", 10), ("eve", 20)] {
            turns.put(user, item);
        }
        let waiting = turns.waiting();
        drop(turns);
        let served: Vec<i32> = std::iter::from_fn(|| waiting.next()).collect();
        assert_eq!(served, [1, 10, 20, 2, 3]);
    }
}
