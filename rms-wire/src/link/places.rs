//! Places for connections that are not links yet: bounded for each kind, and never waited for.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::error::LinkError;

/// The places of one kind, by the key of their holder. Clones share them.
///
/// A new connection always gets a place. When there are too many, the holder with the most loses its oldest: so a flood
/// evicts itself, and others only if they are slower than a whole round of the flood.
#[derive(Clone, Debug)]
pub(super) struct Places<K>(Arc<Mutex<Table<K>>>);

#[derive(Debug)]
struct Table<K> {
    max: usize,
    last: u64,
    n_taken: usize,
    /// Places in the order in which they were taken, each with the sender that notifies its holder of an eviction.
    taken: HashMap<K, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A place, which is released on drop.
#[derive(Debug)]
pub(super) struct Place<K: Clone + Eq + Hash> {
    places: Places<K>,
    key: K,
    nth: u64,
    lost: oneshot::Receiver<()>,
}

impl<K: Clone + Eq + Hash> Places<K> {
    pub fn new(max: usize) -> Places<K> {
        Places(Arc::new(Mutex::new(Table { max, last: 0, n_taken: 0, taken: HashMap::new() })))
    }

    pub fn take(&self, key: K) -> Place<K> {
        let mut table = self.table();
        if table.n_taken >= table.max {
            table.evict();
        }
        let (evicted, lost) = oneshot::channel();
        table.last += 1;
        table.n_taken += 1;
        let nth = table.last;
        table.taken.entry(key.clone()).or_default().insert(nth, evicted);
        Place { places: self.clone(), key, nth, lost }
    }

    pub fn n_taken(&self) -> usize {
        self.table().n_taken
    }

    fn table(&self) -> MutexGuard<'_, Table<K>> {
        // No change of the table can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Table<K> {
    fn evict(&mut self) {
        // Among holders with equally many, the one with the oldest place.
        let first = |places: &BTreeMap<u64, _>| places.keys().next().copied().unwrap_or(u64::MAX);
        let most = self.taken.iter().max_by_key(|(_, places)| (places.len(), std::cmp::Reverse(first(places))));
        let Some((key, places)) = most else { return };
        let (key, nth) = (key.clone(), first(places));
        if let Some(evicted) = self.remove(&key, nth) {
            // The connection may have just ended.
            let _ = evicted.send(());
        }
    }

    fn remove(&mut self, key: &K, nth: u64) -> Option<oneshot::Sender<()>> {
        let places = self.taken.get_mut(key)?;
        let evicted = places.remove(&nth)?;
        self.n_taken -= 1;
        if places.is_empty() {
            self.taken.remove(key);
        }
        Some(evicted)
    }
}

impl<K: Clone + Eq + Hash> Place<K> {
    /// Runs `work` while the place is held, for at most `patience`.
    ///
    /// # Errors
    /// The work took too long, or the place was given to another connection.
    pub async fn hold<T>(&mut self, patience: Duration, work: impl Future<Output = T>) -> Result<T, LinkError> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            _ = &mut self.lost => Err(LinkError::Evicted),
            () = tokio::time::sleep(patience) => Err(LinkError::TooSlow { secs: patience.as_secs() }),
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        drop(self.places.table().remove(&self.key, self.nth));
    }
}

/// Returns the key for an address: the address itself for IPv4, and the /64 network for IPv6, as one node may have all
/// of its addresses.
pub(super) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(place: &mut Place<&'static str>) -> bool {
        place.lost.try_recv().is_ok()
    }

    #[test]
    fn who_has_the_most_loses_the_oldest() {
        let places = Places::new(4);
        let mut honest = places.take("honest");
        let mut flood: Vec<_> = (0..3).map(|_| places.take("flood")).collect();
        assert!(!is_lost(&mut honest) && flood.iter_mut().all(|place| !is_lost(place)));
        for n in 0..100 {
            flood.push(places.take("flood"));
            assert!(is_lost(&mut flood[n]), "the {n}th");
        }
        assert!(!is_lost(&mut honest));
        assert_eq!(places.n_taken(), 4);
        drop((honest, flood));
        assert_eq!(places.n_taken(), 0);
        assert!(places.table().taken.is_empty());
    }

    #[test]
    fn nodes_of_ipv6_are_told_apart_by_their_network() {
        let ip = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(ip("2001:db8:1:2::7"), ip("2001:db8:1:2:ffff::1"));
        assert_ne!(ip("2001:db8:1:2::7"), ip("2001:db8:1:3::7"));
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
        assert_ne!(ip("10.0.0.1"), ip("10.0.0.2"));
    }
}
