//! The program `node-agent`: reads what it is told, and runs as the agent or as its spawner.

use std::process::ExitCode;

fn main() -> ExitCode {
    let is_spawner = std::env::args_os().nth(1).is_some_and(|arg| arg == node_agent::spawner::SUBCOMMAND);
    if is_spawner {
        return match node_agent::spawner::main() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("node-agent: the spawner cannot go on: {error}");
                ExitCode::FAILURE
            }
        };
    }
    ExitCode::SUCCESS
}
