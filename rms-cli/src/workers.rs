//! The worker of a task farm: a program that is executed on every node; it may be a script with its own flags.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rms_model::Work;

use crate::directive::{self, Directives};
use crate::failure::Failure;
use crate::script::Script;
use crate::submission::{Order, Output};

/// Returns the order for `--wrap`: a shell on each node.
pub fn of_command_line(command: &str) -> Order {
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()];
    Order { script: Some(Script::wrap(command)), ..order("wrap", argv) }
}

/// Returns the order for a program by its name. If it is a script here, it may contain flags.
///
/// # Errors
/// The file exists and cannot be executed, or its directives are wrong.
pub fn of_program(name: &str, args: Vec<String>) -> Result<(Directives, Order), Failure> {
    if name == "-" {
        let failure = Failure::usage("workers are started from a file on each node, not from the standard input");
        return Err(failure.hint("name a program: rms submit --malleable 2-8 --workers ./worker"));
    }
    if !Path::new(name).is_file() {
        // Each node looks it up, like a shell.
        return Ok((Directives::default(), of_words(name.to_owned(), args)?));
    }
    let program = executable(name)?;
    let directives = match Script::read(name) {
        Ok(script) => directive::read(&script.file, &script.text)?,
        Err(_no_script) => Directives::default(),
    };
    Ok((directives, of_words(program, args)?))
}

/// Returns the order for a script whose own directives make it a worker.
///
/// # Errors
/// There is no file that the nodes can execute.
pub fn of_script(path: Option<&str>, args: Vec<String>) -> Result<Order, Failure> {
    let program = executable(path.unwrap_or("-"))?;
    of_words(program, args)
}

fn of_words(program: String, args: Vec<String>) -> Result<Order, Failure> {
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let script = Script::named_by(&program)?;
    Ok(Order { script, ..order(&name, std::iter::once(program).chain(args).collect()) })
}

fn order(name: &str, argv: Vec<String>) -> Order {
    Order { work: Work::Tasks { argv }, name: name.to_owned(), output: Output::File, test_only: false, script: None }
}

/// Returns the absolute path of a file here, so that nodes find what the submitter sees.
fn executable(path: &str) -> Result<String, Failure> {
    let failure = |problem: &str| Failure::usage(format!("the worker {path} cannot be executed: {problem}"));
    let whole = std::path::absolute(path).map_err(|error| failure(&error.to_string()))?;
    let found = std::fs::metadata(&whole).map_err(|error| failure(&error.to_string()))?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        return Err(failure("it is no executable file").hint(format!("make it one: chmod +x {path}")));
    }
    whole.into_os_string().into_string().map_err(|_| failure("its path is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(order: Order) -> Vec<String> {
        match order.work {
            Work::Tasks { argv } => argv,
            Work::Script { .. } | Work::Nodes => panic!("no tasks"),
        }
    }

    #[test]
    fn a_worker_is_a_program_whose_script_may_hold_flags() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("farm.sh");
        std::fs::write(&path, "#!/bin/sh\n#RMS --malleable 2-4 -t 1h\nexec true\n").expect("written");
        let name = path.to_str().expect("text");
        let failure = of_program(name, Vec::new()).expect_err("not executable");
        assert!(failure.to_text().contains("chmod +x"), "{}", failure.to_text());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let (directives, order) = of_program(name, vec!["a b".to_owned()]).expect("a worker");
        assert!(directives.options.malleable.is_some());
        assert_eq!((order.name.as_str(), argv(order.clone())), ("farm.sh", vec![name.to_owned(), "a b".to_owned()]));
        let (directives, order) = of_program("no-such-program", Vec::new()).expect("looked for on the nodes");
        assert_eq!((directives, argv(order)), (Directives::default(), vec!["no-such-program".to_owned()]));
        assert!(of_program("-", Vec::new()).is_err() && of_script(None, Vec::new()).is_err());
    }
}
