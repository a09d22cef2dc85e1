//! Times what it takes to tell launchers their views when one job ends, in this process.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use rms_api::subscription::{Filter, LauncherAnswer, LauncherCall, LauncherRequest, Notice, Subscription, Tag};
use rms_core::{Effect, Event, Ticket};
use rms_model::settings::Depth;
use rms_model::{Allocation, ClusterId, Identity, JobId, Request, Role, Settings, Slice, Span};
use test_kit::Dice;

use crate::table::{Table, Target, quantile};
use crate::world::{World, inventory};

const N_NODES: u32 = 128;
const N_PASSES: usize = 15;
const SEED: u64 = 7;

pub fn table() -> Result<Table> {
    let mut table =
        Table::new("Views when one of 128 jobs ends (10,000 launchers subscribed, one cluster of 128 nodes)");
    for (allocation, n_waiting) in
        [(Allocation::Nodes, 0), (Allocation::Nodes, 1_000), (Allocation::Cores, 0), (Allocation::Cores, 1_000)]
    {
        let (by, bound) = match allocation {
            Allocation::Nodes => (
                "nodes",
                "each waiting launcher sees another profile, of up to two steps for each application before it",
            ),
            Allocation::Cores => {
                ("cores", "each waiting launcher sees other profiles of whole nodes and of two slices")
            }
        };
        let mut launchers = Launchers::full(10_000 - n_waiting, n_waiting, allocation)?;
        let mut ends: Vec<End> = (0..N_PASSES).map(|_| launchers.end_a_job()).collect::<Result<_>>()?;
        let mut times: Vec<f64> = ends.iter().map(|end| end.millis).collect();
        for (word, share) in [("median", 0.5), ("slowest", 1.0)] {
            let what = format!("by {by}, {n_waiting} of them waiting, {word} of {N_PASSES} passes");
            table.measure(what, quantile(&mut times, share), "ms", Target::Reference, bound);
        }
        ends.sort_by_key(|end| end.n_notices);
        let median = &ends[ends.len() / 2];
        table.note(format!("by {by}, {n_waiting} waiting: launchers told"), median.n_notices as f64, "");
        table.note(format!("by {by}, {n_waiting} waiting: sent, as 001 counts"), median.bytes as f64 / 1e6, "MB");
        let idle = launchers.idle_pass();
        table.note(format!("by {by}, {n_waiting} waiting: a pass that finds nothing new"), idle, "ms");
    }
    Ok(table)
}

/// A system whose nodes are all taken by applications with launchers, and the launchers that wait.
struct Launchers {
    world: World,
    allocation: Allocation,
    running: Vec<JobId>,
}

struct End {
    millis: f64,
    n_notices: usize,
    bytes: u64,
}

fn cores(cores: u32) -> Slice {
    Slice { cores, ..Slice::default() }
}

impl Launchers {
    /// All nodes are taken, one by each running application; the waiting ones want up to 64 of them. Where nodes are shared,
    /// those that run have three quarters of each, and those that wait want a half.
    fn full(n_silent: usize, n_waiting: usize, allocation: Allocation) -> Result<Launchers> {
        let settings = Settings { queue_depth: Depth::All, allocation, ..Settings::default() };
        let mut world = World::of(settings, N_NODES, &inventory(64));
        world.pass();
        let mut launchers = Launchers { world, allocation, running: Vec::new() };
        let mut dice = Dice::new(SEED);
        for _ in 0..N_NODES {
            let job = launchers.subscribe()?;
            launchers.request(job, 1, Span::from_mins(dice.number(10, 1439).into()), 48);
            launchers.running.push(job);
        }
        launchers.world.pass();
        for job in launchers.running.clone() {
            launchers.call(LauncherCall::Accept { job, tag: Tag(1) });
        }
        for _ in 0..n_waiting {
            let job = launchers.subscribe()?;
            launchers.request(job, dice.number(2, 64), Span::from_mins(dice.number(10, 1439).into()), 32);
        }
        for _ in 0..n_silent {
            launchers.subscribe()?;
        }
        launchers.world.pass();
        Ok(launchers)
    }

    fn subscribe(&mut self) -> Result<JobId> {
        let slices = match self.allocation {
            Allocation::Nodes => Vec::new(),
            Allocation::Cores => vec![cores(8), cores(32)],
        };
        let filter = Filter { slices, ..Filter::default() };
        let subscription = Subscription { filter, ..Subscription::named("bench") };
        for effect in self.call(LauncherCall::Subscribe(Box::new(subscription))) {
            if let Effect::LauncherAnswer { answer: Ok(LauncherAnswer::Subscribed { job, .. }), .. } = effect {
                return Ok(job);
            }
        }
        bail!("a subscription was refused")
    }

    /// With so many cores of each node, where nodes are shared.
    fn request(&mut self, job: JobId, nodes: u32, wall: Span, n_cores: u32) {
        let whole = LauncherRequest::of_nodes(Tag(1), 1, Request::on_one(ClusterId(0), nodes, wall));
        let wish = match self.allocation {
            Allocation::Nodes => whole,
            Allocation::Cores => LauncherRequest { slice: cores(n_cores), ..whole },
        };
        self.call(LauncherCall::Request { job, wish });
    }

    fn call(&mut self, call: LauncherCall) -> Vec<Effect> {
        let who = Identity { role: Role::User, name: "bench".to_owned() };
        self.world.handle(Event::LauncherCalled { ticket: Ticket(0), who, call })
    }

    /// The oldest application is done; the milliseconds of the pass that follows, and what it tells.
    fn end_a_job(&mut self) -> Result<End> {
        self.world.now += Span::from_secs(1);
        let job = self.running.pop().context("no job runs")?;
        self.call(LauncherCall::Finish { job, tag: Tag(1), code: 0 });
        let begun = Instant::now();
        let effects = self.world.handle(Event::Tick);
        let millis = begun.elapsed().as_secs_f64() * 1000.0;
        let mut end = End { millis, n_notices: 0, bytes: 0 };
        for effect in effects {
            if let Effect::Notify { notice: Notice::Changed(change), .. } = effect {
                end.n_notices += 1;
                let profiles = change.clusters.iter().filter_map(|cluster| cluster.occupied.as_ref());
                end.bytes += profiles.map(|profile| 1 + 8 * profile.n_steps() as u64).sum::<u64>();
            }
        }
        Ok(end)
    }

    /// A pass after a change that no launcher sees.
    fn idle_pass(&mut self) -> f64 {
        self.world.now += Span::from_secs(1);
        let call = rms_api::Call::Set { key: "kill_grace".to_owned(), value: "11s".to_owned() };
        let who = Identity { role: Role::Admin, name: "bench".to_owned() };
        self.world.handle(Event::Called { ticket: Ticket(0), who, call });
        self.world.pass()
    }
}
