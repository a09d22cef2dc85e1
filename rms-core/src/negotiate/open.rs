//! Negotiations that the server opens: offers of idle nodes and requests to shrink, and to which applications they go.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::dialogues::OpenError;
use negotiation::{
    Action, Direction, Item, ItemStatus, NegotiationId, Price, Quantity, Reason, Resource, SetRule, Terms,
};
use rms_api::negotiate::Declared;
use rms_api::refusal::Refusal;
use rms_model::{ClusterId, JobId, NodeId, OfferRule, Sizes, Span, Time};

use super::Negotiations;
use super::dialogues::negotiates_itself;
use super::policy::{Candidate, Change, UserWeight, may_gain, offers};
use crate::plan::{self, Gain, Plan};
use crate::state::job::Started;
use crate::state::takes_any_nodes;
use crate::step::Step;

/// What an application is asked to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShrinkRequest {
    /// A number of nodes, and the least that is of use.
    Count(u32, u32),
    /// These nodes; fewer are better than none.
    Named(BTreeSet<NodeId>),
}

/// An application that the server may offer nodes to, or ask to give some back.
#[derive(Debug)]
pub(super) struct Resizable {
    pub(super) job: JobId,
    user: String,
    held: u32,
    started_with: u32,
    declared: Declared,
    priority: i32,
    is_negotiating: bool,
    declined: u32,
    pub(super) room: u32,
    /// When the application ends at the latest.
    pub(super) until: Time,
    price: Price,
    paid_for: Span,
}

impl Resizable {
    pub(super) fn as_candidate(&self) -> Candidate<'_> {
        Candidate {
            job: self.job,
            user: &self.user,
            held: self.held,
            started_with: self.started_with,
            declared: &self.declared,
            priority: self.priority,
            is_negotiating: self.is_negotiating,
            declined: self.declined,
            room: self.room,
            price: self.price,
            paid_for: self.paid_for,
        }
    }
}

impl Negotiations<'_> {
    /// Asks a running application to give nodes of a cluster back, to be done by `deadline`.
    ///
    /// # Errors
    /// The application cannot be asked: it does not run, does not negotiate, has no listener, or is being asked
    /// already.
    pub(crate) fn open_shrink(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, cluster): (JobId, ClusterId),
        wanted: &ShrinkRequest,
        deadline: Option<Time>,
    ) -> Result<NegotiationId, Refusal> {
        self.check_can_open(job, Direction::Shrink)?;
        let (held, spare) = (u64::from(self.n_nodes_on(job, cluster)), u64::from(self.n_spare_on(job, cluster)));
        let (quantity, least, nodes) = match wanted {
            ShrinkRequest::Count(quantity, least) => (u64::from(*quantity), u64::from(*least), BTreeSet::new()),
            ShrinkRequest::Named(nodes) => (nodes.len() as u64, 1, nodes.clone()),
        };
        let can_leave = |node: &NodeId| self.cluster_of(*node) == Some(cluster) && self.can_leave(job, *node);
        if !nodes.iter().all(can_leave) || quantity > spare {
            let (nodes, [asked, held]) = (Resource::Nodes(cluster), [quantity, spare].map(Quantity));
            let place = format!(" that it can leave of cluster {}", self.context.state().clusters()[&cluster]);
            return Err(Refusal::MoreThanHeld { job, asked: nodes.amount(asked), held: nodes.amount(held), place });
        }
        let terms = Terms {
            least: Quantity(least.max(1).min(quantity)),
            most: Quantity(quantity),
            sizes: Sizes::Any,
            deadline,
            ..Terms::exactly(Quantity(quantity))
        };
        let (resource, quantity, held) = (Resource::Nodes(cluster), Quantity(quantity), Quantity(held));
        let item = Item { set: 0, resource, quantity, held, nodes, terms, status: ItemStatus::Proposed };
        let id = self.open(now, step, job, Direction::Shrink, item)?;
        self.progress(now, step, job, id);
        self.schedule(job);
        Ok(id)
    }

    /// Offers a running application `n_nodes` more nodes of a cluster, at a price; the nodes are held for it until it
    /// has answered.
    ///
    /// # Errors
    /// As [`Negotiations::open_shrink`], or too few free nodes are usable for the application.
    pub(crate) fn open_growth_offer(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, cluster): (JobId, ClusterId),
        n_nodes: u32,
        price: Price,
    ) -> Result<NegotiationId, Refusal> {
        self.check_can_open(job, Direction::Grow)?;
        let held = u64::from(self.n_nodes_on(job, cluster));
        let nodes = plan::free_for(self.context.state(), job, cluster, n_nodes as usize);
        if nodes.len() < n_nodes as usize {
            let possible = format!("{} are free for it", nodes.len());
            return Err(Refusal::TooManyNodes { wanted: n_nodes, constraint: String::new(), possible });
        }
        let terms = Terms { price, ..Terms::up_to(Quantity(u64::from(n_nodes))) };
        let (resource, quantity, held) = (Resource::Nodes(cluster), Quantity(u64::from(n_nodes)), Quantity(held));
        let (nodes_named, status) = (BTreeSet::new(), ItemStatus::Proposed);
        let item = Item { set: 0, resource, quantity, held, nodes: nodes_named, terms, status };
        let id = self.open(now, step, job, Direction::Grow, item)?;
        self.set_held(step, job, id, nodes);
        self.progress(now, step, job, id);
        self.schedule(job);
        Ok(id)
    }

    /// Checks that the server can open a negotiation in this direction now.
    fn check_can_open(&self, job: JobId, direction: Direction) -> Result<(), Refusal> {
        self.negotiable(job)?;
        if !self.has_listener(job) {
            return Err(Refusal::NotNegotiable(job));
        }
        if let Some(id) = self.open_for(job, direction) {
            return Err(Refusal::AlreadyNegotiating { job, id });
        }
        Ok(())
    }

    /// Returns whether the job lends or borrows CPUs. Nothing else may change what it has of its nodes meanwhile.
    pub(super) fn is_sharing(&self, job: JobId) -> bool {
        self.context.state().jobs()[&job].started().is_some_and(Started::is_sharing)
    }

    /// Returns whether anyone receives the server's messages for the application: its negotiator, or the server itself
    /// where the application is only told of its size.
    pub(super) fn has_listener(&self, job: JobId) -> bool {
        !negotiates_itself(&self.context.state().jobs()[&job]) || self.negotiators.attached.contains_key(&job)
    }

    /// Returns whether a process of the application negotiates for it, so that it can agree to a price.
    pub(super) fn negotiates_prices(&self, job: JobId) -> bool {
        negotiates_itself(&self.context.state().jobs()[&job])
    }

    fn open(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        direction: Direction,
        item: Item,
    ) -> Result<NegotiationId, Refusal> {
        let valid_for = self.offer_valid();
        let opened = self.dialogues(job).open(now, direction, vec![SetRule::All], vec![item], valid_for);
        let (id, output) = opened.map_err(|error| match error {
            OpenError::Template(error) => Refusal::Template(error),
            OpenError::Act(_) => Refusal::NotNegotiable(job),
        })?;
        self.record_dialogue(now, step, job, id, None);
        self.send(step, job, output);
        Ok(id)
    }

    /// Withdraws the server's offer, or leaves the negotiation; what is agreed already stays.
    pub(super) fn withdraw(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, reason: Reason) {
        // An agreed negotiation cannot be withdrawn, and goes on.
        let _ = self.act(now, step, job, id, Action::Withdraw(reason));
    }

    /// Returns whether there is any application whose size the server could change.
    pub(super) fn has_resizable(&self) -> bool {
        self.context.state().malleable().next().is_some()
    }

    /// Returns the applications with nodes on one cluster that have a listener, ordered by id. An application must ask
    /// for its first node on another cluster: the server does not know whether it can use it.
    pub(super) fn resizable(&self, now: Time, cluster: ClusterId, direction: Direction) -> Vec<Resizable> {
        let jobs = self.context.state().malleable();
        jobs.filter_map(|job| self.as_resizable(now, job, cluster, direction)).collect()
    }

    fn as_resizable(&self, now: Time, job: JobId, cluster: ClusterId, direction: Direction) -> Option<Resizable> {
        let entry = self.context.state().jobs().get(&job)?;
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let room = match direction {
            Direction::Grow => u32::MAX,
            Direction::Shrink => self.n_spare_on(job, cluster),
        };
        if room == 0 || self.n_nodes_on(job, cluster) == 0 || !self.has_listener(job) {
            return None;
        }
        let declared = self.bounds(job);
        let until = started.at + started.request.wall;
        // Jobs that are starting or about to end are not asked; jobs that share CPUs keep their nodes meanwhile.
        let has_time = until > now + self.context.state().settings().offer_valid;
        if declared.least >= declared.most || !started.is_settled() || !has_time || started.is_sharing() {
            return None;
        }
        let is_leaving = started.evolved.as_ref().is_some_and(|evolved| !evolved.departing.is_empty());
        let is_open = |direction| self.open_for(job, direction).is_some();
        let is_negotiating = match direction {
            Direction::Grow => is_open(Direction::Grow) || is_open(Direction::Shrink) || is_leaving,
            Direction::Shrink => is_open(Direction::Shrink) || is_leaving,
        };
        Some(Resizable {
            job,
            user: entry.spec.owner.0.clone(),
            held: started.nodes.len() as u32,
            started_with: started.began_with(),
            declared,
            priority: entry.spec.priority,
            is_negotiating,
            declined: self.declined(job, direction),
            room,
            until,
            price: self.list_price(cluster),
            paid_for: self.end_if_longer(job, None, Span::ZERO)?.since(now),
        })
    }

    /// Returns how many nodes the job is not to be asked about again for now.
    fn declined(&self, job: JobId, direction: Direction) -> u32 {
        let refusals = &self.negotiators.refusals;
        let declined = refusals.nodes(job, direction);
        match direction {
            Direction::Grow if self.context.state().n_queued() > 0 => declined.max(refusals.given(job)),
            Direction::Grow | Direction::Shrink => declined,
        }
    }

    /// Returns the share and what is left of the limit and the budget of each user of these applications.
    pub(super) fn weights<'a>(&self, now: Time, candidates: &'a [Resizable]) -> BTreeMap<&'a str, UserWeight> {
        let settings = self.context.state().settings();
        let mut weights = BTreeMap::new();
        for candidate in candidates {
            weights.entry(candidate.user.as_str()).or_insert_with_key(|user| UserWeight {
                share: settings.share_of(user),
                may_gain: self.may_still_gain(user, None),
                may_spend: self.may_still_spend(now, user),
            });
        }
        weights
    }

    /// Returns what applications of a user, other than `except`, leave of the user's growth limit; nodes held for them
    /// count as theirs.
    pub(super) fn may_still_gain(&self, user: &str, except: Option<JobId>) -> Option<u32> {
        let limit = self.context.state().settings().growth_limit_of(user)?;
        let jobs = self.context.state().negotiating().filter(|(job, _)| Some(*job) != except);
        let own = jobs.map(|(_, entry)| entry).filter(|entry| entry.spec.owner.0 == user);
        let sizes = own.filter_map(|entry| {
            let started = entry.started()?;
            let held = started.nodes.len() + entry.promised_nodes().count();
            Some((held as u32, started.began_with()))
        });
        may_gain(Some(limit), sizes)
    }

    /// Offers idle nodes, except on clusters where nodes are gathered for a waiting job or growth.
    pub(super) fn offer_idle(&mut self, now: Time, step: &mut Step, gathering: &BTreeSet<ClusterId>) {
        let rule = self.context.state().settings().offer_idle;
        if rule == OfferRule::Never {
            return;
        }
        for cluster in self.context.state().clusters().keys().copied().collect::<Vec<_>>() {
            if self.context.state().n_free(cluster) == 0 || gathering.contains(&cluster) {
                continue;
            }
            let price = self.list_price(cluster);
            for Change { job, nodes } in self.idle_offers(now, cluster, rule) {
                // An application that could not be asked is tried again after a later pass.
                if self.open_growth_offer(now, step, (job, cluster), nodes, price).is_err() {
                    let until = self.retry_time(now);
                    self.negotiators.refusals.note(job, Direction::Grow, nodes, until);
                }
            }
        }
    }

    /// Decides which application is offered how many nodes, so that no waiting job is delayed beyond the tolerance.
    fn idle_offers(&mut self, now: Time, cluster: ClusterId, rule: OfferRule) -> Vec<Change> {
        let mut recipients = self.resizable(now, cluster, Direction::Grow);
        let idle = self.context.state().n_free(cluster) as u32;
        recipients.iter_mut().for_each(|recipient| recipient.room = self.usable_by(now, recipient, cluster, idle));
        recipients.retain(|recipient| !recipient.as_candidate().is_negotiating && recipient.room > 0);
        if recipients.is_empty() {
            return Vec::new();
        }
        let before = self.context.estimates(now);
        let tolerance = self.context.state().settings().delay_tolerance;
        if tolerance > Span::ZERO {
            let shares = self.distribute(now, &recipients, idle, rule);
            if self.is_harmless(now, &before, cluster, &shares) {
                return shares;
            }
        }
        // Nodes that are free in the plan of all waiting jobs until the recipient's end delay no job.
        for recipient in &mut recipients {
            recipient.room = recipient.room.min(plan::room(self.context.state(), &before, cluster, recipient.until));
        }
        let mut idle = idle;
        loop {
            let shares = self.distribute(now, &recipients, idle, rule);
            if shares.is_empty() || self.is_harmless(now, &before, cluster, &shares) {
                return shares;
            }
            // Each share would fit alone, but not all together: take as many as fit for the application that runs
            // longest. If even these delay a job that can only use special nodes, halve the number.
            let rooms = recipients.iter().filter(|recipient| shares.iter().any(|share| share.job == recipient.job));
            let least = rooms.map(|recipient| recipient.room).min().unwrap_or(0);
            idle = if least < idle { least } else { idle / 2 };
        }
    }

    fn distribute(&self, now: Time, recipients: &[Resizable], idle: u32, rule: OfferRule) -> Vec<Change> {
        let candidates: Vec<Candidate<'_>> = recipients.iter().map(Resizable::as_candidate).collect();
        offers(idle, &candidates, &self.weights(now, recipients), rule)
    }

    fn is_harmless(&mut self, now: Time, before: &Plan, cluster: ClusterId, shares: &[Change]) -> bool {
        let gains: Vec<Gain> =
            shares.iter().map(|share| Gain { job: share.job, cluster, nodes: share.nodes }).collect();
        let Some(after) = plan::plan_around(self.context.state(), now, &gains) else { return false };
        let undelayed = &mut self.negotiators.undelayed;
        if undelayed.would_exceed(before, &after, self.context.state().settings().delay_tolerance) {
            return false;
        }
        undelayed.note(self.context.state(), before, &after);
        true
    }

    /// Counts the free nodes that meet the application's constraint and that it can pay for.
    fn usable_by(&self, now: Time, recipient: &Resizable, cluster: ClusterId, idle: u32) -> u32 {
        // If any node will do, the nodes need not be checked one by one.
        let takes_any = takes_any_nodes(&self.context.state().jobs()[&recipient.job].spec);
        let n_right = if takes_any {
            u64::from(idle)
        } else {
            plan::free_for(self.context.state(), recipient.job, cluster, idle as usize).len() as u64
        };
        let n_paid = self.most_offered(now, recipient.job, cluster);
        u32::try_from(n_right.min(n_paid)).unwrap_or(u32::MAX)
    }
}
