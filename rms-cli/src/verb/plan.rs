//! `rms plan`: previews each size from a live view, without submitting anything.

use rms_api::answer::{ClusterView, ViewAnswer};
use rms_api::call::{Nodes, Shape};
use rms_model::time::parse_wall;
use rms_model::{Span, Time};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::model_options::{ModelError, ModelOptions};
use crate::output::Show;
use crate::size::{NodeCount, Shapes};
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
For each size, it shows the cluster where the job would end first if it were
submitted now, behind all waiting jobs; a * marks the best one, which is what
'rms submit' with the same flags would choose. Features and memory of nodes are
ignored. Where jobs share nodes, it plans whole nodes, as with
'submit --exclusive'; 'rms submit --test-only' says when a part of them would be
free.

With --amdahl or --downey, --time is the time on one node, or on as many as
--time-on says.

Examples:
  rms plan -N 1-64 --amdahl 0.95 --time 20h
                                           by Amdahl's law, 20 hours on one node
  rms plan -N 1-64 --amdahl 0.95 --time 1h --time-on 16
  rms plan -N 2+ --downey 12,0.5 --time 20h        by Downey's model
  rms plan --table times.txt               by measured times: lines like '4 35m'
  rms plan --shapes 2x1h,4x35m             by sizes and times on the command
                                           line
  rms submit -N $(rms plan -q -N 1-8 --amdahl 0.9 --time 4h) -t 1h job.sh")]
pub struct Args {
    /// Nodes: 4, 1-16, 1-15:4 (in steps), 2+ (or more)
    #[arg(short = 'N', long, value_name = "COUNT", required_unless_present_any = ["table", "shapes"])]
    nodes: Option<NodeCount>,
    /// Wall time of every size, or, with a model, on one node: 90s, 1h30m, 30 (minutes), HH:MM:SS
    #[arg(short = 't', long, value_name = "SPAN", value_parser = parse_wall, required_unless_present_any = ["table", "shapes"])]
    time: Option<Span>,
    /// Sizes, each with its wall time: 2x1h,4x35m; instead of -N and -t
    #[arg(long, value_name = "LIST", conflicts_with_all = ["nodes", "time"])]
    shapes: Option<Shapes>,
    #[command(flatten)]
    model: ModelOptions,
    /// Clusters that the job may use: a,b; any if absent
    #[arg(short = 'M', long, value_name = "NAMES", value_delimiter = ',')]
    clusters: Vec<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let mut view = client.view(None).await?;
    if let Some(unknown) = args.clusters.iter().find(|name| view.clusters.iter().all(|cluster| cluster.name != **name))
    {
        let failure = Failure::new("no_such_cluster", format!("there is no cluster '{unknown}'"));
        return Err(failure.hint("'rms nodes' shows which there are"));
    }
    view.clusters.retain(|cluster| args.clusters.is_empty() || args.clusters.contains(&cluster.name));
    let largest = view.clusters.iter().map(|cluster| cluster.total).max().unwrap_or(0);
    let shapes = shapes(&args, largest)?;
    let plan = Plan::of(&view, &shapes);
    if plan.sizes.is_empty() {
        let failure = Failure::new("too_many_nodes", "no cluster has enough usable nodes for any of these sizes");
        return Err(failure.hint("'rms nodes' shows how many there are"));
    }
    context.output.show(&plan)?;
    Ok(Exit::OK)
}

fn shapes(args: &Args, largest: u32) -> Result<Vec<Shape>, ModelError> {
    if let Some(Shapes(shapes)) = &args.shapes {
        return Ok(shapes.clone());
    }
    let is_wanted = |n_nodes| args.nodes.as_ref().is_none_or(|nodes| nodes.allows(n_nodes));
    if let Some(listed) = args.model.listed(is_wanted)? {
        return Ok(listed);
    }
    let counted = args.nodes.as_ref().map(|nodes| nodes.shapes(args.time, || largest)).unwrap_or_default();
    args.model.timed(counted, args.time)
}

/// The start and end of each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub now: Time,
    pub sizes: Vec<Planned>,
    /// The index of the size that ends first; among equals, the one with more nodes.
    pub best: usize,
}

/// One size, on the cluster where it ends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub nodes: u32,
    /// Nodes as `rms` writes them: the cluster's name, or each with its number.
    pub place: String,
    pub wall: Span,
    pub start: Time,
}

impl Planned {
    fn end(&self) -> Time {
        self.start + self.wall
    }
}

impl Plan {
    /// Returns the sizes in ascending order, without those that fit nowhere.
    pub fn of(view: &ViewAnswer, shapes: &[Shape]) -> Plan {
        let mut sizes: Vec<Planned> = shapes.iter().filter_map(|shape| planned(view, shape)).collect();
        sizes.sort_by_key(|planned| planned.nodes);
        let key = |(_, planned): &(usize, &Planned)| (planned.end(), std::cmp::Reverse(planned.nodes));
        let best = sizes.iter().enumerate().min_by_key(key).map_or(0, |(idx, _)| idx);
        Plan { now: view.now, sizes, best }
    }
}

/// Returns the plan for this size on the cluster where it ends first.
fn planned(view: &ViewAnswer, shape: &Shape) -> Option<Planned> {
    let wall = shape.wall?;
    match &shape.nodes {
        Nodes::Count(nodes) => {
            let on = |cluster: &ClusterView| Some((free(cluster, *nodes, wall, view.now)?, cluster.name.clone()));
            let (start, place) = view.clusters.iter().filter_map(on).min_by_key(|(start, _)| *start)?;
            Some(Planned { nodes: *nodes, place, wall, start })
        }
        Nodes::PerCluster(counts) => {
            let start = together(view, counts, wall)?;
            let place: Vec<String> = counts.iter().map(|(name, nodes)| format!("{name}:{nodes}")).collect();
            Some(Planned { nodes: counts.values().sum(), place: place.join(","), wall, start })
        }
        // Only tasks without a size have this, and a plan is about sizes.
        Nodes::FromTasks => None,
    }
}

/// Returns when `nodes` nodes of a cluster are first free for `wall`.
fn free(cluster: &ClusterView, nodes: u32, wall: Span, from: Time) -> Option<Time> {
    let occupied = occupied(cluster);
    occupied.first_hole(i64::from(cluster.capacity), i64::from(nodes), wall, from).map(|hole| hole.start)
}

fn occupied(cluster: &ClusterView) -> rms_model::Profile {
    let mut occupied = cluster.started.clone();
    occupied += &cluster.ghosts;
    occupied += &cluster.planned;
    occupied += &cluster.offered;
    occupied
}

/// Returns when the nodes of several clusters are free at once: each cluster in turn moves the start, until none does.
fn together(view: &ViewAnswer, counts: &std::collections::BTreeMap<String, u32>, wall: Span) -> Option<Time> {
    let mut start = view.now;
    loop {
        let before = start;
        for (name, nodes) in counts {
            let cluster = view.clusters.iter().find(|cluster| cluster.name == *name)?;
            start = free(cluster, *nodes, wall, start)?;
        }
        if start == before {
            return Some(start);
        }
    }
}

impl Show for Plan {
    fn text(&self) -> String {
        let mut table = Table::new(&["", ">nodes", "place", "wall", "starts", "ends"]);
        let moment = |time: Time| match time <= self.now {
            true => "now".to_owned(),
            false => format!("in {}", stamp::brief(time.since(self.now))),
        };
        for (idx, planned) in self.sizes.iter().enumerate() {
            let mark = if idx == self.best { "*" } else { "" };
            table.row(vec![
                mark.to_owned(),
                planned.nodes.to_string(),
                planned.place.clone(),
                planned.wall.to_string(),
                moment(planned.start),
                moment(planned.end()),
            ]);
        }
        table.text("no size fits")
    }

    fn json(&self) -> Value {
        let size = |(idx, planned): (usize, &Planned)| {
            json!({
                "nodes": planned.nodes,
                "place": planned.place,
                "wall_ms": json::span(planned.wall),
                "start": json::time(Some(planned.start)),
                "end": json::time(Some(planned.end())),
                "best": idx == self.best,
            })
        };
        let sizes: Vec<Value> = self.sizes.iter().enumerate().map(size).collect();
        json!({"now": json::time(Some(self.now)), "sizes": sizes})
    }

    /// Returns only the best number of nodes.
    fn ids(&self) -> Vec<String> {
        self.sizes.get(self.best).map(|planned| planned.nodes.to_string()).into_iter().collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["best", "nodes", "place", "wall_ms", "start", "end"]);
        for (idx, planned) in self.sizes.iter().enumerate() {
            table.row(vec![
                u8::from(idx == self.best).to_string(),
                planned.nodes.to_string(),
                planned.place.clone(),
                planned.wall.as_millis().to_string(),
                stamp::iso(planned.start).unwrap_or_default(),
                stamp::iso(planned.end()).unwrap_or_default(),
            ]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rms_model::{ClusterId, Profile};

    use super::*;

    /// Returns a view: cluster a has 8 nodes, of which 6 are busy for 100 s; b has 4, all of them ghosts for 10 s.
    fn view() -> ViewAnswer {
        let now = Time::from_secs(1000);
        let busy = |secs, nodes| Profile::from_pairs(now, [(Span::from_secs(secs), nodes)]);
        let cluster = |id, name: &str, capacity, started, ghosts| ClusterView {
            cluster: ClusterId(id),
            name: name.to_owned(),
            capacity,
            total: capacity,
            started,
            ghosts,
            planned: Profile::new(),
            offered: Profile::new(),
            choosable: None,
            cores: None,
        };
        let clusters =
            vec![cluster(0, "a", 8, busy(100, 6), Profile::new()), cluster(1, "b", 4, Profile::new(), busy(10, 4))];
        ViewAnswer { now, job: None, clusters }
    }

    fn check(text: &str, best: u32, expected: &[(u32, &str, i64)]) {
        let Shapes(shapes) = text.parse().expect("shapes");
        let view = view();
        let plan = Plan::of(&view, &shapes);
        let sizes: Vec<(u32, &str, i64)> = plan
            .sizes
            .iter()
            .map(|planned| (planned.nodes, planned.place.as_str(), planned.start.since(view.now).as_millis() / 1000))
            .collect();
        assert_eq!(sizes, expected);
        assert_eq!(plan.sizes[plan.best].nodes, best);
    }

    #[test]
    fn each_size_goes_where_it_starts_first_and_the_earliest_end_is_the_best() {
        check("2x1h,4x35m,8x20m", 8, &[(2, "a", 0), (4, "b", 10), (8, "a", 100)]);
        check("2x60s,4x55s,9x1s", 2, &[(2, "a", 0), (4, "b", 10)]);
        // They would end at the same time: more nodes win.
        check("2x60s,4x50s", 4, &[(2, "a", 0), (4, "b", 10)]);
        check("a:3+b:4x1h", 7, &[(7, "a:3,b:4", 100)]);
    }

    #[test]
    fn nodes_of_clusters_that_are_not_there_are_no_plan() {
        let shape =
            Shape { nodes: Nodes::PerCluster(BTreeMap::from([("z".into(), 1)])), wall: Some(Span::from_secs(1)) };
        assert!(Plan::of(&view(), &[shape]).sizes.is_empty());
    }
}
