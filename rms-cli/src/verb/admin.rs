//! `rms admin`: settings, nodes and the state of the server.

mod negotiation;

use launcher_sdk::{CallError, Client};
use rms_api::answer::{NodeLine, NodeState};
use rms_api::audit::AuditEntry;
use rms_api::filter::NodeFilter;
use rms_model::plain::plain;
use rms_model::settings::{AS_OTHERS, Depth, Settings};
use rms_model::{Time, hostlist};
use serde_json::{Map, Value, json};

use super::status::StatusAnswer;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::output::{self, Show};
use crate::screen;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  rms admin show                         all settings
  rms admin set fair_start 10s           set it, at once and for good
  rms admin set fair_start@a 30s         the same for cluster a alone; 'default'
                                         removes it
  rms admin set fair_start default       the built-in value, and that of the
                                         configuration file from the next start
  rms admin link a b --latency 5ms --bandwidth 10000
  rms admin audit                        who changed what
  rms admin drain 'a[1-2]' --reason disk nothing new starts there
  rms admin resume 'a[1-2]'
  rms admin negotiation withdraw 7 r1    end a negotiation of job 7
  rms admin negotiation force 7 r1       take the nodes that job 7 was asked to
                                         leave
  rms admin status                       counters of the server"
)]
pub struct Args {
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(clap::Subcommand, Debug)]
enum AdminVerb {
    /// Show settings
    Show {
        /// Setting to show; all if absent
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
    /// Change a setting
    Set {
        /// Name of the setting
        #[arg(value_name = "KEY")]
        key: String,
        /// New value
        #[arg(value_name = "VALUE", allow_negative_numbers = true)]
        value: String,
    },
    /// Show who changed what: settings, nodes, tokens, certificates, others' jobs
    Audit,
    /// Start no new jobs on nodes; what runs there may finish
    Drain {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
        /// Reason, shown by 'rms nodes'
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Take nodes out of service at once; what runs there is ended
    Down {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
        /// Reason, shown by 'rms nodes'
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Return drained or down nodes to service
    Resume {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
    },
    /// Forget nodes that will not come back
    Remove {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
    },
    /// Forget a cluster that has no nodes left
    RemoveCluster {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        cluster: String,
    },
    /// Set latency and bandwidth between two clusters, for launchers that use several at once; the same in both
    /// directions
    Link {
        /// One cluster
        #[arg(value_name = "CLUSTER")]
        a: String,
        /// The other cluster
        #[arg(value_name = "CLUSTER")]
        b: String,
        /// Latency of a message: 5ms, 250us
        #[arg(long, value_name = "TIME", value_parser = latency)]
        latency: u32,
        /// Bandwidth in Mbit/s; unknown if absent
        #[arg(long, value_name = "MBIT", default_value_t = 0)]
        bandwidth: u32,
    },
    /// End a negotiation, or take the nodes that a job was asked to leave
    #[command(subcommand)]
    Negotiation(negotiation::NegotiationVerb),
    /// Show counters and sizes of the server
    Status,
    /// Renew your own certificate
    Renew,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    match args.verb {
        AdminVerb::Show { key } => show(key, context).await?,
        AdminVerb::Set { key, value } => {
            // A typing error is reported without a server.
            Settings::default().set(&key, &value).map_err(Failure::usage)?;
            context.client().await?.set(&key, &value).await?;
            let value = if value == AS_OTHERS && !key.contains('@') { given_back(&key)? } else { value };
            context.output.show(&SettingList { settings: vec![(key, value)], depth: None })?;
        }
        AdminVerb::Audit => {
            let changes = context.client().await?.audit().await?;
            context.output.show(&Audit { changes, now: stamp::now() })?;
        }
        AdminVerb::Drain { nodes, reason } => {
            order("draining", &nodes, context, async |client, nodes| client.drain(nodes, reason).await).await?;
        }
        AdminVerb::Down { nodes, reason } => {
            order("down", &nodes, context, async |client, nodes| client.set_down(nodes, reason).await).await?;
        }
        AdminVerb::Resume { nodes } => {
            order("resumed", &nodes, context, async |client, nodes| client.resume(nodes).await).await?;
            warn_of_drained(hostlist::expand(&nodes)?, context).await?;
        }
        AdminVerb::Remove { nodes } => {
            order("removed", &nodes, context, async |client, nodes| client.remove_nodes(nodes).await).await?;
        }
        AdminVerb::RemoveCluster { cluster } => {
            context.client().await?.remove_cluster(cluster.clone()).await?;
            context.output.show(&NodesDone { word: "removed", nodes: vec![cluster] })?;
        }
        AdminVerb::Link { a, b, latency, bandwidth } => {
            let clusters = [a, b];
            context.client().await?.set_link(clusters.clone(), latency, bandwidth).await?;
            context.output.show(&LinkDone { clusters, latency_us: latency, bandwidth_mbit: bandwidth })?;
        }
        AdminVerb::Negotiation(verb) => negotiation::run(verb, context).await?,
        AdminVerb::Status => {
            let client = context.client().await?;
            let (status, report, server) =
                (client.status().await?, client.launchers().await?, client.server_report().await?);
            context.output.show(&StatusAnswer { status, report, server })?;
        }
        AdminVerb::Renew => {
            let client = context.client().await?;
            let expires = client.renew().await?.expires();
            context.output.show(&Renewed { identity: client.identity().to_string(), expires })?;
        }
    }
    Ok(Exit::OK)
}

/// Returns the built-in value of a setting that was given back to the configuration file, and says when that counts.
fn given_back(key: &str) -> Result<String, Failure> {
    let what = format!("{key} has its built-in value now, and that of the configuration file, if it names one,");
    output::warn(&format!("rms: {what} from the next start of the server on"));
    Settings::default().get(key).map_err(Failure::usage)
}

async fn show(key: Option<String>, context: &Context) -> Result<(), Failure> {
    if let Some(key) = &key {
        Settings::default().get(key).map_err(Failure::usage)?;
    }
    let client = context.client().await?;
    let mut settings = client.settings().await?;
    settings.retain(|(name, _)| key.as_ref().is_none_or(|key| key == name));
    if let Some(key) = key.filter(|_| settings.is_empty()) {
        // A setting of a cluster that has not been set.
        settings.push((key, AS_OTHERS.to_owned()));
    }
    let has_own_depth = settings.iter().any(|(name, value)| name == DEPTH && *value == Depth::Auto.to_string());
    let depth = if has_own_depth { client.status().await?.queue_depth } else { None };
    context.output.show(&SettingList { settings, depth })
}

async fn order(
    word: &'static str,
    nodes: &str,
    context: &Context,
    call: impl AsyncFnOnce(&Client, Vec<String>) -> Result<(), CallError>,
) -> Result<(), Failure> {
    let nodes = hostlist::expand(nodes)?;
    call(&context.client().await?, nodes.clone()).await?;
    context.output.show(&NodesDone { word, nodes })
}

/// Warns of nodes that an admin has resumed and that keep themselves drained.
async fn warn_of_drained(names: Vec<String>, context: &Context) -> Result<(), Failure> {
    let states = vec![NodeState::Draining, NodeState::Drained];
    // One may have been removed meanwhile.
    let Ok(list) = context.client().await?.nodes_of(NodeFilter { names, states, ..NodeFilter::default() }).await else {
        return Ok(());
    };
    list.nodes.iter().for_each(|node| output::warn(&still_drained(node)));
    Ok(())
}

fn still_drained(node: &NodeLine) -> String {
    let reason = node.reason.as_deref().map_or_else(String::new, |reason| format!(": {}", plain(reason)));
    format!("node {} has drained itself and stays {}{reason}", node.name, node.state.word())
}

pub(super) struct SettingList {
    pub(super) settings: Vec<(String, String)>,
    /// The queue depth that the server has chosen, if it may choose.
    pub(super) depth: Option<u32>,
}

const DEPTH: &str = "queue_depth";

impl SettingList {
    fn rows(&self) -> Table {
        let mut table = Table::new(&["setting", "value"]);
        for (key, value) in &self.settings {
            let now = self.depth.filter(|_| key == DEPTH).map(|depth| format!(" ({depth} now)"));
            table.row(vec![key.clone(), format!("{value}{}", now.unwrap_or_default())]);
        }
        table
    }
}

impl Show for SettingList {
    fn text(&self) -> String {
        self.rows().text("there are no settings")
    }

    fn json(&self) -> Value {
        let settings = self.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
        let depth = self.depth.map(|depth| ("queue_depth_now".to_owned(), json!(depth)));
        Value::Object(settings.chain(depth).collect::<Map<_, _>>())
    }

    fn ids(&self) -> Vec<String> {
        match self.settings.as_slice() {
            // Its name is known.
            [(_, value)] => vec![value.clone()],
            all => all.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

pub(super) struct Audit {
    pub(super) changes: Vec<AuditEntry>,
    pub(super) now: Time,
}

impl Audit {
    fn rows(&self, time: impl Fn(Time) -> String) -> Table {
        let columns = ["@at", "~by", "action", "~what", "~old", "~new"];
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(self.now));
        for change in &self.changes {
            table.row(vec![
                time(change.at),
                change.by.clone(),
                change.action.clone(),
                plain(&change.subject),
                change.old.clone(),
                plain(&change.new),
            ]);
        }
        table
    }
}

impl Show for Audit {
    fn text(&self) -> String {
        self.rows(|time| stamp::short(time, self.now)).text("nothing was changed yet")
    }

    fn json(&self) -> Value {
        json!({"changes": self.changes.iter().map(json::audit_entry).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.changes.iter().map(|change| change.subject.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(stamp::iso_secs))
    }
}

/// Parses microseconds from `5ms`, `250us` or `1.5ms`.
fn latency(text: &str) -> Result<u32, &'static str> {
    let (number, micros) = match text.strip_suffix("us") {
        Some(number) => (number, 1.0),
        None => match text.strip_suffix("ms") {
            Some(number) => (number, 1e3),
            None => (text.strip_suffix('s').unwrap_or_default(), 1e6),
        },
    };
    let latency = number.trim().parse::<f64>().ok().map(|number| (number * micros).round());
    let latency = latency.filter(|latency| (0.0..=f64::from(u32::MAX)).contains(latency));
    latency.map(|latency| latency as u32).ok_or("write a time like 5ms, 250us or 0.2s")
}

struct LinkDone {
    clusters: [String; 2],
    latency_us: u32,
    bandwidth_mbit: u32,
}

impl Show for LinkDone {
    fn text(&self) -> String {
        let [a, b] = &self.clusters;
        let bandwidth = match self.bandwidth_mbit {
            0 => "an unknown bandwidth".to_owned(),
            mbit => format!("{mbit} Mbit/s"),
        };
        format!("between {a} and {b}: {} ms, {bandwidth}\n", f64::from(self.latency_us) / 1e3)
    }

    fn json(&self) -> Value {
        json!({"clusters": self.clusters, "latency_us": self.latency_us, "bandwidth_mbit": self.bandwidth_mbit})
    }

    fn ids(&self) -> Vec<String> {
        self.clusters.to_vec()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

pub(super) struct NodesDone {
    pub(super) word: &'static str,
    pub(super) nodes: Vec<String>,
}

impl Show for NodesDone {
    fn text(&self) -> String {
        screen::folded(&format!("{}: {}\n", hostlist::fold(&self.nodes), self.word), 2)
    }

    fn json(&self) -> Value {
        json!({"word": self.word, "nodes": self.nodes})
    }

    fn ids(&self) -> Vec<String> {
        self.nodes.clone()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

struct Renewed {
    identity: String,
    expires: Time,
}

impl Show for Renewed {
    fn text(&self) -> String {
        format!("the certificate of {} is valid until {}\n", self.identity, stamp::iso_secs(self.expires))
    }

    fn json(&self) -> Value {
        json!({"identity": self.identity, "expires": json::time(Some(self.expires))})
    }

    fn ids(&self) -> Vec<String> {
        vec![stamp::iso_secs(self.expires)]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Generation, Inventory};

    use super::*;

    #[test]
    fn latencies_read_with_their_units() {
        for (text, expected) in [("5ms", 5000), ("250us", 250), ("1.5ms", 1500), ("0.2s", 200_000), ("0us", 0)] {
            assert_eq!(latency(text), Ok(expected), "{text}");
        }
        for text in ["", "5", "ms", "-1ms", "1h", "9999999s", "NaNms"] {
            assert!(latency(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_node_that_stays_drained_says_why() {
        let node = NodeLine {
            name: "a1".to_owned(),
            cluster: "a".to_owned(),
            state: NodeState::Drained,
            reason: Some("its spool is full".to_owned()),
            since: Time::EPOCH,
            inventory: Inventory::default(),
            free: None,
            address: String::new(),
            generation: Generation(1),
            jobs: Vec::new(),
        };
        assert_eq!(still_drained(&node), "node a1 has drained itself and stays drained: its spool is full");
    }
}
