//! Programs with threads of their own follow the cores of their job, and one process moves the CPUs of others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rms_tests::openmp::{OpenMp, build_or_skip};
use rms_tests::sdk::Language;
use test_kit::{Deployment, NodeOptions, binaries, example, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// One node that counts the two CPUs that it has, and these.
fn deployment() -> Option<(Deployment, [u32; 2])> {
    let status = fs::read_to_string("/proc/self/status").expect("this runs");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().expect("a CPU")..=last.parse::<u32>().expect("a CPU")
    };
    let cpus: Vec<u32> = list.split(',').flat_map(range).take(2).collect();
    let Ok(cpus) = <[u32; 2]>::try_from(cpus) else {
        eprintln!("SKIPPED: this machine has one CPU, and none of it can be given back");
        return None;
    };
    let text = format!("{},{}", cpus[0], cpus[1]);
    let node = NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:2 pu:1", "--cpus", &text]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\noffer_idle = \"never\"\n";
    Some((Deployment::builder().node(node).config(settings).start(), cpus))
}

/// A program of this language, linked with the library; nothing, and a word about it, if it has no compiler here.
fn compile(deployment: &Deployment, language: Language, source: &Path) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = deployment.path().join(source.file_stem().expect("a name"));
    let mut compiler = language.compiler()?;
    compiler.arg("-pthread").arg("-I").arg(root.join("malleable/include")).arg("-o").arg(&program);
    compiler.arg(root.join(source)).arg(binaries().dir.join("librms-malleable.so"));
    compiler.arg(format!("-Wl,-rpath,{}", binaries().dir.display()));
    let output = compiler.output().expect("the compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// A C program of these tests, linked with the library.
fn compile_c(dir: &Path, name: &str) -> PathBuf {
    let (root, program) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), dir.join(name));
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("malleable/include"));
    compiler.arg("-o").arg(&program).arg(root.join("tests/apps").join(name).with_extension("c"));
    compiler.arg(binaries().dir.join("librms-malleable.so"));
    compiler.arg(format!("-Wl,-rpath,{}", binaries().dir.display()));
    assert!(compiler.status().expect("gcc").success());
    program
}

/// It has as many threads as CPUs, whatever it is given, and ends well.
fn follows(deployment: &Deployment, program: &Path) {
    let (dir, told) = (deployment.path().display().to_string(), deployment.path().join("told"));
    let script =
        deployment.script("job.sh", &format!("#!/bin/sh\ncd {dir}\nexec {} > told 2> wrong\n", program.display()));
    let job = deployment.submit(&["-t", "10m", "--malleable-threads", &script]);
    let id = job.to_string();
    let expect = |line: &str| {
        let last = || fs::read_to_string(&told).ok().filter(|text| text.lines().last() == Some(line));
        wait_until(&format!("it to say '{line}'"), SOON, || last().map(drop));
    };
    expect("2 2");
    for _ in 0..2 {
        deployment.rms(&["negotiate", &id, "--shrink-cores", "1"]).ok();
        expect("1 1");
        deployment.rms(&["negotiate", &id, "--grow-cores", "1"]).ok();
        expect("2 2");
    }
    fs::write(deployment.path().join("done"), "").expect("a file");
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed", "{told:?}");
    assert_eq!(fs::read_to_string(deployment.path().join("wrong")).ok().as_deref(), Some(""));
}

#[test]
fn long_a_pool_of_std_threads_is_called_back() {
    let Some((deployment, _)) = deployment() else { return };
    let source = Path::new("malleable/examples/pool.cpp");
    let Some(program) = compile(&deployment, Language::Cxx, source) else { return };
    follows(&deployment, &program);
}

#[test]
fn a_pool_of_rayon_asks() {
    let Some((deployment, _)) = deployment() else { return };
    follows(&deployment, &example("rayon"));
}

#[test]
fn one_process_moves_the_cpus_of_others_by_the_calls_of_drom() {
    let Some((deployment, cpus)) = deployment() else { return };
    let Some(teams) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let drom = compile_c(deployment.path(), "drom");
    let script = deployment.script(
        "two.sh",
        &format!(
            "#!/bin/sh\ncd {}\n{teams} default 5 > one & A=$!\n{teams} default 5 > other & B=$!\n\
             until [ -s one ] && [ -s other ]; do sleep 0.05; done\n\
             {} $A $B {} {} 999 || exit 1\n\
             until tail -n 1 one | grep -q '2 2'; do sleep 0.05; done\ntouch done; wait\n",
            deployment.path().display(),
            drom.display(),
            cpus[0],
            cpus[1],
            teams = teams.display(),
        ),
    );
    let told = deployment.rms(&["run", "-t", "2m", "--malleable-threads", &script]).ok().stdout;
    let expected = "unattached -5, attach 0, cpus 2, processes 2, mask1 2, mask2 2, set 0, mask1 1, mask2 1, overlap -8, \
                    foreign -8, dead -6, last -8, other 0, finalize 0, again -6, finalize 0, mask1 2, mask2 2, \
                    registered -3, detach 0, detached -5, poll -2, init 0, poll 2, poll 2, \
                    lend -15, borrow -15, reclaim -15, finish 0";
    assert_eq!(told.lines().collect::<Vec<_>>().join(", "), expected);
    let regions = |name: &str| fs::read_to_string(deployment.path().join(name)).expect("it has run");
    for name in ["one", "other"] {
        // Its mask may be back before a region of one thread has looked at it.
        assert!(regions(name).lines().any(|line| line.starts_with("1 ")), "{}", regions(name));
    }
}

#[test]
fn cpus_are_set_aside_for_a_process_before_it_starts() {
    let Some((deployment, cpus)) = deployment() else { return };
    let Some(teams) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let pre_init = compile_c(deployment.path(), "pre_init");
    let script = deployment.script(
        "one.sh",
        &format!(
            "#!/bin/sh\ncd {}\nmkdir sub\n{teams} default 5 > one & A=$!\nuntil [ -s one ]; do sleep 0.05; done\n\
             {} $A {} {} {teams} || exit 1\ntouch done; wait\n",
            deployment.path().display(),
            pre_init.display(),
            cpus[0],
            cpus[1],
            teams = teams.display(),
        ),
    );
    let told = deployment.rms(&["run", "-t", "2m", "--malleable-threads", &script]).ok().stdout;
    let mut lines: Vec<&str> = told.lines().collect();
    // The parent and the child that is to execute the program attach at the same time.
    lines.retain(|line| *line != "attach 0");
    let expected = "init 0, is shell 0, child 1, on first 1, mask 1, overlap -8, confined 0, ended 0, mask 2, finalize -6, \
                    init 0, again -3, mask 1, finalize 0, mask 2";
    assert_eq!(lines.join(", "), expected, "{told}");
    let of_child = fs::read_to_string(deployment.path().join("sub/told")).expect("it has run");
    // Its mask is set when it joins, before or after it looks for the first time.
    let is_alone = of_child.lines().all(|line| line.starts_with("1 ")) && of_child.ends_with("1 1\n");
    assert!(is_alone, "it began with one CPU that was set aside: {of_child}");
}

#[test]
fn misuse_is_an_error_and_no_crash() {
    let told = |text: &str| text.lines().collect::<Vec<_>>().join(", ");
    let dir = tempfile::tempdir().expect("a directory");
    let outside = Command::new(compile_c(dir.path(), "misuse")).env_remove("RMS_MALLEABLE_SOCKET").output();
    let outside = outside.expect("it was compiled");
    let text = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert!(outside.status.success() && text.lines().count() == 16, "{outside:?}");
    assert!(text.lines().all(|line| line.ends_with(" -5")), "in no job: {}", told(&text));

    let Some((deployment, cpus)) = deployment() else { return };
    let program = compile_c(deployment.path(), "misuse").display().to_string();
    let inside = deployment.rms(&["run", "-t", "2m", "--malleable-threads", &program, &cpus[0].to_string()]).ok();
    // It cannot take anything up while it waits for others, so it is not waited for.
    let expected = "mask -12, endless -12, acknowledge -12, watch -12, unwatch -2, detach -2, unattached -2, cpus -12, \
                    pids -12, pids -12, pids -12, get -12, get -12, set -12, set -12, init -12, few 0, \
                    none 0, moved 0, changed 1, have 1, acknowledge 0, self 0, released 0, acknowledge 0, changed 1, \
                    have 2, acknowledge 0, changed 0, watched 0, twice -3, news 1, unwatched -2, unwatched 0, twice -2";
    assert_eq!(told(&inside.stdout), expected);
}
