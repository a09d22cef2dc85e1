//! `rms view`: draws the occupation of the clusters as the scheduler sees it.

use std::path::PathBuf;

use rms_api::answer::ViewAnswer;
use rms_model::Span;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::look_up;
use crate::output::{self, Form, Show};
use crate::screen;
use crate::select;
use crate::stamp;
use crate::table::Table;
use crate::view::blocks::{self, Canvas};
use crate::view::segments::{Unit, Window, cut};
use crate::view::svg;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms view                       the present and the planned future, in the
                                 terminal
  rms view --job 7               as waiting job 7 sees it: what delays it
  rms view --svg view.svg        as a picture
  rms view --span 2h -M a        the next two hours of cluster a
Where jobs share nodes, cores are drawn; ghosts and offers count as started.
With --parsable and in the profiles of --json outside 'cores', a node of which
a job has any core is taken.")]
pub struct Args {
    /// Show the view of this waiting job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Write an SVG picture to this file (- for standard output)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Time to look ahead; until the last known end if absent
    #[arg(long, value_name = "SPAN")]
    span: Option<Span>,
    /// Only these clusters
    #[arg(short = 'M', long, value_name = "NAMES", value_delimiter = ',')]
    clusters: Vec<String>,
    /// Width of the drawing in characters; that of the terminal if absent
    #[arg(long, value_name = "COUNT")]
    width: Option<u16>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let which = args.job.as_deref().map(select::one).transpose()?;
    let client = context.client().await?;
    let job = match which {
        Some(which) => Some(look_up::one(&client, which).await?),
        None => None,
    };
    let mut view = client.view(job).await?;
    view.clusters.retain(|cluster| args.clusters.is_empty() || args.clusters.contains(&cluster.name));
    if view.clusters.is_empty() && !args.clusters.is_empty() {
        let failure = Failure::new("no_such_cluster", format!("there is no cluster {}", args.clusters.join(", ")));
        return Err(failure.hint("'rms nodes' shows which there are"));
    }
    let window = Window::of(view.now, &view.clusters, args.span);
    if let Some(file) = &args.svg {
        let picture = svg::draw(&view.clusters, view.now, view.job, window);
        let is_json = context.output.form() == Form::Json;
        let value = |value: Value| output::write_out(format!("{value}\n").as_bytes());
        if file.as_os_str() == "-" {
            if is_json { value(json!({"svg": picture})) } else { output::write_out(picture.as_bytes()) }?;
        } else {
            let written = std::fs::write(file, picture);
            written.map_err(|error| Failure::io(format!("{} cannot be written", file.display()), error))?;
            context.output.note(&format!("written to {}", file.display()));
            if is_json {
                value(json!({"file": file.display().to_string()}))?;
            }
        }
        return Ok(Exit::OK);
    }
    let of_terminal = || output::is_terminal().then(screen::columns);
    let width = args.width.map(usize::from).or_else(of_terminal).unwrap_or(DEFAULT_WIDTH);
    let canvas = Canvas { width, height: 12, colours: output::colours() };
    context.output.show(&Drawing { view, window, canvas })?;
    Ok(Exit::OK)
}

const DEFAULT_WIDTH: usize = 100;

/// Profiles and how to draw them.
#[derive(Clone, Debug)]
pub struct Drawing {
    pub view: ViewAnswer,
    pub window: Window,
    pub canvas: Canvas,
}

impl Show for Drawing {
    fn text(&self) -> String {
        if self.view.clusters.is_empty() {
            return "there is no cluster yet: no node has joined\n".to_owned();
        }
        blocks::draw(&self.view.clusters, self.view.now, self.window, self.canvas)
    }

    fn json(&self) -> Value {
        let clusters: Vec<Value> = self.view.clusters.iter().map(json::cluster_view).collect();
        json!({
            "now": json::time(Some(self.view.now)),
            "job": self.view.job.map(|job| job.0),
            "clusters": clusters,
        })
    }

    fn ids(&self) -> Vec<String> {
        self.view.clusters.iter().map(|cluster| cluster.name.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table =
            Table::new(&["cluster", "from", "until", "started", "ghosts", "planned", "capacity", "offered"]);
        for cluster in &self.view.clusters {
            for segment in cut(cluster, Unit::Nodes, self.window) {
                table.row(vec![
                    cluster.name.clone(),
                    stamp::iso(segment.from).unwrap_or_default(),
                    stamp::iso(segment.until).unwrap_or_default(),
                    segment.started.to_string(),
                    segment.ghosts.to_string(),
                    segment.planned.to_string(),
                    cluster.capacity.to_string(),
                    segment.offered.to_string(),
                ]);
            }
        }
        Some(table)
    }
}
