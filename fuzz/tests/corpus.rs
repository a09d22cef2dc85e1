//! Feeds what fuzzing has found interesting to the decoders again: what once was mended stays so.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use limber_fuzz::TARGETS;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn the_corpus_is_decoded_or_refused() {
    for target in &TARGETS {
        let files = fs::read_dir(corpus().join(target.name)).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let mut n_inputs = 0;
        for file in files {
            let path = file.expect("readable").path();
            // Shown if it fails.
            println!("{}", path.display());
            (target.run)(&fs::read(path).expect("readable"));
            n_inputs += 1;
        }
        assert!(n_inputs > 0, "{} has no corpus", target.name);
    }
}

#[test]
fn each_target_has_its_corpus_and_all_of_it_is_small() {
    let dirs = fs::read_dir(corpus()).expect("readable").map(|dir| dir.expect("readable").path());
    let mut n_bytes = 0;
    let mut names = BTreeSet::new();
    for dir in dirs {
        names.insert(dir.file_name().expect("it has one").to_string_lossy().into_owned());
        n_bytes += fs::read_dir(dir)
            .expect("readable")
            .map(|file| file.expect("readable").metadata().expect("readable").len())
            .sum::<u64>();
    }
    assert_eq!(names, TARGETS.iter().map(|target| target.name.to_owned()).collect());
    assert!(n_bytes < 1 << 20, "{n_bytes} bytes are more than anybody keeps");
}
