//! A server's own journal as a workload: opened read-only, as a copy or while the server runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rms_model::Settings;
use rms_model::error::chain;
use rms_model::settings::Subject;
use rms_server::journal::Past;
use rms_sim::batch::tune::Launchers;
use rms_sim::batch::{ClusterNodes, JournalJobs, known_nodes};

use super::check_once;
use crate::failure::Failure;
use crate::place;

/// Everything needed to replay a journal.
pub(super) struct Journal {
    pub(super) jobs: JournalJobs,
    pub(super) nodes: Vec<ClusterNodes>,
    pub(super) settings: Settings,
    pub(super) launchers: Launchers,
}

/// # Errors
/// There is no journal, it is damaged, or it contains nothing to run.
pub(super) fn read(path: &Path) -> Result<Journal, Failure> {
    place::is_there(path)?;
    // The path may be the journal, the server's directory, or that of a whole cluster.
    let within = [path.join("server").join(JOURNAL), path.join(JOURNAL)];
    let journal = within.iter().find(|dir| dir.is_dir()).map_or(path, PathBuf::as_path);
    let past = Past::read(journal).map_err(|error| Failure::new("journal", chain(&error)))?;
    let jobs = JournalJobs::new(&past.records, &past.specs, &past.state);
    let nodes = known_nodes(&past.state);
    if jobs.is_empty() || nodes.is_empty() {
        let failure = Failure::new("journal", format!("{} knows of no job that ran, or of no node", journal.display()));
        return Err(failure.hint("jobs that never started, or that have not ended yet, can not be run again"));
    }
    let launchers = Launchers {
        known: past.launchers.len(),
        unknown: past.records.iter().filter(|record| !past.specs.contains_key(&record.job)).count(),
    };
    let mut settings = past.state.settings().clone();
    if let Some(depth) = past.state.depth() {
        // The simulator does not measure passes, so the depth that the server has chosen stays.
        settings.queue_depth = depth.into();
    }
    Ok(Journal { jobs, nodes, settings, launchers })
}

/// Applies `key=value` of each `--set`. A key without a name applies to every cluster and user, also to those with
/// their own value on the server; one with a name takes precedence, whatever the order.
///
/// # Errors
/// A change is no setting, is of a cluster of which there are no nodes, or its key is there twice.
pub(super) fn apply(settings: &mut Settings, changes: &[String], nodes: &[ClusterNodes]) -> Result<(), Failure> {
    let clusters: BTreeSet<&str> = nodes.iter().map(|nodes| nodes.cluster.as_str()).collect();
    let mut pairs = Vec::new();
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set: '{change}' is not KEY=VALUE, as in fair_start=10s")))?;
        pairs.push((key.trim(), value.trim()));
    }
    let keys: Vec<&str> = pairs.iter().map(|(key, _)| *key).collect();
    check_once("--set", &keys, |key| key.to_string())?;
    for (key, _) in &pairs {
        if let Some(Subject::Cluster(name)) = Settings::subject_of(key)
            && !clusters.contains(name)
        {
            let known = clusters.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("--set {key}: there is no cluster '{name}'; the clusters are {known}")));
        }
        settings.forget_own(key);
    }
    for (key, value) in pairs {
        settings.set(key, value).map_err(Failure::usage)?;
    }
    Ok(())
}

const JOURNAL: &str = "journal";

#[cfg(test)]
mod tests {
    use rms_model::{Allocation, Span};
    use rms_sim::batch::uniform_nodes;

    use super::*;

    fn nodes() -> [ClusterNodes; 2] {
        ["a", "b"].map(|cluster| ClusterNodes { cluster: cluster.to_owned(), ..uniform_nodes(1, 1) })
    }

    #[test]
    fn a_key_of_a_cluster_that_is_not_there_is_refused() {
        let mut settings = Settings::default();
        let refused = apply(&mut settings, &["fair_start@zz=1s".to_owned()], &nodes()).expect_err("there is none");
        let expected = "there is no cluster 'zz'; the clusters are a, b";
        assert!(refused.message.contains(expected), "{refused:?}");
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused() {
        let changed = |changes: [&str; 2]| apply(&mut Settings::default(), &changes.map(str::to_owned), &nodes());
        let refused = changed(["fair_start=1s", "fair_start = 2s"]).expect_err("which one?");
        assert!(refused.message.contains("--set names fair_start twice: write it once"), "{refused:?}");
        assert!(changed(["fair_start=1s", "fair_start@a=2s"]).is_ok(), "one of them is for a cluster");
    }

    #[test]
    fn a_key_without_a_name_is_tried_on_all_clusters() {
        let mut of_journal = Settings::default();
        of_journal.set("allocation@a", "cores").expect("for one");
        of_journal.set("fair_start@a", "5s").expect("for one");
        let tried = |changes: &[&str]| {
            let mut settings = of_journal.clone();
            let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
            apply(&mut settings, &changes, &nodes()).expect("they are settings");
            ["a", "b"].map(|cluster| settings.allocation_of(cluster))
        };
        assert_eq!(tried(&["policy=easy"]), [Allocation::Cores, Allocation::Nodes], "the journal's");
        assert_eq!(tried(&["allocation=nodes"]), [Allocation::Nodes; 2]);
        assert_eq!(tried(&["allocation@b=cores", "allocation=nodes"]), [Allocation::Nodes, Allocation::Cores]);
        let mut settings = of_journal.clone();
        apply(&mut settings, &["allocation=nodes".to_owned()], &nodes()).expect("it is one");
        assert_eq!(settings.fair_start_of("a"), Span::from_secs(5), "another setting");
    }
}
