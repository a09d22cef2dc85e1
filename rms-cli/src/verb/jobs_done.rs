//! What an order to several jobs did, job by job.

use rms_model::JobId;
use serde_json::{Value, json};

use crate::failure::Exit;
use crate::output::Show;
use crate::table::Table;

/// The answer of `cancel`, `hold` and `release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsDone {
    /// What became of the jobs: `cancelled`, `held`, …
    pub word: &'static str,
    pub done: Vec<JobId>,
    /// Jobs and why nothing was done to them.
    pub refused: Vec<(JobId, String)>,
}

impl JobsDone {
    pub fn new(word: &'static str, jobs: launcher_sdk::JobsDone) -> JobsDone {
        let refused = jobs.refused.into_iter().map(|(job, why)| (job, why.to_string()));
        JobsDone { word, done: jobs.done, refused: refused.collect() }
    }

    /// One job that did not obey makes the command fail.
    pub fn exit(&self) -> Exit {
        if self.refused.is_empty() { Exit::OK } else { Exit::FAILED }
    }
}

impl Show for JobsDone {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.done.is_empty() && self.refused.is_empty() {
            text += "there was no such job\n";
        }
        if !self.done.is_empty() {
            let ids: Vec<String> = self.done.iter().map(JobId::to_string).collect();
            let jobs = if ids.len() == 1 { "job" } else { "jobs" };
            text += &format!("{jobs} {}: {}\n", ids.join(", "), self.word);
        }
        for (job, why) in &self.refused {
            text += &format!("job {job}: {why}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let refused = self.refused.iter().map(|(job, why)| json!({"job": job.0, "message": why}));
        json!({
            "word": self.word,
            "done": self.done.iter().map(|job| job.0).collect::<Vec<_>>(),
            "refused": refused.collect::<Vec<_>>(),
        })
    }

    fn ids(&self) -> Vec<String> {
        self.done.iter().map(JobId::to_string).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&[">job", "result"]);
        for job in &self.done {
            table.row(vec![job.to_string(), self.word.to_owned()]);
        }
        for (job, why) in &self.refused {
            table.row(vec![job.to_string(), why.clone()]);
        }
        Some(table)
    }
}
