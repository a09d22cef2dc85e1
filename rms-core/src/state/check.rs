//! Checks the rules that must hold after every fact; called by tests and the simulator.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{Grant, Indices, Inventory, JobId, NodeId, Span};
use thiserror::Error;

use super::State;
use crate::state::job::{Job, Phase, Started};
use crate::state::node::Node;
use crate::state::sharing::Loan;

/// A rule of the state that is broken: always a bug.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    #[error("{holders:?} have the same part of node {node}, or one of them all of it (001, §5.1)")]
    Oversubscribed { node: NodeId, holders: Vec<JobId> },
    #[error("job {job} and node {node} disagree on who holds whom")]
    HoldersDisagree { job: JobId, node: NodeId },
    #[error("job {job} holds {held} nodes of a cluster but requested {requested}")]
    WrongSize { job: JobId, held: usize, requested: u32 },
    #[error("job {job} holds {held:?}, which are not the first nodes of its row {row:?}")]
    WrongRow { job: JobId, held: Vec<NodeId>, row: Vec<NodeId> },
    #[error("job {job} is queued without a first request")]
    NoPlace { job: JobId },
    #[error("job {job} has the promise of a start, but does not wait for one")]
    StalePromise { job: JobId },
    #[error(
        "job {job} lends or borrows cores, and the other side knows nothing of it, or one of them did not say so (004)"
    )]
    BadLoan { job: JobId },
    #[error("the index differs from what the state says")]
    IndexStale,
    #[error("job {job} started and all its shares ended, but it was not settled")]
    Unsettled { job: JobId },
}

/// Returns whether the node has all cores and devices of the grant.
fn fits_inventory(grant: &Grant, inventory: &Inventory) -> bool {
    let exist =
        |(name, indices): (&String, &Indices)| indices.iter().all(|index| index < inventory.devices.count(name));
    grant.cores.iter().all(|core| core < inventory.cores) && grant.devices.iter().all(exist)
}

/// Returns whether the job holds the first nodes of its row, if it has one, and no node is in the row twice.
fn holds_first_of_row(started: &Started) -> bool {
    let row = started.row();
    let distinct: BTreeSet<&NodeId> = row.iter().collect();
    let first: BTreeSet<&NodeId> = row.iter().take(started.nodes.len()).collect();
    row.is_empty() || (distinct.len() == row.len() && first == started.nodes.iter().collect())
}

impl State {
    /// Returns whether the parts of a node's holders are disjoint, and together no more than the node has. What nodes
    /// count as taken is compared with the sum of these parts as part of the index.
    fn has_disjoint_parts(&self, node: NodeId, entry: &Node) -> bool {
        let mut cores = Indices::default();
        let mut devices: BTreeMap<String, Indices> = BTreeMap::new();
        let mut memory = 0_u64;
        entry.holders.iter().all(|job| {
            let part = |job| self.jobs.get(job)?.part_of(node, &entry.inventory);
            let Some(grant) = part(job) else { return false };
            let is_apart = cores.is_disjoint(&grant.cores) && fits_inventory(&grant, &entry.inventory);
            cores.insert_all(&grant.cores);
            memory = memory.saturating_add(grant.memory.0);
            let are_apart = grant.devices.iter().all(|(name, indices)| {
                let known = devices.entry(name.clone()).or_default();
                let are_apart = known.is_disjoint(indices);
                known.insert_all(indices);
                are_apart
            });
            is_apart && are_apart && memory <= entry.inventory.memory.0
        })
    }

    /// Returns whether both jobs of each loan record it, and both have agreed to share.
    fn loans_agree(&self, job: JobId, entry: &Job) -> bool {
        let Some(sharing) = entry.sharing() else { return true };
        let other = |other: &JobId| self.jobs.get(other).and_then(|entry| entry.started());
        let guest_agrees = |(node, loan): (&NodeId, &Loan)| {
            let Some(guest) = other(&loan.guest) else { return false };
            let borrows = guest.sharing.as_ref().is_some_and(|guest| guest.mates.get(node) == Some(&job));
            borrows && guest.grants.get(node).is_some_and(|grant| grant.cores == loan.cores)
        };
        let owner_agrees = |(node, owner): (&NodeId, &JobId)| {
            let owner = other(owner).and_then(|owner| owner.sharing.as_ref());
            owner.is_some_and(|owner| owner.lent.get(node).is_some_and(|loan| loan.guest == job))
        };
        let is_sound = sharing.lent.iter().all(guest_agrees) && sharing.mates.iter().all(owner_agrees);
        // A node that the job has left is no longer its own, nor its guest's through it.
        let held: BTreeSet<NodeId> = entry.held().collect();
        let are_held = sharing.lent.keys().chain(sharing.mates.keys()).all(|node| held.contains(node));
        entry.spec.resources.share && is_sound && are_held && sharing.requested >= Span::ZERO
    }

    /// Checks all rules.
    ///
    /// # Errors
    /// The first rule found broken.
    pub fn check(&self) -> Result<(), Violation> {
        for (node, entry) in &self.nodes {
            let is_whole = |job: &JobId| {
                self.jobs.get(job).is_some_and(|holder| holder.part_of(*node, &entry.inventory).is_none())
            };
            let is_one_whole = entry.holders.len() <= 1 && entry.holders.iter().all(is_whole);
            if !is_one_whole && !self.has_disjoint_parts(*node, entry) {
                return Err(Violation::Oversubscribed {
                    node: *node,
                    holders: entry.holders.iter().copied().collect(),
                });
            }
            for job in &entry.holders {
                let agrees = self.jobs.get(job).is_some_and(|entry| entry.held().any(|held| held == *node));
                if !agrees {
                    return Err(Violation::HoldersDisagree { job: *job, node: *node });
                }
            }
        }
        for (job, entry) in &self.jobs {
            if entry.is_queued() && entry.requested.is_none() {
                return Err(Violation::NoPlace { job: *job });
            }
            if entry.promised.is_some() && !entry.is_queued() {
                return Err(Violation::StalePromise { job: *job });
            }
            for node in entry.held() {
                let agrees = self.nodes.get(&node).is_some_and(|entry| entry.holders.contains(job));
                if !agrees {
                    return Err(Violation::HoldersDisagree { job: *job, node });
                }
            }
            let request = match &entry.phase {
                Phase::Started(started) => &started.request,
                Phase::Ghost(ghost) => &ghost.request,
                Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => continue,
            };
            for (cluster, n_nodes) in &request.nodes {
                let held = entry.nodes().iter().filter(|node| self.nodes[node].cluster == *cluster).count();
                let is_freed = held == 0 && matches!(entry.phase, Phase::Ghost(_));
                if held != *n_nodes as usize && !is_freed {
                    return Err(Violation::WrongSize { job: *job, held, requested: *n_nodes });
                }
            }
            if let Some(started) = entry.started().filter(|started| !holds_first_of_row(started)) {
                let (held, row) = (started.nodes.clone(), started.row().to_vec());
                return Err(Violation::WrongRow { job: *job, held, row });
            }
            if !self.loans_agree(*job, entry) {
                return Err(Violation::BadLoan { job: *job });
            }
            // Without shares, an external launcher uses the nodes by its own means, or has not yet said how.
            let settles = |started: &Started| !started.shares.is_empty() || started.ending.is_some();
            if entry.started().is_some_and(|started| settles(started) && started.is_clear()) {
                return Err(Violation::Unsettled { job: *job });
            }
        }
        if self.index != self.derived_index() {
            return Err(Violation::IndexStale);
        }
        Ok(())
    }
}
