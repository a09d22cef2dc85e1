//! The CPUs that jobs should use on their nodes; agents report the ones that their processes may use.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::answer::{Answer, JobState, LoanLine};
use rms_api::desired::LaunchNode;
use rms_api::masks::{JobMasks, MaskOrder, MaskedJob, MasksOf, NodeMasks};
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, NodeId, Time, hostlist};

use super::{Answers, sharing_detail};
use crate::rights::{may_touch, nodes_named, wrong_state};

impl Answers<'_> {
    pub(super) fn masks(&self, now: Time, of: &MasksOf) -> Result<Answer, Refusal> {
        let nodes = match of {
            MasksOf::Job(job) => self.masks_of_job(now, *job)?,
            MasksOf::Node(name) => {
                let node = nodes_named(self.state(), std::slice::from_ref(name))?;
                let known = node.first().map(|node| &self.state().nodes()[node]);
                let holders = known.into_iter().flat_map(|known| known.holders.iter());
                let found = holders.filter_map(|job| self.masks_of_job(now, *job).ok()).flatten();
                let jobs = found.filter(|found| found.node == *name).flat_map(|found| found.jobs).collect();
                vec![NodeMasks { node: name.clone(), jobs, silent: None }]
            }
        };
        Ok(Answer::Masks { now, nodes })
    }

    /// Returns the node on which the mask of a process is to be set, if the caller may do so.
    pub(crate) fn mask_to_set(
        &self,
        now: Time,
        who: &Identity,
        job: JobId,
        order: &MaskOrder,
    ) -> Result<Answer, Refusal> {
        may_touch(self.state(), who, job)?;
        let mut nodes = self.masks_of_job(now, job)?;
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        let folded = hostlist::fold(&names);
        match &order.node {
            Some(name) => {
                nodes.retain(|node| node.node == *name);
                if nodes.is_empty() {
                    let node = name.chars().take(80).collect();
                    return Err(Refusal::NotOnNode { job, node, nodes: folded });
                }
            }
            None if nodes.len() > 1 => return Err(Refusal::NameANode { job, nodes: folded }),
            None => {}
        }
        Ok(Answer::Masks { now, nodes })
    }

    /// Returns the masks for each node on which the job may have processes.
    fn masks_of_job(&self, now: Time, job: JobId) -> Result<Vec<NodeMasks>, Refusal> {
        let state = self.state();
        let entry = state.jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
        let runs = matches!(entry.state(), JobState::Started | JobState::Ending);
        let Some(started) = entry.started().filter(|_| runs) else {
            let word = entry.state().word();
            return Err(wrong_state(job, word, "only jobs that run have CPUs; 'rms show' says when it starts"));
        };
        let alive: BTreeSet<NodeId> = started.alive().collect();
        let (mut lent, mut borrowed) = (BTreeMap::new(), BTreeMap::new());
        if let Some(sharing) = sharing_detail(state, job, now) {
            (lent, borrowed) = (by_node(sharing.lent), by_node(sharing.borrowed));
        }
        let part_on = |node: NodeId| entry.part_of(node, &state.nodes().get(&node)?.inventory);
        let of_node = |place: LaunchNode| {
            let of = MaskedJob {
                job,
                run: entry.run,
                // Without the cores that it has given back.
                cores: part_on(place.node).or(place.grant).map(|part| part.cores),
                n_cpus: place.cpus,
                one_thread_a_core: entry.spec.resources.one_thread_a_core,
            };
            let masks = JobMasks {
                of,
                name: entry.spec.labels.name.clone(),
                owner: entry.spec.owner.clone(),
                lent: lent.remove(&place.name).unwrap_or_default(),
                borrowed: borrowed.remove(&place.name).unwrap_or_default(),
                seen: None,
            };
            NodeMasks { node: place.name, jobs: vec![masks], silent: None }
        };
        let places = self.context.nodes(entry, started).into_iter().filter(|place| alive.contains(&place.node));
        Ok(places.map(of_node).collect())
    }
}

fn by_node(lines: Vec<LoanLine>) -> BTreeMap<String, Vec<LoanLine>> {
    let mut by_node: BTreeMap<String, Vec<LoanLine>> = BTreeMap::new();
    lines.into_iter().for_each(|line| by_node.entry(line.node.clone()).or_default().push(line));
    by_node
}
