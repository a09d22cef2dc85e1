//! Small shared clusters, planned by brute force from the rules alone and compared with the server's plans.
//!
//! The rules: a job takes a part of each of its nodes, for its whole wall time and on the same nodes. The nodes of each
//! job are taken as given by the plan; the earliest possible starts follow from that.

use std::collections::BTreeMap;

use rms_api::call::{Nodes, Shape};
use rms_api::filter::JobFilter;
use rms_api::{Answer, Call, Query};
use rms_model::{Grant, Identity, Inventory, JobId, Mebibytes, NodeId, Outcome, Packing, Policy, Role, Span, Time};

use super::{NullJournal, World};
use crate::plan::{Placed, Scope, plan};
use crate::state::job::Job;
use crate::{Event, Ticket};
use test_kit::{Dice, for_seeds};

/// A node.
#[derive(Clone, Copy, Debug)]
struct Machine {
    cores: u32,
    threads: u32,
    memory: u64,
    /// The number of each of [`GPUS`].
    gpus: [u32; 2],
    is_fast: bool,
}

const GPUS: [&str; 2] = ["gpu:a100", "gpu:v100"];

/// What a job requests of each of its nodes.
#[derive(Clone, Copy, Debug)]
struct JobRequest {
    nodes: u32,
    /// Logical CPUs; 0: all of a node.
    cpus: u32,
    memory: u64,
    gpus: u32,
    /// An index into [`GPUS`]; otherwise any will do, but all of one type.
    gpu_type: Option<usize>,
    wants_fast: bool,
    /// One bit for each node that it may use.
    allowed: u32,
    is_exclusive: bool,
    packing: Packing,
    wall: Span,
}

/// What a job has of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Slice {
        cores: u32,
        memory: u64,
        gpus: [u32; 2],
    },
    /// No other job has any part of it.
    Whole,
}

/// How long jobs may take to leave that are ended at the end of their wall time.
const LEAVES: Span = Span::from_secs(1);
/// And how long nearly all of them take.
const AT_ONCE: Span = Span::from_millis(100);

/// What a running or planned job uses.
#[derive(Clone, Debug)]
struct Use {
    from: Time,
    until: Time,
    parts: Vec<(usize, Part)>,
}

/// A waiting job.
#[derive(Clone, Debug)]
struct Waiting {
    job: JobId,
    request: JobRequest,
    promised: Option<Time>,
}

/// The planner's result for a job.
#[derive(Clone, Debug)]
struct PlannerAnswer {
    at: Time,
    starts: bool,
    nodes: Vec<usize>,
}

/// The rules, applied by brute force.
#[derive(Clone, Debug)]
struct BruteForce<'a> {
    machines: &'a [Machine],
    now: Time,
    uses: Vec<Use>,
}

impl JobRequest {
    fn allows(&self, place: usize) -> bool {
        self.allowed & 1 << place != 0
    }

    /// Returns each way in which the job could have a part of such a node; it gets the first that is free.
    fn parts(&self, machine: &Machine) -> Vec<Part> {
        let cores = self.cpus.div_ceil(machine.threads);
        let types = (0..GPUS.len()).filter(|gpu| self.gpu_type.is_none_or(|wanted| wanted == *gpu));
        let of_type = |gpu: usize| {
            let mut gpus = [0; 2];
            gpus[gpu] = self.gpus;
            gpus
        };
        let mut ways: Vec<[u32; 2]> = match self.gpus {
            0 => vec![[0; 2]],
            wanted => types.filter(|gpu| machine.gpus[*gpu] >= wanted).map(of_type).collect(),
        };
        // One of each, where the type does not matter and two are wanted.
        let may_mix = self.gpus == 2 && self.gpu_type.is_none() && machine.gpus.iter().all(|has| *has > 0);
        ways.extend(may_mix.then_some([1, 1]));
        let suits = cores <= machine.cores && self.memory <= machine.memory && (machine.is_fast || !self.wants_fast);
        let is_whole = self.is_exclusive || self.cpus == 0 || (cores == machine.cores && self.gpus == 0);
        let part = |gpus| match is_whole {
            true => Part::Whole,
            false => Part::Slice { cores, memory: self.memory, gpus },
        };
        let ways = ways.into_iter().filter(|_| suits).map(part);
        if is_whole { ways.take(1).collect() } else { ways.collect() }
    }
}

impl Waiting {
    /// Returns what it may use from then on of what it was promised: the end stays as it was. A promise is kept for a
    /// second while others leave.
    fn rest(&self, now: Time, from: Time) -> Option<JobRequest> {
        let promised = self.promised.filter(|at| (*at - LEAVES..=*at + LEAVES).contains(&now))?;
        let wall = (promised + self.request.wall).since(from);
        (from >= promised && !wall.is_zero()).then_some(JobRequest { wall, ..self.request })
    }
}

impl BruteForce<'_> {
    /// Returns whether the node has room for it all the time, beside all others.
    fn has_room(&self, place: usize, part: Part, from: Time, until: Time) -> bool {
        let here = |used: &&Use| used.parts.iter().any(|(other, _)| *other == place);
        let others: Vec<&Use> =
            self.uses.iter().filter(here).filter(|used| used.from < until && from < used.until).collect();
        // Occupation grows only when a use begins.
        let begins = others.iter().map(|used| used.from.max(from)).chain([from]);
        begins.into_iter().all(|at| {
            let beside = others.iter().filter(|used| used.from <= at && at < used.until);
            let parts: Vec<Part> = beside
                .flat_map(|used| used.parts.iter().filter(|(other, _)| *other == place).map(|(_, part)| *part))
                .collect();
            fits(&self.machines[place], &parts, part)
        })
    }

    /// Returns the part of a node that a job gets that starts then.
    fn part(&self, request: &JobRequest, place: usize, at: Time) -> Option<Part> {
        let mut parts = request.parts(&self.machines[place]).into_iter().filter(|_| request.allows(place));
        parts.find(|part| self.has_room(place, *part, at, at + request.wall))
    }

    /// Returns its use of these nodes if it starts then; `None` if one of them has no room.
    fn of_nodes(&self, request: &JobRequest, nodes: &[usize], at: Time) -> Option<Use> {
        let parts = nodes.iter().map(|place| Some((*place, self.part(request, *place, at)?)));
        Some(Use { from: at, until: at + request.wall, parts: parts.collect::<Option<_>>()? })
    }

    /// Returns the first instant from `from` on at which some set of nodes has room: `from` itself, or one at which a
    /// job leaves.
    fn earliest(&self, request: &JobRequest, from: Time) -> Option<Time> {
        let mut instants: Vec<Time> = self.uses.iter().map(|used| used.until).filter(|until| *until > from).collect();
        instants.push(from);
        instants.sort_unstable();
        let places = 0..self.machines.len();
        instants.into_iter().find(|at| {
            let has_room: Vec<bool> = places.clone().map(|place| self.part(request, place, *at).is_some()).collect();
            let mut sets = (0..1_u32 << self.machines.len()).filter(|set| set.count_ones() == request.nodes);
            sets.any(|set| places.clone().all(|place| set & (1 << place) == 0 || has_room[place]))
        })
    }

    /// Checks that a job has the first possible start from then on; the nodes are those that the planner chose.
    fn place(&mut self, waiting: &Waiting, said: &PlannerAnswer, from: Time) -> Result<(), String> {
        let earliest = self.earliest(&waiting.request, from);
        let should_start = earliest == Some(self.now);
        if earliest != Some(said.at) || said.starts != should_start {
            return Err(format!("{waiting:?} could start at {earliest:?}; {said:?}"));
        }
        self.take(waiting, said)
    }

    fn take(&mut self, waiting: &Waiting, said: &PlannerAnswer) -> Result<(), String> {
        let is_set = said.nodes.is_sorted_by(|one, other| one < other);
        if !is_set || said.nodes.len() != waiting.request.nodes as usize {
            return Err(format!("{waiting:?} is not on so many nodes: {said:?}"));
        }
        let used = self.of_nodes(&waiting.request, &said.nodes, said.at);
        self.uses.push(used.ok_or_else(|| format!("{waiting:?} has no room there: {said:?}"))?);
        Ok(())
    }

    fn in_order(mut self, queue: &[Waiting], said: &[PlannerAnswer]) -> Result<(), String> {
        let now = self.now;
        std::iter::zip(queue, said).try_for_each(|(waiting, said)| self.place(waiting, said, now))
    }

    /// No job starts before the one in front of it.
    fn fcfs(mut self, queue: &[Waiting], said: &[PlannerAnswer]) -> Result<(), String> {
        let mut from = self.now;
        for (waiting, said) in std::iter::zip(queue, said) {
            self.place(waiting, said, from)?;
            from = said.at;
        }
        Ok(())
    }

    /// The first job that cannot start is planned; jobs behind it start only beside that plan. The others come last.
    fn easy(mut self, queue: &[Waiting], said: &[PlannerAnswer]) -> Result<(), String> {
        let mut has_head = false;
        let mut others = Vec::new();
        for (waiting, said) in std::iter::zip(queue, said) {
            let starts = self.earliest(&waiting.request, self.now) == Some(self.now);
            if starts || !has_head {
                self.place(waiting, said, self.now)?;
            } else {
                others.push((waiting, said));
            }
            has_head |= !starts;
        }
        let later = self.now + Span::from_millis(1);
        others.into_iter().try_for_each(|(waiting, said)| self.place(waiting, said, later))
    }

    /// Where starts were promised, no job could start earlier beside all the others, or starts later than promised.
    fn conservative(self, queue: &[Waiting], said: &[PlannerAnswer], is_punctual: bool) -> Result<(), String> {
        if queue.iter().all(|waiting| waiting.promised.is_none()) {
            return self.in_order(queue, said);
        }
        let late =
            |(waiting, said): &(&Waiting, &PlannerAnswer)| waiting.promised.is_some_and(|promised| said.at > promised);
        if let Some((waiting, said)) = std::iter::zip(queue, said).find(late).filter(|_| is_punctual) {
            return Err(format!("{waiting:?} comes too late: {said:?}"));
        }
        let mut plans = Vec::new();
        self.plans(queue, said, &mut Vec::new(), &mut plans);
        let mut outcome = Err("they have no room beside each other".to_owned());
        for plan in plans {
            outcome = self.nobody_could_be_earlier(queue, said, &plan);
            if outcome.is_ok() {
                return Ok(());
            }
        }
        outcome
    }

    /// Collects each way in which all jobs have room on the given nodes; which of two parts of a node a job has was not
    /// given.
    fn plans(&self, queue: &[Waiting], said: &[PlannerAnswer], so_far: &mut Vec<Use>, plans: &mut Vec<Vec<Use>>) {
        let idx = so_far.len();
        let (Some(waiting), Some(PlannerAnswer { at, nodes, .. })) = (queue.get(idx), said.get(idx)) else {
            plans.push(so_far.clone());
            return;
        };
        let beside = BruteForce { uses: [self.uses.as_slice(), so_far].concat(), ..self.clone() };
        let is_kept = waiting.promised == Some(*at);
        let rest_from = match said[idx].starts {
            true => vec![self.now],
            false if is_kept => {
                [AT_ONCE, LEAVES].map(|late| *at + late).into_iter().filter(|at| *at > self.now).collect()
            }
            false => Vec::new(),
        };
        let rest = |from: Time| Some((from, from + waiting.rest(self.now, from)?.wall));
        let rests = rest_from.into_iter().filter_map(rest);
        for (from, until) in std::iter::once((*at, *at + waiting.request.wall)).chain(rests) {
            let mut ways: Vec<Vec<(usize, Part)>> = vec![Vec::new()];
            for place in nodes {
                let parts = waiting.request.parts(&self.machines[*place]);
                let with_room = parts.into_iter().filter(|part| beside.has_room(*place, *part, from, until));
                let with_room: Vec<Part> = with_room.collect();
                let with = |way: &Vec<(usize, Part)>, part: &Part| [way.as_slice(), &[(*place, *part)]].concat();
                ways = ways.iter().flat_map(|way| with_room.iter().map(move |part| with(way, part))).collect();
            }
            for parts in ways {
                so_far.push(Use { from, until, parts });
                self.plans(queue, said, so_far, plans);
                so_far.pop();
            }
        }
    }

    fn nobody_could_be_earlier(&self, queue: &[Waiting], said: &[PlannerAnswer], plan: &[Use]) -> Result<(), String> {
        for (idx, (waiting, said)) in std::iter::zip(queue, said).enumerate() {
            let others = plan.iter().enumerate().filter(|(other, _)| *other != idx).map(|(_, used)| used.clone());
            let beside = BruteForce { uses: self.uses.iter().cloned().chain(others).collect(), ..self.clone() };
            let rest = waiting.rest(self.now, self.now).filter(|_| said.starts);
            let earliest = beside.earliest(&rest.unwrap_or(waiting.request), self.now);
            let waits = plan[idx].from > said.at && earliest != Some(self.now);
            if !waits && (earliest != Some(said.at) || said.starts != (said.at == self.now)) {
                return Err(format!("{waiting:?} could start at {earliest:?}; {said:?}"));
            }
        }
        Ok(())
    }
}

/// Returns whether there is room for another one beside these.
fn fits(machine: &Machine, others: &[Part], more: Part) -> bool {
    let Part::Slice { mut cores, mut memory, mut gpus } = more else { return others.is_empty() };
    for other in others {
        let Part::Slice { cores: n_cores, memory: mib, gpus: n_gpus } = other else { return false };
        (cores, memory) = (cores + n_cores, memory + mib);
        std::iter::zip(&mut gpus, n_gpus).for_each(|(sum, count)| *sum += count);
    }
    cores <= machine.cores
        && memory <= machine.memory
        && std::iter::zip(gpus, machine.gpus).all(|(sum, has)| sum <= has)
}

/// A cluster, its jobs, and what was expected of it so far.
struct SmallCluster {
    world: World,
    policy: Policy,
    machines: Vec<Machine>,
    nodes: Vec<NodeId>,
    requests: BTreeMap<JobId, JobRequest>,
    /// When running jobs will end.
    ends: BTreeMap<JobId, Time>,
    /// Whether every job ends by its wall time.
    is_punctual: bool,
    /// The first start that a job may count on.
    promised: BTreeMap<JobId, Time>,
    counts: Counts,
}

/// What was seen, over all cases.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    judged: u32,
    estimates: u32,
    starts: u32,
    /// Starts before a job that came earlier.
    passing: u32,
    /// Jobs that may count on an earlier start than before.
    moved: u32,
    /// Jobs that would start if the server planned again, since those planned before them have other nodes now.
    second_looks: u32,
}

impl SmallCluster {
    fn new(dice: &mut Dice, policy: Policy) -> SmallCluster {
        let mut world = World::new();
        world.set("allocation", "cores");
        world.set("policy", policy.name());
        let machine = random_machine(dice);
        let is_mixed = dice.chance(70);
        let machines: Vec<Machine> =
            (0..dice.number(1, 4)).map(|_| if is_mixed { random_machine(dice) } else { machine }).collect();
        for (idx, machine) in machines.iter().enumerate() {
            let Machine { cores, threads, memory, gpus, is_fast } = *machine;
            let devices = std::iter::zip(GPUS, gpus).map(|(name, count)| (name.to_owned(), count));
            let inventory = Inventory {
                cores,
                cpus: cores * threads,
                memory: Mebibytes(memory),
                devices: devices.collect(),
                features: is_fast.then(|| "fast".to_owned()).into_iter().collect(),
                ..Inventory::default()
            };
            world.joins(&format!("n{idx}"), inventory, Vec::new());
        }
        let nodes = world.rms.state().nodes().keys().copied().collect();
        let (requests, ends, promised) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (is_punctual, counts) = (dice.chance(90), Counts::default());
        SmallCluster { world, policy, machines, nodes, requests, ends, is_punctual, promised, counts }
    }

    /// Handles an event without planning.
    fn without_planning(&mut self, event: Event) {
        let Ok(_) = self.world.rms.handle(self.world.now, event).commit(&mut NullJournal);
    }

    fn submit(&mut self, dice: &mut Dice, n_jobs: u32) {
        for _ in 0..n_jobs {
            let request = self.random_request(dice);
            let mut submission = self.world.submission();
            submission.shapes = vec![Shape { nodes: Nodes::Count(request.nodes), wall: Some(request.wall) }];
            submission.n_tasks = Some(request.nodes);
            submission.cpus_per_task = request.cpus;
            submission.constraint.memory = Mebibytes(request.memory);
            submission.constraint.features = request.wants_fast.then(|| "fast".to_owned()).into_iter().collect();
            let name = request.gpu_type.map_or("gpu", |gpu| GPUS[gpu]);
            submission.resources.devices = [(name.to_owned(), request.gpus)].into_iter().collect();
            // The same by the names to use, or those to avoid.
            let is_allowed = |place: &usize| request.allows(*place);
            let (names, others): (Vec<usize>, Vec<usize>) = (0..self.machines.len()).partition(is_allowed);
            let names_of = |places: Vec<usize>| places.into_iter().map(|place| format!("n{place}")).collect();
            match dice.chance(50) {
                true if !others.is_empty() => submission.constraint.nodelist = names_of(names),
                _ => submission.constraint.exclude = names_of(others),
            }
            submission.resources.exclusive = request.is_exclusive;
            submission.resources.packing = request.packing;
            let who = Identity::new(Role::Admin, "root").expect("a plain name");
            let before = self.world.rms.state().last_job;
            self.without_planning(Event::Called { ticket: Ticket(1), who, call: Call::Submit(Box::new(submission)) });
            let job = self.world.rms.state().last_job;
            assert!(job > before, "{request:?} is refused on {:?}", self.machines);
            self.requests.insert(job, request);
        }
    }

    /// Returns a random request that fits on enough nodes.
    fn random_request(&self, dice: &mut Dice) -> JobRequest {
        loop {
            let model = self.machines[dice.number(0, self.machines.len() as u32 - 1) as usize];
            let gpus = if dice.chance(30) { dice.number(0, 2) } else { 0 };
            let request = JobRequest {
                nodes: if dice.chance(50) { 1 } else { dice.number(1, self.machines.len() as u32) },
                cpus: if dice.chance(10) { 0 } else { dice.number(1, model.cores * model.threads) },
                memory: if dice.chance(50) { 0 } else { u64::from(dice.number(1, 8)) * 500 },
                gpus,
                gpu_type: if dice.chance(50) { Some(dice.number(0, 1) as usize) } else { None },
                wants_fast: dice.chance(10),
                allowed: if dice.chance(30) { dice.number(1, 15) } else { u32::MAX },
                is_exclusive: dice.chance(10),
                packing: if dice.chance(50) { Packing::Pack } else { Packing::Spread },
                wall: Span::from_secs(i64::from(dice.number(1, 8)) * 10),
            };
            let suits = |place: &usize| request.allows(*place) && !request.parts(&self.machines[*place]).is_empty();
            if (0..self.machines.len()).filter(suits).count() >= request.nodes as usize {
                return request;
            }
        }
    }

    /// Advances the clock to the next moment at which something ends or is due, or by `at_most`.
    fn pass_time(&mut self, at_most: Span) {
        let promise = self.world.rms.state().next_promise(self.world.now);
        let next = self.ends.values().copied().chain(promise).min().unwrap_or(Time::NEVER);
        let now = self.world.now;
        self.world.now = next.clamp(now, now + at_most);
        let due: Vec<JobId> =
            self.ends.iter().filter(|(_, end)| **end <= self.world.now).map(|(job, _)| *job).collect();
        for job in due {
            self.ends.remove(&job);
            let run = self.world.rms.state().jobs()[&job].run;
            self.without_planning(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
        }
    }

    /// Returns the running jobs of the state; each has what it requested.
    fn running(&self) -> Vec<Use> {
        let now = self.world.now;
        let mut uses = Vec::new();
        for (job, entry) in self.world.rms.state().jobs() {
            let Some(started) = entry.started() else { continue };
            let request = &self.requests[job];
            let place = |node: &NodeId| self.nodes.iter().position(|known| known == node).expect("a node");
            let part = |node| (place(node), entry.grants().get(node).map_or(Part::Whole, part_of));
            let parts: Vec<(usize, Part)> = entry.nodes().iter().map(part).collect();
            for (place, part) in &parts {
                let ways = request.parts(&self.machines[*place]);
                assert!(ways.contains(part), "{job} has {part:?} of node {place}, but asks for {request:?}");
            }
            let end = started.planned_until();
            // A job that should have left stays a tenth of a second more, or a second, or the ten of its grace time, or
            // ten from now on.
            let assumed = [end, end + AT_ONCE, end + LEAVES, end + Span::from_secs(10)];
            let until = assumed.into_iter().find(|until| *until > now).unwrap_or(now + Span::from_secs(10));
            uses.push(Use { from: started.at, until, parts });
        }
        uses
    }

    fn queue(&self) -> Vec<Waiting> {
        let jobs = self.world.rms.state().jobs().iter().filter(|(_, entry)| entry.is_queued());
        let waiting = |(job, entry): (&JobId, &Job)| Waiting {
            job: *job,
            request: self.requests[job],
            promised: entry.promised.as_ref().map(|promise| promise.at),
        };
        jobs.map(waiting).collect()
    }

    /// Returns the planner's present results, after checking that the rules allow them.
    fn checked_plan(&mut self) -> Vec<(Waiting, PlannerAnswer)> {
        let (now, queue) = (self.world.now, self.queue());
        let found = plan(self.world.rms.state(), now, Scope::Estimates);
        let place = |node: &NodeId| self.nodes.iter().position(|known| known == node).expect("a node");
        let said = |waiting: &Waiting| {
            let (nodes, at, starts) = match &found.placement(waiting.job).expect("everybody is planned").outcome {
                Placed::Now { nodes, .. } => (nodes, now, true),
                Placed::Later { nodes, at, .. } => (nodes, *at, false),
                never @ Placed::Never { .. } => panic!("{waiting:?}: {never:?}"),
            };
            PlannerAnswer { at, starts, nodes: nodes.iter().map(place).collect() }
        };
        let said: Vec<PlannerAnswer> = queue.iter().map(said).collect();
        let brute = BruteForce { machines: &self.machines, now, uses: self.running() };
        let verdict = match self.policy {
            // No job here shares.
            Policy::Views | Policy::Slowdown => brute.clone().in_order(&queue, &said),
            Policy::Fcfs => brute.clone().fcfs(&queue, &said),
            Policy::Easy => brute.clone().easy(&queue, &said),
            Policy::Conservative => brute.clone().conservative(&queue, &said, self.is_punctual),
        };
        if let Err(objection) = verdict {
            panic!(
                "{}: {objection}\n{brute:#?}\n{:#?}",
                self.policy,
                std::iter::zip(&queue, &said).collect::<Vec<_>>()
            );
        }
        self.counts.judged += 1;
        std::iter::zip(queue, said).collect()
    }

    /// Lets the server plan: it starts the jobs that the rules allow now; all others get an estimate.
    fn settle(&mut self, dice: &mut Dice) {
        let is_due = self.world.rms.next_timer().is_some_and(|due| due <= self.world.now);
        let before = self.checked_plan();
        self.world.event(Event::Tick);
        let mut has_gap = false;
        for (Waiting { job, request, .. }, said) in &before {
            let entry = &self.world.rms.state().jobs()[job];
            // A job that would start by a second pass waits until something happens.
            let starts = said.starts && is_due;
            assert_eq!(entry.started().is_some(), starts, "{job}: {said:?}\n{before:#?}");
            has_gap |= !said.starts;
            let Some(started) = entry.started() else { continue };
            let nodes: Vec<NodeId> = said.nodes.iter().map(|place| self.nodes[*place]).collect();
            assert_eq!(entry.nodes(), nodes, "{job}");
            let promised = self.promised.get(job).copied().unwrap_or(Time::NEVER);
            assert!(started.at <= promised || !self.is_punctual, "{job} was promised {promised:?}");
            let in_time = started.at + Span::from_millis(request.wall.as_millis() * i64::from(dice.number(1, 4)) / 4);
            let late = started.at + request.wall + Span::from_secs(dice.number(1, 15).into());
            let end = match (self.is_punctual, dice.chance(60)) {
                (true, true) => started.at + request.wall,
                (true, false) => in_time,
                (false, _) => late,
            };
            self.ends.insert(*job, end);
            self.counts.starts += 1;
            self.counts.passing += u32::from(has_gap);
        }
        // Promises are planned around, too.
        let is_same = self.policy != Policy::Conservative && before.iter().all(|(_, said)| !said.starts);
        let after = if is_same { before } else { self.checked_plan() };
        let lines = match self.world.ask(Call::Query(Query::Queue(JobFilter::default()))) {
            Answer::Queue { jobs, .. } => jobs,
            other => panic!("no queue: {other:?}"),
        };
        for (idx, (Waiting { job, .. }, said)) in after.iter().enumerate() {
            let line = lines.iter().find(|line| line.job == *job).expect("it waits");
            assert_eq!(line.estimate, Some(said.at), "{job}");
            self.counts.estimates += 1;
            self.counts.second_looks += u32::from(said.starts);
            // No job overtakes the first one, nor one with a promised start.
            let promise = match self.policy {
                Policy::Conservative => self.world.rms.state().jobs()[job].promised.as_ref().map(|promise| promise.at),
                Policy::Views | Policy::Fcfs | Policy::Easy | Policy::Slowdown => Some(said.at).filter(|_| idx == 0),
            };
            let Some(promise) = promise else { continue };
            let first = *self.promised.entry(*job).or_insert(promise);
            assert!(promise <= first || !self.is_punctual, "{job} was promised {first:?} and now {promise:?}");
            self.counts.moved += u32::from(promise < first);
            self.promised.insert(*job, promise);
        }
    }
}

fn part_of(grant: &Grant) -> Part {
    let gpus = GPUS.map(|name| grant.devices.get(name).map_or(0, |indices| indices.iter().count() as u32));
    Part::Slice { cores: grant.cores.iter().count() as u32, memory: grant.memory.0, gpus }
}

fn random_machine(dice: &mut Dice) -> Machine {
    let has_gpus = dice.chance(40);
    let mut gpus = || if has_gpus { dice.number(0, 2) } else { 0 };
    let gpus = [gpus(), gpus()];
    Machine {
        cores: dice.number(1, 4),
        threads: if dice.chance(20) { 2 } else { 1 },
        memory: u64::from(dice.number(1, 4)) * 1000,
        gpus,
        is_fast: dice.chance(20),
    }
}

fn run(dice: &mut Dice) -> Counts {
    let policy = Policy::ALL[dice.number(0, 3) as usize];
    let mut cluster = SmallCluster::new(dice, policy);
    let n_first = dice.number(0, 3);
    cluster.submit(dice, n_first);
    cluster.settle(dice);
    let gap = Span::from_secs(i64::from(dice.number(0, 4)) * 5);
    cluster.pass_time(gap);
    let n_waiting = dice.number(2, 5);
    cluster.submit(dice, n_waiting);
    cluster.settle(dice);
    let mut n_more = dice.number(0, 2);
    while !cluster.ends.is_empty() {
        cluster.pass_time(Span::from_secs(i64::from(dice.number(1, 20)) * 5));
        if n_more > 0 && dice.chance(30) {
            n_more -= 1;
            cluster.submit(dice, 1);
        }
        cluster.settle(dice);
    }
    assert_eq!(cluster.queue().len(), 0, "all have run");
    cluster.counts
}

#[test]
fn small_clusters_are_planned_as_the_rules_say() {
    run_seeds(40);
}

#[test]
fn long_small_clusters_are_planned_as_the_rules_say() {
    let sum = run_seeds(1000);
    let is_all = sum.judged > 10_000 && sum.estimates > 8000 && sum.starts > 4000;
    assert!(is_all && sum.passing > 400 && sum.moved > 200, "{sum:?}");
}

fn run_seeds(n_seeds: u64) -> Counts {
    let mut sum = Counts::default();
    for_seeds("small_clusters_are_planned_as_the_rules_say", n_seeds, |dice| {
        let Counts { judged, estimates, starts, passing, moved, second_looks } = run(dice);
        sum = Counts {
            judged: sum.judged + judged,
            estimates: sum.estimates + estimates,
            starts: sum.starts + starts,
            passing: sum.passing + passing,
            moved: sum.moved + moved,
            second_looks: sum.second_looks + second_looks,
        };
    });
    sum
}
