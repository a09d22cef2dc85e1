//! `rms admin negotiation`: ends a negotiation, or takes what was promised.

use negotiation::NegotiationId;
use rms_api::negotiate::Order;
use rms_model::JobId;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::look_up;
use crate::negotiations;
use crate::output::Show;
use crate::select;
use crate::table::Table;

#[derive(clap::Subcommand, Debug)]
pub enum NegotiationVerb {
    /// End it without a result; earlier agreements stand
    Withdraw(Which),
    /// Take at once the nodes that a job was asked to leave, and end whatever runs there
    Force(Which),
}

#[derive(clap::Args, Debug)]
pub struct Which {
    /// Job of the negotiation
    #[arg(value_name = "JOB")]
    job: String,
    /// Its negotiation, as 'rms negotiations' lists it: r1 or a2
    #[arg(value_name = "ID", value_parser = negotiations::parse_id)]
    id: NegotiationId,
}

/// # Errors
/// Those of every call; also, the negotiation is over, or cannot be forced.
pub async fn run(verb: NegotiationVerb, context: &Context) -> Result<(), Failure> {
    let (which, order, word) = match verb {
        NegotiationVerb::Withdraw(which) => (which, Order::Withdraw, "withdrawn"),
        NegotiationVerb::Force(which) => (which, Order::Force, "forced"),
    };
    let named = select::one(&which.job)?;
    let client = context.client().await?;
    let job = look_up::one(&client, named).await?;
    client.order_negotiation(job, which.id, order).await?;
    context.output.show(&Ordered { job, id: which.id, word })
}

struct Ordered {
    job: JobId,
    id: NegotiationId,
    word: &'static str,
}

impl Show for Ordered {
    fn text(&self) -> String {
        format!("job {}, negotiation {}: {}\n", self.job, self.id, self.word)
    }

    fn json(&self) -> Value {
        json!({"job": self.job.0, "negotiation": self.id.to_string(), "word": self.word})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
