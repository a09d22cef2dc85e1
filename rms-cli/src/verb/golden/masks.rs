//! The answers about the CPUs of jobs that share a node, observed and not.

use rms_api::answer::LoanLine;
use rms_api::masks::{JobMasks, MaskedJob, NodeMasks, ProcessMask, SeenMasks, ThreadMask};
use rms_model::Indices;

use super::*;
use crate::screen;
use crate::verb::masks::Masks;

fn cpus(text: &str) -> Indices {
    text.parse().expect("a list")
}

fn process(pid: i32, program: &str, n_threads: u32, on: &str, told: Option<&str>) -> ProcessMask {
    let (program, told) = (program.to_owned(), told.map(cpus));
    ProcessMask { pid, task: None, program, n_threads, cpus: cpus(on), told, ..ProcessMask::default() }
}

fn job(job: u64, name: &str, cores: Option<&str>, seen: Option<SeenMasks>) -> JobMasks {
    let cores = cores.map(cpus);
    let n_cpus = cores.as_ref().map_or(8, Indices::len);
    let of = MaskedJob { job: JobId(job), run: Run(1), cores, n_cpus, one_thread_a_core: false };
    JobMasks { of, name: name.into(), owner: Owner("ada".into()), lent: Vec::new(), borrowed: Vec::new(), seen }
}

fn seen(intended: &str, actual: &str, processes: Vec<ProcessMask>) -> SeenMasks {
    let n_processes = processes.len() as u32;
    SeenMasks { intended: cpus(intended), actual: cpus(actual), processes, n_processes }
}

fn masks() -> Masks {
    let loan = |other, is_in_force| LoanLine {
        node: "a1".into(),
        job: JobId(other),
        cores: cpus("4-7"),
        since: NOW - Span::from_mins(10),
        is_in_force,
    };
    let on = |n_threads, on: &str| ThreadMask { n_threads, cpus: cpus(on) };
    let of_threads = vec![on(3, "0-3"), on(1, "0"), on(1, "1"), on(1, "2"), on(1, "3"), on(1, "0,3")];
    let slow = ProcessMask { is_slow_team: true, of_threads, ..process(4242, "solve", 8, "0-3", None) };
    let task =
        ProcessMask { task: Some(0), is_behind: true, ..process(4311, "a-rather-long-na", 4, "4-7", Some("4-5")) };
    let mut owner =
        job(3, "nbody", Some("0-3"), Some(seen("0-3", "0-3", vec![process(4240, "sh", 1, "0-3", None), slow])));
    owner.lent = vec![loan(12, true)];
    let mut guest =
        job(12, "a name that is much too long for a column", Some("4-7"), Some(seen("4-7", "4-7", vec![task])));
    guest.borrowed = vec![loan(3, false)];
    if let Some(seen) = &mut guest.seen {
        seen.n_processes = 600;
    }
    let silent =
        |node: &str, jobs, reason: Option<&str>| NodeMasks { node: node.into(), jobs, silent: reason.map(Into::into) };
    let no_answer = "no answer from node a2: its agent is not connected ('rms nodes a2')";
    let nodes = vec![
        silent("a1", vec![owner, guest], None),
        silent("a2", vec![job(3, "nbody", None, None)], Some(no_answer)),
        silent("a3", vec![job(3, "nbody", Some("0-3"), None)], None),
    ];
    Masks { now: NOW, nodes }
}

#[test]
fn masks_meant_and_seen() {
    check("masks", &masks());
    check("masks_none", &Masks { now: NOW, nodes: Vec::new() });
}

#[test]
fn masks_fit_a_terminal() {
    let text = masks().rows().fitted("none", Some(80));
    assert!(text.lines().all(|line| screen::width(line) <= 80), "{text}");
    assert!(text.contains("ACTUAL") && text.contains("FOLLOWS"), "{text}");
}
