//! The remote shell that `mpirun` uses inside a job: `rms-rsh [options…] NODE command…`.
//!
//! It asks the agent of its own node, which runs the command inside the job on the other node. It needs no keys and no
//! daemons: any process of the job can reach the nodes of the job, and no others.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use node_agent::frame::{self, Decoder, Frame};
use node_agent::rsh::{CommandEnd, EXIT_FAILED, Request, SOCKET_VARIABLE, STDERR, STDIN, STDOUT, inherited};
use node_agent::spool::connect_socket;

fn main() -> ExitCode {
    // `mpiexec -bootstrap slurm` calls this program as `srun --nodelist …`: it knows one name for all its launchers.
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word.as_bytes().starts_with(b"--")) {
        let error = Command::new("srun").args(words).exec();
        eprintln!("rms-rsh: srun cannot be executed: {error}; start 'mpiexec' without -bootstrap or -launcher");
        return ExitCode::from(EXIT_FAILED as u8);
    }
    let code = match texts(words).and_then(|words| parse(words.into_iter())).and_then(|request| run(&request)) {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("rms-rsh: {reason}");
            EXIT_FAILED
        }
    };
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

fn texts(words: Vec<OsString>) -> Result<Vec<String>, String> {
    let text = |word: OsString| word.into_string().map_err(|word| format!("the argument {word:?} is not UTF-8"));
    words.into_iter().map(text).collect()
}

/// Options of ssh and rsh whose value is the next word.
const WITH_VALUE: &str = "bceFIijlmopQRSWwBDEJLO";

fn parse(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
    let usage = || "usage: rms-rsh [options] NODE COMMAND...".to_owned();
    let node = loop {
        let word = words.next().ok_or_else(usage)?;
        let Some(letters) = word.strip_prefix('-') else { break word };
        // `-p 22` takes the next word, `-p22` does not, and flags never do.
        let takes_next = letters.len() == 1 && WITH_VALUE.contains(letters);
        if takes_next {
            words.next();
        }
    };
    // `user@node`: the job runs as its owner everywhere.
    let node = node.rsplit_once('@').map_or(node.clone(), |(_, node)| node.to_owned());
    let command = words.collect::<Vec<_>>().join(" ");
    if command.is_empty() { Err(usage()) } else { Ok(Request { node, command, inherited: Some(inherited()) }) }
}

fn run(request: &Request) -> Result<i32, String> {
    let socket = std::env::var(SOCKET_VARIABLE)
        .map_err(|_| format!("{SOCKET_VARIABLE} is not set; rms-rsh works only inside a job"))?;
    let unreachable = |error: io::Error| format!("cannot reach the node agent at {socket}: {error}");
    let mut stream = connect_socket(Path::new(&socket)).map_err(unreachable)?;
    // An agent that rejects the caller sends the reason at once, and may close before it has read the request.
    let asked = stream.write_all(&frame::message(request));
    let to_agent = stream.try_clone().map_err(unreachable)?;
    // The thread ends with the process, even in the middle of a read.
    std::thread::spawn(move || send_input(to_agent));
    let received = receive(stream);
    received.map_err(|error| format!("lost the node agent: {}", asked.err().unwrap_or(error)))
}

fn send_input(mut to_agent: UnixStream) {
    let mut piece = [0; 16 << 10];
    loop {
        let n = match io::stdin().read(&mut piece) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if to_agent.write_all(&frame::bytes(STDIN, &piece[..n])).is_err() || n == 0 {
            return;
        }
    }
}

fn receive(mut stream: UnixStream) -> io::Result<i32> {
    let mut decoder = Decoder::default();
    let mut piece = vec![0; 64 << 10];
    loop {
        while let Some(frame) = decoder.take::<CommandEnd>().map_err(io::Error::other)? {
            match frame {
                Frame::Bytes { stream: STDOUT, bytes } => show(io::stdout(), &bytes),
                Frame::Bytes { stream: STDERR, bytes } => show(io::stderr(), &bytes),
                Frame::Bytes { .. } => {}
                Frame::Message(CommandEnd::Ended { code }) => return Ok(code),
                Frame::Message(CommandEnd::Failed { reason }) => {
                    eprintln!("rms-rsh: {reason}");
                    return Ok(EXIT_FAILED);
                }
                // Answers about steps and credentials, which were not requested.
                Frame::Message(
                    CommandEnd::Waiting
                    | CommandEnd::Started { .. }
                    | CommandEnd::TaskEnded { .. }
                    | CommandEnd::Taken { .. }
                    | CommandEnd::Told { .. }
                    | CommandEnd::Credentials { .. },
                ) => {}
            }
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => decoder.push(&piece[..n]),
        }
    }
}

/// Writes output. Its reader may have closed it; the command still runs to its end.
fn show(mut to: impl Write, bytes: &[u8]) {
    let _reader_left = to.write_all(bytes).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn options_are_skipped_and_words_joined() {
        let check = |words: &[&str], node: &str, command: &str| {
            let request = parse(words.iter().map(|word| (*word).to_owned())).expect("complete");
            assert_eq!((request.node.as_str(), request.command.as_str()), (node, command), "{words:?}");
        };
        check(&["n1", "hostname"], "n1", "hostname");
        check(&["-x", "-o", "BatchMode=yes", "-p22", "n1", "echo", "-n", "a b"], "n1", "echo -n a b");
        check(&["-l", "ada", "ada@n2", "true"], "n2", "true");
        let latin_1 = vec!["n1".into(), OsString::from_vec(b"caf\xe9".to_vec())];
        assert_eq!(texts(latin_1), Err("the argument \"caf\\xE9\" is not UTF-8".to_owned()));
        for words in [&[][..], &["n1"], &["-x"]] {
            assert!(parse(words.iter().map(|word| (*word).to_owned())).is_err(), "{words:?}");
        }
    }
}
