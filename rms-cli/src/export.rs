//! Which variables a job gets: what `--export` names, without what other launchers left behind.

use thiserror::Error;

/// Why a text is no list of variables.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    #[error("--export: '{0}' is no variable: write ALL, NONE or a list like PATH,LEVEL=2")]
    Nonsense(String),
    #[error("--export: the variable {0} is not set here: set it, or write {0}=VALUE")]
    NotSet(String),
    #[error("--export: ALL and NONE cannot stand together")]
    AllAndNone,
}

/// The environment of a job for the words of `--export`.
///
/// # Errors
/// See [`ExportError`].
pub fn select(words: Option<&str>, here: &[(String, String)]) -> Result<Vec<(String, String)>, ExportError> {
    let mut all = words.is_none();
    let mut none = false;
    let mut named: Vec<(String, String)> = Vec::new();
    for word in words.unwrap_or_default().split(',').filter(|_| words.is_some()) {
        match word.split_once('=') {
            None if word == "ALL" => all = true,
            None if word == "NONE" => none = true,
            None => {
                let value = here.iter().find(|(name, _)| name == word).map(|(_, value)| value.clone());
                let word = checked(word)?;
                named.push((word.clone(), value.ok_or(ExportError::NotSet(word))?));
            }
            Some((name, value)) => named.push((checked(name)?, value.to_owned())),
        }
    }
    if all && none {
        return Err(ExportError::AllAndNone);
    }
    let mut environment: Vec<(String, String)> = Vec::new();
    if all {
        let inherited = here.iter().filter(|(name, _)| !is_a_launchers(name));
        environment.extend(inherited.cloned());
    }
    environment.retain(|(name, _)| !named.iter().any(|(named, _)| named == name));
    // Of a variable named twice, the last value holds, as in a shell.
    for (idx, (name, value)) in named.iter().enumerate() {
        let is_last = !named[idx + 1..].iter().any(|(later, _)| later == name);
        if is_last {
            environment.push((name.clone(), value.clone()));
        }
    }
    environment.sort();
    Ok(environment)
}

fn checked(name: &str) -> Result<String, ExportError> {
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_name { Ok(name.to_owned()) } else { Err(ExportError::Nonsense(name.chars().take(80).collect())) }
}

/// An MPI program that finds these would believe that it runs under another job, or another launcher.
fn is_a_launchers(name: &str) -> bool {
    // What leads to the server is no trace of a job: `rms` works inside jobs too.
    let is_ours = name == "RMS_DIR";
    !is_ours && ["SLURM_", "PMI_", "PMIX_", "OMPI_", "RMS_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: Option<&str>, expected: &[(&str, &str)]) {
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let here =
            own(&[("HOME", "/h"), ("PATH", "/bin"), ("RMS_DIR", "/d"), ("RMS_JOB_ID", "3"), ("SLURM_JOB_ID", "1")]);
        assert_eq!(select(words, &here).unwrap(), own(expected), "{words:?}");
    }

    #[test]
    fn all_is_the_default_without_the_traces_of_launchers() {
        check(None, &[("HOME", "/h"), ("PATH", "/bin"), ("RMS_DIR", "/d")]);
        check(Some("ALL,LEVEL=2,PATH=/x"), &[("HOME", "/h"), ("LEVEL", "2"), ("PATH", "/x"), ("RMS_DIR", "/d")]);
    }

    #[test]
    fn what_is_named_is_given() {
        check(Some("NONE"), &[]);
        check(Some("PATH,A=1,A=2"), &[("A", "2"), ("PATH", "/bin")]);
        check(Some("SLURM_JOB_ID"), &[("SLURM_JOB_ID", "1")]);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(select(Some("GONE"), &[]), Err(ExportError::NotSet("GONE".into())));
        assert_eq!(select(Some("ALL,NONE"), &[]), Err(ExportError::AllAndNone));
        for words in ["", "1A=2", "=x", "A,,B", "A-B"] {
            assert!(select(Some(words), &[("A".into(), "1".into())]).is_err(), "{words}");
        }
    }
}
