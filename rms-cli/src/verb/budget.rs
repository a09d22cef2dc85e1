//! `rms budget`: what priced nodes have cost, and what is left of the budget.

use negotiation::Price;
use rms_api::negotiate::BudgetLine;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;
use rms_api::terms;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Admins see a line for each user who has a budget, pays or has paid; others see
their own. Amounts are in the currency of the deployment; settings and --json
use thousandths of it. What may still become due for nodes that are held or
promised is reserved; the rest of the budget is neither spent nor reserved.

Examples:
  rms budget                         what was spent, and what is left
  rms admin set budget@ada 50000     ada may spend 50 in total")]
pub struct Args {}

pub async fn run(_args: Args, context: &Context) -> Result<Exit, Failure> {
    let users = context.client().await?.budgets().await?;
    context.output.show(&Budgets { users })?;
    Ok(Exit::OK)
}

pub(super) struct Budgets {
    pub(super) users: Vec<BudgetLine>,
}

impl Budgets {
    fn rows(&self) -> Table {
        let mut table = Table::new(&["user", ">budget", ">spent", ">reserved", ">left"]);
        let amount = |thousandths: u64| terms::price(Price(thousandths));
        let limit = |thousandths: Option<u64>| thousandths.map_or_else(|| "none".to_owned(), amount);
        for line in &self.users {
            let (spent, reserved) = (amount(line.spent), amount(line.reserved));
            table.row(vec![line.user.clone(), limit(line.budget), spent, reserved, limit(left(line))]);
        }
        table
    }
}

impl Show for Budgets {
    fn text(&self) -> String {
        self.rows().text("nobody has a budget, or has paid for a node")
    }

    fn json(&self) -> Value {
        let line = |line: &BudgetLine| {
            json!({
                "user": line.user,
                "budget": line.budget,
                "spent": line.spent,
                "reserved": line.reserved,
                "left": left(line),
            })
        };
        json!({"users": self.users.iter().map(line).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.users.iter().map(|line| line.user.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

/// Returns what is left of the budget; `None` without a budget.
fn left(line: &BudgetLine) -> Option<u64> {
    Some(line.budget?.saturating_sub(line.spent).saturating_sub(line.reserved))
}
