//! A batch script: its source, and what makes it valid.

use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

const WRAP: &str = "--wrap";

/// A script as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How messages name it: the path as typed, or `stdin`.
    pub file: String,
    /// The name of a job that does not specify one.
    pub job_name: String,
    pub text: String,
}

impl Script {
    /// Reads a file; `-` is the standard input.
    ///
    /// # Errors
    /// The script cannot be read, or is invalid.
    pub fn read(path: &str) -> Result<Script, Failure> {
        if path == "-" {
            return Script::parse("stdin", "stdin", read_all("stdin", &mut std::io::stdin().lock())?);
        }
        let open = std::fs::File::open(path).and_then(|file| {
            let is_dir = file.metadata()?.is_dir();
            if is_dir { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
        });
        let mut file = open.map_err(|error| {
            Failure::usage(format!("the script {path} cannot be read: {error}"))
                .hint("check the path, or use --wrap 'command'")
        })?;
        let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        Script::parse(path, &name, read_all(path, &mut file)?)
    }

    /// Returns a script of one command line.
    pub fn wrap(command: &str) -> Script {
        Script { file: WRAP.into(), job_name: "wrap".into(), text: format!("#!/bin/sh\n{command}\n") }
    }

    /// Returns how messages name a line. Those of `--wrap` begin after the `#!` line, and mostly there is only one.
    pub fn place(&self, line: usize) -> String {
        match self.file.as_str() {
            WRAP if self.text.lines().count() <= 2 => WRAP.to_owned(),
            WRAP => format!("{WRAP}:{}", line - 1),
            file => format!("{file}:{line}"),
        }
    }

    /// Returns whether it was written for sbatch.
    pub fn has_sbatch_lines(&self) -> bool {
        self.text.lines().any(|line| line.starts_with("#SBATCH"))
    }

    /// Returns the script that a command names, if it is a file here.
    ///
    /// # Errors
    /// The script's interpreter cannot be found, because its first line ends in CR.
    pub fn named_by(command: &str) -> Result<Option<Script>, Failure> {
        // A name without a slash is looked up in the job's PATH.
        let is_path = command.contains('/') && Path::new(command).is_file();
        let file = is_path.then(|| std::fs::File::open(command).ok()).flatten();
        let Some(Ok(bytes)) = file.map(|mut file| read_all(command, &mut file)) else { return Ok(None) };
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if first.starts_with(b"#!") && first.ends_with(b"\r") {
            return Err(crlf(command, 1));
        }
        // Otherwise it is a program, or a script followed by data.
        Ok(Script::parse(command, command, bytes).ok())
    }

    fn parse(file: &str, job_name: &str, bytes: Vec<u8>) -> Result<Script, Failure> {
        let is_text = !bytes.contains(&0) && bytes.starts_with(b"#!");
        let text = String::from_utf8(bytes);
        if let (Err(error), true) = (&text, is_text) {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let failure = Failure::usage(format!("{file}:{line}: the script is not UTF-8"));
            return Err(failure.hint("convert it, as from Latin-1 by: iconv -f latin1 -t utf-8 job.sh > utf8.sh"));
        }
        let Some(text) = text.ok().filter(|text| !text.contains('\0')) else {
            let failure = Failure::usage(format!("{file} is not a script but binary"));
            return Err(failure.hint(format!("to run a program, use 'rms run {file}' or --wrap '{file}'")));
        };
        if text.trim().is_empty() {
            let failure = Failure::usage(format!("the script {file} is empty"));
            return Err(failure.hint("name a SCRIPT, write --wrap 'command', or pass one on: rms submit < job.sh"));
        }
        // The kernel would look for an interpreter whose name ends in CR, and a shell would do the same for commands.
        if let Some(line) = text.split('\n').position(|line| line.ends_with('\r')).map(|idx| idx + 1) {
            return Err(crlf(file, line));
        }
        // The kernel would not find the '#!'.
        if text.starts_with('\u{feff}') {
            let failure = Failure::usage(format!("{file}:1: a byte order mark stands before the script's first line"));
            return Err(failure.hint("save it without one, or: tail -c +4 job.sh > plain.sh"));
        }
        if !text.starts_with("#!") {
            let failure = Failure::usage(format!("{file}:1: a script begins with the program that reads it"));
            return Err(failure.hint("write #!/bin/sh or #!/bin/bash on the first line, or use --wrap 'command'"));
        }
        Ok(Script { file: file.to_owned(), job_name: job_name.to_owned(), text })
    }
}

fn crlf(file: &str, line: usize) -> Failure {
    Failure::usage(format!("{file}:{line}: the script has CRLF line ends, as Windows writes them"))
        .hint("convert it by dos2unix, or: tr -d '\\r' < job.sh > unix.sh")
}

/// Reads at most the size of the longest script, so that a wrong path (a disk image, `/dev/zero`) costs nothing.
fn read_all(file: &str, from: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_SCRIPT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::io(format!("the script {file} cannot be read"), error))?;
    if bytes.len() as u64 > MAX_SCRIPT_BYTES {
        let failure = Failure::usage(format!("the script {file} is longer than {} KiB", MAX_SCRIPT_BYTES / 1024));
        return Err(failure.hint("keep it in a file on the nodes, and submit a short script that calls it"));
    }
    Ok(bytes)
}

const MAX_SCRIPT_BYTES: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Script, Failure> {
        Script::parse("job.sh", "job.sh", bytes.to_vec())
    }

    #[test]
    fn what_is_no_script_is_refused_with_advice() {
        assert!(parse(b"#!/bin/sh\ntrue\n").is_ok());
        let check = |bytes: &[u8], part: &str| {
            let failure = parse(bytes).expect_err(part);
            assert!(failure.to_text().contains(part), "{}", failure.to_text());
        };
        check(b"\x7fELF\x00", "rms run job.sh");
        check(b"#!/bin/sh\n\0", "binary");
        check(b" \n", "empty");
        check(b"echo\n", "#!/bin/sh");
        check(b"#!/bin/sh\r\necho\r\n", "CRLF");
        check(b"#!/bin/sh\n#SBATCH -N 2\r\necho\n", "job.sh:2: the script has CRLF");
        check(&[0xff, 0xfe], "binary");
        check(b"#!/bin/sh\n# M\xfcller\ntrue\n", "job.sh:2: the script is not UTF-8");
        check(b"#!/bin/sh\n# M\xfcller\n\0", "binary");
        check(b"\xef\xbb\xbf#!/bin/sh\ntrue\n", "job.sh:1: a byte order mark");
        assert!(parse(b"#!/bin/sh\nprintf 'a\rb'\n").is_ok(), "a CR that ends no line");
    }

    #[test]
    fn a_program_may_be_a_script_but_not_one_that_no_kernel_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let named = |bytes: &[u8]| {
            let path = dir.path().join("program");
            std::fs::write(&path, bytes).expect("a file");
            Script::named_by(path.to_str().expect("text")).map_err(|failure| failure.message)
        };
        assert!(named(b"#!/bin/sh\ntrue\n").is_ok_and(|script| script.is_some()));
        assert_eq!(named(b"\x7fELF\r\n\0"), Ok(None));
        assert_eq!(named(b"#!/bin/sh\ntail -c 2 $0\n\xff\r\n"), Ok(None), "with data behind it");
        assert!(named(b"#!/bin/sh\r\ntrue\r\n").is_err_and(|message| message.contains("CRLF")));
    }

    #[test]
    fn endless_input_is_cut_off() {
        let failure = read_all("x", &mut std::io::repeat(b'a')).expect_err("endless");
        assert!(failure.message.contains("longer than 256 KiB"));
    }
}
