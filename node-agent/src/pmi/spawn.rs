//! Collects the lines of `mcmd=spawn … endcmd`: which programs a rank wants to start, and where.

use thiserror::Error;

use super::frames::{Command, NamedNode, Pair, Question};

/// Why the request of a rank is invalid. The text becomes one word of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpawnError {
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("{0} is no number")]
    NoNumber(String),
    #[error("there is no program to execute")]
    NoProgram,
    #[error("there are no ranks to start")]
    NoRanks,
    #[error("there are {0} programs, and {1} were announced")]
    Count(usize, u32),
    #[error("the hostfile {path} cannot be used: {reason}")]
    Hostfile { path: String, reason: String },
    #[error("the number of slots of node {0} is none")]
    Slots(String),
}

/// The most bytes of a whole spawn: names, arguments, keys. Less than a frame between agents holds.
const MAX_BYTES: usize = 1 << 20;

/// Collects the lines of a spawn as they arrive; several programs arrive as several blocks.
#[derive(Debug, Default)]
pub struct Collector {
    is_open: bool,
    n_bytes: usize,
    n_total: u32,
    n_so_far: u32,
    drafts: Vec<Draft>,
    pairs: Vec<Pair>,
    problem: Option<SpawnError>,
}

#[derive(Debug, Default)]
struct Draft {
    n_ranks: u32,
    program: String,
    args: Vec<String>,
    preput_key: String,
    info_key: String,
    nodes: String,
    hostfile: Option<String>,
    wdir: Option<String>,
    path: Option<String>,
}

/// Whether the spawn is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    More,
    Complete,
}

impl Collector {
    /// Begins a block, after `mcmd=spawn` was read.
    pub fn open(&mut self) {
        self.is_open = true;
        self.drafts.push(Draft::default());
    }

    /// Returns whether the next line belongs to a block.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Handles one line, given without its line end.
    pub fn line(&mut self, text: &str) -> Progress {
        if text == "endcmd" {
            self.is_open = false;
            let is_last = self.n_so_far >= self.n_total;
            return if is_last { Progress::Complete } else { Progress::More };
        }
        self.n_bytes += text.len();
        if self.n_bytes > MAX_BYTES {
            // The rest is read and dropped: a program that can continue without new ranks may do so.
            self.problem = Some(SpawnError::TooLong);
            self.drafts.truncate(1);
            self.pairs.clear();
        }
        if let Err(error) = self.key(text) {
            self.problem.get_or_insert(error);
        }
        Progress::More
    }

    fn key(&mut self, text: &str) -> Result<(), SpawnError> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        match key {
            "totspawns" => self.n_total = number(value)?,
            "spawnssofar" => self.n_so_far = number(value)?,
            _other if self.problem.is_some() => {}
            _other => self.key_of_command(key, value)?,
        }
        Ok(())
    }

    fn key_of_command(&mut self, key: &str, value: &str) -> Result<(), SpawnError> {
        let Some(draft) = self.drafts.last_mut() else { return Ok(()) };
        match key {
            "nprocs" => draft.n_ranks = number(value)?,
            "execname" => draft.program = value.to_owned(),
            _arg if is_numbered(key, "arg") => draft.args.push(value.to_owned()),
            _key if key.starts_with("preput_key_") => draft.preput_key = value.to_owned(),
            _value if key.starts_with("preput_val_") => {
                let key = std::mem::take(&mut draft.preput_key);
                // Each program of a spawn repeats the pairs.
                self.pairs.retain(|pair| pair.key != key);
                self.pairs.push(Pair { key, value: value.to_owned() });
            }
            _key if key.starts_with("info_key_") => draft.info_key = value.to_owned(),
            _value if key.starts_with("info_val_") => match draft.info_key.as_str() {
                "host" | "hosts" => draft.nodes = value.to_owned(),
                "hostfile" => draft.hostfile = Some(value.to_owned()),
                "wdir" | "wd" => draft.wdir = Some(value.to_owned()),
                "path" => draft.path = Some(value.to_owned()),
                // MPI allows info keys that an implementation does not know.
                _unknown => {}
            },
            // Redundant counts of the lines that follow, and keys of newer versions.
            _unknown => {}
        }
        Ok(())
    }

    /// Returns the hostfiles that must first be read by a process with the permission to do so.
    pub fn hostfiles(&self) -> Vec<String> {
        self.drafts.iter().filter_map(|draft| draft.hostfile.clone()).collect()
    }

    /// Returns the collected request. `hostfiles` are the contents of [`hostfiles`](Collector::hostfiles), or the
    /// errors of reading them.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn finish(self, hostfiles: Vec<Result<String, String>>) -> Result<Question, SpawnError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.drafts.len() != self.n_total as usize {
            return Err(SpawnError::Count(self.drafts.len(), self.n_total));
        }
        let mut hostfiles = hostfiles.into_iter();
        let mut commands = Vec::new();
        for draft in self.drafts {
            let text = draft.hostfile.as_ref().and_then(|_| hostfiles.next());
            commands.push(draft.command(text)?);
        }
        let is_empty = commands.iter().all(|command| command.n_ranks == 0);
        if is_empty {
            return Err(SpawnError::NoRanks);
        }
        Ok(Question::Spawn { commands, pairs: self.pairs })
    }
}

impl Draft {
    fn command(self, hostfile: Option<Result<String, String>>) -> Result<Command, SpawnError> {
        if self.program.is_empty() {
            return Err(SpawnError::NoProgram);
        }
        let mut nodes = Vec::new();
        if let (Some(path), Some(text)) = (self.hostfile, hostfile) {
            let text = text.map_err(|reason| SpawnError::Hostfile { path, reason })?;
            for line in text.lines() {
                nodes.extend(named_node(line.split('#').next().unwrap_or_default())?);
            }
        }
        for word in self.nodes.split(',') {
            nodes.extend(named_node(word)?);
        }
        let argv = std::iter::once(self.program).chain(self.args).collect();
        Ok(Command { argv, n_ranks: self.n_ranks, nodes, wdir: self.wdir, path: self.path })
    }
}

/// Parses `name`, `name:slots` as Hydra writes it, or `name slots=n` as Open MPI does.
fn named_node(text: &str) -> Result<Option<NamedNode>, SpawnError> {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let (node, colon) = first.split_once(':').map_or((first, None), |(node, slots)| (node, Some(slots)));
    let slots = words.find_map(|word| word.strip_prefix("slots=")).or(colon);
    let slots = slots.map(|slots| slots.parse().ok().filter(|slots| *slots > 0));
    match slots {
        Some(None) => Err(SpawnError::Slots(node.to_owned())),
        Some(Some(slots)) => Ok(Some(NamedNode { node: node.to_owned(), slots: Some(slots) })),
        None => Ok(Some(NamedNode { node: node.to_owned(), slots: None })),
    }
}

fn number(text: &str) -> Result<u32, SpawnError> {
    text.parse().map_err(|_| SpawnError::NoNumber(text.chars().take(40).collect()))
}

fn is_numbered(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(lines: &[&str], hostfiles: Vec<Result<String, String>>) -> Result<Question, SpawnError> {
        let mut collector = Collector::default();
        let mut progress = Progress::More;
        for line in lines {
            match *line {
                "mcmd=spawn" => collector.open(),
                line => progress = collector.line(line),
            }
        }
        assert_eq!(progress, Progress::Complete);
        collector.finish(hostfiles)
    }

    fn commands(lines: &[&str], hostfiles: Vec<Result<String, String>>) -> Vec<Command> {
        match collect(lines, hostfiles) {
            Ok(Question::Spawn { commands, .. }) => commands,
            other => panic!("no spawn: {other:?}"),
        }
    }

    fn slots(node: &NamedNode) -> (&str, Option<u32>) {
        (&node.node, node.slots)
    }

    #[test]
    fn every_key_of_a_program_is_taken_and_others_are_passed_over() {
        let lines = [
            "mcmd=spawn",
            "nprocs=3",
            "execname=./a b",
            "totspawns=1",
            "spawnssofar=1",
            "argcnt=2",
            "arg1=x=y",
            "arg2=two words",
            "preput_num=1",
            "preput_key_0=k",
            "preput_val_0=tag=1$",
            "info_num=5",
            "info_key_0=host",
            "info_val_0=n1,n2:2",
            "info_key_1=wdir",
            "info_val_1=/tmp",
            "info_key_2=path",
            "info_val_2=/opt/bin",
            "info_key_3=rms_grant",
            "info_val_3=a1",
            "info_key_4=hostfile",
            "info_val_4=hosts",
            "endcmd",
        ];
        let file = Ok("# two nodes\nn3 slots=4 # the large one\n\nn4:1\n".to_owned());
        let Ok(Question::Spawn { commands, pairs }) = collect(&lines, vec![file]) else { panic!("no spawn") };
        let [command] = commands.as_slice() else { panic!("{commands:?}") };
        assert_eq!(command.argv, ["./a b", "x=y", "two words"]);
        assert_eq!(
            (command.n_ranks, command.wdir.as_deref(), command.path.as_deref()),
            (3, Some("/tmp"), Some("/opt/bin"))
        );
        let nodes: Vec<_> = command.nodes.iter().map(slots).collect();
        assert_eq!(nodes, [("n3", Some(4)), ("n4", Some(1)), ("n1", None), ("n2", Some(2))]);
        assert_eq!(pairs, [Pair { key: "k".to_owned(), value: "tag=1$".to_owned() }]);
    }

    #[test]
    fn several_programs_are_one_question() {
        let block = |name: &'static str, so_far: &'static str| {
            ["mcmd=spawn", "nprocs=1", name, "totspawns=2", so_far, "preput_key_0=k", "preput_val_0=v", "endcmd"]
        };
        let lines = [block("execname=a", "spawnssofar=1"), block("execname=b", "spawnssofar=2")].concat();
        let programs: Vec<String> = commands(&lines, Vec::new()).into_iter().flat_map(|command| command.argv).collect();
        assert_eq!(programs, ["a", "b"]);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let check = |line: &str, problem: &str| {
            let lines = [
                "mcmd=spawn",
                "nprocs=1",
                "execname=a",
                "totspawns=1",
                "spawnssofar=1",
                "info_key_0=host",
                line,
                "endcmd",
            ];
            let error = collect(&lines, vec![Err("not there".to_owned())]).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
        };
        check("nprocs=many", "many is no number");
        check("nprocs=0", "no ranks");
        check("execname=", "no program");
        check("info_val_0=n1:x", "slots of node n1");
        check("totspawns=0", "1 programs, and 0");
        check(&format!("arg1={}", "x".repeat(MAX_BYTES)), "longer than");
        let hostfile = [
            "mcmd=spawn",
            "nprocs=1",
            "execname=a",
            "totspawns=1",
            "info_key_0=hostfile",
            "info_val_0=h",
            "spawnssofar=1",
            "endcmd",
        ];
        let error = collect(&hostfile, vec![Err("not there".to_owned())]).expect_err("there is no such file");
        assert_eq!(error.to_string(), "the hostfile h cannot be used: not there");
    }
}
