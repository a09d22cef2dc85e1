//! `rms negotiate`: requests more or less of something for a running job, and waits for the outcome.

use std::pin::pin;

use launcher_sdk::{CallError, Client};
use negotiation::{Direction, NegotiationId, Price, Side};
use rms_api::negotiate::{Ask, AskOutcome, Asked, NegotiationLine, Order};
use rms_model::{Devices, JobId, Sizes, Span, hostlist};
use serde_json::{Value, json};

use crate::context::Context;
use crate::count;
use crate::failure::{Exit, Failure};
use crate::inside;
use crate::interrupt::Interrupts;
use crate::look_up;
use crate::memory::{Memory, MemoryError};
use crate::names::ClusterNames;
use crate::negotiations;
use crate::output::Show;
use crate::resource_options::{Gpus, Gres, Licences};
use crate::select::{self, One};
use crate::size_range;
use crate::stamp;
use crate::table::Table;
use rms_api::terms;

#[derive(clap::Args, Debug)]
#[command(
    override_usage = "rms negotiate [JOB] <--grow COUNT | --shrink COUNT | …> [OPTIONS]",
    after_help = "\
Inside a job, it negotiates for that job, with the job's own credentials;
elsewhere, name the job. It prints the nodes that were added or removed, once
they can be used, or are free.

Ctrl-C, TERM and HUP withdraw the request, unless it has been agreed to.

Exit codes: 0 granted, 1 refused (the message says why; with --json error.kind
is the reason), 128 + signal withdrawn after a signal

Examples:
  rms negotiate 7 --grow 4                 four more nodes, now or not at all
  rms negotiate --grow 4 --accept-at-least 2 --wait 5m
                                           four if possible, two would do; wait
                                           up to 5 minutes for them
  rms negotiate --grow 12 --accept-at-least 1 --sizes pow2
                                           as many as make the total a power of
                                           two
  rms negotiate --grow 2 --for 10m                  two nodes for ten minutes
  rms negotiate 7 --grow 4 -M b            four nodes of another cluster
  rms negotiate --shrink 2 --nodes a3,a4            give these back
  rms negotiate --shrink-cores 6 --on a2   six fewer cores of a2; its threads
                                           are moved to the others
  rms negotiate --grow-cores 6 --accept-at-least 1
                                           up to six more on each of its nodes,
                                           as far as they have them
  rms negotiate --shrink-memory 8G         8 GiB less on each node; where jobs
                                           share nodes, others get it at once
  rms negotiate --grow-gpus a100:1 --on a2 --wait 5m
                                           one more GPU of that type on a2
  rms negotiate --grow-licences matlab:2   two more licences of its cluster
  rms negotiate --extend 30m               thirty more minutes of wall time"
)]
pub struct Args {
    /// Which job: an id, or last; $RMS_JOB_ID if absent
    #[arg(value_name = "JOB")]
    job: Option<String>,
    #[command(flatten)]
    change: Change,
    /// Nodes on which to change cores, memory or devices: a3,a4 or a[3-4]; all of the job's nodes if absent
    #[arg(long, value_name = "NODES", conflicts_with_all = ["grow", "shrink", "extend", "grow_licences", "shrink_licences"])]
    on: Option<String>,
    /// Accept a counter-offer of at least this much, in the unit of the request; of all of it if absent
    #[arg(long, value_name = "COUNT|SIZE|SPAN")]
    accept_at_least: Option<String>,
    /// Totals that are of use, of nodes of the cluster or of a node's resource: pow2, mult=4 or 2,4,8
    #[arg(long, value_name = "SIZES", value_parser = size_range::parse_sizes, conflicts_with = "extend")]
    sizes: Option<Sizes>,
    /// Maximum price per node and hour
    #[arg(long, value_name = "PRICE", value_parser = parse_price, allow_negative_numbers = true)]
    price: Option<Price>,
    /// How long to keep the nodes; until the job ends if absent
    #[arg(long = "for", value_name = "SPAN", conflicts_with_all = NOT_NODES, conflicts_with = "shrink")]
    duration: Option<Span>,
    /// How long to wait for nodes that others hold
    #[arg(long, value_name = "SPAN", default_value = "0s")]
    wait: Span,
    /// Cluster of the nodes; that of the job's first node, or of --nodes, if absent
    #[arg(short = 'M', long, value_name = "NAME", conflicts_with = "extend")]
    cluster: Option<String>,
    /// Nodes to give back: a3,a4 or a[3-4]; the last ones if absent
    #[arg(long, value_name = "NODES", conflicts_with_all = NOT_NODES, conflicts_with = "grow")]
    nodes: Option<String>,
}

// No doc comment: clap would print it as the help of the verb. What is to change: one of these.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Change {
    /// Get this many more nodes
    #[arg(long, value_name = "COUNT", value_parser = count::parse)]
    grow: Option<u32>,
    /// Give back this many nodes
    #[arg(long, value_name = "COUNT", value_parser = count::parse)]
    shrink: Option<u32>,
    /// Get this many more cores on each of the job's nodes
    #[arg(long, value_name = "COUNT", value_parser = count::parse)]
    grow_cores: Option<u32>,
    /// Give back this many cores on each node
    #[arg(long, value_name = "COUNT", value_parser = count::parse)]
    shrink_cores: Option<u32>,
    /// Get this much more memory on each node: 512M, 4G
    #[arg(long, value_name = "SIZE")]
    grow_memory: Option<Memory>,
    /// Give back this much memory on each node
    #[arg(long, value_name = "SIZE")]
    shrink_memory: Option<Memory>,
    /// Get this many more GPUs on each node: 2, or of one type a100:2
    #[arg(long, value_name = "[TYPE:]COUNT")]
    grow_gpus: Option<Gpus>,
    /// Give back this many GPUs on each node
    #[arg(long, value_name = "[TYPE:]COUNT")]
    shrink_gpus: Option<Gpus>,
    /// Get this many more devices of a name on each node: fpga:1, gpu:a100:2
    #[arg(long, value_name = "NAME:COUNT")]
    grow_gres: Option<Gres>,
    /// Give back this many devices of a name on each node
    #[arg(long, value_name = "NAME:COUNT")]
    shrink_gres: Option<Gres>,
    /// Get this many more licences of the job's cluster: matlab:2
    #[arg(long, alias = "grow-licenses", value_name = "NAME:COUNT")]
    grow_licences: Option<Licences>,
    /// Give back this many licences of the job's cluster
    #[arg(long, alias = "shrink-licenses", value_name = "NAME:COUNT")]
    shrink_licences: Option<Licences>,
    /// Get this much more wall time: 30m, 1h30m
    #[arg(long, value_name = "SPAN")]
    extend: Option<Span>,
}

impl Change {
    /// # Errors
    /// Nothing is requested, or several kinds of devices or licences at once.
    fn asked(self, cluster: Option<String>) -> Result<(Direction, Asked, u64), Failure> {
        let (grow, shrink) = (Direction::Grow, Direction::Shrink);
        let nodes = [(grow, self.grow), (shrink, self.shrink)];
        let cores = [(grow, self.grow_cores), (shrink, self.shrink_cores)];
        let memory = [(grow, self.grow_memory), (shrink, self.shrink_memory)];
        let gpus = [(grow, self.grow_gpus), (shrink, self.shrink_gpus)];
        let gres = [(grow, self.grow_gres), (shrink, self.shrink_gres)];
        let licences = [(grow, self.grow_licences), (shrink, self.shrink_licences)];
        if let Some((direction, count)) = given(nodes) {
            return Ok((direction, Asked::Nodes { cluster }, count.into()));
        }
        if let Some((direction, count)) = given(cores) {
            return Ok((direction, Asked::Cores { cluster }, count.into()));
        }
        if let Some((direction, Memory(memory))) = given(memory) {
            return Ok((direction, Asked::Memory { cluster }, above_zero(memory.0, "a size, like 4G")?));
        }
        if let Some((direction, Gpus(devices))) = given(gpus) {
            let (name, count) = only(&devices, "one kind of GPUs, like 2 or a100:2")?;
            return Ok((direction, Asked::Devices { cluster, name }, count));
        }
        if let Some((direction, Gres(devices))) = given(gres) {
            let (name, count) = only(&devices, "devices of one name, like fpga:1")?;
            return Ok((direction, Asked::Devices { cluster, name }, count));
        }
        if let Some((direction, Licences(licences))) = given(licences) {
            let (name, count) = only(&licences, "one licence, like matlab:2")?;
            return Ok((direction, Asked::Licences { cluster, name }, count));
        }
        Ok((grow, Asked::Time, millis("--extend", self.extend.unwrap_or(Span::ZERO))?))
    }
}

/// Returns the one of two flags that was given.
fn given<T>(flags: [(Direction, Option<T>); 2]) -> Option<(Direction, T)> {
    flags.into_iter().find_map(|(direction, value)| Some((direction, value?)))
}

fn only(devices: &Devices, what: &str) -> Result<(String, u64), Failure> {
    let mut all = devices.iter();
    match (all.next(), all.next()) {
        (Some((name, count)), None) => Ok((name.to_owned(), count.into())),
        (None, _) | (Some(_), Some(_)) => Err(Failure::usage(format!("a change is about {what}"))),
    }
}

fn above_zero(quantity: u64, what: &str) -> Result<u64, Failure> {
    match quantity {
        0 => Err(Failure::usage(format!("write {what}, above zero"))),
        quantity => Ok(quantity),
    }
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let which = match args.job.as_deref() {
        Some(named) => select::one(named)?,
        None => One::Job(inside::job(None)?),
    };
    let ask = ask(args)?;
    let (what, direction) = (ask.what.clone(), ask.direction);
    let client = context.client_inside(which.id()).await?;
    let job = look_up::one(&client, which).await?;
    match outcome(&client, job, ask).await? {
        AskOutcome::Ready { negotiation, quantity, nodes, generation, n_rounds } => {
            let negotiation = negotiation.to_string();
            let granted = Granted { job, negotiation, quantity, what, direction, nodes, generation, n_rounds };
            context.output.show(&granted)?;
            Ok(Exit::OK)
        }
        AskOutcome::Failed { negotiation, reason, short: Some(short), free: _ } => {
            let kind = negotiations::reason_word(reason);
            let message = format!("job {job}, negotiation {negotiation}: {}", terms::shortage(short));
            Err(Failure::new(kind, message).hint("'rms budget' shows what its owner has spent, and what is reserved"))
        }
        AskOutcome::Failed { negotiation, reason, free, short: None } => {
            let kind = negotiations::reason_word(reason);
            let free = free.map(|n_free| format!(" ({n_free} free)")).unwrap_or_default();
            let broken = broken_term(&client, job, negotiation).await;
            let broken = broken.map(|broken| format!(" ({broken})")).unwrap_or_default();
            let failure = Failure::new(kind, format!("job {job}, negotiation {negotiation}: {reason}{free}{broken}"));
            Err(failure.hint(format!("'rms negotiations {job}' tells its rounds")))
        }
    }
}

/// Returns the outcome of the request. A signal withdraws it, unless it has been agreed to.
async fn outcome(client: &Client, job: JobId, ask: Ask) -> Result<AskOutcome, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let direction = ask.direction;
    let mut asked = pin!(client.negotiate(job, ask));
    let failed = |error| match error {
        refused @ CallError::Refused(_) => Failure::from(refused),
        // The request may continue without this process.
        error => Failure::from(error).hint(shows_whether_it_goes_on(job)),
    };
    let signal = tokio::select! {
        outcome = &mut asked => return outcome.map_err(failed),
        interrupt = interrupts.next() => interrupt.number(),
    };
    let exit = Exit(128 + signal as u8);
    withdraw(client, job, direction).await.map_err(|failure| failure.hint(shows_whether_it_goes_on(job)).exit(exit))?;
    match asked.await {
        // It was agreed to just before.
        Ok(ready @ AskOutcome::Ready { .. }) => Ok(ready),
        Ok(AskOutcome::Failed { negotiation, .. }) => {
            Err(Failure::new("interrupted", format!("job {job}, negotiation {negotiation}: withdrawn")).exit(exit))
        }
        Err(error) => Err(failed(error).exit(exit)),
    }
}

fn shows_whether_it_goes_on(job: JobId) -> String {
    format!("'rms negotiations {job}' shows whether it goes on")
}

/// Withdraws the request: the job has one in each direction at most.
async fn withdraw(client: &Client, job: JobId, direction: Direction) -> Result<(), Failure> {
    let (_, lines) = client.negotiations(Some(job)).await?;
    let is_asked =
        |line: &&NegotiationLine| line.record.id.initiator == Side::Application && line.record.direction == direction;
    match lines.iter().filter(is_asked).find(|line| !line.phase.is_over()) {
        Some(line) => Ok(client.order_negotiation(job, line.record.id, Order::Withdraw).await?),
        None => Ok(()),
    }
}

/// Returns the term that was not met, if the rounds show it.
async fn broken_term(client: &Client, job: JobId, negotiation: NegotiationId) -> Option<String> {
    let (_, lines) = client.negotiations(Some(job)).await.ok()?;
    let line = lines.iter().find(|line| line.record.id == negotiation)?;
    let clusters = ClusterNames::new(client.clusters().await.ok()?);
    terms::broken(&line.record, &line.owner, &clusters.allowed(client).await)
}

fn ask(args: Args) -> Result<Ask, Failure> {
    let (direction, what, quantity) = args.change.asked(args.cluster)?;
    let wrong = |what: &dyn std::fmt::Display| Failure::usage(format!("--accept-at-least: {what}"));
    let least = match (&args.accept_at_least, &what) {
        (None, _) => quantity,
        (Some(text), Asked::Nodes { .. } | Asked::Cores { .. } | Asked::Devices { .. } | Asked::Licences { .. }) => {
            count::parse(text).map(u64::from).map_err(|what| wrong(&what))?
        }
        (Some(text), Asked::Memory { .. }) => {
            let memory: Result<Memory, MemoryError> = text.parse();
            memory.map_err(|error| wrong(&error))?.0.0
        }
        (Some(text), Asked::Time) => {
            let span: Span = text.parse().map_err(|error| Failure::usage(format!("--accept-at-least: {error}")))?;
            millis("--accept-at-least", span)?
        }
    };
    if least > quantity {
        return Err(Failure::usage("--accept-at-least is more than what is asked for: write less"));
    }
    let given_back = args.nodes.as_deref().map(hostlist::expand).transpose()?.unwrap_or_default();
    if !given_back.is_empty() && given_back.len() as u64 != quantity {
        let message = format!("--nodes names {} nodes, and --shrink says {quantity}", given_back.len());
        return Err(Failure::usage(message).hint("name as many nodes as are given back"));
    }
    // Each flag is refused where the other one applies.
    let nodes = args.on.as_deref().map(hostlist::expand).transpose()?.unwrap_or(given_back);
    Ok(Ask {
        direction,
        what,
        quantity,
        least,
        sizes: args.sizes.unwrap_or_default(),
        price: args.price.unwrap_or_default(),
        duration: args.duration,
        nodes,
        wait: args.wait,
    })
}

fn millis(flag: &str, span: Span) -> Result<u64, Failure> {
    let millis = u64::try_from(span.as_millis()).ok().filter(|millis| *millis > 0);
    millis.ok_or_else(|| Failure::usage(format!("{flag}: write a span above zero, like 30m")))
}

/// Parses a price in thousandths of the deployment's currency.
fn parse_price(text: &str) -> Result<Price, &'static str> {
    let milli = text.parse::<f64>().ok().map(|price| (price * 1000.0).round());
    let milli = milli.filter(|milli| (0.0..=negotiation::template::MAX_PRICE as f64).contains(milli));
    milli.map(|milli| Price(milli as u64)).ok_or("write a price like 0.5 or 12")
}

/// The flags of changes that are not about nodes.
const NOT_NODES: [&str; 11] = [
    "extend",
    "grow_cores",
    "shrink_cores",
    "grow_memory",
    "shrink_memory",
    "grow_gpus",
    "shrink_gpus",
    "grow_gres",
    "shrink_gres",
    "grow_licences",
    "shrink_licences",
];

/// What was agreed and carried out.
pub(super) struct Granted {
    pub(super) job: JobId,
    pub(super) negotiation: String,
    pub(super) quantity: u64,
    pub(super) what: Asked,
    pub(super) direction: Direction,
    pub(super) nodes: Vec<String>,
    pub(super) generation: u32,
    pub(super) n_rounds: u16,
}

impl Show for Granted {
    fn text(&self) -> String {
        let line = match &self.what {
            Asked::Nodes { .. } => return self.nodes.iter().map(|node| format!("{node}\n")).collect(),
            Asked::Time => stamp::brief(terms::time(self.quantity)),
            Asked::Cores { .. } => negotiations::cores(self.quantity, self.direction),
            Asked::Memory { .. } => negotiations::memory(self.quantity, self.direction),
            Asked::Devices { name, .. } => negotiations::devices(self.quantity, name, self.direction),
            Asked::Licences { name, .. } => negotiations::licences(self.quantity, name, self.direction),
        };
        format!("{line}\n")
    }

    fn json(&self) -> Value {
        let unit = match &self.what {
            Asked::Nodes { .. } => "nodes",
            Asked::Cores { .. } => "cores",
            Asked::Memory { .. } => "memory_mib",
            Asked::Devices { .. } => "devices",
            Asked::Licences { .. } => "licences",
            Asked::Time => "time_ms",
        };
        json!({
            "job": self.job.0,
            "negotiation": self.negotiation,
            unit: self.quantity,
            "nodes": self.nodes,
            "generation": self.generation,
            "rounds": self.n_rounds,
        })
    }

    fn ids(&self) -> Vec<String> {
        self.nodes.clone()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn asked(line: &str) -> Result<Ask, String> {
        let words = std::iter::once("negotiate").chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        ask(line.args).map_err(|failure| failure.message)
    }

    #[test]
    fn what_is_typed_is_what_is_asked() {
        let plain = Ask {
            direction: Direction::Grow,
            what: Asked::Nodes { cluster: None },
            quantity: 4,
            least: 4,
            sizes: Sizes::Any,
            price: Price(0),
            duration: None,
            nodes: Vec::new(),
            wait: Span::ZERO,
        };
        assert_eq!(asked("7 --grow 4"), Ok(plain.clone()));
        let terms = Ask {
            least: 2,
            sizes: Sizes::PowerOfTwo,
            price: Price(500),
            duration: Some(Span::from_mins(10)),
            what: Asked::Nodes { cluster: Some("b".to_owned()) },
            wait: Span::from_secs(30),
            ..plain.clone()
        };
        assert_eq!(asked("--grow 4 --sizes 6").map(|ask| ask.sizes), Ok(Sizes::Listed(vec![6])));
        let line = "--grow 4 --accept-at-least 2 --sizes pow2 --price 0.5 --for 10m --cluster b --wait 30s";
        assert_eq!(asked(line), Ok(terms));
        let nodes = vec!["a3".to_owned(), "a4".to_owned()];
        let back = Ask { direction: Direction::Shrink, quantity: 2, least: 2, nodes, ..plain.clone() };
        assert_eq!(asked("--shrink 2 --nodes a[3-4]"), Ok(back));
        let cores = Ask { what: Asked::Cores { cluster: None }, quantity: 6, least: 1, ..plain.clone() };
        assert_eq!(asked("7 --grow-cores 6 --accept-at-least 1"), Ok(cores.clone()));
        let fewer = Ask { direction: Direction::Shrink, least: 6, nodes: vec!["a2".to_owned()], ..cores };
        assert_eq!(asked("--shrink-cores 6 --on a2"), Ok(fewer));
        let memory = Ask { what: Asked::Memory { cluster: None }, quantity: 4096, least: 1024, ..plain.clone() };
        assert_eq!(asked("--grow-memory 4G --accept-at-least 1G"), Ok(memory));
        let name = "gpu:a100".to_owned();
        let gpus = Ask { what: Asked::Devices { cluster: None, name }, quantity: 2, least: 2, ..plain.clone() };
        let gpus = Ask { direction: Direction::Shrink, nodes: vec!["a2".to_owned()], ..gpus };
        assert_eq!(asked("--shrink-gpus a100:2 --on a2"), Ok(gpus.clone()));
        assert_eq!(asked("--shrink-gres gpu:a100:2 --on a2"), Ok(gpus));
        let name = "fpga".to_owned();
        let fpga = Ask { what: Asked::Devices { cluster: None, name }, quantity: 1, least: 1, ..plain.clone() };
        assert_eq!(asked("--grow-gres fpga:1"), Ok(fpga));
        let name = "matlab".to_owned();
        let licences = Ask { what: Asked::Licences { cluster: None, name }, quantity: 3, least: 1, ..plain.clone() };
        assert_eq!(asked("--grow-licences matlab:3 --accept-at-least 1"), Ok(licences));
        let longer = Ask { what: Asked::Time, quantity: 1_800_000, least: 600_000, ..plain };
        assert_eq!(asked("--extend 30m --accept-at-least 10m"), Ok(longer));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anybody_is_asked() {
        let check = |line: &str, part: &str| {
            let error = asked(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        };
        check("7", "--grow");
        check("--grow 1 --shrink 1", "cannot be used with");
        check("--grow 0", "at least 1");
        check("--grow 2 --accept-at-least 3", "write less");
        check("--grow 2 --accept-at-least 10m", "whole number");
        check("--grow 1 --grow-cores 1", "cannot be used with");
        check("--shrink-cores 1 --extend 1h", "cannot be used with");
        check("--shrink-cores 1 --nodes a1", "cannot be used with");
        check("--grow 1 --on a1", "cannot be used with");
        check("--grow-memory 0", "above zero");
        check("--grow-memory 4G --accept-at-least lots", "no amount of memory");
        check("--grow-gpus a100:1,v100:1", "one kind of GPUs");
        check("--grow-gres fpga:1,gpu:1", "devices of one name");
        check("--grow-gres none", "devices of one name");
        check("--shrink-licences matlab:1,ansys:1", "one licence");
        check("--grow-licences matlab:1 --on a1", "cannot be used with");
        check("--grow-memory 1G --for 10m", "cannot be used with");
        check("--shrink-gpus 1 --nodes a1", "cannot be used with");
        check("--extend 0s", "above zero");
        check("--shrink 3 --nodes a1,a2", "names 2 nodes, and --shrink says 3");
        check("--grow 2 --nodes a1,a2", "cannot be used with");
        check("--shrink 2 --for 10m", "cannot be used with");
        check("--grow 2 --price -1", "--price");
        check("--grow 2 --sizes x", "write pow2");
        check("--grow 2 --sizes 0", "write pow2");
        check("--extend 1h --sizes pow2", "cannot be used with");
    }
}
