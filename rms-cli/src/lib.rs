//! The command `rms`, for users and admins: one file per verb in `verb`.
//!
//! A verb parses its arguments, calls the server through `launcher-sdk` and hands the answer to `output`, which writes
//! it as text, as one JSON value, as bare ids or as fields. An error becomes one `Failure` and is printed once, at the
//! end.

mod agent;
mod caller;
mod chart;
mod cli;
mod collected;
mod context;
mod count;
pub mod directive;
mod embedded;
mod exit_code;
mod explain;
mod export;
mod failure;
mod habits;
mod inside;
mod interrupt;
mod job_json;
mod job_options;
mod json;
mod lines;
mod listing;
mod loans;
mod log_file;
mod look_up;
mod malleable_options;
mod memory;
mod missing;
mod model_options;
mod names;
mod negotiations;
mod notice;
mod orders;
mod output;
mod place;
mod problem;
pub mod profile;
mod request_job;
mod resource_options;
mod sbatch;
mod screen;
pub mod script;
mod select;
pub mod shell;
mod signal;
pub mod size;
pub mod size_range;
mod sizes;
mod slurm_option;
mod small_file;
mod srun;
mod stages;
pub mod stamp;
mod starts;
mod stdin;
mod step;
mod step_files;
mod submission;
mod svg;
mod table;
pub mod unmet;
mod verb;
mod view;
mod workers;

pub use cli::{check_step, main};
