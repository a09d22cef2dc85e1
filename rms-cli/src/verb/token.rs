//! `rms token`: makes, lists and revokes join tokens and certificates.

use launcher_sdk::CallError;
use rms_api::call::{CertificateSelect, JobsOfRevoked, TokenOrder};
use rms_model::identity::check_name;
use rms_model::token::{Issued, Token, TokenIdentity};
use rms_model::{Identity, Role, Span, Time};
use rms_wire::Credentials;
use rms_wire::link::REVOKED;
use rms_wire::token::is_address;
use serde_json::{Value, json};

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
  rms token create --role user --name ada            for 'rms join', as user ada
  rms token create --role agent --cluster a
                                           for one node that names itself
  rms token create --role agent --name n1 --cluster a --ttl 1h
  rms token list
  rms token revoke abcd                              the id, as listed
  rms token certificates
  rms token revoke-certificate user/ada --keep-jobs
                                           all of one identity; or one serial"
)]
pub struct Args {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(clap::Subcommand, Debug)]
enum TokenVerb {
    /// Create a token that gives one certificate to whoever presents it first
    Create {
        /// Role of its holder
        #[arg(long, value_name = "agent|user|admin")]
        role: Role,
        /// Name of the user or node; without one, an agent's token takes the name that the node asks for
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Cluster to join, for agents
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        /// How long the token is valid
        #[arg(long, value_name = "SPAN", default_value = "10m")]
        ttl: Span,
        /// Address of the server to put into the token, if others reach it at another one than you do
        #[arg(long, value_name = "HOST:PORT")]
        address: Option<String>,
    },
    /// List tokens
    List,
    /// Revoke a token
    Revoke {
        /// Id of the token, as 'rms token list' shows it
        #[arg(value_name = "ID")]
        id: String,
    },
    /// List issued certificates
    Certificates,
    /// Refuse certificates from now on, and close connections that use them
    RevokeCertificate {
        /// Serial, or an identity like user/ada for all of its certificates
        #[arg(value_name = "SERIAL|ROLE/NAME")]
        which: String,
        /// Cancel the jobs of a user who has no other certificate
        #[arg(long, conflicts_with = "keep_jobs")]
        cancel_jobs: bool,
        /// Keep the jobs of a user who has no other certificate
        #[arg(long)]
        keep_jobs: bool,
    },
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    match args.verb {
        TokenVerb::Create { role, name, cluster, ttl, address } => {
            create(role, name, cluster, ttl, address, context).await?;
        }
        TokenVerb::List => {
            let client = context.client().await?;
            let (tokens, ca) = (client.tokens().await?, client.authority().await?);
            context.output.show(&Tokens { tokens, ca, now: stamp::now() })?;
        }
        TokenVerb::Revoke { id } => {
            context.client().await?.revoke_token(id.clone()).await?;
            context.output.show(&Revoked { what: "token", which: id, is_own: false })?;
        }
        TokenVerb::Certificates => {
            let certificates = context.client().await?.certificates().await?;
            context.output.show(&Certificates { certificates, now: stamp::now() })?;
        }
        TokenVerb::RevokeCertificate { which, cancel_jobs, keep_jobs } => {
            let select = parse_certificate(&which)?;
            let jobs = match (cancel_jobs, keep_jobs) {
                (true, _) => Some(JobsOfRevoked::Cancel),
                (false, true) => Some(JobsOfRevoked::Keep),
                (false, false) => None,
            };
            let client = context.client().await?;
            let is_own = names(&select, &client.credentials());
            match client.revoke_certificate(select, jobs).await {
                Ok(()) => {}
                // The server closes the connections that use the certificate before its answer arrives.
                Err(CallError::Interrupted(error)) if is_own && error.to_string() == REVOKED => {}
                Err(error) => return Err(error.into()),
            }
            context.output.show(&Revoked { what: "certificate", which, is_own })?;
        }
    }
    Ok(Exit::OK)
}

async fn create(
    role: Role,
    name: Option<String>,
    cluster: Option<String>,
    ttl: Span,
    address: Option<String>,
    context: &Context,
) -> Result<(), Failure> {
    let identity = match (role, name) {
        (Role::Server, _) => {
            return Err(Failure::usage("no token makes a server").hint("'rms-server init' makes its certificate"));
        }
        (Role::Job, _) => {
            return Err(Failure::usage("no token makes a job").hint("the agent of its node places its certificate"));
        }
        (Role::Agent, None) => TokenIdentity::AnyAgent,
        (Role::User | Role::Admin, None) => {
            return Err(Failure::usage(format!("a token for role {role} names a person: add --name NAME")));
        }
        (Role::Agent | Role::User | Role::Admin, Some(name)) => {
            TokenIdentity::Named(Identity::new(role, &name).map_err(Failure::usage)?)
        }
    };
    if role == Role::Agent && cluster.is_none() {
        return Err(Failure::usage("an agent's token names the cluster to join: add --cluster NAME"));
    }
    if role != Role::Agent && cluster.is_some() {
        return Err(Failure::usage("--cluster is for agents: people belong to all clusters"));
    }
    if let Some(cluster) = &cluster {
        check_name(cluster).map_err(|error| Failure::usage(format!("--cluster: {error}")))?;
    }
    if let Some(address) = address.as_ref().filter(|address| !is_address(address)) {
        return Err(Failure::usage(format!("--address '{address}' is not the address of a server: write host:port")));
    }
    let client = context.client().await?;
    let token = client.draw_token(address.as_deref()).map_err(Failure::usage)?;
    let (id, digest, ca) = (token.id().to_owned(), token.digest(), Some(token.fingerprint().to_owned()));
    let order = TokenOrder { id, digest, identity, cluster, ttl, ca };
    client.create_token(order).await?;
    context.output.show(&Created { token: token.to_string(), id: token.id().to_owned(), role, ttl })
}

/// Returns whether these credentials are among the selected ones.
fn names(select: &CertificateSelect, own: &Credentials) -> bool {
    match select {
        CertificateSelect::Serial(serial) => own.serial() == serial,
        CertificateSelect::Identity(identity) => own.identity() == identity,
    }
}

fn parse_certificate(text: &str) -> Result<CertificateSelect, Failure> {
    let Some((role, name)) = text.split_once('/') else {
        // Serials have 128 bits; a shorter word of these letters is a name that lacks its role.
        let is_serial = text.len() >= 16 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        if !is_serial {
            let failure = Failure::usage(format!("'{text}' is neither a serial nor an identity"));
            return Err(failure.hint("write a serial as 'rms token certificates' shows it, or role/name like user/ada"));
        }
        // Certificate tools print serials in capitals and with colons.
        return Ok(CertificateSelect::Serial(text.replace(':', "").to_ascii_lowercase()));
    };
    let role: Role = role.parse().map_err(Failure::usage)?;
    Ok(CertificateSelect::Identity(Identity::new(role, name).map_err(Failure::usage)?))
}

struct Created {
    token: String,
    id: String,
    role: Role,
    ttl: Span,
}

impl Show for Created {
    fn text(&self) -> String {
        let how = match self.role {
            Role::Agent => "node-agent join TOKEN",
            Role::Server | Role::User | Role::Admin | Role::Job => "rms join TOKEN",
        };
        format!("{}\n\nredeem it within {}, once: {how}\n", self.token, stamp::brief(self.ttl))
    }

    fn json(&self) -> Value {
        json!({"token": self.token, "id": self.id, "role": self.role.to_string(), "ttl_ms": json::span(self.ttl)})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.token.clone()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

struct Revoked {
    what: &'static str,
    which: String,
    /// Whether it was the caller's own, who must join again.
    is_own: bool,
}

impl Show for Revoked {
    fn text(&self) -> String {
        let own = if self.is_own { "; this was your own: join again with a token of another admin" } else { "" };
        format!("{} {} is revoked{own}\n", self.what, self.which)
    }

    fn json(&self) -> Value {
        json!({"revoked": self.which, "is_own": self.is_own})
    }

    fn ids(&self) -> Vec<String> {
        vec![self.which.clone()]
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

pub(super) struct Tokens {
    pub(super) tokens: Vec<Token>,
    /// The fingerprint of the signing CA: tokens with another one are invalid.
    pub(super) ca: String,
    pub(super) now: Time,
}

impl Show for Tokens {
    fn text(&self) -> String {
        self.rows(|time| stamp::short(time, self.now)).text("there is no token")
    }

    fn json(&self) -> Value {
        json!({"tokens": self.tokens.iter().map(|token| json::token(token, &self.ca, self.now)).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.tokens.iter().map(|token| token.id.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(stamp::iso_secs))
    }
}

impl Tokens {
    fn rows(&self, time: impl Fn(Time) -> String) -> Table {
        let columns = ["id", "~for", "~cluster", "state", "@created", "~by", "@expires"];
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(self.now));
        for token in &self.tokens {
            table.row(vec![
                token.id.clone(),
                json::token_identity(&token.identity),
                token.cluster.clone().unwrap_or_else(|| "-".into()),
                json::token_state(token, &self.ca, self.now).to_owned(),
                time(token.created),
                token.created_by.clone(),
                time(token.expires),
            ]);
        }
        table
    }
}

pub(super) struct Certificates {
    pub(super) certificates: Vec<Issued>,
    pub(super) now: Time,
}

impl Show for Certificates {
    fn text(&self) -> String {
        self.rows(|time| stamp::short(time, self.now)).text("no certificate is out")
    }

    fn json(&self) -> Value {
        json!({"certificates": self.certificates.iter().map(json::issued).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        self.certificates.iter().map(|issued| issued.serial.clone()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(stamp::iso_secs))
    }
}

impl Certificates {
    fn rows(&self, time: impl Fn(Time) -> String) -> Table {
        // A truncated serial revokes nothing.
        let columns = ["serial", "!identity", "state", "?@issued", "@expires"];
        let mut table = Table::new(&columns).in_zone(stamp::zone_name(self.now));
        let mut certificates: Vec<&Issued> = self.certificates.iter().collect();
        certificates.sort_by_key(|issued| (issued.identity.to_string(), issued.issued));
        for issued in certificates {
            let is_renewed = || self.certificates.iter().any(|later| later.renews.as_ref() == Some(&issued.serial));
            let state = match issued.revoked {
                Some(_) => "revoked",
                None if issued.expires <= self.now => "expired",
                None if is_renewed() => "renewed",
                None => "valid",
            };
            table.row(vec![
                issued.serial.clone(),
                issued.identity.to_string(),
                state.to_owned(),
                time(issued.issued),
                time(issued.expires),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_named_by_serial_or_identity() {
        assert_eq!(
            parse_certificate("4A:0b4A0b4A0b4A0b").unwrap(),
            CertificateSelect::Serial("4a0b4a0b4a0b4a0b".into())
        );
        let ada = Identity::new(Role::User, "ada").unwrap();
        assert_eq!(parse_certificate("user/ada").unwrap(), CertificateSelect::Identity(ada));
        for text in ["", "ada", "king/ada", "user/", "user/a b"] {
            assert!(parse_certificate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn who_revokes_his_own_certificate_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let now = stamp::now();
        let authority = rms_wire::Authority::create(dir.path(), "d", now).unwrap();
        let (key, root) = (rms_wire::NewKey::generate().unwrap(), Identity::new(Role::Admin, "root").unwrap());
        let chain = authority.sign(key.csr_der(), &root, "4a0b", now, now + Span::from_hours(1)).unwrap();
        let own = key.into_credentials(&chain, authority.ca_pem()).unwrap();
        assert!(names(&CertificateSelect::Identity(root), &own));
        assert!(names(&CertificateSelect::Serial("4a0b".into()), &own));
        assert!(!names(&CertificateSelect::Serial("4a0c".into()), &own));
        let revoked = |is_own| Revoked { what: "certificate", which: "admin/root".into(), is_own }.text();
        assert_eq!(revoked(false), "certificate admin/root is revoked\n");
        assert!(revoked(true).contains("this was your own"));
    }
}
