//! Decides on which nodes of its job a step runs, and with how many tasks on each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rms_api::desired::LaunchNode;
use rms_model::hostlist;
use thiserror::Error;

use crate::order::Order;
use crate::pmi::place::MAX_PER_NODE;
use crate::rsh::StepRequest;

/// The tasks of a step on one node, in the order of the job's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTasks {
    pub place: LaunchNode,
    pub n_tasks: u32,
}

/// Why a step cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("{name} is not a node of job {job}, or the job is to leave it: {job} has {nodes}")]
    Stranger { name: String, job: u64, nodes: String },
    #[error("the step asks for node {name}, which it excludes, or which comes before its first node")]
    LeftOut { name: String },
    #[error("the step asks for {wanted} nodes, but {there} of job {job} can be used: {nodes}")]
    TooFewNodes { wanted: u32, there: u32, job: u64, nodes: String },
    #[error(
        "no room for {} of {}: {nodes} can take {room} of them{}; --overcommit starts them all the same",
        many(*n_tasks, "task"),
        many(*cpus, "CPU"),
        missing(*.n_missing)
    )]
    TooManyTasks { n_tasks: u32, cpus: u32, room: u32, nodes: String, n_missing: u32 },
    #[error("the step asks for {n_tasks} tasks on node {node}: at most {MAX_PER_NODE} are started on one")]
    TooManyOnOne { n_tasks: u32, node: String },
    /// Other steps use the CPUs.
    #[error("other steps of the job have the CPUs")]
    Busy,
}

fn many(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn missing(n_cpus: u32) -> String {
    match n_cpus {
        0 => String::new(),
        n_cpus => format!("; of the CPUs that the job asked for there, {n_cpus} are lent or missing now"),
    }
}

/// Places the tasks of a step. `taken` are the CPUs that other steps use, by node.
///
/// # Errors
/// The step can never be placed, or not now.
pub fn lay_out(
    order: &Order,
    step: &StepRequest,
    taken: &BTreeMap<String, u32>,
) -> Result<Vec<NodeTasks>, LayoutError> {
    let cpus_per_task = step.cpus_per_task.unwrap_or(order.launch.cpus_per_task).max(1);
    let candidates = nodes_of(order, step, taken, cpus_per_task)?;
    let there = candidates.len() as u32;
    let n_named = step.named.len() as u32;
    let (least, most) = step.nodes.unwrap_or(if n_named > 0 { (n_named, n_named) } else { (1, there) });
    if least > there || there == 0 {
        let nodes = names(&candidates.iter().collect::<Vec<_>>());
        return Err(LayoutError::TooFewNodes { wanted: least.max(1), there, job: order.job.0, nodes });
    }
    let most = most.min(there).max(n_named).max(least);
    let n_nodes = match step.tasks {
        Some(n_tasks) => most.min(n_tasks.max(1)),
        None => most,
    };
    // The nodes with the least load from other steps, or else those on which the most tasks fit.
    let mut refused = None;
    for preference in [Preference::Idle, Preference::Free, Preference::Room] {
        match spread_over(&choose(&candidates, step, n_nodes, preference), step, cpus_per_task) {
            Ok(layout) => return Ok(layout),
            Err(_) if refused == Some(LayoutError::Busy) => {}
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or(LayoutError::Busy))
}

fn spread_over(
    chosen: &[&Candidate<'_>],
    step: &StepRequest,
    cpus_per_task: u32,
) -> Result<Vec<NodeTasks>, LayoutError> {
    let own = |candidate: &Candidate<'_>| step.tasks_per_node.unwrap_or(candidate.own);
    let n_tasks =
        step.tasks.unwrap_or_else(|| chosen.iter().map(|candidate| own(candidate)).fold(0, u32::saturating_add)).max(1);
    let most_each = |candidate: &Candidate<'_>| match (step.tasks, step.tasks_per_node) {
        (None, _) => own(candidate),
        (Some(_), Some(most)) => most,
        (Some(_), None) => u32::MAX,
    };
    let room = |of: fn(&Candidate<'_>) -> u32| -> Vec<u32> {
        chosen
            .iter()
            .map(|candidate| if step.overcommit { u32::MAX } else { of(candidate) }.min(most_each(candidate)))
            .collect()
    };
    let Some(wanted) = spread(n_tasks, &room(|candidate| candidate.room)) else {
        let room = room(|candidate| candidate.room).iter().fold(0, |sum: u32, room| sum.saturating_add(*room));
        let n_missing = chosen.iter().fold(0, |sum: u32, candidate| sum.saturating_add(candidate.n_missing));
        let nodes = names(chosen);
        return Err(LayoutError::TooManyTasks { n_tasks, cpus: cpus_per_task, room, nodes, n_missing });
    };
    let counts = match step.exclusive {
        true => spread(n_tasks, &room(|candidate| candidate.free)).ok_or(LayoutError::Busy)?,
        false => wanted,
    };
    let most = chosen.iter().zip(&counts).max_by_key(|(_, n_tasks)| **n_tasks);
    if let Some((candidate, n_tasks)) = most.filter(|(_, n_tasks)| **n_tasks > MAX_PER_NODE) {
        return Err(LayoutError::TooManyOnOne { n_tasks: *n_tasks, node: candidate.place.name.clone() });
    }
    let layout = chosen.iter().zip(counts).filter(|(_, n_tasks)| *n_tasks > 0);
    Ok(layout.map(|(candidate, n_tasks)| NodeTasks { place: candidate.place.clone(), n_tasks }).collect())
}

/// A node that the step may use.
struct Candidate<'a> {
    place: &'a LaunchNode,
    /// Tasks that the job itself has there.
    own: u32,
    /// The step's tasks for which there is room, and how many of them fit in addition to other steps (`free`).
    room: u32,
    free: u32,
    taken: u32,
    /// CPUs that the job requested and does not have now: it lends them, or started without them.
    n_missing: u32,
}

fn nodes_of<'a>(
    order: &'a Order,
    step: &StepRequest,
    taken: &BTreeMap<String, u32>,
    cpus_per_task: u32,
) -> Result<Vec<Candidate<'a>>, LayoutError> {
    let is_usable = |name: &str| order.usable().any(|place| place.name == name);
    if let Some(name) = step.named.iter().find(|name| !is_usable(name)) {
        let places: Vec<&str> = order.usable().map(|place| place.name.as_str()).collect();
        let nodes = hostlist::fold(&places);
        return Err(LayoutError::Stranger { name: name.clone(), job: order.job.0, nodes });
    }
    let candidate = |place: &'a LaunchNode| {
        let has_given_back = place.asked_cpus > place.cpus && !place.shares_cpus;
        let of_tasks = place.n_tasks.saturating_mul(order.launch.cpus_per_task.max(1));
        // Steps may request what the job requested: they then share the CPUs that it has.
        let asked = if has_given_back { 0 } else { place.asked_cpus.max(of_tasks) };
        let cpus = place.cpus.max(asked).max(1);
        let taken = taken.get(&place.name).copied().unwrap_or(0);
        // A job that has given CPUs back has its tasks all the same.
        let own_tasks = if has_given_back && step.cpus_per_task.is_none() { place.n_tasks } else { 0 };
        let room = (cpus / cpus_per_task).max(own_tasks);
        let own_free = own_tasks.saturating_sub(taken.div_ceil(cpus_per_task));
        let free = (cpus.saturating_sub(taken) / cpus_per_task).max(own_free);
        let n_missing = if place.shares_cpus { asked.saturating_sub(place.cpus) } else { 0 };
        Candidate { place, own: place.n_tasks.max(1), room, free, taken, n_missing }
    };
    let may_be = |place: &&LaunchNode| !step.excluded.contains(&place.name);
    let candidates: Vec<_> = order.usable().skip(step.first_node as usize).filter(may_be).map(candidate).collect();
    let is_left_out = |name: &&String| !candidates.iter().any(|candidate| candidate.place.name == **name);
    match step.named.iter().find(is_left_out) {
        Some(name) => Err(LayoutError::LeftOut { name: name.clone() }),
        None => Ok(candidates),
    }
}

/// Which nodes come first, after the named ones.
#[derive(Clone, Copy)]
enum Preference {
    /// The fewest CPUs are used by other steps, and a step of its own CPUs has some.
    Idle,
    /// The most tasks fit beside the other steps.
    Free,
    /// The most tasks fit.
    Room,
}

/// Chooses nodes; in the order of the job.
fn choose<'a, 'b>(
    candidates: &'b [Candidate<'a>],
    step: &StepRequest,
    n_nodes: u32,
    preference: Preference,
) -> Vec<&'b Candidate<'a>> {
    let rank = |(idx, candidate): (usize, &Candidate<'_>)| {
        let is_named = step.named.contains(&candidate.place.name);
        let by_preference = match preference {
            Preference::Idle => (step.exclusive && candidate.free == 0, Reverse(0), candidate.taken),
            Preference::Free => (false, Reverse(candidate.free), candidate.taken),
            Preference::Room => (false, Reverse(candidate.room), candidate.taken),
        };
        (!is_named, by_preference, idx)
    };
    let mut ranks: Vec<_> = candidates.iter().enumerate().map(rank).collect();
    ranks.sort_unstable();
    let mut chosen: Vec<usize> = ranks.iter().take(n_nodes as usize).map(|(_, _, idx)| *idx).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|idx| &candidates[idx]).collect()
}

/// Distributes tasks as evenly as the room permits. Returns the number on each node; `None` if there is not enough
/// room.
fn spread(n_tasks: u32, room: &[u32]) -> Option<Vec<u32>> {
    let mut counts = vec![0_u32; room.len()];
    let mut left = n_tasks;
    while left > 0 {
        let before = left;
        let n_open = counts.iter().zip(room).filter(|(count, room)| count < room).count() as u32;
        // Several rounds at once: a step may have very many tasks.
        let each = (left / n_open.max(1)).max(1);
        for (count, room) in counts.iter_mut().zip(room) {
            let more = each.min(room - *count).min(left);
            *count += more;
            left -= more;
        }
        if left == before {
            return None;
        }
    }
    Some(counts)
}

fn names(candidates: &[&Candidate<'_>]) -> String {
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.place.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { hostlist::fold(&names) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests;

    /// Returns a job with these nodes: name, CPUs and tasks of each.
    fn job(nodes: &[(&str, u32, u32)]) -> Order {
        let place = |(name, cpus, n_tasks): &(&str, u32, u32)| LaunchNode {
            n_tasks: *n_tasks,
            cpus: *cpus,
            ..test_kit::place(name)
        };
        tests::order(nodes.iter().map(place))
    }

    fn three() -> Order {
        job(&[("n1", 4, 2), ("n2", 4, 2), ("n3", 4, 1)])
    }

    fn laid_out(order: &Order, step: &StepRequest) -> String {
        told(lay_out(order, step, &BTreeMap::new()))
    }

    fn told(layout: Result<Vec<NodeTasks>, LayoutError>) -> String {
        match layout {
            Ok(layout) => {
                let layout: Vec<String> =
                    layout.iter().map(|node| format!("{}:{}", node.place.name, node.n_tasks)).collect();
                layout.join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    fn asking(change: impl FnOnce(&mut StepRequest)) -> StepRequest {
        let mut step = StepRequest::default();
        change(&mut step);
        step
    }

    #[test]
    fn a_step_that_asks_for_nothing_has_all_that_the_job_has() {
        assert_eq!(laid_out(&three(), &StepRequest::default()), "n1:2 n2:2 n3:1");
        // A script has no tasks of its own on its other nodes.
        assert_eq!(laid_out(&job(&[("n1", 2, 0), ("n2", 2, 0)]), &StepRequest::default()), "n1:1 n2:1");
    }

    #[test]
    fn tasks_are_spread_evenly_as_far_as_there_is_room() {
        let check = |change: fn(&mut StepRequest), expected: &str| {
            assert_eq!(laid_out(&three(), &asking(change)), expected);
        };
        check(|step| step.tasks = Some(1), "n1:1");
        check(|step| step.tasks = Some(3), "n1:1 n2:1 n3:1");
        check(|step| step.tasks = Some(5), "n1:2 n2:2 n3:1");
        check(|step| step.tasks = Some(12), "n1:4 n2:4 n3:4");
        check(|step| step.nodes = Some((2, 2)), "n1:2 n2:2");
        check(|step| (step.nodes, step.tasks) = (Some((2, 2)), Some(6)), "n1:3 n2:3");
        check(|step| (step.nodes, step.tasks_per_node) = (Some((1, 2)), Some(3)), "n1:3 n2:3");
        check(|step| (step.tasks, step.cpus_per_task) = (Some(3), Some(4)), "n1:1 n2:1 n3:1");
        check(|step| step.named = vec!["n2".to_owned(), "n3".to_owned()], "n2:2 n3:1");
        check(|step| (step.named, step.tasks) = (vec!["n3".to_owned()], Some(1)), "n3:1");
        check(|step| (step.excluded, step.tasks) = (vec!["n1".to_owned()], Some(1)), "n2:1");
        check(|step| (step.first_node, step.tasks) = (2, Some(2)), "n3:2");
        let unequal = job(&[("n1", 1, 1), ("n2", 8, 1)]);
        assert_eq!(laid_out(&unequal, &asking(|step| step.tasks = Some(6))), "n1:1 n2:5");
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_could() {
        let check = |change: fn(&mut StepRequest), expected: &str| {
            let told = laid_out(&three(), &asking(change));
            assert!(told.contains(expected), "{told}");
        };
        check(|step| step.nodes = Some((4, 4)), "asks for 4 nodes, but 3 of job 1 can be used: n[1-3]");
        check(|step| step.tasks = Some(13), "no room for 13 tasks of 1 CPU: n[1-3] can take 12 of them");
        check(|step| step.cpus_per_task = Some(5), "room");
        check(|step| step.named = vec!["n9".to_owned()], "n9 is not a node of job 1");
        check(|step| step.first_node = 3, "0 of job 1");
        let left_out = "asks for node n1, which it excludes, or which comes before its first node";
        check(|step| (step.named, step.excluded) = (vec!["n1".to_owned()], vec!["n1".to_owned()]), left_out);
        check(|step| (step.named, step.first_node) = (vec!["n1".to_owned()], 1), left_out);
        let mut leaving = three();
        leaving.launch_mut().nodes[2].departing = true;
        assert_eq!(laid_out(&leaving, &StepRequest::default()), "n1:2 n2:2");
        let many = asking(|step| (step.tasks, step.overcommit) = (Some(30), true));
        assert_eq!(laid_out(&three(), &many), "n1:10 n2:10 n3:10");
    }

    #[test]
    fn a_step_may_ask_for_what_its_job_asked_for_while_cpus_are_lent() {
        let mut lender = job(&[("n1", 4, 2), ("n2", 8, 2)]);
        lender.launch_mut().cpus_per_task = 4;
        (lender.launch_mut().nodes[0].asked_cpus, lender.launch_mut().nodes[0].shares_cpus) = (8, true);
        let check = |n_tasks: u32, cpus: u32, expected: &str| {
            let step = asking(|step| (step.tasks, step.cpus_per_task) = (Some(n_tasks), Some(cpus)));
            let told = laid_out(&lender, &step);
            assert!(told.contains(expected), "{told}");
        };
        check(4, 4, "n1:2 n2:2");
        check(16, 1, "n1:8 n2:8");
        check(2, 8, "n1:1 n2:1");
        let missing = "; of the CPUs that the job asked for there, 4 are lent or missing now";
        check(5, 4, &format!("no room for 5 tasks of 4 CPUs: n[1-2] can take 4 of them{missing};"));
        assert!(!laid_out(&three(), &asking(|step| step.tasks = Some(13))).contains("lent"));
    }

    #[test]
    fn a_step_of_a_job_that_asked_for_whole_nodes_may_ask_for_all_of_their_cpus_while_some_are_lent() {
        let mut lender = job(&[("n1", 8, 1)]);
        (lender.launch_mut().nodes[0].asked_cpus, lender.launch_mut().nodes[0].shares_cpus) = (16, true);
        assert_eq!(laid_out(&lender, &asking(|step| step.tasks = Some(16))), "n1:16");
        assert_eq!(laid_out(&lender, &asking(|step| (step.tasks, step.cpus_per_task) = (Some(8), Some(2)))), "n1:8");
        let refused = laid_out(&lender, &asking(|step| step.tasks = Some(17)));
        assert!(
            refused.contains("can take 16 of them") && refused.contains(", 8 are lent or missing now"),
            "{refused}"
        );
        let taken = BTreeMap::from([("n1".to_owned(), 8)]);
        let beside = asking(|step| (step.tasks, step.exclusive) = (Some(8), true));
        assert_eq!(told(lay_out(&lender, &beside, &taken)), "n1:8");
    }

    #[test]
    fn a_step_may_not_ask_for_cpus_that_its_job_has_given_back() {
        let mut smaller = job(&[("n1", 8, 4)]);
        smaller.launch_mut().cpus_per_task = 4;
        smaller.launch_mut().nodes[0].asked_cpus = 16;
        assert_eq!(laid_out(&smaller, &StepRequest::default()), "n1:4", "its own tasks");
        let told = laid_out(&smaller, &asking(|step| (step.tasks, step.cpus_per_task) = (Some(9), Some(1))));
        assert!(told.contains("can take 8 of them") && !told.contains("lent"), "{told}");
    }

    #[test]
    fn steps_side_by_side_go_where_the_others_are_not() {
        let taken = BTreeMap::from([("n1".to_owned(), 1), ("n2".to_owned(), 4)]);
        let lay_out = |change: fn(&mut StepRequest)| told(lay_out(&three(), &asking(change), &taken));
        assert_eq!(lay_out(|step| step.tasks = Some(1)), "n3:1");
        assert_eq!(lay_out(|step| step.tasks = Some(2)), "n1:1 n3:1");
        assert_eq!(lay_out(|step| (step.tasks, step.exclusive) = (Some(7), true)), "n1:3 n3:4");
        assert_eq!(
            lay_out(|step| (step.tasks, step.exclusive) = (Some(8), true)),
            "other steps of the job have the CPUs"
        );
        assert_eq!(lay_out(|step| step.tasks = Some(8)), "n1:3 n2:3 n3:2", "they share");
    }

    #[test]
    fn a_step_goes_where_its_tasks_fit() {
        let unequal = job(&[("n1", 4, 1), ("n2", 16, 1)]);
        let lay_out = |change: fn(&mut StepRequest), taken: [u32; 2]| {
            let taken = ["n1", "n2"].map(str::to_owned).into_iter().zip(taken).collect();
            told(lay_out(&unequal, &asking(change), &taken))
        };
        let of_8 = |step: &mut StepRequest| (step.tasks, step.cpus_per_task) = (Some(1), Some(8));
        assert_eq!(lay_out(of_8, [0, 4]), "n2:1");
        assert_eq!(lay_out(|step| (step.nodes, step.tasks) = (Some((1, 1)), Some(10)), [0, 4]), "n2:10");
        // Neither steps of its own CPUs that wait for others, nor those for which others leave enough.
        let own = |step: &mut StepRequest| (step.tasks, step.cpus_per_task, step.exclusive) = (Some(1), Some(8), true);
        assert_eq!(lay_out(own, [0, 12]), "other steps of the job have the CPUs");
        assert_eq!(lay_out(own, [0, 8]), "n2:1");
        let two = |step: &mut StepRequest| {
            (step.nodes, step.tasks, step.exclusive) = (Some((1, 1)), Some(2), true);
        };
        assert_eq!(lay_out(two, [3, 4]), "n2:2");
        // 15 CPUs are left for three each.
        let five = |step: &mut StepRequest| {
            (step.nodes, step.tasks, step.cpus_per_task, step.exclusive) = (Some((1, 1)), Some(5), Some(3), true);
        };
        assert_eq!(lay_out(five, [0, 1]), "n2:5");
    }
}
