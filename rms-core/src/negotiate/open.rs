//! Negotiations that the server opens: it offers hosts that are idle, or asks for some back.

use std::collections::BTreeSet;

use negotiation::dialogues::OpenError;
use negotiation::{
    Action, Direction, Item, ItemStatus, NegotiationId, Price, Quantity, Reason, Resource, SetRule, Terms,
};
use rms_api::refusal::Refusal;
use rms_model::{ClusterId, JobId, NodeId, Sizes, Time};

use super::Negotiations;
use super::dialogues::negotiates_itself;
use crate::plan;
use crate::step::Step;

/// What an application is asked to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// So many hosts, and no fewer than the second number.
    Count(u32, u32),
    /// These hosts; fewer of them are better than none.
    These(BTreeSet<NodeId>),
}

impl Negotiations<'_> {
    /// Asks a running application to give hosts of a cluster back, to be done by `deadline`.
    ///
    /// # Errors
    /// It cannot be asked: it does not run, does not negotiate, nobody listens, or it is being asked already.
    pub(crate) fn open_shrink(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, cluster): (JobId, ClusterId),
        wanted: &Wanted,
        deadline: Option<Time>,
    ) -> Result<NegotiationId, Refusal> {
        self.callable(job, Direction::Shrink)?;
        let (held, spare) = (u64::from(self.n_hosts_on(job, cluster)), u64::from(self.n_spare_on(job, cluster)));
        let (quantity, least, hosts) = match wanted {
            Wanted::Count(quantity, least) => (u64::from(*quantity), u64::from(*least), BTreeSet::new()),
            Wanted::These(hosts) => (hosts.len() as u64, 1, hosts.clone()),
        };
        let can_leave = |node: &NodeId| self.cluster_of(*node) == Some(cluster) && self.can_leave(job, *node);
        if !hosts.iter().all(can_leave) || quantity > spare {
            return Err(Refusal::Template(negotiation::TemplateError::MoreThanHeld {
                item: 0,
                asked: Quantity(quantity),
                held: Quantity(spare),
            }));
        }
        let terms = Terms {
            least: Quantity(least.max(1).min(quantity)),
            most: Quantity(quantity),
            sizes: Sizes::Any,
            deadline,
            ..Terms::exactly(Quantity(quantity))
        };
        let (resource, quantity, held) = (Resource::Hosts(cluster), Quantity(quantity), Quantity(held));
        let item = Item { set: 0, resource, quantity, held, hosts, terms, status: ItemStatus::Proposed };
        let id = self.open(now, step, job, Direction::Shrink, item)?;
        self.progress(now, step, job, id);
        self.schedule(job);
        Ok(id)
    }

    /// Offers a running application so many hosts of a cluster more, at a price; they are kept for it until it has
    /// answered.
    ///
    /// # Errors
    /// As [`Negotiations::open_shrink`], or there are not so many free hosts that it may use.
    pub(crate) fn open_growth_offer(
        &mut self,
        now: Time,
        step: &mut Step,
        (job, cluster): (JobId, ClusterId),
        n_hosts: u32,
        price: Price,
    ) -> Result<NegotiationId, Refusal> {
        self.callable(job, Direction::Grow)?;
        let held = u64::from(self.n_hosts_on(job, cluster));
        let hosts = plan::free_for(self.context.state(), job, cluster, n_hosts as usize);
        if hosts.len() < n_hosts as usize {
            let possible = format!("{} are free for it", hosts.len());
            return Err(Refusal::TooManyNodes { wanted: n_hosts, constraint: String::new(), possible });
        }
        let terms = Terms { price, ..Terms::up_to(Quantity(u64::from(n_hosts))) };
        let (resource, quantity, held) = (Resource::Hosts(cluster), Quantity(u64::from(n_hosts)), Quantity(held));
        let (hosts_named, status) = (BTreeSet::new(), ItemStatus::Proposed);
        let item = Item { set: 0, resource, quantity, held, hosts: hosts_named, terms, status };
        let id = self.open(now, step, job, Direction::Grow, item)?;
        self.keep(step, job, id, hosts);
        self.progress(now, step, job, id);
        self.schedule(job);
        Ok(id)
    }

    /// Does the application hear what the server opens?
    fn callable(&self, job: JobId, direction: Direction) -> Result<(), Refusal> {
        self.negotiable(job)?;
        if !self.is_heard(job) {
            return Err(Refusal::NotNegotiable(job));
        }
        if let Some(id) = self.open_for(job, direction) {
            return Err(Refusal::AlreadyNegotiating { job, id });
        }
        Ok(())
    }

    /// Does anybody hear for an application what the server says? The server itself does, if that is told of its size.
    pub(super) fn is_heard(&self, job: JobId) -> bool {
        !negotiates_itself(&self.context.state().jobs()[&job]) || self.negotiators.attached.contains_key(&job)
    }

    /// Does a process of the application answer for it, so that it can agree to a price?
    pub(super) fn bargains(&self, job: JobId) -> bool {
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
        self.note_talk(now, step, job, id, None);
        self.say(step, job, output);
        Ok(id)
    }

    /// Takes back what the server said, or leaves the talk; what is agreed already stays.
    pub(super) fn withdraw(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, reason: Reason) {
        // One that is agreed cannot be withdrawn, and goes on.
        let _ = self.act(now, step, job, id, Action::Withdraw(reason));
    }
}
