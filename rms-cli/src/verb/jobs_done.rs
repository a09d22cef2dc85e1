//! The results of an order to several jobs, job by job.

use launcher_sdk::{Refused, Select};
use rms_model::JobId;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};
use crate::output::{self, Form, Output, Show};
use crate::screen;
use crate::table::Table;

/// The answer of `cancel`, `hold`, `release` and `priority`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsDone {
    /// What was done to the jobs: `cancelled`, `held`, `priority 5`, …
    pub word: String,
    pub done: Vec<JobId>,
    /// Jobs to which nothing was done, and why.
    pub refused: Vec<(JobId, Refused)>,
}

impl JobsDone {
    pub fn new(word: &str, jobs: launcher_sdk::JobsDone) -> JobsDone {
        JobsDone { word: word.to_owned(), done: jobs.done, refused: jobs.refused }
    }

    /// Like [`JobsDone::new`], for an order that applies only to jobs in certain states. `all` means these; that others
    /// are refused is then no error.
    pub fn of_state(word: &str, select: &Select, jobs: launcher_sdk::JobsDone) -> JobsDone {
        let mut answer = JobsDone::new(word, jobs);
        match select {
            Select::All | Select::User(_) => answer.refused.retain(|(_, why)| why.kind != "wrong_state"),
            Select::Ids(_) | Select::Last => {}
        }
        answer
    }

    /// Shows the results. The command fails if one job was refused.
    ///
    /// # Errors
    /// Nothing was done; in JSON, the answer says so itself.
    pub fn show(&self, output: &Output) -> Result<Exit, Failure> {
        let Some((_, first)) = self.refused.first() else {
            output.show(self)?;
            return Ok(Exit::OK);
        };
        if self.done.is_empty() && output.form() != Form::Json {
            return Err(Failure::new(first.kind.clone(), self.reasons()));
        }
        output.show(self)?;
        if output.form() != Form::Json {
            output::warn(&format!("rms: {}", self.reasons()));
        }
        Ok(Exit::FAILED)
    }

    /// Returns the reasons of the first few jobs; programs get all of them.
    fn reasons(&self) -> String {
        let reasons: Vec<String> = self.refused.iter().take(10).map(|(_, why)| why.to_string()).collect();
        match self.refused.len() - reasons.len() {
            0 => reasons.join("; "),
            n_more => format!("{}; and {n_more} more", reasons.join("; ")),
        }
    }
}

impl Show for JobsDone {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.done.is_empty() && self.refused.is_empty() {
            text += "nothing was done: there is no job to which this applies\n";
        }
        if !self.done.is_empty() {
            let ids: Vec<String> = self.done.iter().map(JobId::to_string).collect();
            let jobs = if ids.len() == 1 { "job" } else { "jobs" };
            text += &screen::folded(&format!("{jobs} {}: {}\n", ids.join(", "), self.word), 2);
        }
        text
    }

    fn json(&self) -> Value {
        let refused =
            self.refused.iter().map(|(job, why)| json!({"job": job.0, "kind": why.kind, "message": why.message}));
        let mut answer = json!({
            "word": self.word,
            "done": self.done.iter().map(|job| job.0).collect::<Vec<_>>(),
            "refused": refused.collect::<Vec<_>>(),
        });
        if let Some((_, first)) = self.refused.first() {
            let is_all = self.done.is_empty() && self.refused.iter().all(|(_, why)| why.kind == first.kind);
            let kind = if is_all { first.kind.clone() } else { "some_refused".to_owned() };
            answer["error"] = Failure::new(kind, self.reasons()).to_json()["error"].take();
        }
        answer
    }

    fn ids(&self) -> Vec<String> {
        self.done.iter().map(JobId::to_string).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&[">job", "result"]);
        for job in &self.done {
            table.row(vec![job.to_string(), self.word.clone()]);
        }
        for (job, why) in &self.refused {
            table.row(vec![job.to_string(), why.message.clone()]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_means_those_in_the_right_state() {
        let refuse = |job, kind| (JobId(job), Refused { kind: String::from(kind), message: "no".into() });
        let of = |select: &Select| {
            let refused = vec![refuse(1, "wrong_state"), refuse(2, "not_your_job")];
            JobsDone::of_state("held", select, launcher_sdk::JobsDone { done: vec![JobId(3)], refused }).refused
        };
        assert_eq!(of(&Select::All), [refuse(2, "not_your_job")]);
        assert_eq!(of(&Select::Ids(vec![JobId(1), JobId(2), JobId(3)])).len(), 2, "who is named must obey");
        let nothing = JobsDone { word: "held".to_owned(), done: Vec::new(), refused: Vec::new() };
        assert!(nothing.text().starts_with("nothing was done"), "jobs may be there, but none waits: {nothing:?}");
    }
}
