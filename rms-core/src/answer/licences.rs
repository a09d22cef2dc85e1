//! The licences of all clusters, and which jobs have them.

use std::collections::BTreeSet;

use rms_api::answer::{Answer, LicenceHolder, LicenceLine};
use rms_model::JobId;

use super::Answers;

impl Answers<'_> {
    pub(super) fn licences(&self) -> Answer {
        let state = self.state();
        let held: Vec<_> = state.licensed().map(|(job, entry)| (job, entry.licences())).collect();
        let mut lines = Vec::new();
        for (cluster, cluster_name) in state.clusters() {
            let all = state.settings().licences_of(cluster_name);
            let held = || held.iter().filter_map(|(job, licences)| Some((*job, licences.get(cluster)?)));
            // Jobs keep licences that an admin has taken from the cluster meanwhile.
            let in_use = held().flat_map(|(_, licences)| licences.iter());
            let names: BTreeSet<&str> = all.iter().chain(in_use).map(|(name, _)| name).collect();
            lines.extend(names.into_iter().map(|name| {
                let holder = |(job, count): (JobId, u32)| (count > 0).then_some(LicenceHolder { job, count });
                let holders = held().filter_map(|(job, licences)| holder((job, licences.count(name)))).collect();
                let (cluster, total) = (cluster_name.clone(), all.count(name));
                LicenceLine { cluster, name: name.to_owned(), total, holders }
            }));
        }
        Answer::Licences(lines)
    }
}
