//! `rms join`: enrolls this account as a user of a cluster, with a token from its admin.

use std::path::PathBuf;

use launcher_sdk::{Joined, TokenText};
use rms_model::Identity;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
An admin makes the token: rms token create --role user --name $USER
Joining the same cluster again gives a new certificate and revokes the old one
if that is of the same user or admin.

Examples:
  rms join lmb1.abcd.….…@head:7117             into ~/.config/limber
  rms join lmb1.abcd.….…@head:7117 --dir here
                                           into another directory; use it by
                                           --dir or $RMS_DIR
  rms join - < token.txt                   without leaving the token in the
                                           shell's history")]
pub struct Args {
    /// Token printed by 'rms token create', or - to read it from standard input
    #[arg(value_name = "TOKEN")]
    token: String,
    /// Replace the certificate even if it is for another cluster
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
    let joined = launcher_sdk::join(&token, &dir, args.replace).await?;
    context.output.show(&JoinAnswer { joined, dir, server: token.address().to_owned() })?;
    Ok(Exit::OK)
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::io("the standard input cannot be read", error))?;
    Ok(line)
}

struct JoinAnswer {
    joined: Joined,
    dir: PathBuf,
    server: String,
}

impl JoinAnswer {
    /// Returns the previous identity of the directory, if it was a different one.
    fn replaced(&self) -> Option<&Identity> {
        self.joined.replaced.as_ref().filter(|other| **other != self.joined.identity)
    }
}

impl Show for JoinAnswer {
    fn text(&self) -> String {
        let (identity, dir) = (&self.joined.identity, self.dir.display());
        let mut text = format!("you are {identity} at {}; the certificate is in {dir}\n", self.server);
        if let Some(other) = self.replaced() {
            // Only a certificate of the same identity is revoked by a join.
            text += &format!(
                "it takes the place of that of {other}, which stays valid until it expires, unless an admin revokes it: \
                 rms token revoke-certificate {other}\n"
            );
        }
        text
    }

    fn json(&self) -> Value {
        let (identity, dir) = (self.joined.identity.to_string(), self.dir.display().to_string());
        let replaced = self.replaced().map(ToString::to_string);
        json!({"identity": identity, "replaced": replaced, "server": self.server, "dir": dir})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.joined.identity.to_string()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}
