//! `rms plan`: when each size of a job would start and end, without submitting anything.

use launcher_sdk::{CallError, Submitted};
use rms_api::answer::Reason;
use rms_model::{JobId, Request, Span, Time, Work};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::context::Context;
use crate::explain;
use crate::failure::{Exit, Failure};
use crate::job_options::JobOptions;
use crate::json;
use crate::loans;
use crate::names::ClusterNames;
use crate::output::Show;
use crate::request_job;
use crate::stamp;
use crate::submission::{Order, Output};
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
For each size, it shows the cluster where the job would end first if it were
submitted now, behind all waiting jobs, and had this size alone; a * marks the
size that 'rms submit' with the same flags would choose. Sizes that no cluster
has nodes for are left out.

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
  rms plan -N 1-4 -n 8 -c 4 --mem 16G -t 1h
                                           parts of nodes, where jobs share them
  rms submit -N $(rms plan -q -N 1-8 --amdahl 0.9 --time 4h) -t 1h job.sh"
)]
pub struct Args {
    #[command(flatten)]
    options: JobOptions,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let client = context.client().await?;
    let caller = Caller::read()?;
    // What runs decides nothing.
    let work = Work::Tasks { argv: vec!["true".to_owned()] };
    let order = Order { work, name: "plan".to_owned(), output: Output::File, test_only: true, script: None };
    let submission = request_job::submission(&client, args.options, order, &caller).await?;
    let Submitted::WouldStart { request, at, reason, sizes, now, lent_by } = client.submit(submission).await? else {
        return Err(CallError::Unexpected.into());
    };
    let sizes = if sizes.is_empty() { vec![(request.clone(), at)] } else { sizes };
    let clusters = context.cluster_names(&client).await?;
    let now = now.unwrap_or_else(stamp::now);
    let plan = Plan { lent_by, ..Plan::of(now, &sizes, &request, reason.map(|reason| *reason), &clusters) };
    context.output.show(&plan)?;
    Ok(Exit::OK)
}

/// The start and end of each size, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub now: Time,
    pub sizes: Vec<Planned>,
    /// The index of the size that the server would choose.
    pub best: usize,
    /// Why that size would not start at once.
    pub reason: Option<Reason>,
    /// The running jobs on whose cores it would start at once.
    pub lent_by: Vec<JobId>,
}

/// One size, on the cluster where it starts first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub nodes: u32,
    /// The cluster's name, or each with its number.
    pub place: String,
    pub wall: Span,
    /// `None` if that cannot be planned yet.
    pub start: Option<Time>,
}

impl Planned {
    fn end(&self) -> Option<Time> {
        self.start.map(|start| start + self.wall)
    }
}

impl Plan {
    /// `chosen` is the size that the server would choose.
    fn of(
        now: Time,
        sizes: &[(Request, Option<Time>)],
        chosen: &Request,
        reason: Option<Reason>,
        clusters: &ClusterNames,
    ) -> Plan {
        let size_of = |request: &Request| (request.n_nodes(), request.wall);
        let mut sizes: Vec<&(Request, Option<Time>)> = sizes.iter().collect();
        // Of the same size on several clusters the first is kept.
        sizes.sort_by_key(|(request, start)| (size_of(request), start.is_none(), *start, request != chosen));
        sizes.dedup_by_key(|(request, _)| size_of(request));
        let best = sizes.iter().position(|(request, _)| size_of(request) == size_of(chosen)).unwrap_or(0);
        let planned = |(request, start): &(Request, Option<Time>)| Planned {
            nodes: request.n_nodes(),
            place: clusters.place(request),
            wall: request.wall,
            start: *start,
        };
        Plan { now, sizes: sizes.into_iter().map(planned).collect(), best, reason, lent_by: Vec::new() }
    }
}

impl Show for Plan {
    fn text(&self) -> String {
        if self.sizes.iter().all(|planned| planned.start.is_none()) {
            let why = self.reason.as_ref().map(|reason| format!(": {}", explain::reason(reason, &[], self.now)));
            return format!("it is possible, but cannot be planned yet{}\n", why.unwrap_or_default());
        }
        let mut table = Table::new(&["", ">nodes", "place", "wall", "starts", "ends"]);
        let moment = |time: Option<Time>| match time {
            None => "-".to_owned(),
            Some(time) if time <= self.now => "now".to_owned(),
            Some(time) => format!("in {}", stamp::brief(time.since(self.now))),
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
        let lent = loans::by(&self.lent_by).map_or(String::new(), |by| format!("{by}\n"));
        table.text("no size fits") + &lent
    }

    fn json(&self) -> Value {
        let size = |(idx, planned): (usize, &Planned)| {
            json!({
                "nodes": planned.nodes,
                "place": planned.place,
                "wall_ms": json::span(planned.wall),
                "start": json::time(planned.start),
                "end": json::time(planned.end()),
                "best": idx == self.best,
            })
        };
        let sizes: Vec<Value> = self.sizes.iter().enumerate().map(size).collect();
        json!({
            "now": json::time(Some(self.now)),
            "sizes": sizes,
            "reason": json::reason(self.reason.as_ref()),
            "lent_by": self.lent_by.iter().map(|job| job.0).collect::<Vec<_>>(),
        })
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
                planned.start.and_then(stamp::iso).unwrap_or_default(),
                planned.end().and_then(stamp::iso).unwrap_or_default(),
            ]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rms_model::ClusterId;

    use super::*;

    fn clusters() -> ClusterNames {
        ClusterNames::new([(ClusterId(1), "a".to_owned()), (ClusterId(2), "b".to_owned())])
    }

    fn request(nodes: &[(u64, u32)], secs: i64) -> Request {
        let nodes = nodes.iter().map(|(cluster, count)| (ClusterId(*cluster as _), *count)).collect::<BTreeMap<_, _>>();
        Request { nodes, wall: Span::from_secs(secs) }
    }

    fn secs(at: i64) -> Option<Time> {
        Some(Time::from_secs(at))
    }

    #[test]
    fn each_size_is_shown_where_it_starts_first_and_the_one_that_is_chosen_is_marked() {
        let chosen = request(&[(2, 4)], 600);
        let sizes = [
            (request(&[(1, 8)], 300), secs(1500)),
            (request(&[(1, 4)], 600), secs(1030)),
            (chosen.clone(), secs(1010)),
            (request(&[(1, 2), (2, 1)], 900), None),
        ];
        let plan = Plan::of(Time::from_secs(1000), &sizes, &chosen, None, &clusters());
        let shown: Vec<_> = plan.sizes.iter().map(|size| (size.nodes, size.place.as_str(), size.start)).collect();
        assert_eq!(shown, [(3, "a:2+b:1", None), (4, "b", secs(1010)), (8, "a", secs(1500))]);
        assert_eq!(plan.ids(), ["4"]);
        let text = plan.text();
        assert!(text.contains("in 10s") && text.contains("in 8m20s"), "{text}");
    }

    #[test]
    fn whose_cores_it_would_start_on_is_told() {
        let chosen = request(&[(1, 2)], 1200);
        let plan = Plan::of(Time::from_secs(1000), &[(chosen.clone(), secs(1000))], &chosen, None, &clusters());
        assert!(!plan.text().contains("lent"), "{}", plan.text());
        let plan = Plan { lent_by: vec![JobId(7), JobId(9)], ..plan };
        assert!(plan.text().ends_with("in 20m\non cores lent by jobs 7, 9\n"), "{}", plan.text());
        assert_eq!(plan.json()["lent_by"], json!([7, 9]));
    }

    #[test]
    fn of_one_size_on_two_clusters_at_once_the_one_that_is_chosen_is_shown() {
        let chosen = request(&[(2, 4)], 600);
        let sizes = [(request(&[(1, 4)], 600), secs(1010)), (chosen.clone(), secs(1010))];
        let plan = Plan::of(Time::from_secs(1000), &sizes, &chosen, None, &clusters());
        assert_eq!((plan.sizes.len(), plan.sizes[0].place.as_str()), (1, "b"));
    }

    #[test]
    fn what_cannot_be_planned_is_said_with_its_reason() {
        let chosen = request(&[(1, 4)], 600);
        let reason = Some(Reason::BeyondDepth { depth: 2, position: 3 });
        let plan = Plan::of(Time::from_secs(1000), &[(chosen.clone(), None)], &chosen, reason, &clusters());
        let text = plan.text();
        assert!(text.starts_with("it is possible, but cannot be planned yet: "), "{text}");
    }
}
