//! Requests made on behalf of an application by a caller that waits for the outcome: a user, an admin, a script, or an
//! agent whose ranks want to spawn. Also the orders of users and admins about open negotiations.

use std::collections::BTreeSet;

use negotiation::{
    Action, Dialogues, Direction, Item, ItemStatus, NegotiationId, Parties, Quantity, Reason, Resource, Side,
    Statement, Template, TemplateError, Terms,
};
use rms_api::answer::Answer;
use rms_api::negotiate::{Ask, Asked, NegotiatorNotice, Order};
use rms_api::refusal::Refusal;
use rms_model::{ClusterId, Identity, JobId, NodeId, Role, Run, Span, Time, hostlist};

use super::Negotiations;
use crate::admit;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::rights::{self, admins_only, wrong_state};
use crate::state::job::{Launcher, Started};
use crate::state::negotiations::{Asking, Negotiation};
use crate::step::Step;

impl Negotiations<'_> {
    /// Handles an agent's request for a job that it runs.
    pub(crate) fn agent_asks(
        &mut self,
        now: Time,
        step: &mut Step,
        ticket: Ticket,
        (name, job, run): (&str, JobId, Run),
        ask: &Ask,
    ) {
        let node = self.context.state().node_named(name);
        let entry = self.context.state().jobs().get(&job).filter(|entry| entry.run == run);
        let is_here = node.is_some_and(|node| entry.is_some_and(|entry| entry.nodes().contains(&node)));
        let by = format!("agent/{name}");
        let is_same = |negotiation: &Negotiation| {
            let asking = negotiation.asking.as_ref().is_some_and(|asking| asking.by == by && asking.ask == *ask);
            (asking && !negotiation.phase().is_over()).then_some(negotiation.id())
        };
        let again = self.negotiations(job).and_then(|negotiations| negotiations.open().find_map(is_same));
        if let Some(id) = again.filter(|_| is_here) {
            // The agent or the server was restarted, and the agent repeats its request.
            self.negotiators.tickets.insert((job, id), ticket);
        } else if is_here {
            self.ask(now, step, ticket, job, by, ask);
        } else {
            step.order(Effect::Answer { ticket, answer: Err(Refusal::NotRunning(job)) });
        }
    }

    /// Opens a negotiation for the request of `by`, who is answered once it has an outcome. Returns false if the
    /// request is refused at once.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        step: &mut Step,
        ticket: Ticket,
        job: JobId,
        by: String,
        ask: &Ask,
    ) -> bool {
        match self.first_proposal(now, job, ask) {
            Ok((id, template)) => {
                self.negotiators.tickets.insert((job, id), ticket);
                let valid_for = ask.wait.max(MIN_WAIT).min(Span::MAX_WALL);
                let asking = Asking { by, ask: ask.clone() };
                let statement = Statement::Propose { round: 1, template, valid_for };
                self.say_on_behalf(now, step, job, id, statement, Some(asking));
                // The job's negotiator must not open another negotiation under this number.
                if self.negotiators.attached.contains_key(&job) {
                    let notice = NegotiatorNotice::Counted { n_opened: id.number };
                    step.order(Effect::TellNegotiator { job, notice });
                }
                self.progress(now, step, job, id);
                self.schedule(job);
                true
            }
            Err(refusal) => {
                step.order(Effect::Answer { ticket, answer: Err(refusal) });
                false
            }
        }
    }

    /// Returns the running job if it can be negotiated with.
    ///
    /// # Errors
    /// The job does not run, or was not submitted as malleable.
    pub(super) fn negotiable(&self, job: JobId) -> Result<&Started, Refusal> {
        let started = self.askable(job)?;
        let is_negotiable = self.context.state().jobs()[&job].spec.malleable.is_some();
        if is_negotiable { Ok(started) } else { Err(Refusal::NotNegotiable(job)) }
    }

    /// Returns the running job if requests may be made on its behalf. It need not have been submitted as malleable: its
    /// owner, or a rank of it that spawns, knows what it can do with nodes. Only a job with an evolution profile is
    /// bound to its stages.
    fn askable(&self, job: JobId) -> Result<&Started, Refusal> {
        let entry = self.context.state().jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
        if entry.spec.evolving.is_some() {
            return Err(Refusal::HasProfile(job));
        }
        // An external launcher knows the nodes that it was granted, and would not learn of others, unless it has
        // launched an application that changes its size.
        let is_settled = |launcher: &Launcher| launcher.has_launched() && entry.spec.malleable.is_some();
        if entry.launcher.as_ref().is_some_and(|launcher| !is_settled(launcher)) {
            return Err(Refusal::NotNegotiable(job));
        }
        entry.started().filter(|started| started.ending.is_none()).ok_or(Refusal::NotRunning(job))
    }

    /// Returns a request as the first proposal of the application.
    fn first_proposal(&self, now: Time, job: JobId, ask: &Ask) -> Result<(NegotiationId, Template), Refusal> {
        let started = self.askable(job)?;
        if ask.direction == Direction::Grow {
            if started.is_overdue(now) {
                return Err(Refusal::WallOver(job));
            }
            let state = self.context.state();
            let away = state.out_of_reach(started).filter(|_| matches!(ask.what, Asked::Time));
            if let Some(node) = away {
                return Err(Refusal::AgentAway { job, node: state.nodes()[&node].name.clone() });
            }
        }
        if let Some(id) = self.open_for(job, ask.direction) {
            return Err(Refusal::AlreadyNegotiating { job, id });
        }
        // A caller that waits may get more once the sharing is over.
        let waits = ask.direction == Direction::Grow && !ask.wait.is_zero();
        if started.is_sharing() && !waits {
            return Err(wrong_state(job, "started", SHARES));
        }
        // Numbers that the negotiator has used without any recorded result are taken, too.
        let negotiated_about = self.negotiators.dialogues.get(&job).map_or(0, Dialogues::last_heard);
        let last = self.negotiations(job).map_or(0, |negotiations| negotiations.heard_up_to).max(negotiated_about);
        let id = NegotiationId { initiator: Side::Application, number: last }.next();
        let id = id.ok_or(Refusal::Malformed("it has negotiated as often as can be counted"))?;
        if matches!(ask.what, Asked::Nodes { .. }) && self.context.state().jobs()[&job].spec.resources.contiguous {
            return Err(Refusal::KeepsItsNodes(job));
        }
        let nodes = self.nodes_of_ask(job, ask)?;
        let (resource, held) = match &ask.what {
            Asked::Nodes { cluster } => {
                let asked = self.cluster_of_ask(job, cluster.as_deref(), &nodes)?;
                (Resource::Nodes(asked), u64::from(self.n_nodes_on(job, asked)))
            }
            Asked::Time => (Resource::Time, started.request.wall.as_millis().unsigned_abs()),
            Asked::Cores { cluster } | Asked::Memory { cluster } | Asked::Devices { cluster, name: _ } => {
                let asked = self.cluster_of_ask(job, cluster.as_deref(), &nodes)?;
                let resource = match &ask.what {
                    Asked::Memory { .. } => Resource::Memory(asked),
                    Asked::Devices { name, .. } => Resource::Devices(asked, name.clone()),
                    Asked::Cores { .. } | Asked::Nodes { .. } | Asked::Licences { .. } | Asked::Time => {
                        Resource::Cores(asked)
                    }
                };
                let named: Vec<NodeId> = nodes.iter().copied().collect();
                let on = if named.is_empty() { self.staying_on(job, asked) } else { named };
                let held = self.least_inside(job, &resource, &on);
                (resource, held.0)
            }
            Asked::Licences { cluster, name } => {
                let asked = self.cluster_of_ask(job, cluster.as_deref(), &nodes)?;
                (Resource::Licences(asked, name.clone()), self.n_licences(job, asked, name).into())
            }
        };
        let counts_nodes = matches!(resource, Resource::Nodes(_)) && !nodes.is_empty();
        let quantity = if counts_nodes { nodes.len() as u64 } else { ask.quantity };
        // No more is bid than the server asks for.
        let price = match (&resource, ask.direction) {
            (Resource::Nodes(cluster), Direction::Grow) => ask.price.min(self.list_price(*cluster)),
            _ => ask.price,
        };
        let terms = Terms {
            least: Quantity(ask.least.min(quantity)),
            most: Quantity(quantity),
            sizes: ask.sizes.clone(),
            duration: ask.duration,
            price,
            deadline: None,
            give_back_by: None,
            priority: 0,
        };
        let (quantity, held) = (Quantity(quantity), Quantity(held));
        let mut item = Item { set: 0, resource, quantity, held, nodes, terms, status: ItemStatus::Proposed };
        // A request for six by a job that can use powers of two becomes one for the next usable number below, unless
        // that is too little.
        if !counts_nodes && let Some(greatest) = item.greatest(ask.direction, quantity) {
            item.quantity = greatest;
        }
        if ask.direction == Direction::Shrink && item.quantity > item.held {
            return Err(self.more_than_held(job, &item));
        }
        let parties = Parties { job, run: self.context.state().jobs()[&job].run, initiator: Side::Application };
        let template = Template::of_one(parties, ask.direction, item)?;
        if ask.direction == Direction::Grow {
            template.items().iter().try_for_each(|item| self.check_name(&item.resource))?;
        }
        Ok((id, template))
    }

    /// Checks that what is asked for exists: a device on some node, a licence of the cluster.
    fn check_name(&self, resource: &Resource) -> Result<(), Refusal> {
        let state = self.context.state();
        match resource {
            Resource::Devices(_, name) => admit::check_device(state, name),
            Resource::Licences(cluster, name) => admit::check_licence(state, &[*cluster], (name, 0)),
            Resource::Nodes(_) | Resource::Cores(_) | Resource::Memory(_) | Resource::Time => Ok(()),
        }
    }

    /// Returns the refusal of an item that gives back more than is held, with the node that has the least.
    fn more_than_held(&self, job: JobId, item: &Item) -> Refusal {
        let state = self.context.state();
        let place = match &item.resource {
            Resource::Nodes(cluster) | Resource::Licences(cluster, _) => {
                format!(" of cluster {}", state.clusters()[cluster])
            }
            Resource::Cores(cluster) | Resource::Memory(cluster) | Resource::Devices(cluster, _) => {
                let named: Vec<NodeId> = item.nodes.iter().copied().collect();
                let on = if named.is_empty() { self.staying_on(job, *cluster) } else { named };
                let has_least = |node: &NodeId| self.held_inside(job, &item.resource, *node) == item.held.0;
                let least: Vec<NodeId> = on.iter().copied().filter(has_least).collect();
                match least.as_slice() {
                    [] => String::new(),
                    [node] => format!(" on node {}", state.nodes()[node].name),
                    several => format!(" on each of {}", hostlist::fold(&state.node_names(several))),
                }
            }
            Resource::Time => String::new(),
        };
        let (asked, held) = (item.resource.amount(item.quantity), item.resource.amount(item.held));
        Refusal::MoreThanHeld { job, asked, held, place }
    }

    /// Returns the cluster that a request names, or that of the nodes that it names, or the job's first one.
    fn cluster_of_ask(&self, job: JobId, name: Option<&str>, nodes: &BTreeSet<NodeId>) -> Result<ClusterId, Refusal> {
        let asked = match (name, nodes.first()) {
            (Some(name), _) => admit::cluster(self.context.state(), name)?,
            (None, Some(node)) => self.context.state().nodes()[node].cluster,
            (None, None) => self.first_cluster(job).ok_or(Refusal::NotRunning(job))?,
        };
        if nodes.iter().any(|node| self.cluster_of(*node) != Some(asked)) {
            return Err(Refusal::Malformed("the nodes of one ask are of one cluster"));
        }
        Ok(asked)
    }

    /// Returns the nodes that a request names: those to be given back, or those whose cores, memory or devices it is
    /// about.
    fn nodes_of_ask(&self, job: JobId, ask: &Ask) -> Result<BTreeSet<NodeId>, Refusal> {
        if ask.nodes.is_empty() {
            return Ok(BTreeSet::new());
        }
        let wrong = |hint| Refusal::WrongState { job, state: "started", hint };
        let nodes = rights::nodes_named(self.context.state(), &ask.nodes)?;
        let is_inside = match &ask.what {
            Asked::Cores { .. } | Asked::Memory { .. } | Asked::Devices { .. } => true,
            Asked::Nodes { .. } | Asked::Licences { .. } | Asked::Time => false,
        };
        if is_inside {
            let are_held = nodes.iter().all(|node| self.context.state().jobs()[&job].nodes().contains(node));
            return are_held.then_some(nodes).ok_or(wrong("one of these nodes is not its own"));
        }
        let names_its_own = ask.direction == Direction::Grow || nodes.iter().all(|node| self.can_be_taken(job, *node));
        let names_nodes = match &ask.what {
            Asked::Nodes { .. } | Asked::Cores { .. } | Asked::Memory { .. } | Asked::Devices { .. } => true,
            Asked::Licences { .. } | Asked::Time => nodes.is_empty(),
        };
        if !names_nodes {
            return Err(Refusal::Template(TemplateError::NotOnNodes));
        }
        match names_its_own {
            true => Ok(nodes),
            false => Err(wrong("one of these nodes is not its own, or is its first, which stays to its end")),
        }
    }

    /// Returns the open negotiation of a direction.
    pub(super) fn open_for(&self, job: JobId, direction: Direction) -> Option<NegotiationId> {
        let mut open = self.negotiations(job)?.open();
        open.find(|negotiation| negotiation.direction() == direction).map(crate::state::negotiations::Negotiation::id)
    }

    pub(crate) fn order_negotiation(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        id: NegotiationId,
        order: Order,
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.context.state(), who, job)?;
        let negotiation = self.negotiation(job, id).filter(|negotiation| !negotiation.phase().is_over());
        let direction = negotiation.ok_or(Refusal::NoSuchNegotiation { job, id })?.direction();
        match order {
            Order::Withdraw => {
                // An admin's own request is withdrawn like any other.
                let is_own = self.context.state().jobs()[&job].spec.owner.0 == who.name;
                let reason = match who.role {
                    Role::Admin if !is_own => Reason::Administrator,
                    Role::Admin | Role::User | Role::Job | Role::Agent | Role::Server => Reason::Declined,
                };
                if self.act(now, step, job, id, Action::Withdraw(reason)).is_err() {
                    return Err(wrong_state(
                        job,
                        "started",
                        "the negotiation is agreed already: it cannot be withdrawn",
                    ));
                }
            }
            Order::Force => {
                admins_only(who, "force a negotiation")?;
                match direction {
                    Direction::Shrink => self.force(now, step, job, id),
                    Direction::Grow => {
                        return Err(wrong_state(job, "started", "only a shrink can be forced"));
                    }
                }
            }
        }
        self.schedule(job);
        Ok(Answer::Done)
    }

    fn force(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        match negotiation.dialogue.nodes().cloned() {
            // The application has said which nodes it leaves, and gets no more time for it.
            Some(nodes) if !negotiation.is_handed_over => self.free(now, step, job, nodes.into_iter().collect()),
            // The nodes are being released already.
            Some(_) => {}
            // The cores are being released already.
            None if negotiation.is_handed_over => {}
            None => self.take_back(now, step, job, id, Reason::Administrator),
        }
    }

    pub(crate) fn resize_done(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        generation: u32,
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.context.state(), who, job)?;
        let started = self.negotiable(job)?;
        let Some(evolved) = started.evolved.as_ref() else { return Ok(Answer::Done) };
        // The application does not know the latest change yet: that one is still to be confirmed.
        if generation < started.generation() {
            return Ok(Answer::Done);
        }
        let departing: Vec<NodeId> = evolved.departing.keys().copied().collect();
        self.free(now, step, job, departing.clone());
        self.record_released(step, job, departing);
        Ok(Answer::Done)
    }
}

/// Refusal while the job lends or borrows CPUs.
const SHARES: &str = "it lends or borrows CPUs at present (--share), and negotiates about nothing meanwhile; 'rms \
                                 show' tells until when: ask again then, or for more with --wait";
/// A caller that does not wait is answered at once; the offer stays valid this long for that.
pub(super) const MIN_WAIT: Span = Span::from_millis(1);
