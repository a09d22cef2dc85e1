//! What clients ask and order: who may, and what it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::call::{Call, Select, Submission};
use rms_api::refusal::{Refusal, Refused};
use rms_model::identity::check_name;
use rms_model::settings::Subject;
use rms_model::token::Redeemed;
use rms_model::{Identity, JobId, NodeAdmin, NodeId, Outcome, Role, Settings, Time, hostlist};

use crate::admit;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::plan::{self, Placed};
use crate::rms::Rms;
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase};
use crate::step::Step;

impl Rms {
    pub(crate) fn handle_call(&mut self, now: Time, step: &mut Step, ticket: Ticket, who: &Identity, call: Call) {
        let act = self.act_of(who, &call);
        let answer = match call {
            Call::Submit(submission) => self.submit(now, step, who, *submission),
            Call::Cancel { select } => self.for_each(who, &select, |rms, job| rms.cancel(now, step, who, job)),
            Call::Signal { select, signal } => self.for_each(who, &select, |rms, job| rms.signal(step, job, signal)),
            Call::Hold { select } => self.for_each(who, &select, |rms, job| rms.hold(now, step, who, job)),
            Call::Release { select } => self.for_each(who, &select, |rms, job| rms.release(now, step, who, job)),
            Call::SetPriority { select, priority } => match check_priority(who, priority) {
                Ok(()) => self.for_each(who, &select, |rms, job| rms.set_priority(now, step, who, job, priority)),
                Err(refusal) => Err(refusal),
            },
            Call::Query(query) => self.query(now, who, query),
            Call::Set { key, value } => self.set(now, step, who, &key, &value),
            Call::Drain { nodes, reason } => {
                let admin = NodeAdmin::Drain { reason, by: who.name.clone(), since: now };
                self.set_admin(now, step, who, &nodes, admin)
            }
            Call::Down { nodes, reason } => {
                let admin = NodeAdmin::Down { reason, by: who.name.clone(), since: now };
                self.set_admin(now, step, who, &nodes, admin)
            }
            Call::Resume { nodes } => self.set_admin(now, step, who, &nodes, NodeAdmin::Enabled),
            Call::Remove { nodes } => self.remove_nodes(now, step, who, &nodes),
            Call::RemoveCluster { name } => self.remove_cluster(step, who, &name),
            Call::CreateToken(order) => self.create_token(now, step, who, order),
            Call::SetLink { a, b, latency_us, bandwidth_mbit } => {
                self.set_link(now, step, who, [&a, &b], latency_us, bandwidth_mbit)
            }
            Call::RevokeToken { id } => self.revoke_token(now, step, who, &id),
            Call::RevokeCertificate { which, jobs } => self.revoke_certificate(now, step, who, &which, jobs),
            Call::Evolve { job, stages, open } => self.evolve(now, step, who, job, stages, open),
            Call::FreeNodes { job, nodes } => self.free_nodes(step, who, job, &nodes),
            Call::ResizeDone { job, generation } => self.resize_done(now, step, who, job, generation),
            Call::OrderNegotiation { job, negotiation, order } => {
                self.order_negotiation(now, step, who, job, negotiation, order)
            }
            // Answered when something came of it.
            Call::Negotiate { job, ask } => match self.may_touch(who, job) {
                Ok(()) => {
                    let is_asked = self.ask(now, step, ticket, job, who.name.clone(), &ask);
                    if let Some(act) = act.filter(|_| is_asked) {
                        self.audit_call(now, step, who, act, &Answer::Done);
                    }
                    return;
                }
                Err(refusal) => Err(refusal),
            },
            // These two are answered with a certificate, unless they are refused.
            Call::Join { token_id, digest, name, csr, key, serial, replaces } => {
                let redeemed = Redeemed { key, serial };
                match self.join(now, step, &token_id, &digest, name.as_deref(), (redeemed, replaces.as_deref())) {
                    Ok((issued, cluster)) => {
                        step.order(Effect::Sign { ticket, issued, csr, cluster });
                        return;
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Call::Renew { csr, serial } => match self.renew(now, step, who, serial) {
                Ok(issued) => {
                    step.order(Effect::Sign { ticket, issued, csr, cluster: None });
                    return;
                }
                Err(refusal) => Err(refusal),
            },
        };
        if let (Some(act), Ok(answer)) = (act, &answer) {
            self.audit_call(now, step, who, act, answer);
        }
        step.order(Effect::Answer { ticket, answer });
    }

    fn submit(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        submission: Submission,
    ) -> Result<Answer, Refusal> {
        match who.role {
            Role::User | Role::Admin => {}
            Role::Server | Role::Agent | Role::Job => {
                return Err(not_allowed(who, "submit jobs", "users and admins may"));
            }
        }
        check_priority(who, submission.priority)?;
        let max = self.state.settings().max_jobs;
        if self.state.jobs().len() >= max as usize {
            return Err(Refusal::SystemFull { max });
        }
        let (test_only, held) = (submission.test_only, submission.hold);
        let mut spec = admit::admit(&self.state, who, submission)?;
        // Before others share the spec, so that taking it in needs no copy of it.
        if let Some(known) = self.state.known_environment(&spec.environment) {
            spec.environment = known;
        }
        if test_only {
            return Ok(self.would_start(now, &spec));
        }
        self.check_quota(who, &spec)?;
        self.check_pace(now, who, &spec.work, &spec.environment)?;
        let job = self.state.last_job.next();
        let not_yet = spec.begin.is_some_and(|begin| begin > now);
        self.record(step, Fact::JobSubmitted { job, at: now, spec: Arc::new(spec), held });
        if !held && !not_yet {
            self.record(step, Fact::RequestSent { job, at: now });
            self.passes.wanted = true;
        }
        Ok(Answer::Submitted { job })
    }

    fn would_start(&mut self, now: Time, spec: &rms_model::JobSpec) -> Answer {
        let placed = plan::plan_with(&self.state, now, spec);
        let plan = self.estimates(now);
        let reason = match &placed {
            Placed::Now { .. } => None,
            Placed::Later { .. } | Placed::Never { .. } => {
                plan::outcome_reason(&self.state, &plan, plan.placements.len(), &placed, now)
            }
        };
        let request = placed.request().unwrap_or(&spec.options[0]).clone();
        Answer::WouldStart { request, at: placed.estimate(now), reason }
    }

    /// Does `act` to each selected job that the caller may touch.
    fn for_each(
        &mut self,
        who: &Identity,
        select: &Select,
        mut act: impl FnMut(&mut Rms, JobId) -> Result<(), Refusal>,
    ) -> Result<Answer, Refusal> {
        let mut done = Vec::new();
        let mut refused = Vec::new();
        for job in self.selected(who, select)? {
            let outcome = self.may_touch(who, job).and_then(|()| act(self, job));
            match outcome {
                Ok(()) => done.push(job),
                Err(refusal) => refused.push((job, Refused::from(&refusal))),
            }
        }
        Ok(Answer::Jobs { done, refused })
    }

    pub(crate) fn selected(&self, who: &Identity, select: &Select) -> Result<Vec<JobId>, Refusal> {
        let owned_by = |name: &str| {
            let is_theirs = |(_, entry): &(&JobId, &Job)| entry.spec.owner.0 == name;
            self.state.jobs().iter().filter(is_theirs).map(|(job, _)| *job).collect::<Vec<_>>()
        };
        match select {
            // Each once: an answer may bring a whole script for each.
            Select::Ids(jobs) => {
                let mut seen = BTreeSet::new();
                Ok(jobs.iter().copied().filter(|job| seen.insert(*job)).collect())
            }
            Select::Last => owned_by(&who.name).last().map(|job| vec![*job]).ok_or(Refusal::NoJobs),
            Select::All => match who.role {
                Role::Admin => Ok(self.state.jobs().keys().copied().collect()),
                Role::User => Ok(owned_by(&who.name)),
                Role::Job => Ok(who.as_job().map(|(job, _)| job).into_iter().collect()),
                Role::Agent | Role::Server => Ok(Vec::new()),
            },
            Select::User(name) => Ok(owned_by(name)),
        }
    }

    pub(crate) fn may_touch(&self, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let entry = self.state.jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
        if self.may_see_secrets(who, entry) || who.as_job() == Some((job, entry.run)) {
            return Ok(());
        }
        Err(Refusal::NotYourJob { job, owner: entry.spec.owner.0.clone() })
    }

    /// Scripts, environments and streams belong to the owner, and to admins.
    pub(crate) fn may_see_secrets(&self, who: &Identity, entry: &Job) -> bool {
        match who.role {
            Role::Admin => true,
            Role::User => entry.spec.owner.0 == who.name,
            Role::Agent | Role::Server | Role::Job => false,
        }
    }

    pub(crate) fn cancel(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let by = match who.role {
            // Its processes are its owner's.
            Role::Job => self.state.jobs()[&job].spec.owner.0.clone(),
            Role::Admin | Role::User | Role::Agent | Role::Server => who.name.clone(),
        };
        let outcome = Outcome::Cancelled { by };
        match &self.state.jobs()[&job].phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                self.done(now, step, job, outcome);
                Ok(())
            }
            Phase::Started(started) => match &started.ending {
                // A job that would have waited again does not, once it is cancelled.
                Some(ending) if !ending.requeue => Err(wrong_state(job, "ending", "it is being ended already")),
                Some(_) | None => {
                    self.end(now, step, job, outcome, false);
                    Ok(())
                }
            },
            Phase::Ghost(_) => {
                Err(wrong_state(job, "done", "only its ghost keeps the hosts, for the fair-start delay"))
            }
        }
    }

    fn signal(&mut self, step: &mut Step, job: JobId, signal: i32) -> Result<(), Refusal> {
        if !(1..=64).contains(&signal) {
            return Err(Refusal::Malformed("a signal is a number from 1 to 64"));
        }
        let entry = &self.state.jobs()[&job];
        let Some(started) = entry.started() else {
            return Err(wrong_state(job, entry.state().word(), "only a started job can be signalled"));
        };
        for node in started.alive() {
            let node = self.state.nodes()[&node].name.clone();
            step.order(Effect::Signal { node, job, run: entry.run, signal });
        }
        Ok(())
    }

    fn hold(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        match &self.state.jobs()[&job].phase {
            Phase::Submitted { hold: Some(_) } => Err(wrong_state(job, "held", "there is nothing to do")),
            Phase::Submitted { hold: None } | Phase::RequestSent | Phase::Waiting => {
                self.record(step, Fact::JobHeld { job, by: who.name.clone(), at: now });
                self.passes.wanted = true;
                Ok(())
            }
            Phase::Started(_) | Phase::Ghost(_) => Err(wrong_state(job, "started", "only a waiting job can be held")),
        }
    }

    fn release(&mut self, now: Time, step: &mut Step, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let entry = &self.state.jobs()[&job];
        match &entry.phase {
            Phase::Submitted { hold: Some(hold) } => {
                // A hold by an admin is not the user's to lift.
                let by_another = hold.by != entry.spec.owner.0 && who.role != Role::Admin;
                if by_another {
                    return Err(not_allowed(who, "release a job that an admin holds", "an admin may"));
                }
                let not_yet = match &entry.launcher {
                    Some(_) => entry.requested.is_none(),
                    None => entry.spec.begin.is_some_and(|begin| begin > now),
                };
                self.record(step, Fact::JobReleased { job, by: who.name.clone(), at: now });
                if !not_yet {
                    self.record(step, Fact::RequestSent { job, at: now });
                    self.passes.wanted = true;
                }
                Ok(())
            }
            Phase::Submitted { hold: None }
            | Phase::RequestSent
            | Phase::Waiting
            | Phase::Started(_)
            | Phase::Ghost(_) => Err(wrong_state(job, entry.state().word(), "only a held job can be released")),
        }
    }

    fn set_priority(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        priority: i32,
    ) -> Result<(), Refusal> {
        let entry = &self.state.jobs()[&job];
        match &entry.phase {
            // While it runs, it says whom it gives hosts to, and who gives some to it.
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => {
                self.record(step, Fact::JobPriorityChanged { job, priority, by: who.name.clone(), at: now });
                self.passes.wanted = true;
                Ok(())
            }
            Phase::Ghost(_) => {
                Err(wrong_state(job, entry.state().word(), "a priority matters only before it has ended"))
            }
        }
    }

    fn set(&mut self, now: Time, step: &mut Step, who: &Identity, key: &str, value: &str) -> Result<Answer, Refusal> {
        admins_only(who, "change settings")?;
        match Settings::subject_of(key) {
            Some(Subject::Cluster(cluster)) => {
                admit::cluster(&self.state, cluster)?;
            }
            Some(Subject::User(user)) => check_name(user)?,
            None => {}
        }
        let old = self.state.settings().get(key)?;
        let mut after = self.state.settings().clone();
        after.set(key, value)?;
        after.check()?;
        let new = after.get(key)?;
        if old != new {
            let change = AuditEntry::of_setting(now, &who.name, key, &old, &new);
            self.record(step, Fact::SettingChanged { change });
            self.passes.wanted = true;
        }
        Ok(Answer::Done)
    }

    fn set_admin(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: &[String],
        admin: NodeAdmin,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "change nodes")?;
        match &admin {
            NodeAdmin::Enabled => {}
            NodeAdmin::Drain { reason, .. } | NodeAdmin::Down { reason, .. } => check_reason(reason)?,
        }
        for node in self.nodes_named(names)? {
            self.record(step, Fact::NodeAdminChanged { node, admin: admin.clone() });
            match &admin {
                NodeAdmin::Enabled | NodeAdmin::Drain { .. } => {}
                NodeAdmin::Down { .. } if self.state.nodes()[&node].is_connected() => {
                    let holders: Vec<JobId> = self.state.nodes()[&node].holders.iter().copied().collect();
                    for job in holders {
                        // Its agent ends what runs there; what goes on without a lost node does without this one.
                        if !self.shrink_by_loss(now, step, job, node) {
                            self.end_lost(now, step, job, node);
                        }
                    }
                }
                NodeAdmin::Down { .. } => self.give_up_shares(now, step, node),
            }
        }
        self.passes.wanted = true;
        Ok(Answer::Done)
    }

    fn remove_nodes(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: &[String],
    ) -> Result<Answer, Refusal> {
        admins_only(who, "remove nodes")?;
        let nodes = self.nodes_named(names)?;
        for node in &nodes {
            let entry = &self.state.nodes()[node];
            if entry.is_connected() || !entry.holders.is_empty() {
                return Err(Refusal::NodeInUse { node: entry.name.clone() });
            }
        }
        for node in nodes {
            self.forget_sent(node);
            let identity = Identity { role: Role::Agent, name: self.state.nodes()[&node].name.clone() };
            self.record(step, Fact::NodeRemoved { node });
            // It comes back by a new token only, as any other node.
            let serials = self.valid_serials(|issued| issued.identity == identity);
            self.revoke(now, step, serials, &who.name);
        }
        self.passes.wanted = true;
        Ok(Answer::Done)
    }

    /// A cluster goes when its last node has gone and no job can mean it any more.
    fn remove_cluster(&mut self, step: &mut Step, who: &Identity, name: &str) -> Result<Answer, Refusal> {
        admins_only(who, "remove clusters")?;
        let cluster = admit::cluster(&self.state, name)?;
        let in_use = |what: String| Err(Refusal::ClusterInUse { cluster: name.to_owned(), what });
        let nodes: Vec<&str> =
            self.state.nodes().values().filter(|node| node.cluster == cluster).map(|node| &*node.name).collect();
        if !nodes.is_empty() {
            return in_use(format!("has the nodes {}: remove them first ('rms admin remove')", hostlist::fold(&nodes)));
        }
        let means_it = |entry: &Job| entry.spec.options.iter().any(|request| request.hosts.contains_key(&cluster));
        if let Some((job, _)) = self.state.jobs().iter().find(|(_, entry)| means_it(entry)) {
            return in_use(format!("is asked for by job {job}: wait for its end, or cancel it"));
        }
        self.record(step, Fact::ClusterRemoved { cluster });
        self.passes.wanted = true;
        Ok(Answer::Done)
    }

    /// Each once, however often it is named.
    pub(crate) fn nodes_named(&self, names: &[String]) -> Result<BTreeSet<NodeId>, Refusal> {
        if names.is_empty() {
            return Err(Refusal::Malformed("name at least one node"));
        }
        let find = |name: &String| {
            self.state.node_named(name).ok_or_else(|| Refusal::NoSuchNode { name: name.chars().take(80).collect() })
        };
        names.iter().map(find).collect()
    }
}

/// It is shown on everybody's terminal.
fn check_reason(reason: &str) -> Result<(), Refusal> {
    let is_plain = !reason.chars().any(char::is_control);
    if is_plain { Ok(()) } else { Err(Refusal::Malformed("a reason has no control characters")) }
}

/// Users may step back in the queue; only an admin may let a job go first.
pub(crate) fn check_priority(who: &Identity, priority: i32) -> Result<(), Refusal> {
    if priority > 0 && who.role != Role::Admin {
        return Err(not_allowed(who, "raise a priority above 0", "an admin may; users may lower theirs"));
    }
    Ok(())
}

pub(crate) fn admins_only(who: &Identity, action: &'static str) -> Result<(), Refusal> {
    match who.role {
        Role::Admin => Ok(()),
        Role::User | Role::Agent | Role::Server | Role::Job => Err(not_allowed(who, action, "an admin may")),
    }
}

pub(crate) fn not_allowed(who: &Identity, action: &'static str, needed: &'static str) -> Refusal {
    Refusal::NotAllowed { who: who.clone(), action, needed }
}

pub(crate) fn wrong_state(job: JobId, state: &'static str, hint: &'static str) -> Refusal {
    Refusal::WrongState { job, state, hint }
}
