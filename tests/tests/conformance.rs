//! The vectors of the papers' algorithms, run through the production core.
//!
//! `LIMBER_VECTORS` names a directory, of which every file of a known schema is run; by default the small copy under
//! `tests/data/vectors` is run, and the whole set beside the project too, where it is there.

use std::path::{Path, PathBuf};

use rms_tests::conformance::schema::{Schema, Vectors};
use rms_tests::conformance::{fit, mapping, mates, moldable, ndrms_sim, offline, rms_pass, sd_sim, slices};

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

/// Runs `check` on each line of each file of the schema, and says how many there were.
fn for_each_case(schema: Schema, mut check: impl FnMut(&str) -> Result<(), String>) {
    let mut n_all = 0;
    for dir in directories() {
        let found = Vectors::in_dir(&dir).unwrap_or_else(|error| panic!("{error}"));
        for vectors in found.iter().filter(|vectors| vectors.schema == schema) {
            let n_cases = vectors.run(&mut check).unwrap_or_else(|error| panic!("{error}"));
            println!("{schema}: {n_cases} cases of {}", vectors.path.display());
            n_all += n_cases;
        }
    }
    let is_foreign = std::env::var_os("LIMBER_VECTORS").is_some();
    if is_foreign && n_all == 0 {
        println!("{schema}: no file of it in this directory");
    }
    assert!(n_all > 0 || is_foreign, "no case of {schema} was run");
}

#[test]
fn long_the_pass_of_001_figure_5() {
    for_each_case(Schema::RmsPass, rms_pass::check);
}

/// Whatever the expand limit.
#[test]
fn fit_and_compacting_of_000_and_003() {
    for_each_case(Schema::Fit, fit::check);
}

#[test]
fn the_offline_schedules_of_003_and_their_metrics() {
    for_each_case(Schema::Offline, offline::check);
}

#[test]
fn long_the_random_experiment_of_003() {
    let mut experiment = offline::Experiment::default();
    for_each_case(Schema::OfflineExperiment, |line| experiment.check(line));
}

#[test]
fn the_mapping_to_nodes_of_003() {
    for_each_case(Schema::Mapping, mapping::check);
}

#[test]
fn the_launchers_of_001_appendix_a() {
    for_each_case(Schema::Moldable, moldable::check);
}

#[test]
fn whole_runs_of_the_systems_of_001() {
    for_each_case(Schema::NdrmsSim, ndrms_sim::check);
}

#[test]
fn the_arithmetic_of_mates_of_004() {
    for_each_case(Schema::Mates, mates::check);
}

#[test]
fn where_slices_of_nodes_fit() {
    for_each_case(Schema::Slices, slices::check);
}

#[test]
fn long_whole_runs_of_the_malleable_backfill_of_004() {
    for_each_case(Schema::SdSim, sd_sim::check);
}
