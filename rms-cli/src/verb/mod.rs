//! The verbs of the command line, one file each.

use std::ffi::OsString;

use clap::Subcommand;

use crate::context::Context;
use crate::failure::{Exit, Failure};

mod admin;
mod budget;
mod cancel;
mod completion;
mod down;
mod evolve;
mod explain;
mod free;
#[cfg(test)]
pub mod golden;
mod history;
mod hold;
mod jobs_done;
mod join;
mod licences;
mod logs;
mod man;
mod masks;
mod negotiate;
mod negotiations;
mod nodes;
mod plan;
mod priority;
mod queue;
mod release;
mod resize_done;
pub(crate) mod run;
mod show;
mod sim;
mod status;
mod submit;
mod token;
mod up;
mod update;
mod view;
mod wait;

/// The commands of `rms`.
#[derive(Subcommand, Debug)]
// Their flags are built when a verb is called, as those of all verbs would take half a millisecond at each start.
#[command(defer = true)]
pub enum Verb {
    /// Start a whole cluster on this machine
    Up(up::Args),
    /// Stop the cluster of 'rms up' and remove all of it; --keep keeps it
    Down(down::Args),
    /// Submit a batch script
    Submit(Box<submit::Args>),
    /// Run a program on the nodes and see its output
    Run(Box<run::Args>),
    /// List jobs that wait or run
    #[command(visible_alias = "jobs")]
    Queue(queue::Args),
    /// List nodes and their states
    Nodes(nodes::Args),
    /// List the licences of the clusters, and which jobs have them
    #[command(alias = "licenses")]
    Licences(licences::Args),
    /// Show all details of jobs
    Show(show::Args),
    /// End jobs, or signal them
    Cancel(cancel::Args),
    /// Keep waiting jobs from starting
    Hold(hold::Args),
    /// Let held jobs start
    Release(release::Args),
    /// Announce new stages of an evolving job
    Evolve(evolve::Args),
    /// Name the nodes that an evolving job frees next
    Free(free::Args),
    /// Ask for more or fewer nodes, or more time, for a running job
    Negotiate(Box<negotiate::Args>),
    /// Report that a job has adapted to its new nodes
    ResizeDone(resize_done::Args),
    /// List negotiations, with every round
    Negotiations(negotiations::Args),
    /// Show which CPUs jobs are to use, and which their processes may use
    Masks(masks::Args),
    /// Show spending on nodes and the remaining budget
    Budget(budget::Args),
    /// Change the priority of waiting and running jobs
    Priority(priority::Args),
    /// Change the time, name, size and more of a job
    Update(update::Args),
    /// List jobs that have ended
    History(history::Args),
    /// Explain why jobs wait, run where they do, or ended
    Explain(explain::Args),
    /// Draw the occupation of the clusters over time
    View(view::Args),
    /// Preview start and end of each size of a job
    Plan(Box<plan::Args>),
    /// Wait until jobs have ended
    Wait(wait::Args),
    /// Show the output of a job
    Logs(logs::Args),
    /// Create and list join tokens; list and revoke certificates
    Token(token::Args),
    /// Join a cluster as a user, with a token
    Join(join::Args),
    /// Manage settings, nodes and the server
    Admin(admin::Args),
    /// Simulate in virtual time: traces, policies, what-ifs
    Sim(sim::Args),
    /// Print a script that completes verbs and flags in a shell
    Completion(completion::Args),
    /// Write the man pages
    Man(man::Args),
    /// Execute a program in a session of its own; for 'rms up'
    #[command(hide = true)]
    Detach {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

impl Verb {
    /// # Errors
    /// The error of the verb.
    pub async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Verb::Up(args) => up::run(args, context).await,
            Verb::Down(args) => down::run(args, context).await,
            Verb::Submit(args) => submit::run(*args, context).await,
            Verb::Run(args) => run::run(*args, context).await,
            Verb::Queue(args) => queue::run(args, context).await,
            Verb::Nodes(args) => nodes::run(args, context).await,
            Verb::Licences(args) => licences::run(args, context).await,
            Verb::Show(args) => show::run(args, context).await,
            Verb::Cancel(args) => cancel::run(args, context).await,
            Verb::Hold(args) => hold::run(args, context).await,
            Verb::Release(args) => release::run(args, context).await,
            Verb::Evolve(args) => evolve::run(args, context).await,
            Verb::Free(args) => free::run(args, context).await,
            Verb::Negotiate(args) => negotiate::run(*args, context).await,
            Verb::ResizeDone(args) => resize_done::run(args, context).await,
            Verb::Negotiations(args) => negotiations::run(args, context).await,
            Verb::Masks(args) => masks::run(args, context).await,
            Verb::Budget(args) => budget::run(args, context).await,
            Verb::Priority(args) => priority::run(args, context).await,
            Verb::Update(args) => update::run(args, context).await,
            Verb::History(args) => history::run(args, context).await,
            Verb::Explain(args) => explain::run(args, context).await,
            Verb::View(args) => view::run(args, context).await,
            Verb::Plan(args) => plan::run(*args, context).await,
            Verb::Wait(args) => wait::run(args, context).await,
            Verb::Logs(args) => logs::run(args, context).await,
            Verb::Token(args) => token::run(args, context).await,
            Verb::Join(args) => join::run(args, context).await,
            Verb::Admin(args) => admin::run(args, context).await,
            Verb::Sim(args) => sim::run(args, context),
            Verb::Completion(args) => completion::run(&args, context),
            Verb::Man(args) => man::run(&args, context),
            Verb::Detach { command } => Err(crate::embedded::spawn::detach(&command)),
        }
    }
}
