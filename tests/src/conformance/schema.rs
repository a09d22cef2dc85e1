//! Finds vectors: every file of a directory, told apart by what its lines hold and not by its name.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

/// What a line of vectors is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    Fit,
    /// A list of applications, placed by every algorithm.
    Offline,
    /// The same, drawn from a seed.
    OfflineExperiment,
    Mapping,
    Moldable,
    RmsPass,
    NdrmsSim,
    Mates,
    Slices,
    SdSim,
}

/// One file of vectors.
#[derive(Debug)]
pub struct Vectors {
    pub path: PathBuf,
    pub schema: Schema,
    text: String,
}

/// Why vectors cannot be run.
#[derive(Debug, Error)]
pub enum VectorError {
    #[error("{}: the vectors cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}, line {line_number}: expected one JSON object on a line: {source}", path.display())]
    Json { path: PathBuf, line_number: usize, source: serde_json::Error },
    #[error("{}, line {line_number}: {difference}", path.display())]
    Case { path: PathBuf, line_number: usize, difference: String },
    #[error("{}: no file of vectors of a known schema (*.jsonl; the schemas are {})", dir.display(), names())]
    Nothing { dir: PathBuf },
}

impl Schema {
    pub const ALL: [Schema; 10] = [
        Schema::Fit,
        Schema::Offline,
        Schema::OfflineExperiment,
        Schema::Mapping,
        Schema::Moldable,
        Schema::RmsPass,
        Schema::NdrmsSim,
        Schema::Mates,
        Schema::Slices,
        Schema::SdSim,
    ];

    /// Keys that a line of this schema has, and no other one has all of them.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Schema::Fit => &["nodes", "limit", "resource", "request", "base", "compact"],
            Schema::Offline => &["nodes", "apps", "results"],
            Schema::OfflineExperiment => &["seed", "test", "napps", "used_area", "results"],
            Schema::Mapping => &["nodes", "apps", "times", "alloc"],
            Schema::Moldable => &["origin", "now", "clusters", "app", "request"],
            Schema::RmsPass => &["now", "fair_start", "apps", "states", "views", "last_view"],
            Schema::NdrmsSim => &["timer", "fair_start", "clusters", "apps", "ndrms"],
            Schema::Mates => &["kind", "input", "output"],
            Schema::Slices => &["nodes", "busy", "request", "start"],
            Schema::SdSim => &["nodes", "cpus", "policy", "jobs", "result", "static"],
        }
    }

    fn of(line: &Value) -> Option<Schema> {
        Schema::ALL.into_iter().find(|schema| schema.keys().iter().all(|key| line.get(key).is_some()))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schema::Fit => "fit",
            Schema::Offline => "offline",
            Schema::OfflineExperiment => "offline_experiment",
            Schema::Mapping => "mapping",
            Schema::Moldable => "moldable",
            Schema::RmsPass => "rms_pass",
            Schema::NdrmsSim => "ndrms_sim",
            Schema::Mates => "mates",
            Schema::Slices => "slices_start",
            Schema::SdSim => "sd_sim",
        })
    }
}

fn names() -> String {
    Schema::ALL.map(|schema| schema.to_string()).join(", ")
}

impl Vectors {
    /// Every file of vectors of a known schema in the order of names; one whose first line is of none is named and
    /// left out.
    ///
    /// # Errors
    /// A directory or file that cannot be read, a first line that is no JSON, or no file at all.
    pub fn in_dir(dir: &Path) -> Result<Vec<Vectors>, VectorError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| VectorError::Read { path, source }
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(unreadable(dir))? {
            let path = entry.map_err(unreadable(dir))?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut found = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
            let Some((line_number, line)) = lines(&text).next() else { continue };
            let first: Value = serde_json::from_str(line).map_err(|source| VectorError::Json {
                path: path.clone(),
                line_number,
                source,
            })?;
            match Schema::of(&first) {
                Some(schema) => found.push(Vectors { path, schema, text }),
                None => println!("{}: left out, its lines are of no schema that is known here", path.display()),
            }
        }
        if found.is_empty() { Err(VectorError::Nothing { dir: dir.to_owned() }) } else { Ok(found) }
    }

    /// Runs `check` on each line; says how many there were.
    ///
    /// # Errors
    /// The first line that is no vector or that differs.
    pub fn run(&self, mut check: impl FnMut(&str) -> Result<(), String>) -> Result<usize, VectorError> {
        let mut n_cases = 0;
        for (line_number, line) in lines(&self.text) {
            check(line).map_err(|difference| VectorError::Case { path: self.path.clone(), line_number, difference })?;
            n_cases += 1;
        }
        Ok(n_cases)
    }
}

/// The lines that are not empty, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(idx, line)| (idx + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).expect("a file");
        }
        dir
    }

    #[test]
    fn a_file_is_known_by_its_lines_whatever_its_name() {
        let mates = r#"{"id": "m1", "kind": "penalty", "input": {}, "output": [1, 2]}"#;
        let dir = dir_with(&[("other-seed.jsonl", mates), ("notes.jsonl", "{\"a\": 1}\n"), ("README.md", "no")]);
        let found = Vectors::in_dir(dir.path()).expect("one file of a known schema");
        assert_eq!(found.iter().map(|vectors| vectors.schema).collect::<Vec<_>>(), [Schema::Mates]);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let empty = dir_with(&[]);
        let error = Vectors::in_dir(empty.path()).unwrap_err().to_string();
        assert!(error.contains("no file of vectors") && error.contains("rms_pass"), "{error}");
        let broken = dir_with(&[("x.jsonl", "\n{\"id\": ")]);
        let error = Vectors::in_dir(broken.path()).unwrap_err().to_string();
        assert!(error.contains("x.jsonl, line 2: expected one JSON object"), "{error}");
        assert!(matches!(Vectors::in_dir(Path::new("/nowhere/at/all")), Err(VectorError::Read { .. })));

        let fit = r#"{"nodes": 4, "limit": 2, "t0": 0, "resource": [], "request": [], "base": {}, "compact": {}}"#;
        let bad = dir_with(&[("fit.jsonl", fit)]);
        let found = Vectors::in_dir(bad.path()).expect("it looks like one");
        let error = found[0].run(super::super::fit::check).unwrap_err().to_string();
        assert!(error.contains("fit.jsonl, line 1: missing field `start`"), "{error}");
    }
}
