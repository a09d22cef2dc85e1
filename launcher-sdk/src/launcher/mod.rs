//! For authors of launchers: programs that choose themselves what their application requests (001).
//!
//! A *launcher* acts for one application. It subscribes the application, receives its *view* (how many nodes of each
//! cluster are busy when), computes a request from the view and sends it; when the view changes, it computes the
//! request again. When the application starts, the launcher gets the names of the nodes and either lets the server
//! start processes there or uses the nodes by its own means.
//!
//! There are three ways to write one, from the least to the most work:
//!
//! 1. A ready-made launcher: [`rigid`], [`moldable`] or [`cem`], with a function that says what to do with the nodes.
//! 2. The trait [`Launcher`] for an algorithm of your own. [`run`] drives it: it reconnects, catches up on what it missed,
//!    and sends another request when the view has changed and the algorithm chooses differently.
//! 3. A [`Session`], which is the protocol itself with a method for each call.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use launcher_sdk::Client;
//! use launcher_sdk::launcher::{self, Action, Model, Program, Subscription, Walls};
//! use launcher_sdk::schedule::moldable::Sizes;
//! use rms_model::Span;
//!
//! let client = Client::connect_here().await?;
//! // An hour on one node, of which 95 % is parallel; it starts as many tasks as it gets nodes.
//! let model = Model::amdahl(0.95, Walls::Everywhere(Span::from_hours(1)))?;
//! let mut nbody = launcher::moldable(Sizes { least: 1, most: 64 }, model, |_start| {
//!     Action::launch(Program::new(["./nbody", "1000000"]))
//! });
//! let outcome = launcher::run(&client, Subscription::named("nbody"), &mut nbody).await?;
//! println!("{outcome}");
//! # Ok(())
//! # }
//! ```
//!
//! # The life of an application
//!
//! | state (001, Fig. 4) | what the launcher does |
//! |---|---|
//! | submitted | it has subscribed, and must send a request within the setting `request_timeout` |
//! | request sent, waiting | it may send another request at any time; the application keeps its place in the queue |
//! | started | within `start_timeout` it must launch or accept, or the application is ended |
//! | ghost | the application has ended; its nodes stay visible as occupied for the fair-start delay |
//! | finished | – |
//!
//! A launcher that loses its connection may attach again within `launcher_grace`; after that the application ends as
//! `launcher_lost`. [`run`] attaches again on its own; a launcher *process* that was killed calls [`resume`] with the
//! id that [`Launcher::on_subscribed`] was given.
//!
//! # Units
//!
//! Nodes are whole. Times are [`Time`](rms_model::Time), milliseconds since the Unix epoch by the server's clock;
//! [`Seen::now`] is that clock. Lengths of time are [`Span`](rms_model::Span)s in milliseconds. Occupation profiles
//! begin at the time of the view or before, and count nodes that are busy, ghosts included.

mod drive;
mod program;
mod ready;
mod seen;
mod session;
mod wanted;

pub use drive::{Action, Choice, Computing, Launcher, LauncherError, Start, Using, resume, run};
pub use program::Program;
pub use ready::{Model, ModelError, Planned, Walls, cem, iterative, linked, moldable, moldable_cores, planned, rigid};
pub use rms_api::subscription::{
    ClusterInfo, ClusterInfos, ClusterLink, Filter, Grant, GrantedNode, Launchable, LauncherView, SliceView,
    Subscription, Tag,
};
pub use seen::{OwnedSeen, Seen};
pub use session::{Event, Session, Traffic};
pub use wanted::Wanted;
