//! The command `rms`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rms_cli::main(std::env::args_os())
}
