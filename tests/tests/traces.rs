//! Whole traces of the archive, where they are beside the project: what their readers must know of them holds.

use std::path::Path;
use std::process::Command;

use rms_sim::workload::swf::{Cleaning, Trace};

/// A trace's records, and how many have a run time of 0, no requested time, or ran for longer than requested.
const COUNTS: [(&str, [usize; 4]); 4] = [
    ("LLNL-Atlas-2006-2.1-cln", [43_778, 7_178, 8_233, 3_351]),
    ("RICC-2010-2.sept10k", [10_000, 0, 0, 22]),
    ("SDSC-SP2-1998-4.2-cln", [59_715, 10, 66, 4_134]),
    ("lublin_256", [10_000, 0, 10_000, 0]),
];

#[test]
fn traces_of_the_archive_are_read_and_written_back() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    if !dir.is_dir() {
        println!("no whole trace is beside the project; the unit tests read a small one");
        return;
    }
    for (name, expected) in COUNTS {
        let path = dir.join(format!("{name}.swf.gz"));
        let unpacked = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip is installed");
        assert!(unpacked.status.success(), "{}", path.display());
        let trace = Trace::read(unpacked.stdout.as_slice()).expect(name);
        let count = |is: &dyn Fn(&rms_sim::workload::swf::Record) -> bool| {
            trace.records.iter().filter(|record| is(record)).count()
        };
        let n_zero = count(&|record| record.run.is_some_and(|run| run.is_zero()));
        let n_unasked = count(&|record| record.requested_time.is_none_or(|limit| limit.is_zero()));
        let cleaned = trace.clean(&Cleaning::default());
        assert_eq!([trace.records.len(), n_zero, n_unasked, cleaned.n_overrun], expected, "{name}");
        assert!(cleaned.jobs.windows(2).all(|two| two[0].submit <= two[1].submit), "{name}");
        let mut written = Vec::new();
        trace.write(&mut written).expect("memory takes it");
        assert_eq!(Trace::read(written.as_slice()).expect(name), trace, "{name}");
    }
}

/// Runs `rms sim` with `--json` on a trace; `None` if it is not beside the project.
fn simulated(verb: &str, trace: &str, options: &str) -> Option<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(trace);
    if !path.is_file() {
        println!("SKIPPED: {trace} is not beside the project");
        return None;
    }
    let named = if verb == "sd" { vec!["--trace".into(), path.into_os_string()] } else { vec![path.into_os_string()] };
    let mut command = Command::new(test_kit::binaries().dir.join("rms"));
    command.args(["sim", verb, "--json"]).args(named).args(options.split_whitespace());
    let output = command.output().expect("rms is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("one value"))
}

fn doc(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).expect("it is there")
}

/// Formats a figure as the documents do: rounded, with thousands separated.
fn figure(value: &serde_json::Value) -> String {
    let whole = format!("{:.0}", value.as_f64().expect("a number"));
    let groups: Vec<&str> =
        whole.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

const RICC: &str = "--nodes 1024 --cores-per-node 8 --field requested --wall-unit 1m";

#[test]
fn the_known_answer_of_the_simulators_page_is_what_the_command_prints() {
    let options = format!("{RICC} --policy conservative --depth 50 --interval 30s");
    let Some(ran) = simulated("swf", "RICC-2010-2.sept10k.swf.gz", &options) else { return };
    let [makespan, response, slowdown] =
        ["makespan_s", "mean_response_s", "mean_slowdown"].map(|name| figure(&ran[name]));
    let said = format!("The command above gives {makespan} s, {response} s and {slowdown}:");
    assert!(doc("simulator.md").contains(&said), "it does not say: {said}");
}

#[test]
fn long_the_rows_of_ricc_in_the_table_of_all_variants_are_what_runs_now() {
    let options = format!("{RICC} --cut-offs 0,10 --run-times requested,last-two --against easy,conservative");
    let Some(ran) = simulated("sd", "RICC-2010-2.sept10k.swf.gz", &options) else { return };
    let text = doc("experiments.md");
    let runs = ran["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 8);
    for run in runs {
        let name = match (run["policy"].as_str(), run["cut_off"].as_str()) {
            (Some("easy"), _) => "EASY",
            (Some("conservative"), _) => "conservative",
            (_, Some("0")) => "static",
            (_, _) => "SD-Policy, as published",
        };
        let learned = if run["run_times"] == "last-two" { ", learned" } else { "" };
        let figures = ["mean_slowdown", "mean_bounded_slowdown", "mean_response_s", "makespan_s"];
        let [slowdown, bounded, response, makespan] = figures.map(|name| figure(&run["measured"][name]));
        let row = format!("| RICC | {name}{learned} | {slowdown} | {bounded} | {response} s | {makespan} s |");
        assert!(text.contains(&row), "no row {row}");
    }
}
