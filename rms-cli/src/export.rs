//! Selects the variables that a job gets: those that `--export` names, without those that other launchers left behind.

use rms_model::variables::{MARKS, is_of_a_launcher};
use thiserror::Error;

/// Why a text is not a list of variables.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExportError {
    #[error("--export: '{0}' is no variable: write ALL, NONE or a list like PATH,LEVEL=2")]
    Nonsense(String),
    #[error("--export: the variable {0} is not set here: set it, or write {0}=VALUE")]
    NotSet(String),
    #[error("--export: ALL and NONE cannot stand together")]
    AllAndNone,
    #[error("--export: a quote is not closed")]
    Quote,
    #[error("--export: no job keeps {0}, which launchers of MPI would believe: set it in the script")]
    OfALauncher(String),
    #[error("--export: {0} of a job is that of its user's account on the node: set it in the script")]
    OfTheAccount(String),
}

/// Checks that the words of a job's `--export` set no variable that its nodes set.
///
/// # Errors
/// See [`ExportError`].
pub fn check_job(words: &str) -> Result<(), ExportError> {
    let split = split_words(words)?;
    let mut names = split.iter().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
    match names.find(|name| ["USER", "LOGNAME", "HOME", "SHELL"].contains(name)) {
        Some(name) => Err(ExportError::OfTheAccount(name.to_owned())),
        None => Ok(()),
    }
}

/// Whose environment is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A job's. One that gets Slurm's variables may be given more of them.
    Job { speaks_slurm: bool },
    /// A step's, as of a child of a shell: variables that the job's script has set are kept.
    Step,
}

/// Returns the environment of a job or step for the words of `--export`.
///
/// # Errors
/// See [`ExportError`].
pub fn select(words: Option<&str>, here: &[(String, String)], of: Of) -> Result<Vec<(String, String)>, ExportError> {
    let mut all = words.is_none();
    let mut none = false;
    let mut named: Vec<(String, String)> = Vec::new();
    let split = words.map(split_words).transpose()?.unwrap_or_default();
    for word in &split {
        let word = word.as_str();
        match word.split_once('=') {
            None if word == "ALL" => all = true,
            None if word == "NONE" || word == "NIL" => none = true,
            None => {
                let value = here.iter().find(|(name, _)| name == word).map(|(_, value)| value.clone());
                let word = checked(word, of)?;
                named.push((word.clone(), value.ok_or(ExportError::NotSet(word))?));
            }
            Some((name, value)) => named.push((checked(name, of)?, value.to_owned())),
        }
    }
    if all && none {
        return Err(ExportError::AllAndNone);
    }
    let mut environment: Vec<(String, String)> = Vec::new();
    if all {
        let is_kept = |name: &str| of == Of::Step || !is_of_a_launcher(name) || MARKS.contains(&name);
        environment.extend(here.iter().filter(|(name, _)| is_kept(name)).cloned());
    }
    environment.retain(|(name, _)| !named.iter().any(|(named, _)| named == name));
    // If a variable is named twice, the last value counts, as in a shell.
    for (idx, (name, value)) in named.iter().enumerate() {
        let is_last = !named[idx + 1..].iter().any(|(later, _)| later == name);
        if is_last {
            environment.push((name.clone(), value.clone()));
        }
    }
    environment.sort();
    Ok(environment)
}

/// Splits at commas outside quotes: `ALL,OPTIONS='a,b'`.
fn split_words(words: &str) -> Result<Vec<String>, ExportError> {
    let mut split = vec![String::new()];
    let mut quote: Option<char> = None;
    for c in words.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ',') => split.push(String::new()),
            (_, _) => split.last_mut().into_iter().for_each(|word| word.push(c)),
        }
    }
    if quote.is_none() { Ok(split) } else { Err(ExportError::Quote) }
}

fn checked(name: &str, of: Of) -> Result<String, ExportError> {
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_name {
        return Err(ExportError::Nonsense(name.chars().take(80).collect()));
    }
    // The agents would remove it.
    let is_removed = match of {
        Of::Job { speaks_slurm } => is_of_a_launcher(name) && !(speaks_slurm && name.starts_with("SLURM_")),
        Of::Step => false,
    };
    if is_removed { Err(ExportError::OfALauncher(name.to_owned())) } else { Ok(name.to_owned()) }
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
        assert_eq!(select(words, &here, Of::Job { speaks_slurm: true }).unwrap(), own(expected), "{words:?}");
    }

    #[test]
    fn all_is_the_default_without_the_traces_of_launchers() {
        check(None, &[("HOME", "/h"), ("PATH", "/bin"), ("RMS_DIR", "/d")]);
        check(Some("ALL,LEVEL=2,PATH=/x"), &[("HOME", "/h"), ("LEVEL", "2"), ("PATH", "/x"), ("RMS_DIR", "/d")]);
    }

    /// The agents would take what the job was given for a choice.
    #[test]
    fn all_has_the_marks_of_the_job_from_which_it_is_submitted() {
        let of_job = [("CUDA_VISIBLE_DEVICES", "1"), ("RMS_GPUS", "1"), ("RMS_OPENMP", "OMP_NUM_THREADS=2")];
        let here = of_job.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(select(None, &here, Of::Job { speaks_slurm: false }), Ok(here.to_vec()));
        let named = select(Some("CUDA_VISIBLE_DEVICES"), &here, Of::Job { speaks_slurm: false });
        assert_eq!(named, Ok(here[..1].to_vec()), "it is named: a choice");
    }

    #[test]
    fn what_is_named_is_given() {
        check(Some("NONE"), &[]);
        check(Some("PATH,A=1,A=2"), &[("A", "2"), ("PATH", "/bin")]);
        check(Some("SLURM_JOB_ID"), &[("SLURM_JOB_ID", "1")]);
        check(Some("A='1,2',B=\"3\""), &[("A", "1,2"), ("B", "3")]);
        check(Some("ALL,A=x=y"), &[("A", "x=y"), ("HOME", "/h"), ("PATH", "/bin"), ("RMS_DIR", "/d")]);
    }

    #[test]
    fn a_step_has_what_the_script_of_its_job_has_set() {
        let here = vec![("OMPI_MCA_coll".to_owned(), "^hcoll".to_owned()), ("RMS_JOB_ID".to_owned(), "3".to_owned())];
        assert_eq!(select(Some("ALL"), &here, Of::Step).as_ref(), Ok(&here));
        let set = vec![("OMPI_MCA_coll".to_owned(), "x".to_owned())];
        assert_eq!(select(Some("NONE,OMPI_MCA_coll=x"), &here, Of::Step), Ok(set));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(select(Some("GONE"), &[], Of::Job { speaks_slurm: false }), Err(ExportError::NotSet("GONE".into())));
        assert_eq!(select(Some("ALL,NONE"), &[], Of::Job { speaks_slurm: false }), Err(ExportError::AllAndNone));
        assert_eq!(select(Some("A='1"), &[], Of::Job { speaks_slurm: false }), Err(ExportError::Quote));
        for removed in ["OMPI_MCA_btl=tcp", "PMI_RANK=1", "RMS_JOB_ID=7", "SLURM_JOB_ID=7"] {
            let refused = select(Some(removed), &[], Of::Job { speaks_slurm: false });
            assert!(matches!(refused, Err(ExportError::OfALauncher(_))), "{removed}: {refused:?}");
        }
        assert_eq!(check_job("ALL,LEVEL=2,HOME"), Ok(()));
        assert_eq!(check_job("ALL,HOME=/h"), Err(ExportError::OfTheAccount("HOME".into())));
        for words in ["", "1A=2", "=x", "A,,B", "A-B"] {
            assert!(
                select(Some(words), &[("A".into(), "1".into())], Of::Job { speaks_slurm: false }).is_err(),
                "{words}"
            );
        }
    }
}
