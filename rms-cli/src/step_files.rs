//! The output files of a step (`srun -o step-%t.out`), created when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use launcher_sdk::Stream;
use rms_model::pattern::{self, Names};

use crate::failure::Failure;

/// Where a stream of a step goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// This command's own stream.
    #[default]
    Here,
    /// This command's own stream, for the output of this task only.
    Only(u32),
    Nowhere,
    /// Files by a pattern, as for a job's output.
    Files(String),
}

impl Target {
    /// Parses a target like srun: `all`, `none`, the number of a task, or the name of a file.
    ///
    /// # Errors
    /// The name contains a percent sign without a meaning.
    pub fn parse(text: &str) -> Result<Target, Failure> {
        match text {
            "all" => Ok(Target::Here),
            "none" => Ok(Target::Nowhere),
            _ => match text.parse() {
                Ok(task) => Ok(Target::Only(task)),
                Err(_) => {
                    pattern::check(text).map_err(|error| Failure::usage(error.to_string()))?;
                    Ok(Target::Files(text.to_owned()))
                }
            },
        }
    }
}

/// The files of a running step.
#[derive(Debug)]
pub struct StepFiles {
    pub output: Target,
    pub error: Target,
    pub append: bool,
    pub cwd: PathBuf,
    /// The job's id, from the environment.
    pub job: u64,
    pub job_name: String,
    pub user: String,
    /// The step's number, known once it has started.
    pub step: u32,
    pub nodes: Vec<String>,
    pub n_tasks: Vec<u32>,
    pub open: BTreeMap<PathBuf, File>,
}

impl StepFiles {
    /// Creates or empties the files of all tasks: those of tasks that write nothing, too. Of very many, the rest is opened
    /// again at its first output.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn create(&mut self) -> Result<(), Failure> {
        let n_tasks = self.n_tasks.iter().sum();
        let patterns = [&self.output, &self.error].map(|target| match target {
            Target::Files(pattern) => Some(pattern.clone()),
            Target::Here | Target::Only(_) | Target::Nowhere => None,
        });
        for pattern in patterns.iter().flatten() {
            let paths: BTreeSet<PathBuf> = (0..n_tasks).map(|task| self.path(pattern, task)).collect();
            for path in paths {
                let opened = self.file(path.clone()).map(drop);
                opened.map_err(|error| Failure::io(format!("{} cannot be written", path.display()), error))?;
                if self.open.len() > MOST_OPEN {
                    self.open.remove(&path);
                }
            }
        }
        Ok(())
    }

    /// Writes output of a task to its file; returns `false` if it belongs to this command's own streams.
    ///
    /// # Errors
    /// A file cannot be opened or written.
    pub fn write(&mut self, task: u32, stream: Stream, bytes: &[u8]) -> Result<bool, Failure> {
        let target = match stream {
            Stream::Out => &self.output,
            Stream::Err => &self.error,
        };
        match target {
            Target::Here => Ok(false),
            Target::Only(only) => Ok(*only != task),
            Target::Nowhere => Ok(true),
            Target::Files(pattern) => {
                let path = self.path(pattern, task);
                let written = self.file(path.clone()).and_then(|mut file| file.write_all(bytes));
                written.map_err(|error| Failure::io(format!("{} cannot be written", path.display()), error))?;
                Ok(true)
            }
        }
    }

    /// Returns the file that all tasks read, before the step has started.
    ///
    /// # Errors
    /// The name contains a percent sign without a meaning, or would be another one for each task or step.
    pub fn input(&self, pattern: &str) -> Result<PathBuf, Failure> {
        pattern::check(pattern).map_err(|error| Failure::usage(error.to_string()))?;
        match pattern::is_by_step(pattern) {
            true => Err(Failure::usage(format!(
                "the tasks of a step read one file, and '{pattern}' names several: let each task open its own, as in \
                 sh -c './program < in_$RMS_TASK_ID'"
            ))),
            false => Ok(self.path(pattern, 0)),
        }
    }

    fn path(&self, pattern: &str, task: u32) -> PathBuf {
        let mut first = 0;
        let node_idx = self.n_tasks.iter().position(|n_tasks| {
            first += n_tasks;
            task < first
        });
        let node_idx = node_idx.unwrap_or_default();
        let names = Names {
            job: self.job,
            job_name: &self.job_name,
            user: &self.user,
            node: self.nodes.get(node_idx).map_or("", String::as_str),
            node_idx: u32::try_from(node_idx).unwrap_or(u32::MAX),
            task,
            step: Some(self.step),
        };
        self.cwd.join(pattern::fill(pattern, &names))
    }

    /// Returns the open file. Both streams of a task may share a file.
    fn file(&mut self, path: PathBuf) -> std::io::Result<&File> {
        match self.open.entry(path) {
            std::collections::btree_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                let mut how = File::options();
                let file = match self.append {
                    true => how.append(true).create(true).open(vacant.key())?,
                    false => how.write(true).create(true).truncate(true).open(vacant.key())?,
                };
                Ok(vacant.insert(file))
            }
        }
    }
}

/// A process may have 1024 open files.
const MOST_OPEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &std::path::Path, output: &str) -> StepFiles {
        let output = Target::parse(output).expect("a target");
        StepFiles {
            error: output.clone(),
            output,
            append: false,
            cwd: dir.to_owned(),
            job: 7,
            job_name: "flow".to_owned(),
            user: "ada".to_owned(),
            step: 2,
            nodes: vec!["a1".to_owned(), "a4".to_owned()],
            n_tasks: vec![2, 1],
            open: BTreeMap::new(),
        }
    }

    #[test]
    fn each_task_has_its_file_where_the_name_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut tasks = files(dir.path(), "%x-%J-%N-%n-%t.out");
        for (task, stream, text) in [(0, Stream::Out, "zero\n"), (2, Stream::Out, "two\n"), (0, Stream::Err, "e\n")] {
            assert!(tasks.write(task, stream, text.as_bytes()).expect("written"));
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
        assert_eq!(read("flow-7.2-a1-0-0.out"), "zero\ne\n");
        assert_eq!(read("flow-7.2-a4-1-2.out"), "two\n");
    }

    #[test]
    fn tasks_that_write_nothing_leave_an_empty_file_and_not_that_of_another_step() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("1.out"), "of yesterday").expect("written");
        let mut tasks = files(dir.path(), "%t.out");
        tasks.create().expect("a directory");
        tasks.write(0, Stream::Out, b"zero").expect("written");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
        assert_eq!([read("0.out"), read("1.out"), read("2.out")], ["zero", "", ""]);
    }

    #[test]
    fn the_input_is_one_file_whose_name_is_known_before_the_step_starts() {
        let files = files(std::path::Path::new("/w"), "all");
        assert_eq!(files.input("in-%j-%x").expect("a name"), PathBuf::from("/w/in-7-flow"));
        for several in ["in_%t", "in.%N", "%J.in"] {
            let refused = files.input(several).expect_err("one for each");
            assert!(refused.message.contains("let each task open its own"), "{}", refused.message);
        }
        assert!(files.input("%q").is_err());
    }

    #[test]
    fn one_task_or_none_is_shown() {
        let dir = tempfile::tempdir().expect("a directory");
        let shown = |output: &str| {
            let mut files = files(dir.path(), output);
            [0, 1].map(|task| !files.write(task, Stream::Out, b"x").expect("nothing to write"))
        };
        assert_eq!(shown("all"), [true, true]);
        assert_eq!(shown("none"), [false, false]);
        assert_eq!(shown("1"), [false, true]);
        assert!(Target::parse("%q.out").is_err());
    }
}
