//! Tokens and certificates: who gets which identity, and for how long.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rms_api::answer::Answer;
use rms_api::call::{CertificateSelect, JobsOfRevoked, TokenOrder};
use rms_api::refusal::Refusal;
use rms_model::identity::check_name;
use rms_model::token::{Issued, Redeemed, Token, TokenIdentity, TokenState};
use rms_model::{Identity, JobId, Role, Run, Span, Time};

use crate::context::Context;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::jobs::Jobs;
use crate::rights::{admins_only, not_allowed};
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase};
use crate::step::Step;

/// Handles tokens and certificates.
pub(crate) struct Access<'a> {
    pub(crate) jobs: Jobs<'a>,
}

/// Who redeems a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner<'a> {
    /// `None` if an older program did not say.
    pub(crate) is_agent: Option<bool>,
    /// The name that an agent requests.
    pub(crate) name: Option<&'a str>,
    pub(crate) machine: Option<&'a str>,
}

impl Access<'_> {
    pub(crate) fn create_token(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        order: TokenOrder,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "create tokens")?;
        let TokenOrder { id, digest, identity, cluster, ttl, ca } = order;
        if ttl < Span::from_secs(1) || ttl > MAX_TTL {
            return Err(Refusal::TokenTtl(ttl));
        }
        if let TokenIdentity::Named(identity) = &identity {
            check_name(&identity.name)?;
            match identity.role {
                Role::Agent | Role::User | Role::Admin => {}
                Role::Server => return Err(not_allowed(who, "create a token for a server", "a server makes its own")),
                Role::Job => return Err(not_allowed(who, "create a token for a job", "its node's agent places one")),
            }
        }
        if let Some(cluster) = &cluster {
            check_name(cluster)?;
        }
        check_name(&id)?;
        self.forget_old(now, step);
        let token = Token {
            id,
            digest,
            identity,
            cluster,
            created: now,
            created_by: who.name.clone(),
            expires: now + ttl,
            state: TokenState::Open,
            redeemed: None,
            ca,
        };
        self.jobs.context.record(step, Fact::TokenCreated { token });
        Ok(Answer::Done)
    }

    pub(crate) fn revoke_token(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        id: &str,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "revoke tokens")?;
        let token =
            self.jobs.state().tokens.get(id).ok_or_else(|| Refusal::NoSuchToken(id.chars().take(80).collect()))?;
        match token.state {
            TokenState::Open => {
                self.jobs.context.record(step, Fact::TokenRevoked { id: id.to_owned(), at: now, by: who.name.clone() });
                Ok(Answer::Done)
            }
            // The token yields no further certificate; the one that it yielded is revoked separately.
            TokenState::Used { .. } | TokenState::Revoked { .. } => Ok(Answer::Done),
        }
    }

    /// Redeems a token. Returns the certificate to sign and, for agents, the cluster to join.
    pub(crate) fn join(
        &mut self,
        now: Time,
        step: &mut Step,
        (token_id, digest): (&str, &[u8; 32]),
        Joiner { is_agent, name, machine }: Joiner<'_>,
        (redeemed, replaces): (Redeemed, Option<&str>),
    ) -> Result<(Issued, Option<String>), Refusal> {
        let token = self.jobs.state().tokens.get(token_id).ok_or(Refusal::TokenInvalid)?;
        if now >= token.expires || !equal_in_constant_time(&token.digest, digest) {
            return Err(Refusal::TokenInvalid);
        }
        let given = match (&token.state, &token.redeemed) {
            (TokenState::Open, _) => None,
            // The answer was lost, and the holder of the same key repeats the request.
            (TokenState::Used { .. }, Some(before)) if before.key == redeemed.key => {
                let issued = self.jobs.state().certificates.get(&before.serial);
                let is_good = |issued: &&Issued| issued.revoked.is_none() && now < issued.expires;
                Some(issued.filter(is_good).ok_or(Refusal::TokenInvalid)?)
            }
            (TokenState::Used { .. } | TokenState::Revoked { .. }, _) => return Err(Refusal::TokenInvalid),
        };
        let identity = match (&token.identity, name) {
            (TokenIdentity::Named(identity), None) => identity.clone(),
            (TokenIdentity::Named(identity), Some(name)) if identity.name == name => identity.clone(),
            (TokenIdentity::Named(identity), Some(name)) => {
                return Err(Refusal::TokenForAnother { expected: identity.to_string(), asked: name.to_owned() });
            }
            (TokenIdentity::AnyAgent, _) if is_agent == Some(false) => {
                return Err(Refusal::TokenOfAgent("an agent".to_owned()));
            }
            (TokenIdentity::AnyAgent, _) => {
                let name = name.or(machine).ok_or(Refusal::Malformed("an agent's name is needed (--name)"))?;
                Identity::new(Role::Agent, name)?
            }
        };
        match (is_agent, identity.role == Role::Agent) {
            (Some(true), false) => return Err(Refusal::TokenOfPerson(identity.to_string())),
            (Some(false), true) => return Err(Refusal::TokenOfAgent(identity.to_string())),
            (Some(_) | None, _) => {}
        }
        let cluster = token.cluster.clone();
        match given {
            Some(issued) if issued.identity == identity => return Ok((issued.clone(), cluster)),
            Some(_) => return Err(Refusal::TokenInvalid),
            None => {}
        }
        if identity.role == Role::Agent {
            self.check_node(token, &identity, replaces)?;
        }
        let serial = redeemed.serial.clone();
        self.jobs.context.record(step, Fact::TokenUsed { id: token_id.to_owned(), at: now, redeemed: Some(redeemed) });
        // A node is one machine, so its newest certificate replaces all others. A person may have several machines:
        // there it replaces only the one that is named.
        let is_replaced = |issued: &Issued| {
            issued.identity == identity && (identity.role == Role::Agent || replaces == Some(&*issued.serial))
        };
        let old = valid_serials(self.jobs.state(), is_replaced);
        let detail = if old.is_empty() { "" } else { "in place of an older certificate" };
        self.jobs.context.audit(
            now,
            step,
            identity.to_string(),
            "token-redeem",
            token_id.to_owned(),
            detail.to_owned(),
        );
        let issued = self.certificate(now, identity, serial, old);
        Ok((self.issue(step, issued), cluster))
    }

    /// Refuses a machine that would take the place of another one by mistake: a node of another cluster, or one that is
    /// connected, unless the token names it or the machine has a certificate of it.
    fn check_node(&self, token: &Token, identity: &Identity, replaces: Option<&str>) -> Result<(), Refusal> {
        let state = self.jobs.state();
        let Some(entry) = state.node_named(&identity.name).map(|node| &state.nodes()[&node]) else { return Ok(()) };
        let (node, home) = (entry.name.clone(), &state.clusters()[&entry.cluster]);
        if let Some(asked) = token.cluster.clone().filter(|asked| asked != home) {
            return Err(Refusal::NodeInAnotherCluster { node, known: home.clone(), asked });
        }
        let replaced = replaces.and_then(|serial| state.certificates.get(serial));
        let is_meant =
            token.identity != TokenIdentity::AnyAgent || replaced.is_some_and(|issued| issued.identity == *identity);
        match entry.is_connected() && !is_meant {
            true => Err(Refusal::NodeConnected { node, address: entry.address.clone() }),
            false => Ok(()),
        }
    }

    /// Revokes the certificates that this one replaces, when it is used for the first time.
    pub(crate) fn certificate_used(&mut self, now: Time, step: &mut Step, serial: &str) {
        let Some(issued) = self.jobs.state().certificates.get(serial).filter(|issued| issued.revoked.is_none()) else {
            return;
        };
        let by = issued.identity.to_string();
        let older = valid_serials(self.jobs.state(), |older| issued.replaces.contains(&older.serial));
        revoke(self.jobs.context, now, step, older, &by);
    }

    pub(crate) fn renew(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        (serial, renews): (String, Option<String>),
    ) -> Result<Issued, Refusal> {
        match who.role {
            Role::Agent | Role::User | Role::Admin => {}
            Role::Server => return Err(not_allowed(who, "renew here", "a server signs its own certificate")),
            Role::Job => return Err(not_allowed(who, "renew", "the agent of its node may ask for another")),
        }
        self.forget_old(now, step);
        let is_valid = |issued: &&Issued| issued.identity == *who && issued.revoked.is_none();
        if self.jobs.state().certificates.values().filter(is_valid).count() >= MAX_CERTIFICATES {
            return Err(Refusal::TooManyCertificates { who: who.to_string(), max: MAX_CERTIFICATES });
        }
        let renewed = Issued { renews, ..self.certificate(now, who.clone(), serial, Vec::new()) };
        Ok(self.issue(step, renewed))
    }

    /// Issues a certificate for the processes of a job on one of its nodes. It is valid as long as that execution runs,
    /// which is checked at each call; so it need not be stored for revocation.
    pub(crate) fn certify_job(
        &mut self,
        now: Time,
        step: &mut Step,
        ticket: Ticket,
        node: &str,
        (job, run): (JobId, Run),
        (csr, serial): (Vec<u8>, String),
    ) {
        let is_here = self.jobs.state().node_named(node).is_some_and(|node| {
            let entry = self.jobs.state().jobs().get(&job).filter(|entry| entry.run == run);
            entry.and_then(Job::started).is_some_and(|started| started.nodes.contains(&node))
        });
        if is_here {
            let issued = self.certificate(now, Identity::of_job(job, run), serial, Vec::new());
            step.order(Effect::Sign { ticket, issued, csr, cluster: None });
        } else {
            step.order(Effect::Answer { ticket, answer: Err(Refusal::NotRunning(job)) });
        }
    }

    fn issue(&mut self, step: &mut Step, issued: Issued) -> Issued {
        self.jobs.context.record(step, Fact::CertificateIssued { issued: issued.clone() });
        issued
    }

    fn certificate(&self, now: Time, identity: Identity, serial: String, replaces: Vec<String>) -> Issued {
        Issued {
            serial,
            identity,
            issued: now,
            expires: now + self.jobs.context.config.certificate_life,
            revoked: None,
            replaces,
            renews: None,
        }
    }

    pub(crate) fn revoke_certificate(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        which: &CertificateSelect,
        jobs: Option<JobsOfRevoked>,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "revoke certificates")?;
        let matches = |issued: &Issued| match which {
            CertificateSelect::Serial(serial) => issued.serial == *serial,
            CertificateSelect::Identity(identity) => issued.identity == *identity,
        };
        if !self.jobs.state().certificates.values().any(matches) {
            return Err(Refusal::NoSuchCertificate);
        }
        let serials = valid_serials(self.jobs.state(), matches);
        if self.are_last_of_admins(now, &serials) {
            return Err(Refusal::LastAdmin);
        }
        let left_behind = self.jobs_of_locked_out(now, &serials);
        match jobs {
            None if !left_behind.is_empty() => {
                let user = self.jobs.state().jobs()[&left_behind[0]].spec.owner.0.clone();
                return Err(Refusal::JobsOfRevoked { user, n_jobs: left_behind.len() });
            }
            None | Some(JobsOfRevoked::Keep) => {}
            Some(JobsOfRevoked::Cancel) => {
                for job in left_behind {
                    // A job that is ending already needs no cancellation.
                    let _ = self.jobs.cancel(now, step, who, job);
                }
            }
        }
        revoke(self.jobs.context, now, step, serials, &who.name);
        Ok(Answer::Done)
    }

    /// Returns the valid certificates that their holders have not renewed.
    fn in_use(&self, now: Time) -> impl Iterator<Item = &Issued> {
        let certificates = &self.jobs.state().certificates;
        let renewed: BTreeSet<&str> = certificates.values().filter_map(|issued| issued.renews.as_deref()).collect();
        certificates.values().filter(move |issued| is_valid(issued, now) && !renewed.contains(&*issued.serial))
    }

    /// Returns whether no admin would have a valid certificate without these, although one has now.
    fn are_last_of_admins(&self, now: Time, serials: &[String]) -> bool {
        let of_admins = self.in_use(now).filter(|issued| issued.identity.role == Role::Admin);
        let mut are_revoked = of_admins.map(|issued| serials.contains(&issued.serial)).peekable();
        are_revoked.peek().is_some() && are_revoked.all(|is_revoked| is_revoked)
    }

    /// Returns the jobs of users who would be left without a valid certificate.
    fn jobs_of_locked_out(&self, now: Time, serials: &[String]) -> Vec<JobId> {
        let is_person = |issued: &&Issued| matches!(issued.identity.role, Role::User | Role::Admin);
        let people = |wanted: bool| {
            let of =
                self.in_use(now).filter(is_person).filter(move |issued| serials.contains(&issued.serial) == wanted);
            of.map(|issued| issued.identity.name.as_str()).collect::<BTreeSet<&str>>()
        };
        let (locked_out, others) = (people(true), people(false));
        let is_left = |entry: &Job| {
            let owner = entry.spec.owner.0.as_str();
            let is_over = matches!(entry.phase, Phase::Ghost(_));
            !is_over && locked_out.contains(owner) && !others.contains(owner)
        };
        self.jobs.state().jobs().iter().filter(|(_, entry)| is_left(entry)).map(|(job, _)| *job).collect()
    }

    /// Forgets tokens a day after they expired, so that until then a list shows what became of them, and certificates
    /// once nobody could use them anyway.
    fn forget_old(&mut self, now: Time, step: &mut Step) {
        let is_old = |token: &&Token| token.expires + Span::from_hours(24) < now;
        let old: Vec<String> = self.jobs.state().tokens.values().filter(is_old).map(|token| token.id.clone()).collect();
        for id in old {
            self.jobs.context.record(step, Fact::TokenForgotten { id });
        }
        let is_over = |issued: &&Issued| issued.expires < now;
        let over: Vec<String> =
            self.jobs.state().certificates.values().filter(is_over).map(|issued| issued.serial.clone()).collect();
        for serial in over {
            self.jobs.context.record(step, Fact::CertificateForgotten { serial });
        }
    }
}

fn is_valid(issued: &Issued, now: Time) -> bool {
    issued.revoked.is_none() && now < issued.expires
}

pub(crate) fn valid_serials(state: &State, matches: impl Fn(&Issued) -> bool) -> Vec<String> {
    let valid = state.certificates.values().filter(|issued| issued.revoked.is_none() && matches(issued));
    valid.map(|issued| issued.serial.clone()).collect()
}

pub(crate) fn revoke(context: &mut Context, now: Time, step: &mut Step, serials: Vec<String>, by: &str) {
    if !serials.is_empty() {
        context.record(step, Fact::CertificatesRevoked { serials: serials.clone(), at: now, by: by.to_owned() });
        step.order(Effect::CloseLinks { serials });
    }
}

/// A holder renews once in two thirds of a certificate's life, on each machine. Each certificate is remembered until it
/// expires, so their number must be bounded.
const MAX_CERTIFICATES: usize = 64;
const MAX_TTL: Span = Span::from_hours(24 * 30);

/// Compares in a time that does not depend on the number of equal bytes.
fn equal_in_constant_time(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
