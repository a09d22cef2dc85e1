//! Values from which the samples of facts are made.

use std::collections::BTreeSet;
use std::sync::Arc;

use rms_model::job::Constraint;
use rms_model::{
    Environment, Execution, JobId, JobRecord, JobSpec, Labels, Limits, Mebibytes, Outcome, Owner, Request, Run, Stdio,
    TaskCount, Time, Usage, Work,
};

pub fn spec(request: Request) -> JobSpec {
    JobSpec {
        labels: Labels { comment: "a comment".to_owned(), ..Labels::named("cfd") },
        tasks: TaskCount::PerNode(4),
        cpus_per_task: 2,
        constraint: Constraint {
            features: BTreeSet::from(["ib".to_owned()]),
            memory: Mebibytes(1000),
            cpus: 8,
            ..Constraint::default()
        },
        requeue: Some(true),
        ..JobSpec::of(
            Owner("ann".to_owned()),
            Execution {
                cwd: "/home/ann".to_owned(),
                environment: Arc::new(Environment(vec![("HOME".to_owned(), "/home/ann".to_owned())])),
                stdio: Stdio {
                    input: None,
                    output: Some("out.%j".to_owned()),
                    error: None,
                    append: false,
                    stream: true,
                },
                limits: Limits { open_files: Some(1024), ..Limits::default() },
                ..Execution::from(Work::Script {
                    script: "#!/bin/sh\nhostname\n".to_owned(),
                    args: vec!["x".to_owned()],
                })
            },
            vec![request],
        )
    }
}

pub fn record(request: Request, usage: Usage) -> JobRecord {
    JobRecord {
        run: Run(2),
        labels: Labels::named("cfd"),
        eligible: Time::from_secs(1_700_000_001),
        started: Some(Time::from_secs(1_700_000_002)),
        ended: Time::from_secs(1_700_000_092),
        n_tasks: 8,
        cpus_per_task: 2,
        nodes: vec!["n3".to_owned(), "n4".to_owned()],
        outcome: Outcome::Failed { code: 3 },
        usage,
        ..JobRecord::of(JobId(7), Owner("ann".to_owned()), request, Time::from_secs(1_700_000_000))
    }
}
