//! `rms up`: starts a whole cluster of real processes on this machine, for one user.

use std::net::IpAddr;
use std::path::PathBuf;

use rms_model::hostlist;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::embedded::build::{Built, Changes, build};
use crate::embedded::layout::Layout;
use crate::embedded::ledger::UpDir;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
A server and node agents run in the background as this user, over loopback, with
real certificates. If the cluster exists already, those of its processes that do
not run are started again with their data.

Examples:
  rms up                                 one cluster 'a' of four nodes a1 to a4
  rms up --nodes 8
  rms up --clusters a:4,b:8              two clusters
  rms up --topology 'pack:2 core:24 pu:1'  nodes that count more CPUs than this
                                           machine has
  rms up --dir ./play                    in another directory; RMS_DIR=./play
                                         then leads there")]
pub struct Args {
    /// Nodes of the one cluster 'a'; 4 if absent
    #[arg(long, value_name = "COUNT", conflicts_with = "clusters")]
    nodes: Option<u32>,
    /// Clusters by name and number of nodes: a:4,b:8
    #[arg(long, value_name = "LIST")]
    clusters: Option<Layout>,
    /// Topology of each node, in hwloc's synthetic notation; that of this machine if absent
    #[arg(long, value_name = "TEXT")]
    topology: Option<String>,
    /// Address of this machine to listen on; 127.0.0.1 if absent, where each node has an address of its own
    #[arg(long, value_name = "IP")]
    listen: Option<IpAddr>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let layout = match args.nodes {
        Some(n_nodes) => Some(Layout::of_nodes(n_nodes).map_err(Failure::usage)?),
        None => args.clusters,
    };
    let changes = Changes { layout, topology: args.topology, listen: args.listen };
    let dir = up_dir(context)?;
    let built = build(&dir, &changes).await?;
    let is_usual = context.dir.is_none();
    context.output.show(&UpAnswer { built, root: dir.root, is_usual })?;
    Ok(Exit::OK)
}

/// Returns the absolute directory of the embedded cluster, because the daemons start in another directory.
pub fn up_dir(context: &Context) -> Result<UpDir, Failure> {
    let dir = match &context.dir {
        Some(dir) => dir.clone(),
        None => context.places.up_dir()?,
    };
    let root = std::path::absolute(&dir).map_err(|error| Failure::io(format!("{}", dir.display()), error))?;
    Ok(UpDir { root })
}

struct UpAnswer {
    built: Built,
    root: PathBuf,
    is_usual: bool,
}

impl UpAnswer {
    fn clusters(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.built.ledger.layout.0.iter().map(|(cluster, _)| {
            let nodes = self.built.ledger.nodes.iter().filter(|node| node.cluster == *cluster);
            (cluster.as_str(), nodes.map(|node| node.name.as_str()).collect())
        })
    }

    fn is_untouched(&self) -> bool {
        !self.built.server_started && self.built.started.is_empty()
    }
}

impl Show for UpAnswer {
    fn text(&self) -> String {
        let mut text = String::new();
        for (cluster, nodes) in self.clusters() {
            let what = if nodes.len() == 1 { "node" } else { "nodes" };
            let word = if self.is_untouched() { "is up already" } else { "is up" };
            text += &format!("cluster {cluster} {word}: {} {what}, {}\n", nodes.len(), hostlist::fold(&nodes));
        }
        if self.built.is_old && !self.is_untouched() {
            let server = self.built.server_started.then(|| "the server".to_owned());
            let nodes = Some(hostlist::fold(&self.built.started)).filter(|nodes| !nodes.is_empty());
            let again: Vec<String> = server.into_iter().chain(nodes).collect();
            text += &format!("started again: {}\n", again.join(", "));
        }
        text += &format!("server at {}, data and logs in {}\n\n", self.built.server, self.root.display());
        if !self.is_usual {
            text += &format!("  export RMS_DIR={}     so that rms finds it\n", self.root.display());
        }
        let largest = self.clusters().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
        text += "  rms nodes                    what there is\n";
        text += match largest {
            0 | 1 => "  rms run hostname             a program on a node\n",
            _several => "  rms run -N 2 hostname        a program on two nodes\n",
        };
        text += "  rms submit --wrap 'sleep 60' a job for the queue
  rms queue                    what waits and runs
  rms view                     the occupation over time
  rms down                     stop it all, and remove jobs, history and logs
  rms down --keep              stop it; 'rms up' starts it again
";
        text
    }

    fn json(&self) -> Value {
        let clusters = self.clusters().map(|(cluster, nodes)| (cluster.to_owned(), json!(nodes)));
        json!({
            "dir": self.root.display().to_string(),
            "client_dir": self.root.join(crate::place::EMBEDDED_CLIENT).display().to_string(),
            "server": self.built.server,
            "clusters": clusters.collect::<Map<_, _>>(),
            "server_started": self.built.server_started,
            "nodes_started": self.built.started,
            "was_there": self.built.is_old,
        })
    }

    fn ids(&self) -> Vec<String> {
        self.built.ledger.nodes.iter().map(|node| node.name.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
