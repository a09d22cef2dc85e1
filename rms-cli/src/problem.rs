//! Converts the errors of all parts to the one form in which commands fail.

use std::io::ErrorKind;

use launcher_sdk::{CallError, ConnectError, DirError, JoinError};
use rms_model::error::chain;
use rms_model::hostlist::HostlistError;

use crate::directive::DirectiveError;
use crate::failure::{Exit, Failure};
use crate::model_options::ModelError;
use crate::profile::ProfileError;
use crate::select::SelectError;
use crate::submission::SubmissionError;

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        let (kind, hint) = match &error {
            ConnectError::Dir(DirError::Read { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
                ("client_dir", Some("it may be another user's: name a directory of your own with --dir or RMS_DIR"))
            }
            ConnectError::Dir(_) => ("client_dir", None),
            ConnectError::Endpoint(_) => ("network", None),
            ConnectError::Denied { .. } => {
                ("denied", Some("if the certificate has expired or was revoked, join again with a new token"))
            }
            ConnectError::Untrusted { .. } => (
                "untrusted",
                Some("an admin makes the token; 'rms join TOKEN --replace' takes this certificate's place"),
            ),
            ConnectError::Unreachable { .. } => (
                "unreachable",
                Some("is it running? 'rms up' starts again what is missing of a cluster on this machine"),
            ),
        };
        let failure = Failure::new(kind, chain(&error)).exit(Exit::FAILED);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        match error {
            CallError::Refused(refused) => Failure::new(refused.kind, refused.message),
            CallError::Connect(error) => error.into(),
            CallError::Interrupted(_) => Failure::new("interrupted", chain(&error)).exit(Exit::UNKNOWN),
            CallError::OtherJob(_) => Failure::new("other_job", error).hint("submit it again").exit(Exit::SYSTEM),
            CallError::Unexpected => Failure::new("unexpected", error),
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Failure {
        let (kind, hint) = match &error {
            JoinError::Taken { .. } => {
                ("taken", Some("name another directory with --dir, or give this one up with --replace"))
            }
            JoinError::WrongRole(_) => {
                ("wrong_role", Some("an admin makes one with 'rms token create --role user --name NAME'"))
            }
            JoinError::Address(_) => ("unreachable", Some("the token names the server's address after the '@'")),
            JoinError::Join(_) => ("join", None),
            JoinError::Dir(_) => ("client_dir", None),
        };
        let failure = Failure::new(kind, chain(&error));
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<SelectError> for Failure {
    fn from(error: SelectError) -> Failure {
        Failure::usage(error)
    }
}

impl From<DirectiveError> for Failure {
    fn from(error: DirectiveError) -> Failure {
        Failure::usage(error)
            .hint("the lines before the script's first command that begin with #RMS or #SBATCH hold its flags")
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Failure {
        Failure::usage(error)
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        Failure::usage(error)
    }
}

impl From<SubmissionError> for Failure {
    fn from(error: SubmissionError) -> Failure {
        Failure::usage(error)
    }
}

impl From<HostlistError> for Failure {
    fn from(error: HostlistError) -> Failure {
        Failure::usage(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_wire::LinkError;

    #[test]
    fn a_directory_without_permission_is_said_to_be_that() {
        let source = std::io::Error::from(ErrorKind::PermissionDenied);
        let failure = Failure::from(ConnectError::Dir(DirError::Read { path: "/srv/key.pem".into(), source }));
        assert_eq!(failure.message, "/srv/key.pem cannot be read: permission denied");
        assert!(failure.hint.is_some_and(|hint| hint.contains("RMS_DIR")));
    }

    #[test]
    fn an_order_whose_answer_was_lost_is_no_refusal() {
        let failure = Failure::from(CallError::Interrupted(LinkError::ChannelReset));
        assert_eq!((failure.kind.as_ref(), failure.exit), ("interrupted", Exit::UNKNOWN));
        assert!(failure.message.contains("'rms queue' and 'rms history'"), "{}", failure.message);
    }
}
