//! `rms admin`: settings, nodes and the state of the server.

use rms_core::Call;
use rms_core::effect::Status;
use rms_core::fact::SettingChange;
use rms_model::settings::Settings;
use rms_model::{Time, hostlist};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::json;
use crate::output::Show;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  rms admin show                         all settings
  rms admin set fair_start 10s           from now on, durably
  rms admin audit                        who changed what
  rms admin drain 'a[1-2]' --reason disk nothing new starts there
  rms admin resume 'a[1-2]'
  rms admin status                       counters of the server"
)]
pub struct Args {
    #[command(subcommand)]
    verb: AdminVerb,
}

#[derive(clap::Subcommand, Debug)]
enum AdminVerb {
    /// Show settings
    Show {
        /// One of them; all if absent
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
    /// Change a setting
    Set {
        /// Its name
        #[arg(value_name = "KEY")]
        key: String,
        /// Its new value
        #[arg(value_name = "VALUE", allow_negative_numbers = true)]
        value: String,
    },
    /// Show who changed which setting
    Audit,
    /// Start nothing new on nodes; what runs there may end
    Drain {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
        /// Why, for 'rms nodes'
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Take nodes out of use at once; what runs there is ended
    Down {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
        /// Why, for 'rms nodes'
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Use drained or downed nodes again
    Resume {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
    },
    /// Forget nodes that will not come back
    Remove {
        /// Nodes: a1,a[3-4]
        #[arg(value_name = "NODES")]
        nodes: String,
    },
    /// Show counters and sizes of the server
    Status,
    /// Get a fresh certificate for ourselves
    Renew,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    match args.verb {
        AdminVerb::Show { key } => show(key, context).await?,
        AdminVerb::Set { key, value } => {
            // A typing error needs no server.
            Settings::default().set(&key, &value).map_err(Failure::usage)?;
            context.client().await?.change(Call::Set { key: key.clone(), value: value.clone() }).await?;
            context.output.show(&SettingList(vec![(key, value)]))?;
        }
        AdminVerb::Audit => {
            let changes = context.client().await?.audit().await?;
            context.output.show(&Audit(changes))?;
        }
        AdminVerb::Drain { nodes, reason } => {
            order("draining", &nodes, context, |nodes| Call::Drain { nodes, reason }).await?;
        }
        AdminVerb::Down { nodes, reason } => {
            order("down", &nodes, context, |nodes| Call::Down { nodes, reason }).await?;
        }
        AdminVerb::Resume { nodes } => order("resumed", &nodes, context, |nodes| Call::Resume { nodes }).await?,
        AdminVerb::Remove { nodes } => order("removed", &nodes, context, |nodes| Call::Remove { nodes }).await?,
        AdminVerb::Status => {
            let status = context.client().await?.status().await?;
            context.output.show(&StatusAnswer(status))?;
        }
        AdminVerb::Renew => {
            let client = context.client().await?;
            let expires = client.renew().await?.expires();
            context.output.show(&Renewed { identity: client.identity().to_string(), expires })?;
        }
    }
    Ok(Exit::OK)
}

async fn show(key: Option<String>, context: &Context) -> Result<(), Failure> {
    if let Some(key) = &key {
        Settings::default().get(key).map_err(Failure::usage)?;
    }
    let mut settings = context.client().await?.settings().await?;
    settings.retain(|(name, _)| key.as_ref().is_none_or(|key| key == name));
    context.output.show(&SettingList(settings))
}

async fn order(
    word: &'static str,
    nodes: &str,
    context: &Context,
    call: impl FnOnce(Vec<String>) -> Call,
) -> Result<(), Failure> {
    let nodes = hostlist::expand(nodes)?;
    context.client().await?.change(call(nodes.clone())).await?;
    context.output.show(&NodesDone { word, nodes })
}

pub(super) struct SettingList(pub(super) Vec<(String, String)>);

impl SettingList {
    fn rows(&self) -> Table {
        let mut table = Table::new(&["setting", "value"]);
        for (key, value) in &self.0 {
            table.row(vec![key.clone(), value.clone()]);
        }
        table
    }
}

impl Show for SettingList {
    fn text(&self) -> String {
        self.rows().text("there are no settings")
    }

    fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>())
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|(_, value)| value.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

pub(super) struct Audit(pub(super) Vec<SettingChange>);

impl Audit {
    fn rows(&self) -> Table {
        let mut table = Table::new(&["at", "by", "setting", "old", "new"]);
        for change in &self.0 {
            table.row(vec![
                stamp::iso_secs(change.at),
                change.by.clone(),
                change.key.clone(),
                change.old.clone(),
                change.new.clone(),
            ]);
        }
        table
    }
}

impl Show for Audit {
    fn text(&self) -> String {
        self.rows().text("no setting was changed yet")
    }

    fn json(&self) -> Value {
        json!({"changes": self.0.iter().map(json::setting_change).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|change| change.key.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

struct NodesDone {
    word: &'static str,
    nodes: Vec<String>,
}

impl Show for NodesDone {
    fn text(&self) -> String {
        format!("{}: {}\n", hostlist::fold(&self.nodes), self.word)
    }

    fn json(&self) -> Value {
        json!({"word": self.word, "nodes": self.nodes})
    }

    fn ids(&self) -> Vec<String> {
        self.nodes.clone()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

pub(super) struct StatusAnswer(pub(super) Status);

impl Show for StatusAnswer {
    fn text(&self) -> String {
        let status = &self.0;
        format!(
            "nodes      {} of {} connected\njobs       {} waiting, {} started, {} ghosts, {} ever submitted\n\
             scheduler  {} passes, the last {}\nghosts     kept hosts idle for {} (host time)\n",
            status.n_connected,
            status.n_nodes,
            status.n_waiting,
            status.n_started,
            status.n_ghosts,
            status.n_submitted,
            status.n_passes,
            status.last_pass.map_or_else(|| "never".to_owned(), stamp::iso_secs),
            stamp::brief(status.ghost_host_time),
        )
    }

    fn json(&self) -> Value {
        json::status(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.n_submitted.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

struct Renewed {
    identity: String,
    expires: Time,
}

impl Show for Renewed {
    fn text(&self) -> String {
        format!("the certificate of {} is valid until {}\n", self.identity, stamp::iso_secs(self.expires))
    }

    fn json(&self) -> Value {
        json!({"identity": self.identity, "expires": json::time(Some(self.expires))})
    }

    fn ids(&self) -> Vec<String> {
        vec![stamp::iso_secs(self.expires)]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
