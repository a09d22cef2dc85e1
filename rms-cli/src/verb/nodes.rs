//! `rms nodes`: lists the nodes, their states and their resources.

use std::collections::BTreeSet;

use launcher_sdk::NodeList;
use rms_api::answer::{NodeLine, NodeState};
use rms_api::filter::{NodeColumn, NodeFilter, Way, column};
use rms_api::negotiate::NegotiationLine;
use rms_model::plain::plain;
use rms_model::{JobId, Slice, hostlist};
use serde_json::{Value, json};

use crate::context::Context;
use crate::explain;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::listing::{self, node_states, time};
use crate::output::Show;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms nodes                      all nodes, identical ones on one line
  rms nodes 'a[1-4]'             some, each on a line of its own
  rms nodes --each               all, each on a line of its own
  rms nodes -M a                 those of one cluster
  rms nodes -t down,drained      those in these states
  rms nodes --me                 those of your jobs
  rms nodes --since -1h          what came, went or was drained lately
  rms nodes --json
Nodes are sorted by name, n2 before n10. A line for several nodes shows the CPUs
and the memory of each of them, and under 'free' what all of them have together.
'Unenforced' lists the limits that the kernel of a node does not enforce: cpus,
memory, devices; the log of its agent says why.
States: idle, busy, offered (kept for a running job that may have it), ghost
(kept free for fairness), draining, drained, down, away (its agent does not
respond), lost")]
pub struct Args {
    /// Only these nodes: a1,a[2-4]
    #[arg(value_name = "NODES")]
    nodes: Option<String>,
    /// Only these nodes, as NODES
    #[arg(long, value_name = "NODES", conflicts_with = "nodes")]
    name: Option<String>,
    /// Only nodes of these clusters
    #[arg(short = 'M', long, alias = "cluster", value_name = "NAMES", value_delimiter = ',')]
    clusters: Vec<String>,
    /// Only nodes in these states; offered nodes count as idle
    #[arg(short = 't', long, short_alias = 's', value_name = "STATES", value_delimiter = ',', value_parser = node_states())]
    state: Vec<NodeState>,
    /// Only nodes that jobs of these users have
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    user: Vec<String>,
    /// Only nodes that your own jobs have
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Only nodes that connected, or were drained, downed or lost, since this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Sort by these columns, in descending order with '-': state,-memory
    #[arg(short = 'S', long, value_name = "COLUMNS", value_delimiter = ',', value_parser = column::<NodeColumn>, allow_hyphen_values = true)]
    sort: Vec<(NodeColumn, Way)>,
    /// Show at most this many; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    limit: u32,
    /// Skip this many first
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    offset: u64,
    /// Print one line for each node
    #[arg(long)]
    each: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let since = time("since", args.since.as_deref())?;
    let wanted = args.nodes.or(args.name).as_deref().map(hostlist::expand).transpose()?;
    let client = context.client().await?;
    let each = args.each || wanted.is_some();
    let filter = NodeFilter {
        names: wanted.unwrap_or_default(),
        users: if args.me { vec![listing::me(&client).await?] } else { args.user },
        states: args.state,
        clusters: args.clusters,
        sort: args.sort,
        limit: args.limit,
        offset: args.offset,
        since,
    };
    let is_all = filter == NodeFilter::default();
    let list = client.nodes_of(filter).await?;
    let (_, negotiations) = client.negotiations(None).await?;
    context.output.show(&NodesAnswer { list, negotiations, each, is_all })?;
    Ok(Exit::OK)
}

/// The answer with the nodes.
#[derive(Clone, Debug)]
pub struct NodesAnswer {
    pub list: NodeList,
    /// Open negotiations, some of which may hold nodes that no job has yet.
    pub negotiations: Vec<NegotiationLine>,
    /// Whether people get a line for each node, instead of one for all similar nodes.
    pub each: bool,
    /// Whether no filter was given.
    pub is_all: bool,
}

impl Show for NodesAnswer {
    fn text(&self) -> String {
        let empty = match self.is_all {
            true => {
                "no node has joined yet: make a token with 'rms token create --role agent', and start an agent with it"
            }
            false => "no such node",
        };
        if self.each { self.table_of(true).text(empty) } else { self.summary().text(empty) }
    }

    fn json(&self) -> Value {
        let clusters = self.list.clusters.iter().map(|(_, name)| name).collect::<Vec<_>>();
        let node = |node: &NodeLine| {
            let mut value = json::node(node);
            value["held_for"] = match self.holder(node) {
                Some(line) => json!({"job": line.job.0, "negotiation": line.record.id.to_string()}),
                None => Value::Null,
            };
            value
        };
        let nodes = self.list.nodes.iter().map(node).collect::<Vec<_>>();
        json!({"now": json::time(Some(self.list.now)), "clusters": clusters, "nodes": nodes})
    }

    fn ids(&self) -> Vec<String> {
        self.list.nodes.iter().map(|node| node.name.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.table_of(false))
    }
}

impl NodesAnswer {
    /// Returns the table in which nodes that differ only in their names, their jobs and the time in their state share a
    /// line.
    fn summary(&self) -> Table {
        let head = ["!nodes", ">count", "cluster", "state", ">cpus", ">memory", "?>speed", "?~features"];
        let columns = [&head[..], &self.sharing(), &["?~jobs", "?@since", "!reason"]].concat();
        let now = self.list.now;
        let mut groups: Vec<(Vec<String>, Vec<&NodeLine>)> = Vec::new();
        for node in &self.list.nodes {
            let alike = self.description(node, true);
            match groups.iter_mut().find(|(of_group, _)| *of_group == alike) {
                Some((_, nodes)) => nodes.push(node),
                None => groups.push((alike, vec![node])),
            }
        }
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(now));
        for (mut row, nodes) in groups {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            let jobs: BTreeSet<JobId> = nodes.iter().flat_map(|node| node.jobs.iter().copied()).collect();
            let since = nodes.iter().map(|node| node.since).max().unwrap_or(now);
            let reason = row.pop();
            row.splice(0..0, [hostlist::fold(&names), nodes.len().to_string()]);
            row.extend(self.shares().then(|| free(&nodes)));
            row.push(jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
            row.push(stamp::short(since, now));
            row.extend(reason);
            table.row(row);
        }
        table
    }

    /// Returns the cluster, state and hardware of a node, and finally why it is not used.
    fn description(&self, node: &NodeLine, brief: bool) -> Vec<String> {
        // No job has it, and no other job can get it: it is not idle for a user who looks for nodes.
        let is_offered = brief && node.state == NodeState::Idle && self.holder(node).is_some();
        let mut row = vec![
            node.cluster.clone(),
            if is_offered { "offered".to_owned() } else { node.state.word().to_owned() },
            node.inventory.cpus.to_string(),
            memory(node),
            format!("{:.2}", f64::from(node.inventory.speed_milli) / 1000.0),
            node.inventory.features.iter().cloned().collect::<Vec<_>>().join(","),
        ];
        row.extend(self.has_devices().then(|| node.inventory.devices.to_string()));
        row.push(self.reason(node));
        row
    }

    fn has_devices(&self) -> bool {
        self.list.nodes.iter().any(|node| !node.inventory.devices.is_empty())
    }

    fn shares(&self) -> bool {
        self.list.nodes.iter().any(|node| node.free.is_some())
    }

    /// Returns the columns that are needed only if a node has devices, or is shared.
    fn sharing(&self) -> Vec<&'static str> {
        let columns = [(self.has_devices(), "?~devices"), (self.shares(), "?~free")];
        columns.into_iter().filter_map(|(is_there, column)| is_there.then_some(column)).collect()
    }

    fn table_of(&self, brief: bool) -> Table {
        let head = ["node", "cluster", "state", ">cpus", ">memory", "?>speed", "?~features"];
        let is_lax = self.list.nodes.iter().any(|node| !node.inventory.unenforced.is_empty());
        let unenforced = is_lax.then_some("?~unenforced");
        let columns = [&head[..], &self.sharing(), unenforced.as_slice(), &["~jobs", "?@since", "!reason"]].concat();
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(self.list.now));
        for node in &self.list.nodes {
            let since = if brief { stamp::short(node.since, self.list.now) } else { stamp::iso_secs(node.since) };
            let mut row = self.description(node, brief);
            let reason = row.pop();
            row.insert(0, node.name.clone());
            row.extend(self.shares().then(|| free(&[node])));
            let unenforced = || node.inventory.unenforced.iter().cloned().collect::<Vec<_>>().join(",");
            row.extend(is_lax.then(unenforced));
            row.push(node.jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
            row.push(since);
            row.extend(reason);
            table.row(row);
        }
        table
    }

    fn reason(&self, node: &NodeLine) -> String {
        let held =
            self.holder(node).map(|line| format!("{} ({})", explain::offer(line, self.list.now), line.record.id));
        let reason = node.reason.as_deref().map(plain);
        [reason, held].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Returns the negotiation for which the node is held.
    fn holder(&self, node: &NodeLine) -> Option<&NegotiationLine> {
        self.negotiations.iter().find(|line| line.held.contains(&node.name))
    }
}

/// Returns the total of the free resources of shared nodes, `12 cores, 20G, gpu:1`, or `-` if no job can start there.
fn free(nodes: &[&NodeLine]) -> String {
    let mut slices =
        nodes.iter().filter_map(|node| node.free.as_ref().filter(|_| json::is_usable(node.state))).peekable();
    if slices.peek().is_none() {
        let is_shared = nodes.iter().any(|node| node.free.is_some());
        return if is_shared { "-".to_owned() } else { String::new() };
    }
    let sum = slices.fold(Slice::default(), |mut sum, slice| {
        sum.cores = sum.cores.saturating_add(slice.cores);
        sum.memory.0 = sum.memory.0.saturating_add(slice.memory.0);
        slice.devices.iter().for_each(|(name, count)| sum.devices.add(name, count));
        sum
    });
    let devices = Some(sum.devices.to_string()).filter(|devices| !devices.is_empty());
    let cores = if sum.cores == 1 { "1 core".to_owned() } else { format!("{} cores", sum.cores) };
    let parts: Vec<String> = [cores, size(sum.memory.0)].into_iter().chain(devices).collect();
    parts.join(", ")
}

fn memory(node: &NodeLine) -> String {
    size(node.inventory.memory.0)
}

fn size(mebibytes: u64) -> String {
    if mebibytes >= 10 * 1024 { format!("{}G", mebibytes / 1024) } else { format!("{mebibytes}M") }
}
