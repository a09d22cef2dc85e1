//! Random events: the views that launchers assemble from changes are those of the passes.

use rms_api::subscription::LauncherView;
use test_kit::Dice;

use super::*;
use crate::Event;
use crate::plan::{Placed, Scope, plan};

/// Applications come, change their requests and leave; nodes are drained and resumed.
struct RandomWorkload {
    launchers: Launchers,
    held: BTreeMap<JobId, LauncherView>,
    tags: BTreeMap<JobId, u64>,
    dice: Dice,
    n_compared: usize,
}

impl RandomWorkload {
    fn new(seed: u64) -> RandomWorkload {
        let mut launchers = Launchers::new();
        launchers.set("fair_start", "4s");
        launchers.set("fair_start@b", "1s");
        RandomWorkload { launchers, held: BTreeMap::new(), tags: BTreeMap::new(), dice: Dice::new(seed), n_compared: 0 }
    }

    fn roll(&mut self, n: u64) -> u64 {
        self.dice.below(n)
    }

    fn random_job(&mut self) -> Option<JobId> {
        let jobs: Vec<JobId> = self.tags.keys().copied().collect();
        let n_jobs = jobs.len() as u64;
        (n_jobs > 0).then(|| jobs[self.roll(n_jobs) as usize])
    }

    /// Handles an event, then the pass that it requires, and checks what was sent.
    fn happens(&mut self, event: Event) {
        let world = &mut self.launchers.world;
        let Ok(effects) = world.rms.handle(world.now, event).commit(&mut crate::tests::NullJournal);
        self.hear(effects);
        self.pass();
    }

    fn pass(&mut self) {
        let world = &mut self.launchers.world;
        if world.rms.next_timer().is_none_or(|due| due > world.now) {
            return;
        }
        let planned = plan(world.rms.state(), world.now, Scope::Views);
        let n_passes = world.rms.context.passes.count;
        let Ok(effects) = world.rms.handle(world.now, Event::Tick).commit(&mut crate::tests::NullJournal);
        let has_passed = world.rms.context.passes.count > n_passes;
        world.rms.state().check().expect("the state is sound");
        self.hear(effects);
        if has_passed {
            self.compare(&planned);
        }
    }

    fn hear(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::LauncherAnswer { answer: Ok(LauncherAnswer::Subscribed { job, .. }), .. } = &effect {
                self.held.insert(*job, LauncherView::default());
                self.tags.entry(*job).or_insert(0);
            }
            let Effect::Notify { job, notice } = effect else { continue };
            match notice {
                Notice::Changed(change) => {
                    let view = self.held.get_mut(&job).expect("it has subscribed");
                    assert!(change.version > view.version, "versions rise");
                    assert!(!change.clusters.is_empty(), "something is news");
                    view.apply(change);
                }
                Notice::Started(grant) => {
                    self.held.remove(&job);
                    let accept = LauncherCall::Accept { job, tag: grant.tag };
                    let who = Identity::new(Role::User, "ann").expect("a plain name");
                    let world = &mut self.launchers.world;
                    let event = Event::LauncherCalled { ticket: Ticket(8), who, call: accept };
                    let Ok(_) = world.rms.handle(world.now, event).commit(&mut crate::tests::NullJournal);
                }
                Notice::Ended { .. } => {
                    self.held.remove(&job);
                    self.tags.remove(&job);
                }
                Notice::Replaced => {}
            }
        }
    }

    fn compare(&mut self, planned: &crate::plan::Plan) {
        let now = self.launchers.world.now;
        for (job, held) in &self.held {
            let placement = planned.placement(*job);
            let starts = placement.is_some_and(|placement| matches!(placement.outcome, Placed::Now { .. }));
            if starts {
                continue;
            }
            let view = placement.and_then(|placement| placement.view.as_ref()).unwrap_or(&planned.last_view);
            for cluster in [A, B] {
                let expected = view.get(&cluster).cloned().unwrap_or_default().cut_before(now);
                let seen = held.occupied.get(&cluster).map(|seen| seen.cut_before(now)).unwrap_or_default();
                assert_eq!(seen, expected, "job {job}, cluster {cluster}");
                let usable = self.launchers.world.rms.state().n_usable(cluster);
                assert_eq!(held.capacity[&cluster], usable, "job {job}, cluster {cluster}");
            }
            self.n_compared += 1;
        }
    }

    fn say(&mut self, call: LauncherCall) {
        let who = Identity::new(Role::User, "ann").expect("a plain name");
        self.happens(Event::LauncherCalled { ticket: Ticket(7), who, call });
    }

    fn order(&mut self, call: Call) {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        self.happens(Event::Called { ticket: Ticket(1), who, call });
    }

    fn act(&mut self) {
        match self.roll(10) {
            0 | 1 => {
                let subscription = Subscription { priority: -(self.roll(2) as i32), ..Subscription::named("app") };
                self.say(LauncherCall::Subscribe(Box::new(subscription)));
            }
            2..=4 => {
                let Some(job) = self.random_job() else { return };
                let tag = self.tags[&job] + 1;
                self.tags.insert(job, tag);
                let (on_a, on_b) = (self.roll(5) as u32, self.roll(3) as u32);
                let wall = Span::from_secs(50_000 + self.roll(20) as i64);
                let request = Request { nodes: BTreeMap::from([(A, on_a), (B, on_b)]), wall };
                self.say(LauncherCall::Request { job, wish: LauncherRequest::of_nodes(Tag(tag), 0, request) });
            }
            5 | 6 => {
                let Some(job) = self.random_job() else { return };
                self.say(LauncherCall::Finish { job, tag: Tag(self.tags[&job]), code: 0 });
            }
            7 => {
                let nodes = vec![format!("a{}", 1 + self.roll(4))];
                let reason = "fan".to_owned();
                let is_drain = self.roll(2) == 0;
                self.order(if is_drain { Call::Drain { nodes, reason } } else { Call::Resume { nodes } });
            }
            _ => {
                let until = self.launchers.world.now + Span::from_secs(self.roll(8) as i64);
                while let Some(due) = self.launchers.world.rms.next_timer().filter(|due| *due <= until) {
                    let world = &mut self.launchers.world;
                    world.now = world.now.max(due);
                    self.pass();
                }
                self.launchers.world.now = until;
            }
        }
    }
}

#[test]
fn what_is_held_is_what_the_pass_gave() {
    let mut n_compared = 0;
    for seed in 0..20 {
        let mut workload = RandomWorkload::new(seed);
        for _ in 0..200 {
            workload.act();
        }
        n_compared += workload.n_compared;
    }
    assert!(n_compared > 5000, "only {n_compared} views were compared");
}
