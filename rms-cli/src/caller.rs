//! What a job inherits from the shell that submits it: directory, environment, umask and limits.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use node_agent::rsh;
use rms_model::execution::from_bytes;
use rms_model::variables::DIR;
use rms_model::{Inherited, Time};

use crate::failure::Failure;
use crate::stamp;

/// What a job inherits from the submitting command, and the time of that command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub cwd: PathBuf,
    /// The name of this machine.
    pub node: String,
    pub environment: Vec<(String, String)>,
    pub inherited: Inherited,
    pub now: Time,
}

impl Caller {
    /// # Errors
    /// The working directory was removed.
    pub fn read() -> Result<Caller, Failure> {
        let cwd =
            std::env::current_dir().map_err(|error| Failure::io("the working directory cannot be read", error))?;
        let node = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Caller {
            node,
            environment: environment(std::env::vars_os(), &cwd),
            cwd,
            inherited: rsh::inherited(),
            now: stamp::now(),
        })
    }

    /// Has jobs find the server by this directory, which `--dir` names.
    pub fn leads_to(&mut self, dir: &Path) {
        self.environment.retain(|(name, _)| name != DIR);
        self.environment.push((DIR.to_owned(), from_bytes(self.cwd.join(dir).as_os_str().as_bytes())));
    }
}

/// Returns the variables in the order of their names. Values that are not valid UTF-8 keep their bytes. A relative
/// `RMS_DIR` is completed, because jobs may run in other directories.
fn environment(vars: impl Iterator<Item = (OsString, OsString)>, cwd: &Path) -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| match name == DIR && !value.is_empty() {
        true => (DIR.to_owned(), from_bytes(cwd.join(value).as_os_str().as_bytes())),
        false => (from_bytes(name.as_bytes()), from_bytes(value.as_bytes())),
    };
    let mut environment: Vec<(String, String)> = vars.map(text).filter(|(name, _)| !name.is_empty()).collect();
    environment.sort();
    environment
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn variables_that_are_no_text_are_carried() {
        let odd = OsString::from_vec(vec![0xff]);
        let vars = vec![("B".into(), "2".into()), ("A".into(), "1".into()), ("X".into(), odd)];
        let found = environment(vars.into_iter(), Path::new("/home/ada"));
        assert_eq!(found[..2], [("A".into(), "1".into()), ("B".into(), "2".into())]);
        assert_eq!(*rms_model::execution::to_bytes(&found[2].1), [0xff]);
    }

    #[test]
    fn the_way_to_the_server_holds_in_every_directory() {
        for (value, expected) in [("play", "/home/ada/play"), ("/play", "/play"), ("", "")] {
            let found = environment([(DIR.into(), value.into())].into_iter(), Path::new("/home/ada"));
            assert_eq!(found, [(DIR.to_owned(), expected.to_owned())]);
        }
        let mut caller = Caller::read().expect("read");
        caller.leads_to(Path::new("/named"));
        let ways: Vec<_> = caller.environment.into_iter().filter(|(name, _)| name == DIR).collect();
        assert_eq!(ways, [(DIR.to_owned(), "/named".to_owned())], "--dir comes before RMS_DIR");
    }
}
