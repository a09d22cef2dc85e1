//! The mapping of 003, Algorithm 1, written down for its vectors: node ids for applications that choose what they free.
//! The core maps one change of one job at a time, and has no such loop.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{Evolution, NodeId, Time};
use thiserror::Error;

/// An application that was placed in time.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled<'a> {
    pub start: Time,
    pub expanded: &'a Evolution,
}

/// Which nodes each application holds when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Every change-point of any application: its start and the end of each of its stages.
    pub times: Vec<Time>,
    /// For each interval between two neighbours of `times`, the nodes of each application.
    pub held: Vec<Vec<BTreeSet<NodeId>>>,
}

/// The reason why there is no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MapError {
    #[error("at {at:?} application {app_idx} needs {wanted} more nodes and {n_free} are free")]
    Overfull { at: Time, app_idx: usize, wanted: usize, n_free: usize },
    #[error("at {at:?} application {app_idx} must free {wanted} of the nodes it holds and chose {chosen}")]
    Freed { at: Time, app_idx: usize, wanted: usize, chosen: usize },
}

/// Chooses `n_nodes` of the nodes that an application holds, for it to free.
pub type Choose<'a> = dyn FnMut(usize, &BTreeSet<NodeId>, usize) -> BTreeSet<NodeId> + 'a;

/// Makes the default choice: the highest ids.
pub fn highest(held: &BTreeSet<NodeId>, n_nodes: usize) -> BTreeSet<NodeId> {
    held.iter().rev().take(n_nodes).copied().collect()
}

pub fn lowest(held: &BTreeSet<NodeId>, n_nodes: usize) -> BTreeSet<NodeId> {
    held.iter().take(n_nodes).copied().collect()
}

/// Visits all change-points. At each, first the applications that shrink free what `choose` returns, then those that
/// grow take the lowest free nodes, both in the order of the list. No node is taken from an application otherwise, so
/// none has to migrate.
///
/// # Errors
/// The applications together need more than `nodes`, or `choose` gave others than it was asked for.
pub fn map(
    nodes: impl IntoIterator<Item = NodeId>,
    apps: &[Scheduled<'_>],
    choose: &mut Choose<'_>,
) -> Result<Mapping, MapError> {
    let mut free: BTreeSet<NodeId> = nodes.into_iter().collect();
    let mut held: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); apps.len()];
    let changes = changes(apps);
    let mut intervals = Vec::with_capacity(changes.len());
    for (at, counts) in &changes {
        for (app_idx, count) in counts {
            let n_surplus = held[*app_idx].len().saturating_sub(*count);
            if n_surplus > 0 {
                let freed = choose(*app_idx, &held[*app_idx], n_surplus);
                if freed.len() != n_surplus || !freed.is_subset(&held[*app_idx]) {
                    let chosen = freed.intersection(&held[*app_idx]).count();
                    return Err(MapError::Freed { at: *at, app_idx: *app_idx, wanted: n_surplus, chosen });
                }
                held[*app_idx].retain(|node| !freed.contains(node));
                free.extend(freed);
            }
        }
        for (app_idx, count) in counts {
            let wanted = count.saturating_sub(held[*app_idx].len());
            if wanted > free.len() {
                return Err(MapError::Overfull { at: *at, app_idx: *app_idx, wanted, n_free: free.len() });
            }
            for _ in 0..wanted {
                held[*app_idx].extend(free.pop_first());
            }
        }
        intervals.push(held.clone());
    }
    // Everything is free after the last change-point.
    intervals.pop();
    Ok(Mapping { times: changes.into_keys().collect(), held: intervals })
}

/// Returns how many nodes each application needs from each of its change-points on, in the order of the list.
fn changes(apps: &[Scheduled<'_>]) -> BTreeMap<Time, BTreeMap<usize, usize>> {
    let mut changes: BTreeMap<Time, BTreeMap<usize, usize>> = BTreeMap::new();
    for (app_idx, app) in apps.iter().enumerate() {
        changes.entry(app.start).or_default().insert(app_idx, 0);
        for block in app.expanded.blocks(app.start) {
            changes.entry(block.from).or_default().insert(app_idx, block.nodes as usize);
            changes.entry(block.until).or_default().insert(app_idx, 0);
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> BTreeSet<NodeId> {
        ids.iter().map(|id| NodeId(*id)).collect()
    }

    #[test]
    fn a_driver_keeps_its_node() {
        let one: Evolution = "3x2s,1x2s,2x2s".parse().expect("a profile");
        let two: Evolution = "2x2s,4x1s".parse().expect("a profile");
        let apps =
            [Scheduled { start: Time::EPOCH, expanded: &one }, Scheduled { start: Time::from_secs(1), expanded: &two }];
        // The driver of the first application runs on node 2, which it never frees before its end.
        let mut choose = |app_idx: usize, held: &BTreeSet<NodeId>, n_nodes: usize| {
            let others: BTreeSet<NodeId> = held.iter().copied().filter(|node| *node != NodeId(2)).collect();
            let keeps_its_driver = app_idx == 0 && n_nodes < held.len();
            if keeps_its_driver { highest(&others, n_nodes) } else { highest(held, n_nodes) }
        };
        let mapping = map((0..5).map(NodeId), &apps, &mut choose).expect("there is room");
        let first: Vec<&BTreeSet<NodeId>> = mapping.held.iter().map(|apps| &apps[0]).collect();
        assert_eq!(mapping.times.iter().map(|time| time.as_secs()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 6]);
        assert_eq!(first, [&ids(&[0, 1, 2]), &ids(&[0, 1, 2]), &ids(&[2]), &ids(&[2]), &ids(&[0, 2])]);
        assert_eq!(mapping.held[3][1], ids(&[0, 1, 3, 4]));
    }

    #[test]
    fn a_wrong_choice_and_too_many_applications_are_told() {
        let evolution: Evolution = "3x2s,1x2s".parse().expect("a profile");
        let app = Scheduled { start: Time::EPOCH, expanded: &evolution };
        let mut foreign = |_: usize, _: &BTreeSet<NodeId>, _: usize| ids(&[7, 8]);
        let error = map((0..3).map(NodeId), &[app], &mut foreign).unwrap_err();
        assert_eq!(error, MapError::Freed { at: Time::from_secs(2), app_idx: 0, wanted: 2, chosen: 0 });
        let error = map((0..5).map(NodeId), &[app, app], &mut |_, held, n| lowest(held, n)).unwrap_err();
        assert_eq!(error, MapError::Overfull { at: Time::EPOCH, app_idx: 1, wanted: 3, n_free: 2 });
    }
}
