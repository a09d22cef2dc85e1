//! The vectors of the papers' algorithms, run through the production core.
//!
//! `LIMBER_VECTORS` names a directory; by default the small copy under `tests/data/vectors` is run, and the whole
//! set beside the project too, where it is there.

use std::path::{Path, PathBuf};

use rms_tests::conformance::{fit, mapping, moldable, offline, rms_pass};

fn directories() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("LIMBER_VECTORS") {
        return vec![PathBuf::from(dir)];
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = here.join("data/vectors");
    let whole = here.join("../../shared/vectors");
    if whole.is_dir() {
        vec![copy, whole]
    } else {
        println!("only the small copy of the vectors is run: the whole set is not beside the project");
        vec![copy]
    }
}

/// Runs `check` on each line of each file of that name, and says how many there were.
fn for_each_case(schema: &str, mut check: impl FnMut(&str) -> Result<(), String>) {
    let mut n_cases = 0;
    for dir in directories() {
        let path = dir.join(format!("{schema}.jsonl"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("{schema}: not in this directory");
            continue;
        };
        for (idx, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if let Err(difference) = check(line) {
                panic!("{schema}.jsonl, line {}: {difference}", idx + 1);
            }
            n_cases += 1;
        }
    }
    println!("{schema}: {n_cases} cases");
    let is_foreign = std::env::var_os("LIMBER_VECTORS").is_some();
    assert!(n_cases > 0 || is_foreign, "no case of {schema} was run");
}

#[test]
fn the_pass_of_001_figure_5() {
    for_each_case("rms_pass", rms_pass::check);
}

/// One file for each expand limit.
#[test]
fn fit_and_compacting_of_000_and_003() {
    for schema in ["fit_l1", "fit_l2", "fit_l3", "fit_linf"] {
        for_each_case(schema, fit::check);
    }
}

#[test]
fn the_offline_schedules_of_003_and_their_metrics() {
    for_each_case("offline_paper", offline::check);
    for_each_case("offline_small", offline::check);
}

#[test]
fn the_random_experiment_of_003() {
    let mut experiment = offline::Experiment::default();
    for_each_case("offline_experiment", |line| experiment.check(line));
}

#[test]
fn the_mapping_to_nodes_of_003() {
    for_each_case("mapping", mapping::check);
}

#[test]
fn the_launchers_of_001_appendix_a() {
    for_each_case("moldable", moldable::check);
}
