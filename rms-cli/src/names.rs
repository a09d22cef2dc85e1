//! The names of clusters: the server sends them with its nodes, all other answers use numbers.

use std::collections::BTreeMap;

use launcher_sdk::Client;
use rms_api::terms::Allowed;
use rms_model::{ClusterId, Request, Settings};

/// Cluster names by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNames(BTreeMap<ClusterId, String>);

impl ClusterNames {
    pub fn new(clusters: impl IntoIterator<Item = (ClusterId, String)>) -> ClusterNames {
        ClusterNames(clusters.into_iter().collect())
    }

    /// Returns the name; the number for a cluster that has just joined.
    pub fn name(&self, cluster: ClusterId) -> String {
        self.0.get(&cluster).cloned().unwrap_or_else(|| format!("#{cluster}"))
    }

    /// Returns the limits of the deployment, as far as the caller may know them.
    pub async fn allowed(&self, client: &Client) -> Allowed {
        let settings = client.settings().await.ok().map(|told| {
            let mut settings = Settings::default();
            for (key, value) in &told {
                // A newer server may have settings that are unknown here.
                let _unknown = settings.set(key, value);
            }
            settings
        });
        Allowed { settings, clusters: self.0.clone() }
    }

    /// Returns the request as `a:2+b:2`, in the order of clusters.
    pub fn nodes(&self, request: &Request) -> String {
        let part = |(cluster, count): (&ClusterId, &u32)| format!("{}:{count}", self.name(*cluster));
        request.nodes.iter().map(part).collect::<Vec<_>>().join("+")
    }

    /// Returns the name of the only cluster, for several `a:2+b:2`.
    pub fn place(&self, request: &Request) -> String {
        match request.nodes.len() {
            1 => request.nodes.keys().map(|cluster| self.name(*cluster)).collect(),
            _ => self.nodes(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Span;

    use super::*;

    #[test]
    fn requests_are_written_by_cluster() {
        let names = ClusterNames::new([(ClusterId(1), "a".to_owned())]);
        let nodes = BTreeMap::from([(ClusterId(1), 2), (ClusterId(7), 3)]);
        assert_eq!(names.nodes(&Request { nodes, wall: Span::ZERO }), "a:2+#7:3");
    }
}
