//! Tests of jobs of several nodes with their hub, line by line without a process or a network.

mod leaving;
mod lossy;
mod spawning;
mod speaking;

use std::collections::{BTreeMap, VecDeque};

use super::frames::{Down, Placement, Up};
use super::hub::{Growth, Hub, HubOut, Member};
use super::node::{NodeRanks, first_birth};
use super::place::process_mapping;
use super::ranks::Out;
use super::{JobNode, RankId};
use crate::sys::End;

/// All nodes of a job with their hub, joined without a network.
struct Job {
    nodes: BTreeMap<JobNode, NodeRanks>,
    hub: Hub,
    first: JobNode,
    /// The node of each task.
    tasks: BTreeMap<u32, JobNode>,
    /// The lines sent to each task.
    heard: BTreeMap<u32, VecDeque<String>>,
    started: Vec<(JobNode, Placement)>,
    killed: Vec<u32>,
    read: Vec<(RankId, Vec<String>)>,
    asked: Vec<Growth>,
    n_pauses: usize,
    aborted: Option<(i32, String)>,
    /// Messages for the user.
    told: Vec<String>,
    /// Frames in flight, for tests that deliver them themselves.
    ups: VecDeque<(JobNode, Up)>,
    downs: VecDeque<(JobNode, Down)>,
    /// Why the next placement fails, and how many of its ranks start before that.
    problem: Option<(String, usize)>,
}

/// Returns node `a`, `b`, …, which belongs to the job from the start.
fn node(idx: usize) -> JobNode {
    let letter = char::from(b'a' + u8::try_from(idx).expect("few nodes"));
    JobNode { node: letter.to_string(), joined: 1 }
}

impl Job {
    /// Returns a job that fills its nodes.
    fn new(kvsname: &str, ranks_per_node: &[u32]) -> Job {
        Job::with_room(kvsname, ranks_per_node, ranks_per_node)
    }

    fn with_room(kvsname: &str, ranks_per_node: &[u32], capacities: &[u32]) -> Job {
        let n_ranks: u32 = ranks_per_node.iter().sum();
        let mut job = Job {
            nodes: BTreeMap::new(),
            hub: Hub::new(kvsname.to_owned(), members(capacities), ranks_per_node, 2, n_ranks),
            first: node(0),
            tasks: BTreeMap::new(),
            heard: BTreeMap::new(),
            started: Vec::new(),
            killed: Vec::new(),
            read: Vec::new(),
            asked: Vec::new(),
            n_pauses: 0,
            aborted: None,
            told: Vec::new(),
            ups: VecDeque::new(),
            downs: VecDeque::new(),
            problem: None,
        };
        let mut first_rank = 0;
        for (idx, n_local) in ranks_per_node.iter().enumerate() {
            let mapping = process_mapping(ranks_per_node.iter().copied().enumerate());
            let birth = first_birth(kvsname, n_ranks, n_ranks, mapping, first_rank, *n_local);
            job.nodes.insert(node(idx), NodeRanks::new(birth));
            job.tasks.extend((first_rank..first_rank + n_local).map(|task| (task, node(idx))));
            first_rank += n_local;
        }
        job
    }

    fn say(&mut self, task: u32, line: &str) {
        self.send(task, format!("{line}\n").as_bytes());
        self.carry_all();
    }

    fn send(&mut self, task: u32, bytes: &[u8]) {
        let node = self.tasks[&task].clone();
        let outs = self.node(&node).bytes(task, bytes);
        self.take(&node, outs);
    }

    fn task_ended(&mut self, task: u32, end: End) {
        self.leave(task, end);
        self.carry_all();
    }

    fn leave(&mut self, task: u32, end: End) {
        let node = self.tasks[&task].clone();
        let outs = self.node(&node).task_ended(task, end);
        self.take(&node, outs);
    }

    fn node(&mut self, node: &JobNode) -> &mut NodeRanks {
        self.nodes.get_mut(node).expect("the node is there")
    }

    /// Carries out a node's actions and queues its frames.
    fn take(&mut self, node: &JobNode, outs: Vec<Out>) {
        for out in outs {
            match out {
                Out::Line { task, line } => {
                    self.heard.entry(task).or_default().push_back(line.trim_end().to_owned());
                }
                Out::Abort { code, reason } => self.aborted = self.aborted.take().or(Some((code, reason))),
                Out::Hub(up) => self.ups.push_back((node.clone(), up)),
                Out::Read { from, paths } => self.read.push((from, paths)),
                Out::WriteError(reason) => self.told.push(reason),
                Out::Start(placement) => self.start(node, placement),
                Out::Kill { tasks } => {
                    self.killed.extend(&tasks);
                    for task in tasks {
                        self.leave(task, End::Signaled(9));
                    }
                }
            }
        }
    }

    fn start(&mut self, node: &JobNode, placement: Placement) {
        let n_ranks: u32 = placement.parts.iter().map(|part| part.n_ranks).sum();
        let (problem, n_started) = match self.problem.take() {
            Some((problem, n_before)) => (Some(problem), n_before.min(n_ranks as usize)),
            None => (None, n_ranks as usize),
        };
        self.tasks.extend((placement.first_task..).take(n_started).map(|task| (task, node.clone())));
        let outs = self.node(node).started(&placement, problem, n_started);
        self.started.push((node.clone(), placement));
        self.take(node, outs);
    }

    fn hub_wants(&mut self, outs: Vec<HubOut>) {
        for out in outs {
            match out {
                HubOut::Down(to, down) => self.downs.push_back((to, down)),
                HubOut::Pause => self.n_pauses += 1,
                HubOut::RequestNodes(growth) => self.asked.push(growth),
                HubOut::WriteError(reason) => self.told.push(reason),
            }
        }
    }

    /// Ends the pause in which ranks may leave.
    fn pause(&mut self) {
        let outs = self.hub.paused();
        self.hub_wants(outs);
        self.carry_all();
    }

    fn carry_up(&mut self, from: &JobNode, up: Up) {
        let outs = self.hub.receive(from, up);
        self.hub_wants(outs);
    }

    fn carry_down(&mut self, to: &JobNode, down: Down) {
        // A node that has left receives nothing any more.
        let outs = self.nodes.get_mut(to).map(|node| node.receive(down)).unwrap_or_default();
        self.take(to, outs);
    }

    /// Delivers frames until none are left.
    fn carry_all(&mut self) {
        loop {
            if let Some((from, up)) = self.ups.pop_front() {
                self.carry_up(&from, up);
            } else if let Some((to, down)) = self.downs.pop_front() {
                self.carry_down(&to, down);
            } else {
                return;
            }
        }
    }

    fn hears(&mut self, task: u32) -> String {
        let heard = self.heard.entry(task).or_default().pop_front();
        heard.unwrap_or_else(|| panic!("task {task} hears nothing; aborted: {:?}", self.aborted))
    }

    fn hears_nothing(&self, task: u32) -> bool {
        self.heard.get(&task).is_none_or(VecDeque::is_empty)
    }

    fn init(&mut self, task: u32) {
        self.say(task, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(self.hears(task), "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    }

    /// Finalizes a task and ends its process.
    fn finish(&mut self, task: u32) {
        self.say(task, "cmd=finalize");
        assert_eq!(self.hears(task), "cmd=finalize_ack rc=0");
        self.task_ended(task, End::Exited(0));
    }

    /// Returns the code and the reason of an abort that must have happened.
    fn aborted(&self) -> (i32, &str) {
        let (code, reason) = self.aborted.as_ref().expect("the job is aborted");
        (*code, reason)
    }
}

fn members(capacities: &[u32]) -> Vec<Member> {
    capacities
        .iter()
        .enumerate()
        .map(|(idx, capacity)| Member { node: node(idx), capacity: *capacity, is_departing: false })
        .collect()
}

/// Returns the lines that a rank sends to spawn `n_ranks` of a program, with info keys.
fn spawn_lines(n_ranks: u32, info: &[(&str, &str)]) -> String {
    let mut lines = format!(
        "mcmd=spawn\nnprocs={n_ranks}\nexecname=./md\ntotspawns=1\nspawnssofar=1\npreput_num=1\n\
         preput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$\ninfo_num={}\n",
        info.len()
    );
    for (idx, (key, value)) in info.iter().enumerate() {
        lines.push_str(&format!("info_key_{idx}={key}\ninfo_val_{idx}={value}\n"));
    }
    lines + "endcmd"
}
