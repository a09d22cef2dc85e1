//! `rms join`: makes this account a user of a cluster, with a token from its admin.

use std::path::PathBuf;

use launcher_sdk::TokenText;
use rms_model::Identity;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
An admin makes the token: rms token create --role user --name $USER
Who joins the same cluster again gets a new certificate, and the old one is
revoked.

Examples:
  rms join lmb1.abcd.….…@head:7117             into ~/.config/limber
  rms join lmb1.abcd.….…@head:7117 --dir here
                                           into another directory; use it by
                                           --dir or $RMS_DIR
  rms join - < token.txt                   without leaving the token in the
                                           shell's history")]
pub struct Args {
    /// The token that 'rms token create' printed, or - to read it from the standard input
    #[arg(value_name = "TOKEN")]
    token: String,
    /// Take the place of a certificate for another cluster, too
    #[arg(long)]
    replace: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let text = if args.token == "-" { read_line()? } else { args.token };
    let token: TokenText = text.trim().parse().map_err(Failure::usage)?;
    let dir = match &context.dir {
        Some(dir) => dir.clone(),
        None => context.places.to_join()?,
    };
    let identity = launcher_sdk::join(&token, &dir, args.replace).await?;
    context.output.show(&Joined { identity, dir, server: token.address().to_owned() })?;
    Ok(Exit::OK)
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::io("the standard input cannot be read", error))?;
    Ok(line)
}

struct Joined {
    identity: Identity,
    dir: PathBuf,
    server: String,
}

impl Show for Joined {
    fn text(&self) -> String {
        format!("you are {} at {}; the certificate is in {}\n", self.identity, self.server, self.dir.display())
    }

    fn json(&self) -> Value {
        json!({"identity": self.identity.to_string(), "server": self.server, "dir": self.dir.display().to_string()})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.identity.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
