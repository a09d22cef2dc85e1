//! Tests `rms sim` as typed: identical bytes each time, compressed or not, and the errors of a trace.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/traces/LLNL-Atlas-2006-2.1-cln.first200-ran.swf");

fn rms(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rms")).args(args).output().expect("rms runs")
}

fn swf(trace: &str, policy: &str) -> Value {
    let output = rms(&["sim", "swf", trace, "--nodes", "1152", "--cores-per-node", "8", "--policy", policy, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stderr.is_empty(), "a progress bar is for terminals");
    serde_json::from_slice(&output.stdout).expect("one value")
}

/// Removes the costs of a run, which differ each time.
fn without_cost(mut figures: Value) -> Value {
    for name in ["wall_s", "cpu_s", "jobs_per_s", "peak_rss_mib"] {
        let cost = figures.as_object_mut().and_then(|figures| figures.remove(name));
        assert!(cost.is_some_and(|cost| cost.is_number()), "{name} is missing");
    }
    figures
}

#[test]
fn the_same_trace_gives_the_same_figures_gzip_or_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let packed = dir.path().join("packed");
    let mut encoder = GzEncoder::new(std::fs::File::create(&packed).expect("a file"), Compression::fast());
    encoder
        .write_all(&std::fs::read(TRACE).expect("the trace"))
        .and_then(|()| encoder.try_finish())
        .expect("it is written");
    for policy in ["views", "fcfs", "easy", "conservative"] {
        let figures = without_cost(swf(TRACE, policy));
        assert_eq!((&figures["jobs"], &figures["dropped"]), (&200.into(), &0.into()), "{policy}");
        let names: Vec<&String> = figures.as_object().expect("an object").keys().collect();
        let expected = [
            "allocation",
            "core_utilisation",
            "dropped",
            "jobs",
            "makespan_s",
            "mean_bounded_slowdown",
            "mean_response_s",
            "mean_slowdown",
            "mean_wait_s",
            "utilisation",
        ];
        assert_eq!(names, expected);
        assert_eq!(without_cost(swf(TRACE, policy)), figures, "{policy}, again");
        assert_eq!(without_cost(swf(packed.to_str().expect("a plain name"), policy)), figures, "{policy}, packed");
    }
}

/// The kernel's count for a program begins with the memory of the process that started it.
#[test]
fn its_memory_is_its_own_and_not_that_of_whoever_started_it() {
    let held = vec![1_u8; 400 << 20];
    let peak = swf(TRACE, "easy")["peak_rss_mib"].as_f64().expect("a number");
    assert!(peak > 1.0 && peak < 200.0, "{peak} MiB, beside {} of ours", held.len() >> 20);
}

#[test]
fn several_policies_stand_side_by_side_and_each_as_if_it_ran_alone() {
    let sim = |policies: &str, form: &[&str]| {
        let args = ["sim", "swf", TRACE, "--nodes", "40", "--cores-per-node", "8", "--too-large", "cut", "--policy"];
        rms(&[&args[..], &[policies], form].concat())
    };
    let names = ["easy", "conservative", "views", "fcfs"];
    let output = sim(&names.join(","), &["--json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    let mut waits = Vec::new();
    for (name, figures) in names.iter().zip(&all) {
        let mut figures = without_cost(figures.clone());
        let policy = figures.as_object_mut().and_then(|figures| figures.remove("policy"));
        assert_eq!(policy, Some((*name).into()));
        let alone = serde_json::from_slice(&sim(name, &["--json"]).stdout).expect("one value");
        assert_eq!(figures, without_cost(alone), "{name}");
        waits.push(figures["mean_wait_s"].as_f64().expect("a number"));
    }
    assert_eq!(all.len(), names.len());
    assert!(waits[0] < waits[3], "on a full cluster policies differ: {waits:?}");
    let text = String::from_utf8(sim(&names.join(","), &[]).stdout).expect("text");
    let head: Vec<&str> = text.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["FIGURE", "EASY", "CONSERVATIVE", "VIEWS", "FCFS"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains(&format!("{:.3}", waits[0])), "{text}");
    let rows = String::from_utf8(sim("fcfs,easy", &["--parsable"]).stdout).expect("text");
    let firsts: Vec<&str> = rows.lines().filter_map(|row| row.split('|').next()).collect();
    assert_eq!(firsts, ["policy", "fcfs", "easy"]);
    let twice = sim("easy,views,easy", &[]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("names easy twice"));
}

#[test]
fn a_bad_trace_is_told_with_file_line_and_what_was_expected() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |text: &[u8], expected: &str| {
        let file = dir.path().join("bad.swf");
        std::fs::write(&file, text).expect("it is written");
        let output = rms(&["sim", "swf", file.to_str().expect("a plain name"), "--nodes", "4"]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("bad.swf: ") && message.contains(expected), "'{expected}' is not in: {message}");
    };
    check(b"; fine\n1 2 3\n", "line 2 has 3 columns: a record has 18 numbers");
    check(b"1 0 -1 ten 4 -1 -1 4 60 -1 1 3 1 -1 1 10 -1 -1\n", "line 1, column 4 (run time): 'ten' is not a number");
    let record = "1 0 -1 10 4 -1 -1 4 60 -1 1 3 1 -1 1 10 -1 -1";
    check(format!("{record}\r{record}\r").as_bytes(), "line 1 has 36 columns, which is more than one record");
    check(record.replacen('0', "1e15", 1).as_bytes(), "'1e15' is not a number of at most 1e14");
    check(&[0x1f, 0x8b, 8, 0, 1, 2, 3], "line 1 can not be read");
    let output = rms(&["sim", "swf", "/nowhere.swf", "--nodes", "4"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere.swf: No such file"));
}

#[test]
fn options_that_select_jobs_hold_for_those_of_a_model() {
    let run = |options: &[&str]| rms(&[&["sim", "sd", "--cirne", "w5", "--cut-offs", "10"], options].concat());
    let check = |options: &[&str], expected: &str| {
        let message = String::from_utf8_lossy(&run(options).stderr).into_owned();
        assert!(message.contains(expected), "'{expected}' is not in: {message}");
    };
    check(&["--jobs", "0"], "no job of the trace is left to run");
    check(&["--skip", "100000"], "no job of the trace is left to run");
    check(&["--cores-per-node", "7"], "the nodes of Cirne's model have 48 cores: omit --cores-per-node");
    let of_20 = |options: &[&str]| run(&[&["--jobs", "20", "--json"], options].concat()).stdout;
    let few = |options: &[&str]| -> serde_json::Value { serde_json::from_slice(&of_20(options)).expect("JSON") };
    let makespan = |options: &[&str]| few(options)["static"]["measured"]["makespan_s"].as_f64().expect("seconds");
    assert_ne!(makespan(&["--skip", "20"]), makespan(&[]));
}

#[test]
fn what_is_written_goes_over_nothing_that_is_read_or_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain name").to_owned();
    let (trace, both, text) = (path("t.swf"), path("both.svg"), path("heat.txt"));
    std::fs::copy(TRACE, &trace).expect("it is copied");
    let check = |options: &[&str], expected: &str| {
        let output = rms(&[&["sim", "swf", &trace, "--nodes", "40", "--cores-per-node", "8"], options].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "'{expected}' is not in: {message}");
    };
    check(&["--schedule", &trace], "is the trace");
    let linked = path("linked");
    std::fs::hard_link(&trace, &linked).expect("it is linked");
    check(&["--schedule", &linked], "is the trace");
    check(&["--interval", "100000000000d"], "at most 100 years");
    check(&["--heat", &both, "--schedule", &both], "both write to");
    check(&["--heat", &both, "--schedule", &both, "--policy", "easy,fcfs"], "both write to");
    let (plain, dotted) = (path("new.json"), dir.path().join("./new.json").display().to_string());
    assert_ne!(plain, dotted);
    check(&["--heat", &plain, "--schedule", &dotted], "both write to");
    check(&["--heat", &text], "is neither");
    let begun = rms(&["sim", "swf", "/nowhere.swf", "--nodes", "4", "--heat", &text]);
    assert!(String::from_utf8_lossy(&begun.stderr).contains("is neither"), "before anything is read");
    let read = |file: &str| std::fs::read(file).expect("it is there");
    assert_eq!(read(&trace), read(TRACE));
}

#[test]
fn heat_maps_are_drawn_and_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str| {
        let file = dir.path().join(name);
        let path = file.to_str().expect("a plain name");
        let output = rms(&["sim", "swf", TRACE, "--nodes", "200", "--cores-per-node", "8", "--heat", path]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("mean wait by size"));
        std::fs::read_to_string(Path::new(path)).expect("it was written")
    };
    let map: Value = serde_json::from_str(&write("heat.json")).expect("one value");
    assert_eq!(map["cells"].as_array().map(Vec::len), map["sizes"].as_array().map(Vec::len));
    assert!(write("heat.svg").starts_with("<svg "));
    let args = ["sim", "swf", TRACE, "--nodes", "200", "--cores-per-node", "8", "--policy", "easy,fcfs", "--heat"];
    let file = dir.path().join("both.svg");
    assert!(rms(&[&args[..], &[file.to_str().expect("a plain name")]].concat()).status.success());
    for name in ["both-easy.svg", "both-fcfs.svg"] {
        let text = std::fs::read_to_string(dir.path().join(name)).expect("one of each policy was written");
        assert!(text.contains(&name[5..9]), "its title names the policy: {text}");
    }
}

#[test]
fn a_schedule_gives_no_core_twice_and_each_job_what_it_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ran.jsonl");
    let path = file.to_str().expect("a plain name");
    for (allocation, policy) in [("nodes", "easy"), ("cores", "easy"), ("cores", "conservative"), ("cores", "views")] {
        let args =
            ["sim", "swf", TRACE, "--nodes", "100", "--cores-per-node", "8", "--json", "--allocation", allocation];
        let output = rms(&[&args[..], &["--policy", policy, "--schedule", path]].concat());
        let figures: Value = serde_json::from_slice(&output.stdout).expect("one value");
        assert_eq!(figures["allocation"], allocation);
        let text = std::fs::read_to_string(&file).expect("it was written");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(Some(lines.len() as u64), figures["jobs"].as_u64());
        let mut taken: Vec<(u64, u64, f64, f64)> = Vec::new();
        for line in &lines {
            let [submit, start, end] = ["submit", "start", "end"].map(|name| line[name].as_f64().expect("seconds"));
            assert!(submit <= start && start < end, "{line}");
            for node in line["nodes"].as_array().expect("nodes") {
                let number = node["node"].as_u64().expect("a number");
                let cores: Vec<u64> =
                    node["cores"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
                assert!(number < 100 && !cores.is_empty() && cores.iter().all(|core| *core < 8), "{line}");
                assert!(allocation == "cores" || cores.len() == 8, "{line}");
                taken.extend(cores.into_iter().map(|core| (number, core, start, end)));
            }
        }
        taken.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
        for two in taken.windows(2) {
            let is_same = (two[0].0, two[0].1) == (two[1].0, two[1].1);
            assert!(!is_same || two[0].3 <= two[1].2, "{policy}, {allocation}: {two:?}");
        }
        let size = ["--nodes", "100", "--cores-per-node", "8", "--memory-per-node", "1G", "--json"];
        let output = rms(&[&["sim", "check", path], &size[..]].concat());
        let checked: Value = serde_json::from_slice(&output.stdout).expect("one value");
        assert!(output.status.success() && checked["memory_checked"] == true, "{checked}");
        assert_eq!(checked["lines"], figures["jobs"]);
    }
    let output = rms(&["sim", "swf", TRACE, "--nodes", "9", "--schedule", dir.path().to_str().expect("a plain name")]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && message.contains("name a file with --schedule"), "{message}");
}

/// Two logs in one file: numbers restart.
#[test]
fn jobs_with_one_number_are_told_and_get_numbers_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain name").to_owned();
    let (trace, ran) = (path("two.swf"), path("ran.jsonl"));
    let line = |number: u32, submit: u32| format!("{number} {submit} -1 10 1 -1 -1 1 60 -1 1 3 1 -1 1 10 -1 -1\n");
    std::fs::write(&trace, [line(1, 0), line(2, 0), line(1, 1), line(2, 2)].concat()).expect("a file");
    let output = rms(&["sim", "swf", &trace, "--nodes", "4", "--schedule", &ran]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("2 jobs have the number of an earlier one"), "{said}");
    assert!(said.contains("the first is 1") && said.contains("numbered from 3 on"), "{said}");
    let checked = rms(&["sim", "check", &ran, "--nodes", "4", "--json"]);
    let checked: Value = serde_json::from_slice(&checked.stdout).expect("one value");
    assert_eq!((&checked["lines"], &checked["jobs"]), (&4.into(), &4.into()), "{checked}");
}

#[test]
fn so_many_jobs_are_run_whatever_is_dropped() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.swf");
    let line =
        |number: u32, size: u32| format!("{number} {number} -1 10 {size} -1 -1 {size} 60 -1 1 3 1 -1 1 10 -1 -1\n");
    std::fs::write(&file, [line(1, 9), line(2, 1), line(3, 9), line(4, 1), line(5, 1)].concat()).expect("a file");
    let count = |options: &[&str]| {
        let output =
            rms(&[&["sim", "swf", file.to_str().expect("a plain name"), "--nodes", "4", "--json"], options].concat());
        let figures: Value = serde_json::from_slice(&output.stdout).expect("one value");
        [&figures["jobs"], &figures["dropped"]].map(Value::as_u64)
    };
    assert_eq!(count(&["--jobs", "2"]), [Some(2), Some(2)]);
    assert_eq!(count(&["--skip", "1", "--jobs", "1"]), [Some(1), Some(2)]);
    assert_eq!(count(&["--skip", "2"]), [Some(1), Some(2)]);
    assert_eq!(count(&["--jobs", "2", "--too-large", "cut"]), [Some(2), Some(0)]);
}

#[test]
fn rows_for_programs_say_how_jobs_were_allocated() {
    let rows = |policy: &str| {
        let args = ["sim", "swf", TRACE, "--nodes", "1152", "--cores-per-node", "8", "--parsable", "--policy", policy];
        String::from_utf8(rms(&args).stdout).expect("text")
    };
    let cells = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<String>>();
    for (policy, n_rows) in [("easy", 1), ("easy,fcfs", 2)] {
        let text = rows(policy);
        let mut lines = text.lines().map(cells);
        let names = lines.next().expect("a head");
        let idx = names.iter().position(|name| name == "allocation").expect("a column");
        assert_eq!(lines.map(|cells| cells[idx].clone()).collect::<Vec<_>>(), vec!["nodes"; n_rows], "{text}");
    }
}

#[test]
fn a_schedule_that_could_not_have_run_is_told_with_its_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ran.jsonl");
    let path = file.to_str().expect("a plain name");
    let check = |text: &[u8], rest: &[&str]| {
        std::fs::write(&file, text).expect("a file");
        let output = rms(&[&["sim", "check", path], rest].concat());
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let line = |job: i64, start: &str, end: &str, memory: u64| {
        format!(
            r#"{{"job":{job},"submit":0,"start":{start},"end":{end},"nodes":[{{"node":3,"cores":[{}],"memory_mib":{memory}}}]}}"#,
            job % 2
        )
    };
    let sound = [line(7, "0", "10.5", 60), line(8, "0", "20", 40), line(9, "10.5", "30", 60)].join("\n");
    let (code, said) = check(sound.as_bytes(), &[]);
    assert!(code == Some(0) && said.contains("3 lines, 3 jobs, 1 nodes: nothing is given twice"), "{said}");
    assert!(said.contains("memory was not checked"), "{said}");
    assert_eq!(check(sound.as_bytes(), &["--memory-per-node", "100M"]).0, Some(0));

    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(sound.as_bytes()).expect("memory");
    let (code, said) = check(&packed.finish().expect("memory"), &[]);
    assert!(code == Some(0) && said.contains("3 lines, 3 jobs, 1 nodes"), "{said}");

    let broken = |text: &str, rest: &[&str], parts: &[&str]| {
        let (code, said) = check(text.as_bytes(), rest);
        assert_eq!(code, Some(1), "{said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "'{said}' does not say '{part}'"));
    };
    let twice = [line(7, "0", "10.5", 0), line(9, "10", "12", 0)].join("\n");
    let parts = ["core 1 of node 3 is given twice", "from 10 s to 10.5 s", "line 1 (job 7", "line 2 (job 9"];
    broken(&twice, &[], &parts);
    let parts = ["node 3 gives 100 MiB", "has 99 MiB", "from 0 s to 10.5 s", "line 1 (job 7", "line 2 (job 8"];
    broken(&sound, &["--memory-per-node", "99M"], &parts);
    broken(&sound, &["--nodes", "3"], &["there is no node 3: nodes count from 0 to 2, line 1"]);
    broken(&sound, &["--cores-per-node", "1"], &["node 3 has no core 1"]);
    broken(&line(7, "-1", "4", 0), &[], &["starts before it was submitted, line 1 (job 7, submit 0 s, start -1 s"]);
    broken(&line(7, "9", "4", 0), &[], &["ends before it starts, line 1 (job 7"]);
    let again = [line(7, "0", "10", 0), line(7, "9", "12", 0)].join("\n");
    broken(&again, &[], &["runs twice at one time, from 9 s to 10 s: line 1 (job 7"]);

    broken("", &[], &["is empty: no job has run"]);
    broken(&sound[..sound.len() - 20], &[], &["line 3: it is cut off"]);

    let hostile = [
        ("", "EOF"),
        ("no JSON", "line 2: expected an object"),
        ("[]", "line 2: expected an object with job, submit, start, end and nodes"),
        ("[1,0,0,1,[]]", "line 2: expected an object"),
        ("7", "line 2: expected an object"),
        (r#"{"job":1,"submit":0,"start":0,"end":1,"nodes":[7]}"#, "expected an object with node, cores and memory_mib"),
        (r#"{"job":7}"#, "missing field `submit`"),
        (r#"{"job":1e99,"submit":0,"start":0,"end":1,"nodes":[]}"#, "line 2: invalid type"),
        (
            r#"{"job":1,"submit":0,"start":0,"end":18446744073709551615,"nodes":[]}"#,
            "'end': 18446744073709551615 is too",
        ),
        (r#"{"job":1,"submit":0,"start":0,"end":1e300,"nodes":[]}"#, "'end': 1e+300 is too large"),
        (r#"{"job":1,"submit":0,"start":0,"end":1,"nodes":[{"node":-1,"cores":[0],"memory_mib":0}]}"#, "expected u32"),
        (r#"{"job":1,"submit":0,"start":0,"end":1,"nodes":[{"node":0,"cores":[4294967295],"memory_mib":0}]}"#, "65535"),
        (r#"{"job":1,"submit":0,"start":0,"end":1,"nodes":[{"node":0,"cores":[5,5],"memory_mib":0}]}"#, "twice"),
        (&"[".repeat(100_000), "line 2: "),
    ];
    for (text, part) in hostile {
        broken(&format!("{}\n{text}\n", line(7, "0", "1", 0)), &[], &["line 2", part]);
    }
    let (code, said) = check(&[0xff, 0xfe, b'\n'], &[]);
    assert!(code == Some(1) && said.contains("cannot be read"), "{said}");
    let output = rms(&["sim", "check", dir.path().join("none").to_str().expect("a plain name")]);
    assert!(output.status.code() == Some(1), "a file that is not there");
}

/// Runs a sweep over a trace; `rest` has further arguments.
fn tune(trace: &str, nodes: &str, rest: &[&str]) -> Output {
    rms(&[&["sim", "tune", trace, "--nodes", nodes, "--cores-per-node", "8", "--resamples", "19"], rest].concat())
}

#[test]
fn long_a_sweep_over_a_trace_recommends() {
    let sweep = ["--fair-start", "0s,10s", "--timer", "0s", "--json"];
    let output = tune(TRACE, "1152", &sweep);
    let tuned: Value = serde_json::from_slice(&output.stdout).expect("one value");
    let points = tuned["points"].as_array().expect("a list");
    assert_eq!((points.len(), points[0]["ghost_node_s"].as_f64()), (2, Some(0.0)));
    assert!(points[1]["ghost_node_s"].as_f64() > Some(0.0), "ghosts keep nodes idle: {tuned}");
    assert!(tuned["recommended"].is_object() && tuned["reason"].is_string());
    assert_eq!(tuned["launchers"]["known"], 0);
    for point in points {
        let ends = |name: &str, idx: usize| point[name][idx].as_f64().expect("an end of an interval");
        assert!(ends("waste_95", 0) <= ends("waste_95", 1) && ends("difference_s_95", 0) <= ends("difference_s_95", 1));
    }
    assert_eq!(tune(TRACE, "1152", &sweep).stdout, output.stdout, "the same seed, the same answer");
}

#[test]
fn long_a_sweep_says_whether_what_differs_is_more_than_chance() {
    // On far more nodes than the jobs need, no job waits for another.
    let idle =
        String::from_utf8(tune(TRACE, "2000", &["--fair-start", "0s,10s", "--timer", "0s"]).stdout).expect("text");
    let flat = idle.replace('\n', " ");
    assert!(flat.contains("no difference: keep fair_start=0s resched_timer=0s"), "{idle}");
    for words in ["the past had no launchers", "19 resamples", "seeds 1 to 19", "in force", "no diff."] {
        assert!(flat.contains(words), "'{words}': {idle}");
    }
    assert!(idle.lines().all(|line| line.chars().count() <= 80), "{idle}");
    // Passes ten minutes apart make every job wait.
    let dir = tempfile::tempdir().expect("a directory");
    let picture = dir.path().join("curve.svg");
    let path = picture.to_str().expect("a plain name");
    let rest = ["--set", "resched_timer=10m", "--fair-start", "0s", "--timer", "0s,10m", "--seed", "7", "--svg", path];
    let late = String::from_utf8(tune(TRACE, "2000", &rest).stdout).expect("text");
    let flat = late.replace('\n', " ");
    assert!(flat.contains("recommended: fair_start=0s resched_timer=0s"), "{late}");
    assert!(flat.contains("seeds 7 to 25") && flat.contains("better"), "{late}");
    let curve = std::fs::read_to_string(&picture).expect("it was written");
    assert_eq!(curve.matches(">0 s").count(), 2, "each point says its delay: {curve}");
    let short = tune(TRACE, "1152", &["--jobs", "3"]);
    assert!(String::from_utf8_lossy(&short.stdout).contains("too little past"), "{short:?}");
}

#[test]
fn a_sweep_refuses_what_is_no_percentage_and_settings_of_other_clusters() {
    for (options, part) in [
        (["--most-waste", "nan"], "'nan' is no percentage: write a number from 0 to 100"),
        (["--most-waste", "inf"], "'inf' is no percentage"),
        (["--most-waste", "-1"], "'-1' is no percentage"),
        (["--most-waste", "101"], "'101' is no percentage"),
        (["--set", "fair_start@zz=1s"], "there is no cluster 'zz'; the clusters are c"),
    ] {
        let output = tune(TRACE, "1152", &options);
        let said = String::from_utf8_lossy(&output.stderr).replace("\n     ", "");
        assert!(!output.status.success() && said.contains(part), "{options:?}: {said}");
    }
}

#[test]
fn options_without_effect_and_values_that_are_named_twice_are_refused() {
    let of_journal = ["sim", "tune", "journal"];
    let twice = ["--nodes", "8"];
    for (first, options, part) in [
        (&of_journal[..], &["--skip", "5"][..], "--skip is for traces"),
        (&of_journal[..], &["--jobs", "5"][..], "--jobs is for traces"),
        (&of_journal[..], &["--overrun", "extend"][..], "--overrun is for traces"),
        (&["sim", "gain"][..], &["--partition", "1"][..], "--partition is for traces"),
        (&["sim", "tune", TRACE][..], &[&twice[..], &["--timer", "1s,1s"]].concat()[..], "--timer names 1s twice"),
        (&["sim", "sd", "--cirne", "w1"][..], &["--cut-offs", "5,5"][..], "--cut-offs names 5 twice"),
        (&["sim", "sd", "--cirne", "w1"][..], &["--models", "ideal,ideal"][..], "--models names ideal twice"),
        (&["sim", "sd", "--cirne", "w1"][..], &["--factors", "0.5,1/2"][..], "--factors names 0.5 twice"),
        (&["sim", "sd", "--cirne", "w1"][..], &["--malleable-share", "50,50"][..], "--malleable-share names 50 twice"),
    ] {
        let output = rms(&[first, options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(part), "{options:?}: {said}");
    }
}

#[test]
fn what_is_no_journal_is_not_replayed() {
    let output = rms(&["sim", "replay", TRACE]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a journal of this program"));
}

fn sd(args: &[&str]) -> Output {
    let trace = ["sim", "sd", "--trace", TRACE, "--nodes", "64", "--cores-per-node", "8", "--too-large", "cut"];
    rms(&[&trace, args].concat())
}

#[test]
fn sharing_nodes_is_set_against_static_backfill() {
    let run = || {
        let output = sd(&["--cut-offs", "0,infinite", "--models", "ideal,worst", "--heat", "--daily", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let mut answer: Value = serde_json::from_slice(&output.stdout).expect("one value");
        for run in answer["runs"].as_array_mut().expect("a list") {
            let cost = run.as_object_mut().and_then(|run| run.remove("cpu_s"));
            assert!(cost.is_some_and(|cost| cost.is_number()));
        }
        let peak = answer.as_object_mut().and_then(|answer| answer.remove("peak_rss_mib"));
        assert!(peak.is_some_and(|peak| peak.as_f64() > Some(1.0)));
        answer
    };
    let answer = run();
    assert_eq!(answer, run(), "the same input gives the same answer");
    let fixed = &answer["static"]["measured"];
    let nobody = &answer["runs"][0]["measured"];
    assert_eq!((&nobody["guests"], &nobody["later"]), (&0.into(), &0.0.into()), "below 0 nobody lends");
    assert_eq!((&nobody["makespan_s"], &nobody["mean_response_s"]), (&fixed["makespan_s"], &fixed["mean_response_s"]));
    let shared = &answer["runs"][2];
    assert_eq!((&shared["cut_off"], &shared["model"]), (&"infinite".into(), &"ideal".into()));
    assert!(shared["measured"]["guests"].as_u64() > Some(0), "{shared}");
    let guests: u64 = shared["days"].as_array().into_iter().flatten().filter_map(|day| day["guests"].as_u64()).sum();
    assert_eq!(Some(guests), shared["measured"]["guests"].as_u64(), "each day's together are all");
    assert_eq!(shared["categories"].as_array().map(Vec::len), Some(8));
}

#[test]
fn policies_that_let_no_job_lend_have_no_cut_off() {
    let output = sd(&["--against", "easy", "--cut-offs", "0", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one value");
    let said = |idx: usize| (&answer["runs"][idx]["policy"], &answer["runs"][idx]["cut_off"]);
    assert_eq!(said(0), (&"easy".into(), &Value::Null));
    assert_eq!(said(1), (&"slowdown".into(), &"0".into()));
}

#[test]
fn sharing_without_a_policy_is_a_row_for_each_model() {
    let output = sd(&["--oversubscribe", "--cut-offs", "10", "--models", "ideal,worst", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("one value");
    let runs = answer["runs"].as_array().expect("a list");
    let said = |idx: usize| (&runs[idx]["policy"], &runs[idx]["model"]);
    assert_eq!(said(0), (&"oversubscribed".into(), &"ideal".into()));
    assert_eq!(said(1), (&"oversubscribed".into(), &"worst".into()));
    assert_eq!((runs.len(), said(2).0), (4, &"slowdown".into()));
    assert!(runs[0]["measured"]["guests"].as_u64() > Some(0), "{}", runs[0]);
    assert_eq!(runs[0]["measured"]["jobs"], answer["static"]["measured"]["jobs"]);
    let text = String::from_utf8(sd(&["--oversubscribe", "--cut-offs", "10"]).stdout).expect("text");
    assert!(text.contains("\noversubscribed ideal "), "{text}");
}

#[test]
fn jobs_are_drawn_from_the_model_of_lublin() {
    let run = |args: &[&str]| {
        let output = rms(&[&["sim", "swf", "--lublin", "300", "--nodes", "64"], args].concat());
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let text = run(&["--policy", "easy"]);
    assert!(text.lines().any(|line| line.split_whitespace().eq(["jobs", "300"])), "{text}");
    let mean_wait = |seed: &str| -> Value {
        let answer: Value = serde_json::from_str(&run(&["--seed", seed, "--json"])).expect("JSON");
        assert_eq!(answer["jobs"], 300, "{answer}");
        answer["mean_wait_s"].clone()
    };
    assert_eq!(mean_wait("4"), mean_wait("4"));
    assert_ne!(mean_wait("4"), mean_wait("5"));
    let refused = rms(&["sim", "swf", "--lublin", "3", "--nodes", "4"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("4 processors are too few"), "{refused:?}");
}

#[test]
fn long_workload_5_stands_beside_the_real_run_of_the_paper() {
    let output = rms(&["sim", "sd", "--cirne", "w5", "--wall-unit", "60s", "--cut-offs", "10", "--paper", "w5"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("Cirne's model, seed 4, 2000 jobs\n"), "{text}");
    assert!(text.contains(" s (159313)") && text.contains(" s (56482)") && text.contains(" (4783.1)"), "{text}");
    assert!(text.contains("(0.84)"), "{text}");
}

#[test]
fn what_the_paper_prints_stands_beside() {
    let output = sd(&["--cut-offs", "10", "--paper", "w4"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for printed in ["(21615111)", "(29858.5)", "(20476)", "(17102)", "(0.296)"] {
        assert!(text.contains(printed), "{printed}: {text}");
    }
}

#[test]
fn what_no_job_can_lend_is_refused() {
    let check = |args: &[&str], expected: &str| {
        let output = sd(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{text}");
    };
    check(&["--factors", "1"], "no part below 1");
    check(&["--models", "best"], "write ideal or worst");
    check(&["--cut-offs", "few"], "'few' is no fraction");
    check(&["--mates", "9"], "9 is not in 1..=8");
}
