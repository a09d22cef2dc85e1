//! The client of a Limber server: submits jobs, queries them and follows their output.
//!
//! [`Client::connect`] reads a *client directory* (`client.toml` with the server's address, and a certificate
//! with its key, as `rms join` or `rms up` create it) and connects to the server. Calls are methods; each is one round
//! trip. A broken link is re-established with growing delays: queries are repeated, [`Follow`] resumes at the byte that
//! it had reached and [`Watch`] with the jobs that have not ended yet. An *order* (submit, cancel, …) whose answer was
//! lost is not repeated, because the server may have carried it out: it fails with [`CallError::Interrupted`].
//!
//! [`launcher`] is for authors of launchers: programs that choose themselves what their application requests.
//! [`schedule`] has the application-side schedulers, as pure functions.
//!
//! [`negotiator`] is for applications that grow and shrink while they run.
//!
//! [`blocking`] offers the same to programs without an async runtime.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use launcher_sdk::Client;
//!
//! let client = Client::connect("/home/ada/.config/limber".as_ref()).await?;
//! for line in client.queue().await?.jobs {
//!     println!("{} {} {}", line.job, line.labels.name, line.state.word());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Times are absolute ([`Time`](rms_model::Time), milliseconds since the Unix epoch by the server's clock), lengths
//! of time are [`Span`](rms_model::Span)s in milliseconds, memory is in MiB.

#![warn(missing_docs)]

pub mod blocking;
mod client;
mod dir;
mod error;
mod join;
pub mod launcher;
pub mod negotiator;

pub use client::follow::{Follow, FollowEvent, InputSender, Missing, Offset, Stream};
pub use client::watch::Watch;
pub use client::{Client, JobDetails, JobsDone, NodeList, Queue, Submitted};
pub use dir::{CONFIG_FILE, ClientConfig, DirError, SYSTEM_SOCKET, find_client_dir, is_there};
pub use error::{CallError, ConnectError};
pub use join::{JoinError, Joined, join};
/// Application-side scheduling: pure functions from what a launcher sees to what it requests. A crate of its own, so
/// that the simulator runs the same functions without a network.
pub use launcher_schedule as schedule;
/// The calls to a server and their answers.
pub use rms_api as api;
pub use rms_api::Refused;
pub use rms_api::answer::{LauncherReport, LauncherTraffic, ServerReport};
pub use rms_api::call::{HistoryQuery, Select, Submission};
pub use rms_api::filter::{JobFilter, NodeFilter};
/// The vocabulary types: times, requests, profiles, resources.
pub use rms_model as model;
pub use rms_wire::TokenText;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sdk-guide.md")]
struct SdkGuideDoctests;
