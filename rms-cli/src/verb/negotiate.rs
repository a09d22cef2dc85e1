//! `rms negotiate`: asks for more or fewer nodes or cores, or more time, for a running job, and waits for what comes of it.

use launcher_sdk::Client;
use negotiation::{Direction, NegotiationId, Price};
use rms_api::Answer;
use rms_api::call::Call;
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::{JobId, Sizes, Span, hostlist};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::inside;
use crate::look_up;
use crate::names::ClusterNames;
use crate::negotiations;
use crate::output::Show;
use crate::size_range;
use crate::stamp;
use crate::table::Table;
use crate::terms::{self, Allowed};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Inside of a job it asks for that job, with the credentials that the job was
given; elsewhere name the job. It prints the nodes that came or went, once they
can be used, or are free.

Exit codes: 0 granted, 1 refused (the message says why; with --json error.kind
is the reason)

Examples:
  rms negotiate 7 --grow 4                 four more nodes, now or not at all
  rms negotiate --grow 4 --accept-at-least 2 --wait 5m
                                           four if possible, two would do; wait
                                           up to 5 minutes for them
  rms negotiate --grow 12 --accept-at-least 1 --sizes pow2
                                           as many as make the whole a power of
                                           two
  rms negotiate --grow 2 --for 10m                  two nodes for ten minutes
  rms negotiate 7 --grow 4 -M b            four nodes of another cluster
  rms negotiate --shrink 2 --nodes a3,a4            give these back
  rms negotiate --shrink-cores 6 --on a2   six cores of a2 fewer; its threads
                                           are moved to the others
  rms negotiate --grow-cores 6 --accept-at-least 1
                                           six more on each of its nodes, as far
                                           as they have so many
  rms negotiate --extend 30m               thirty minutes of wall time more")]
pub struct Args {
    /// Which job: an id, or last; $RMS_JOB_ID if absent
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// So many nodes more
    #[arg(long, value_name = "COUNT", value_parser = count, required_unless_present_any = CHANGES)]
    #[arg(conflicts_with_all = CHANGES)]
    grow: Option<u32>,
    /// So many nodes fewer
    #[arg(long, value_name = "COUNT", value_parser = count, conflicts_with_all = ["extend", "grow_cores", "shrink_cores"])]
    shrink: Option<u32>,
    /// So many cores more on each node that it has
    #[arg(long, value_name = "COUNT", value_parser = count, conflicts_with_all = ["extend", "shrink_cores"])]
    grow_cores: Option<u32>,
    /// So many cores fewer on each node
    #[arg(long, value_name = "COUNT", value_parser = count, conflicts_with = "extend")]
    shrink_cores: Option<u32>,
    /// On which of its nodes there are to be more or fewer cores: a3,a4 or a[3-4]; on all if absent
    #[arg(long, value_name = "NODES", conflicts_with_all = ["grow", "shrink", "extend"])]
    on: Option<String>,
    /// So much more wall time: 30m, 1h30m
    #[arg(long, value_name = "SPAN")]
    extend: Option<Span>,
    /// Take a counter-offer of so many nodes or cores, or with --extend so much time, or more; all of it if absent
    #[arg(long, value_name = "COUNT|SPAN")]
    accept_at_least: Option<String>,
    /// How many nodes of that cluster, or cores on a node, are of use in all: pow2, mult=4 or 2,4,8
    #[arg(long, value_name = "SIZES", value_parser = size_range::parse_sizes, conflicts_with = "extend")]
    sizes: Option<Sizes>,
    /// The most to be paid for a node and hour
    #[arg(long, value_name = "PRICE", value_parser = parse_price, allow_negative_numbers = true)]
    price: Option<Price>,
    /// For how long; until the job ends if absent
    #[arg(long = "for", value_name = "SPAN", conflicts_with_all = ["shrink", "extend", "grow_cores", "shrink_cores"])]
    duration: Option<Span>,
    /// How long to wait for nodes that others hold
    #[arg(long, value_name = "SPAN", default_value = "0s")]
    wait: Span,
    /// Of which cluster; of that of its first node, or of --nodes, if absent
    #[arg(short = 'M', long, value_name = "NAME", conflicts_with = "extend")]
    cluster: Option<String>,
    /// Which nodes to give back: a3,a4 or a[3-4]; the last ones if absent
    #[arg(long, value_name = "NODES", conflicts_with_all = ["grow", "extend", "grow_cores", "shrink_cores"])]
    nodes: Option<String>,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let job = match args.job.as_deref() {
        Some("last") => None,
        named => Some(inside::job(named)?),
    };
    let ask = ask(args)?;
    let unit = Unit::of(&ask);
    let client = context.client_inside().await?;
    let job = match job {
        Some(job) => job,
        None => look_up::last(&client).await?,
    };
    let Answer::Negotiated(outcome) = client.call(Call::Negotiate { job, ask }).await.map_err(|error| {
        // What was asked may go on without us.
        Failure::from(error).hint(format!("'rms negotiations {job}' shows whether it goes on"))
    })?
    else {
        return Err(launcher_sdk::CallError::Unexpected.into());
    };
    match outcome {
        AskOutcome::Ready { negotiation, quantity, nodes, generation, n_rounds } => {
            let granted =
                Granted { job, negotiation: negotiation.to_string(), quantity, unit, nodes, generation, n_rounds };
            context.output.show(&granted)?;
            Ok(Exit::OK)
        }
        AskOutcome::Failed { negotiation, reason, free } => {
            let kind = negotiations::reason_word(reason);
            let free = free.map(|n_free| format!(" ({n_free} free)")).unwrap_or_default();
            let broken = broken_term(&client, job, negotiation).await;
            let broken = broken.map(|broken| format!(" ({broken})")).unwrap_or_default();
            let failure = Failure::new(kind, format!("job {job}, negotiation {negotiation}: {reason}{free}{broken}"));
            Err(failure.hint(format!("'rms negotiations {job}' tells its rounds")))
        }
    }
}

/// As far as the rounds of it say so.
async fn broken_term(client: &Client, job: JobId, negotiation: NegotiationId) -> Option<String> {
    let (_, lines) = super::negotiations::ask(client, Some(job)).await.ok()?;
    let line = lines.iter().find(|line| line.record.id == negotiation)?;
    let clusters = ClusterNames::new(client.clusters().await.ok()?);
    terms::broken(&line.record, &line.owner, &Allowed::ask(client, &clusters).await)
}

fn ask(args: Args) -> Result<Ask, Failure> {
    let cluster = args.cluster;
    let (direction, what, quantity) = match (args.grow, args.shrink, args.grow_cores, args.shrink_cores) {
        (Some(count), ..) => (Direction::Grow, Asked::Nodes { cluster }, u64::from(count)),
        (None, Some(count), ..) => (Direction::Shrink, Asked::Nodes { cluster }, u64::from(count)),
        (None, None, Some(count), _) => (Direction::Grow, Asked::Cores { cluster }, u64::from(count)),
        (None, None, None, Some(count)) => (Direction::Shrink, Asked::Cores { cluster }, u64::from(count)),
        (None, None, None, None) => {
            (Direction::Grow, Asked::Time, millis("--extend", args.extend.unwrap_or(Span::ZERO))?)
        }
    };
    let least = match (&args.accept_at_least, &what) {
        (None, _) => quantity,
        (Some(text), Asked::Nodes { .. } | Asked::Cores { .. }) => {
            count(text).map(u64::from).map_err(|what| Failure::usage(format!("--accept-at-least: {what}")))?
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
    // Each is refused where the other has a meaning.
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

/// A number of nodes.
fn count(text: &str) -> Result<u32, &'static str> {
    match text.parse::<u32>() {
        Ok(0) | Err(_) => Err("write a whole number of at least 1"),
        Ok(count) => Ok(count),
    }
}

/// Thousandths of the deployment's currency.
fn parse_price(text: &str) -> Result<Price, &'static str> {
    let milli = text.parse::<f64>().ok().map(|price| (price * 1000.0).round());
    let milli = milli.filter(|milli| (0.0..=negotiation::template::MAX_PRICE as f64).contains(milli));
    milli.map(|milli| Price(milli as u64)).ok_or("write a price like 0.5 or 12")
}

/// What the flags that name a change are.
const CHANGES: [&str; 4] = ["shrink", "extend", "grow_cores", "shrink_cores"];

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Nodes,
    MoreCores,
    FewerCores,
    Time,
}

impl Unit {
    fn of(ask: &Ask) -> Unit {
        match (&ask.what, ask.direction) {
            (Asked::Nodes { .. }, _) => Unit::Nodes,
            (Asked::Cores { .. }, Direction::Grow) => Unit::MoreCores,
            (Asked::Cores { .. }, Direction::Shrink) => Unit::FewerCores,
            (Asked::Time, _) => Unit::Time,
        }
    }
}

/// What was agreed, and is in place.
pub(super) struct Granted {
    pub(super) job: JobId,
    pub(super) negotiation: String,
    pub(super) quantity: u64,
    pub(super) unit: Unit,
    pub(super) nodes: Vec<String>,
    pub(super) generation: u32,
    pub(super) n_rounds: u16,
}

impl Show for Granted {
    fn text(&self) -> String {
        match self.unit {
            Unit::Time => format!("{}\n", stamp::brief(terms::time(self.quantity))),
            Unit::MoreCores => format!("{}\n", negotiations::cores(self.quantity, Direction::Grow)),
            Unit::FewerCores => format!("{}\n", negotiations::cores(self.quantity, Direction::Shrink)),
            Unit::Nodes => self.nodes.iter().map(|node| format!("{node}\n")).collect(),
        }
    }

    fn json(&self) -> Value {
        let unit = match self.unit {
            Unit::Nodes => "nodes",
            Unit::MoreCores | Unit::FewerCores => "cores",
            Unit::Time => "time_ms",
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
        let line = "--grow 4 --accept-at-least 2 --sizes pow2 --price 0.5 --for 10m --cluster b --wait 30s";
        assert_eq!(asked(line), Ok(terms));
        let nodes = vec!["a3".to_owned(), "a4".to_owned()];
        let back = Ask { direction: Direction::Shrink, quantity: 2, least: 2, nodes, ..plain.clone() };
        assert_eq!(asked("--shrink 2 --nodes a[3-4]"), Ok(back));
        let cores = Ask { what: Asked::Cores { cluster: None }, quantity: 6, least: 1, ..plain.clone() };
        assert_eq!(asked("7 --grow-cores 6 --accept-at-least 1"), Ok(cores.clone()));
        let fewer = Ask { direction: Direction::Shrink, least: 6, nodes: vec!["a2".to_owned()], ..cores };
        assert_eq!(asked("--shrink-cores 6 --on a2"), Ok(fewer));
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
        check("--extend 0s", "above zero");
        check("--shrink 3 --nodes a1,a2", "names 2 nodes, and --shrink says 3");
        check("--grow 2 --nodes a1,a2", "cannot be used with");
        check("--shrink 2 --for 10m", "cannot be used with");
        check("--grow 2 --price -1", "--price");
        check("--grow 2 --sizes 3", "write pow2");
        check("--extend 1h --sizes pow2", "cannot be used with");
    }
}
