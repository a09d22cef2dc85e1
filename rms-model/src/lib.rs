//! The vocabulary of Limber and its arithmetic: ids, time, profiles, requests, jobs. It makes no decisions.
//!
//! Words come from the papers: a *cluster occupation profile* (COP) is the number of busy nodes of a cluster as a
//! function of absolute time (001, §5.1), a *view* is one COP per cluster, a *request* names nodes per cluster and a
//! wall time.

pub mod allocation;
pub mod checked;
pub mod devices;
pub mod error;
pub mod evolution;
pub mod evolving;
pub mod execution;
pub mod hostlist;
pub mod id;
pub mod identity;
pub mod indices;
pub mod job;
pub mod labels;
pub mod malleable;
pub mod name;
pub mod natural;
pub mod pattern;
pub mod plain;
pub mod pointed;
pub mod policy;
pub mod profile;
pub mod request;
pub mod resizing;
pub mod resources;
pub mod settings;
pub mod sharing;
pub mod sizes;
pub mod time;
pub mod token;
pub mod variables;

pub use allocation::{Allocation, Grant, Packing, ResourceRequest, Slice};
pub use devices::Devices;
pub use evolution::{Evolution, ExpandLimit, Expansion, Stage};
pub use evolving::Evolving;
pub use execution::{Environment, Execution, Inherited, Limits, Stdio, Work};
pub use id::{ClusterId, Generation, JobId, NodeId, Run};
pub use identity::{Identity, Role};
pub use indices::Indices;
pub use job::{FormerRun, Granted, JobRecord, JobSpec, Outcome, Owner, TaskCount, Usage};
pub use labels::Labels;
pub use malleable::{Malleable, OnResize, Speedup};
pub use policy::Policy;
pub use profile::Profile;
pub use request::{Request, View};
pub use resizing::{OfferRule, ShrinkRule};
pub use resources::{Inventory, Mebibytes, NodeAdmin, NodeLink};
pub use settings::Settings;
pub use sharing::{CoreShare, CpuLoans, MaxSlowdown, Ratio, RuntimeModel};
pub use sizes::Sizes;
pub use time::{Span, Time};
