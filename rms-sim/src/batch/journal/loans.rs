//! How much of the CPUs that they asked for jobs of the past had, of those that lent some or began on those of others.

use std::collections::BTreeMap;

use rms_core::State;
use rms_model::{JobRecord, Time};

/// The jobs that lent CPUs, by the names of their nodes: when they started, and when they ended.
#[derive(Debug)]
pub(super) struct Lenders<'a>(BTreeMap<&'a str, Vec<(Time, Time)>>);

impl<'a> Lenders<'a> {
    pub(super) fn new(records: &'a [JobRecord], state: &'a State) -> Lenders<'a> {
        let mut of_node: BTreeMap<&str, Vec<(Time, Time)>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.loans.is_some_and(|loans| loans.lent > 0)) {
            let Some(started) = record.started else { continue };
            for node in &record.nodes {
                of_node.entry(node).or_default().push((started, record.ended));
            }
        }
        for entry in state.jobs().values().filter(|entry| entry.sharing().is_some()) {
            let Some(started) = entry.started() else { continue };
            for node in entry.nodes().iter().filter_map(|node| state.nodes().get(node)) {
                of_node.entry(&node.name).or_default().push((started.at, Time::NEVER));
            }
        }
        Lenders(of_node)
    }

    /// Returns until when the job, which started at `started`, had borrowed CPUs of this node: a mate that ends first
    /// leaves the node to its guest. `None`: it had borrowed none there.
    fn until(&self, node: &str, started: Time) -> Option<Time> {
        let lenders = self.0.get(node)?.iter().filter(|(from, to)| *from <= started && started < *to);
        lenders.map(|(_, to)| *to).max()
    }

    /// Returns which part of the CPU time that it asked for the job had. `asked` are the cores that it asked for on each
    /// node, and `core_millis` their time until its end.
    pub(super) fn part_had(&self, record: &JobRecord, asked: &[(&str, f64)], core_millis: f64) -> f64 {
        let (Some(loans), Some(started)) = (record.loans, record.started) else { return 1.0 };
        let core_millis_until = |cores: f64, until: Time| cores * until.since(started).as_millis() as f64;
        let missing = if loans.borrowed > 0 {
            let known = asked.iter().filter_map(|(node, cores)| Some((cores, self.until(node, started)?)));
            let wanted: f64 = known.map(|(cores, until)| core_millis_until(*cores, until.min(record.ended))).sum();
            // If nothing is known of its mates any more, they lent as long as it ran.
            let wanted = if wanted > 0.0 { wanted } else { core_millis };
            (wanted - loans.borrowed as f64).max(0.0)
        } else {
            0.0
        };
        let had = core_millis - loans.lent as f64 - missing;
        if had > 0.0 { (had / core_millis).min(1.0) } else { 1.0 }
    }
}
