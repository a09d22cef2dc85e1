//! A ghost keeps its nodes for the fair-start delay, so that slow launchers get their chance (001, §5.3.1).

use std::collections::{BTreeMap, BTreeSet};

use negotiation::NegotiationId;
use rms_core::Fact;
use rms_model::settings::GhostRule;
use rms_model::{ClusterId, Indices, JobId, NodeId, NodeLink, Settings, Span, Time};

use super::{Rule, Violation};

/// Cores of a node; `None`: the whole node.
type Part = Option<Indices>;

fn are_apart(one: &Part, other: &Part) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.is_disjoint(other))
}

/// Which job holds which node since when, and until when its ghost must keep it.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// The current settings.
    settings: Settings,
    clusters: BTreeMap<ClusterId, String>,
    /// Which cluster a node belongs to.
    home: BTreeMap<NodeId, ClusterId>,
    held: BTreeMap<JobId, Vec<NodeId>>,
    kept: BTreeMap<(NodeId, JobId), (Part, Time)>,
    /// The cores of shared nodes that jobs hold.
    parts: BTreeMap<(NodeId, JobId), Indices>,
    /// The nodes of current ghosts, by job.
    ghosts: BTreeMap<JobId, Vec<NodeId>>,
    /// Nodes that are kept for negotiations.
    promised: BTreeMap<(JobId, NegotiationId), Vec<NodeId>>,
    /// Nodes that running jobs have given back and for which no ghost was reported.
    given_back: BTreeMap<NodeId, JobId>,
    /// Jobs that are guests of others, or have guests.
    sharing: BTreeSet<JobId>,
    /// Nodes on which no process of a job is left.
    empty: BTreeSet<(JobId, NodeId)>,
    /// Lost nodes. No launcher could ask for them, so they are not kept.
    lost: BTreeSet<NodeId>,
}

impl Ghosts {
    pub(super) fn new(settings: Settings) -> Ghosts {
        Ghosts {
            settings,
            clusters: BTreeMap::new(),
            home: BTreeMap::new(),
            held: BTreeMap::new(),
            kept: BTreeMap::new(),
            parts: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            promised: BTreeMap::new(),
            given_back: BTreeMap::new(),
            sharing: BTreeSet::new(),
            empty: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Returns how long a node is kept after its application is done.
    fn fair_start(&self, node: NodeId) -> Span {
        let cluster = self.home.get(&node).and_then(|cluster| self.clusters.get(cluster));
        cluster.map_or(self.settings.fair_start, |cluster| self.settings.fair_start_of(cluster))
    }

    /// Returns whether another job has a part of the node.
    fn is_shared(&self, node: NodeId, job: JobId) -> bool {
        let held = self.held.iter().chain(&self.ghosts).filter(|(other, _)| **other != job).map(|(_, nodes)| nodes);
        held.chain(self.promised.values()).any(|nodes| nodes.contains(&node))
    }

    /// Expects the report that ghosts keep these nodes, which the job has left.
    fn expect_ghosts(&mut self, job: JobId, nodes: &[NodeId]) {
        if self.settings.ghosts != GhostRule::Always {
            return;
        }
        // Of a shared node only a part was given back, and no ghost keeps it.
        let kept = nodes.iter().filter(|node| {
            !self.fair_start(**node).is_zero() && !self.lost.contains(node) && !self.is_shared(**node, job)
        });
        let kept: Vec<_> = kept.map(|node| (*node, job)).collect();
        self.given_back.extend(kept);
    }

    /// Handles a start of the server: reports that it was about to make are lost.
    pub(super) fn restarted(&mut self) {
        self.given_back.clear();
    }

    pub(super) fn durable(&mut self, fact: &Fact) -> Result<(), Violation> {
        if let Fact::ClusterAdded { cluster, name } = fact {
            self.clusters.insert(*cluster, name.clone());
        }
        if let Fact::NodeJoined { node, cluster, .. } = fact {
            self.home.insert(*node, *cluster);
        }
        if let Fact::NodeLinkChanged { node, link } = fact {
            match link {
                NodeLink::Lost { .. } => self.lost.insert(*node),
                NodeLink::Connected { .. } | NodeLink::Away { .. } | NodeLink::Expected { .. } => {
                    self.lost.remove(node)
                }
            };
        }
        if let Fact::SettingChanged { change } = fact {
            self.settings.set(&change.subject, &change.new).expect("a recorded setting was accepted once");
        }
        if let Fact::JobStarted { job, at, nodes, grants, .. } = fact {
            for node in nodes {
                let part = grants.get(node).map(|grant| grant.cores.clone());
                let mut kept = self.kept.range((*node, JobId(0))..=(*node, JobId(u64::MAX)));
                let in_its_way = kept.find(|(_, (kept, until))| at < until && !are_apart(kept, &part));
                if let Some(((_, ghost), (_, until))) = in_its_way {
                    return Err(Rule::Ghost.broken(format!(
                        "job {job} started on node {node} at {at:?}, which the ghost of job {ghost} keeps until {until:?}"
                    )));
                }
            }
            self.kept.retain(|_, (_, until)| at < until);
            self.parts.extend(grants.iter().map(|(node, grant)| ((*node, *job), grant.cores.clone())));
            self.held.insert(*job, nodes.clone());
            self.empty.retain(|(of, _)| of != job);
        }
        if let Fact::CpusShared { job, sharing, grants, .. } = fact {
            self.parts.retain(|(_, of), _| of != job);
            self.parts.extend(grants.iter().map(|(node, grant)| ((*node, *job), grant.cores.clone())));
            if sharing.is_active() {
                self.sharing.insert(*job)
            } else {
                self.sharing.remove(job)
            };
        }
        if let Fact::CoresSet { job, cores, .. } = fact {
            // Which of them are kept depends on how far the agents are: here none are.
            self.parts.extend(cores.iter().map(|(node, _)| ((*node, *job), Indices::default())));
        }
        if let Fact::NodesHeld { job, negotiation, nodes, .. } = fact {
            self.promised.insert((*job, *negotiation), nodes.clone());
        }
        if let Fact::GhostExpired { job } = fact {
            self.ghosts.remove(job);
        }
        if let Fact::JobDone { record: ended, ghost_until, told, .. } = fact {
            self.promised.retain(|(of, _), _| *of != ended.job);
            let nodes = self.held.get(&ended.job).filter(|_| *ghost_until > told.unwrap_or(ended.ended)).cloned();
            self.ghosts.extend(nodes.map(|nodes| (ended.job, nodes)));
        }
        if let Fact::NodesHeld { job, grants, .. } | Fact::StageEntered { job, grants, .. } = fact {
            self.parts.extend(grants.iter().map(|(node, grant)| ((*node, *job), grant.cores.clone())));
        }
        if let Fact::ShareEnded { job, node, .. } = fact {
            self.empty.insert((*job, *node));
        }
        if let Fact::StageEntered { job, gained, freed, .. } = fact {
            self.empty.retain(|(of, node)| of != job || !gained.contains(node));
            let held = self.held.entry(*job).or_default();
            held.extend(gained.iter().copied());
            // A node that is freed is free at once if no process is left on it.
            held.retain(|node| !freed.contains(node) || !self.empty.contains(&(*job, *node)));
        }
        if let Fact::NodesFreed { job, nodes } = fact {
            self.held.entry(*job).or_default().retain(|node| !nodes.contains(node));
            self.expect_ghosts(*job, nodes);
        }
        if let Fact::NodesGhosted { job, nodes, at, until } = fact {
            for node in nodes {
                let fair = *at + self.fair_start(*node);
                if *until != fair {
                    let what =
                        format!("job {job} has given node {node} back, which is kept until {until:?}, not {fair:?}");
                    return Err(Rule::Ghost.broken(what));
                }
                self.given_back.remove(node);
                self.kept.insert((*node, *job), (None, *until));
            }
        }
        if let Fact::StageEntered { gained, .. } | Fact::JobStarted { nodes: gained, .. } = fact
            && let Some((node, job)) = gained.iter().find_map(|node| Some((node, self.given_back.remove(node)?)))
        {
            return Err(Rule::Ghost.broken(format!("node {node}, which job {job} has given back, was taken at once")));
        }
        if let Fact::NodeGhostsExpired { nodes, .. } = fact
            && self.settings.ghosts == GhostRule::IfWanted
        {
            self.kept.retain(|(node, _), _| !nodes.contains(node));
        }
        if let Fact::GhostExpired { job } | Fact::GhostPartExpired { job, .. } = fact
            && self.settings.ghosts == GhostRule::IfWanted
        {
            self.kept.retain(|(_, of), _| of != job);
        }
        if let Fact::JobDone { record, ghost_until, told, .. } = fact {
            let told = told.unwrap_or(record.ended);
            let nodes = self.held.remove(&record.job).unwrap_or_default();
            self.parts.retain(|(_, of), _| *of != record.job || !self.sharing.contains(of));
            if self.sharing.remove(&record.job) {
                // Other jobs are on its nodes; the last one to leave a node leaves a ghost there.
                if *ghost_until != told {
                    let what = format!("job {}, which shares its nodes, has a ghost until {ghost_until:?}", record.job);
                    return Err(Rule::Ghost.broken(what));
                }
                self.expect_ghosts(record.job, &nodes);
                return Ok(());
            }
            let longest = nodes.iter().map(|node| self.fair_start(*node)).max().unwrap_or(Span::ZERO);
            let fair = told + longest;
            let is_wanted = self.settings.ghosts == GhostRule::Always;
            if !nodes.is_empty() && *ghost_until != fair && (is_wanted || *ghost_until > fair) {
                let job = record.job;
                return Err(
                    Rule::Ghost.broken(format!("the ghost of job {job} lasts until {ghost_until:?}, not {fair:?}"))
                );
            }
            for node in nodes {
                let until = (told + self.fair_start(node)).min(*ghost_until);
                self.kept.insert((node, record.job), (self.parts.get(&(node, record.job)).cloned(), until));
            }
            self.parts.retain(|(_, of), _| *of != record.job);
        }
        if let Fact::JobRequeued { job, .. } = fact {
            self.held.remove(job);
            self.sharing.remove(job);
            self.parts.retain(|(_, of), _| of != job);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Outcome, Request, Run};

    use super::*;
    use crate::check::tests::{record, started};

    fn start(job: u64, at: i64) -> Fact {
        let request = Request::on_one(Default::default(), 1, Span::ZERO);
        started(JobId(job), Run(1), Time::from_secs(at), request)
    }

    fn done(ghost_until: i64) -> Fact {
        let record = Box::new(record(JobId(1), Outcome::Completed));
        Fact::JobDone { record, ghost_until: Time::from_secs(ghost_until), negotiations: Vec::new(), told: None }
    }

    fn ghosts() -> Ghosts {
        Ghosts::new(Settings { fair_start: Span::from_secs(20), ..Settings::default() })
    }

    #[test]
    fn a_start_on_a_node_that_a_ghost_keeps_is_seen() {
        let mut ghosts = ghosts();
        assert_eq!(ghosts.durable(&start(1, 0)), Ok(()));
        assert_eq!(ghosts.durable(&done(20)), Ok(()));
        assert!(ghosts.durable(&start(2, 19)).is_err());
        assert_eq!(ghosts.durable(&start(3, 20)), Ok(()));
    }

    #[test]
    fn a_start_on_other_cores_of_the_node_is_none_of_it() {
        let on = |job, at, cores: std::ops::Range<u32>| {
            let mut fact = start(job, at);
            if let Fact::JobStarted { nodes, grants, .. } = &mut fact {
                let grant = rms_model::Grant { cores: cores.collect(), ..Default::default() };
                *grants = nodes.iter().map(|node| (*node, grant.clone())).collect();
            }
            fact
        };
        let mut ghosts = ghosts();
        assert_eq!(ghosts.durable(&on(1, 0, 0..2)), Ok(()));
        assert_eq!(ghosts.durable(&done(20)), Ok(()));
        assert_eq!(ghosts.durable(&on(2, 18, 2..4)), Ok(()));
        assert!(ghosts.durable(&on(3, 19, 1..3)).is_err());
        assert!(ghosts.durable(&start(4, 19)).is_err());
    }

    #[test]
    fn a_ghost_that_leaves_too_early_is_seen() {
        let mut ghosts = ghosts();
        assert_eq!(ghosts.durable(&start(1, 0)), Ok(()));
        assert!(ghosts.durable(&done(19)).is_err());
    }
}
