//! Logs when no job can start on the node, and when jobs can start there again.

/// What the log has said last.
#[derive(Debug, Default)]
pub struct TroubleLog {
    has_trouble: bool,
}

impl TroubleLog {
    /// Logs why no job can start here. `None` is no news, unless something was wrong before: each new link says so.
    pub fn say(&mut self, reason: Option<&str>) {
        let had_trouble = std::mem::replace(&mut self.has_trouble, reason.is_some());
        match reason {
            Some(reason) => tracing::error!(reason, "no job can start here; the node asks to be drained"),
            None if had_trouble => tracing::info!("jobs can start here again"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_works_again_is_said_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let file = File::create(&path).expect("a file");
        let subscriber = tracing_subscriber::fmt().with_writer(file).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut log = TroubleLog::default();
            for reason in [None, Some("disk full"), None, None] {
                log.say(reason);
            }
        });
        let text = fs::read_to_string(&path).expect("the log");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("ERROR") && lines[0].contains("disk full"), "{text}");
        assert!(lines[1].contains("INFO") && lines[1].contains("jobs can start here again"), "{text}");
    }
}
