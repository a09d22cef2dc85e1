//! Chooses which applications are asked to give nodes back, for waiting jobs and for growth that waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Direction, Item, NegotiationId, Phase, Quantity, Reason, Resource, SetRule, Side};
use rms_model::{ClusterId, JobId, JobSpec, NodeAdmin, NodeId, Policy, Request, ShrinkRule, Span, Time};

use super::Negotiations;
use super::answer::Granted;
use super::open::Resizable;
use super::open::ShrinkRequest;
use super::policy::{Candidate, Change, Occasion, most_shrinks, nodes_to_leave, shrinks};
use crate::plan::slowdown::Fraction;
use crate::plan::{self, Gain, Loss, Placed, Plan};
use crate::state::negotiations::{Negotiation, promise_end};
use crate::state::sharing::millis;
use crate::state::{State, constraint_of};
use crate::step::Step;

/// What a job lacks on one cluster to start now in one of its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortfall {
    cluster: ClusterId,
    /// Nodes that are neither free nor on their way.
    nodes: u32,
    /// Nodes that are on their way.
    coming: u32,
    /// The wall time of this size.
    wall: Span,
}

/// What must be reclaimed for a waiting job: unanswered offers to withdraw, and nodes to ask for.
struct Reclaim {
    withdrawn: Vec<(JobId, NegotiationId, usize)>,
    asked: Vec<Change>,
}

/// The nodes to ask for so that a growth can be granted, and its effect on the plan.
#[derive(Debug, Default)]
struct GrowthPlan {
    asked: Vec<(ClusterId, Change)>,
    losses: Vec<Loss>,
    gains: Vec<Gain>,
    /// Where nodes are asked for or on their way. A growth for which enough nodes are free waits for something else,
    /// such as a job that it would delay.
    gathering: BTreeSet<ClusterId>,
}

/// What waiting growth may count on, besides the free nodes of a cluster.
struct Supply {
    donors: Vec<Resizable>,
    n_coming: u64,
}

/// Supplies of the clusters that were examined since the last ask.
type Supplies = BTreeMap<ClusterId, Supply>;

impl Negotiations<'_> {
    /// Asks for nodes, after a pass, where that lets the first waiting job of a cluster start. Returns the clusters where
    /// nodes are gathered for it, which must not be given away before it has them.
    pub(super) fn make_room(&mut self, now: Time, step: &mut Step) -> BTreeSet<ClusterId> {
        let mut gathering = BTreeSet::new();
        for (job, shortfalls) in self.first_shortfalls(now) {
            gathering.extend(shortfalls.iter().filter(|lacks| lacks.coming > 0).map(|lacks| lacks.cluster));
            // The least change that lets it start; the nodes that are on their way may be enough.
            let is_enough = |lacks: &Shortfall| lacks.nodes == 0 || self.ask_for(now, step, job, *lacks);
            // It waits for something else, such as a licence, where no nodes are missing and none are on their way.
            let enough = shortfalls.into_iter().find(is_enough).filter(|lacks| lacks.nodes > 0);
            gathering.extend(enough.map(|lacks| lacks.cluster));
        }
        gathering
    }

    /// Returns the first waiting jobs, each of other clusters than those before it, and the shortfall of each for its
    /// sizes, the least first: none if its nodes will be free as soon as an answer could come. Empty also where no job is
    /// asked to shrink.
    fn first_shortfalls(&mut self, now: Time) -> Vec<(JobId, Vec<Shortfall>)> {
        let state = self.context.state();
        if state.settings().shrink_for == ShrinkRule::Never || state.n_queued() == 0 {
            return Vec::new();
        }
        let plan = self.context.estimates(now);
        let state = self.context.state();
        let soon = now + state.settings().offer_valid;
        first_waiting(state, &plan)
            .into_iter()
            .map(|(job, estimate)| {
                let spec = &state.jobs()[&job].spec;
                let sizes = spec.options.iter().filter(|_| estimate > soon);
                let mut shortfalls: Vec<Shortfall> =
                    sizes.filter_map(|request| self.shortfall(&plan, spec, request)).collect();
                shortfalls.sort_by_key(|shortfall| (shortfall.nodes, shortfall.cluster));
                (job, shortfalls)
            })
            .collect()
    }

    /// Returns, before a pass that may start the first waiting job on lent cores (004), what it would add to the
    /// slowdowns of the jobs that would give nodes back for it instead; zero if nodes are on their way already.
    pub(crate) fn cost_by_nodes(&mut self, now: Time) -> Option<(JobId, Fraction)> {
        let state = self.context.state();
        let is_asked = self.has_resizable() && state.longest_expected().is_none();
        if state.settings().policy != Policy::Slowdown || !is_asked {
            return None;
        }
        let (head, shortfalls) = self.first_shortfalls(now).into_iter().next()?;
        let cost = |shortfall: Shortfall| match shortfall.nodes {
            // The job waits for something else if no nodes are on their way.
            0 => (shortfall.coming > 0).then_some(Fraction::ZERO),
            _ => self.reclaim_for(now, head, shortfall)?.asked.iter().try_fold(Fraction::ZERO, |sum, change| {
                let started = self.context.state().jobs()[&change.job].started()?;
                // The work that it cannot do meanwhile prolongs it afterwards.
                let lost = millis(shortfall.wall).saturating_mul(change.nodes.into());
                let whole = millis(started.requested()).saturating_mul(started.nodes.len() as u64);
                sum.plus(Fraction::new(lost.into(), whole.into())?)
            }),
        };
        Some((head, shortfalls.into_iter().find_map(cost)?))
    }

    /// Returns a job's shortfall for one of its sizes; `None` for sizes on several clusters, and where running
    /// applications will need the nodes later.
    fn shortfall(&self, plan: &Plan, spec: &JobSpec, request: &Request) -> Option<Shortfall> {
        let [(cluster, wanted)] = request.nodes.iter().collect::<Vec<_>>()[..] else { return None };
        let now = plan.now;
        if let Some(busy) = plan.base.get(cluster) {
            let is_needed_later = busy.max(now, now + request.wall) > busy.at(now);
            let is_too_large = *wanted > self.context.state().n_usable(*cluster);
            if is_needed_later || is_too_large {
                return None;
            }
        }
        let constraint = constraint_of(spec, request);
        let is_right = |node: &NodeId| self.context.state().nodes()[node].meets(&constraint);
        let n_free = match self.context.state().shared().get(*cluster) {
            Some(shared) => shared.with_room(spec, request).filter(is_right).count() as u32,
            None => self.context.state().free(*cluster).filter(is_right).count() as u32,
        };
        let coming = self.coming(*cluster).filter(is_right).count() as u32 + self.n_asked(*cluster);
        let nodes = wanted.saturating_sub(n_free).saturating_sub(coming);
        Some(Shortfall { cluster: *cluster, nodes, coming, wall: request.wall })
    }

    /// Returns the nodes that applications are leaving, or have just left.
    pub(super) fn coming(&self, cluster: ClusterId) -> impl Iterator<Item = NodeId> + '_ {
        let leaving = self.context.state().negotiating().flat_map(|(_, entry)| entry.leaving());
        let ghosts = self.context.state().node_ghosts().map(|(_, node)| node);
        leaving.chain(ghosts).filter(move |node| self.cluster_of(*node) == Some(cluster))
    }

    /// Returns the loss if an application gave `nodes` nodes of a cluster back: its last ones go.
    pub(super) fn loss(&self, job: JobId, cluster: ClusterId, nodes: u32) -> Option<Loss> {
        let others = self.others_on(job, cluster).rev().filter(|node| self.can_leave(job, *node));
        let nodes = others.take(nodes as usize).collect();
        Some(Loss { job, nodes, until: self.end_of(job)? })
    }

    fn end_of(&self, job: JobId) -> Option<Time> {
        self.context.state().jobs()[&job].started().map(|started| started.at + started.request.wall)
    }

    /// Returns the losses of nodes that the server has asked for and that no application has begun to leave.
    fn asked_losses(&self, cluster: ClusterId) -> Vec<Loss> {
        let asked = self.asked(cluster).filter_map(|(job, nodes)| {
            let loss = self.loss(job, cluster, nodes)?;
            // An agreed shrink is planned from the latest time by which the nodes are given.
            let agreed =
                self.context.state().jobs()[&job].agreed_to_leave().filter(|(_, nodes)| nodes.contains_key(&cluster));
            let until =
                agreed.map_or(loss.until, |(at, _)| loss.until.min(promise_end(self.context.state().settings(), at)));
            Some(Loss { until, ..loss })
        });
        asked.collect()
    }

    /// Returns how many nodes the server has asked for that no application has begun to leave.
    fn n_asked(&self, cluster: ClusterId) -> u32 {
        self.asked(cluster).map(|(_, nodes)| nodes).sum()
    }

    fn asked(&self, cluster: ClusterId) -> impl Iterator<Item = (JobId, u32)> + '_ {
        self.context.state().malleable().flat_map(move |job| {
            let all = self.open_negotiations_of(job);
            let all =
                all.filter(|negotiation| negotiation.direction() == Direction::Shrink && !negotiation.is_handed_over);
            let asked = all.filter_map(move |negotiation| negotiation.not_lost().remove(&cluster));
            asked.map(move |nodes| (job, u32::try_from(nodes).unwrap_or(u32::MAX)))
        })
    }

    /// Withdraws unanswered offers where the setting allows it, or asks for nodes. Returns false if there are not
    /// enough.
    fn ask_for(&mut self, now: Time, step: &mut Step, head: JobId, shortfall: Shortfall) -> bool {
        let Some(Reclaim { withdrawn, asked }) = self.reclaim_for(now, head, shortfall) else { return false };
        for (job, id, _) in withdrawn {
            self.withdraw(now, step, job, id, Reason::Recalled);
            // The application has declined nothing.
            self.negotiators.refusals.note(job, Direction::Grow, 0, now);
        }
        for Change { job, nodes } in asked {
            self.ask_for_all(now, step, (job, shortfall.cluster), nodes);
        }
        true
    }

    /// Decides what to reclaim for a waiting job. Offers that cannot be withdrawn stay until they are answered or
    /// lapse, which is soon, so no job is asked for as many nodes meanwhile. `None` if there is not enough.
    fn reclaim_for(&self, now: Time, head: JobId, shortfall: Shortfall) -> Option<Reclaim> {
        let state = self.context.state();
        let offered = self.unanswered_offers(shortfall.cluster);
        let n_offered: usize = offered.iter().map(|(_, _, nodes)| nodes).sum();
        let victims = self.resizable(now, shortfall.cluster, Direction::Shrink);
        let occasion = Occasion::Waiting { priority: state.jobs()[&head].spec.priority };
        let candidates: Vec<Candidate<'_>> = victims.iter().map(Resizable::as_candidate).collect();
        let missing = shortfall.nodes.saturating_sub(n_offered as u32);
        let asked = shrinks(missing, occasion, &candidates, state.settings().shrink_for)?;
        let recall = state.settings().offer_recall;
        let may_recall = |job: &JobId| occasion.may_disturb(recall, state.jobs()[job].spec.priority);
        let mut n_back = 0;
        let withdrawn = offered
            .iter()
            .filter(|(job, ..)| may_recall(job))
            .take_while(|(_, _, nodes)| {
                let is_short = n_back < shortfall.nodes as usize;
                n_back += nodes;
                is_short
            })
            .copied()
            .collect();
        let mut losses: Vec<Loss> = self.asked_losses(shortfall.cluster);
        losses.extend(offered.iter().filter_map(|(job, id, _)| {
            let nodes = self.negotiation(*job, *id)?.held.iter().copied().collect();
            Some(Loss { job: *job, nodes, until: self.end_of(*job)? })
        }));
        losses.extend(asked.iter().filter_map(|change| self.loss(change.job, shortfall.cluster, change.nodes)));
        // The job may wait for more than nodes.
        plan::starts_after(state, now, head, &losses).then_some(Reclaim { withdrawn, asked })
    }

    /// Asks for exactly `nodes` nodes: fewer would be given in vain.
    pub(super) fn ask_for_all(&mut self, now: Time, step: &mut Step, whom: (JobId, ClusterId), nodes: u32) {
        if self.open_shrink(now, step, whom, &ShrinkRequest::Count(nodes, nodes), None).is_err() {
            let until = self.retry_time(now);
            self.negotiators.refusals.note(whom.0, Direction::Shrink, nodes, until);
        }
    }

    /// Returns how many nodes are on their way or have been asked for.
    pub(super) fn n_coming(&self, cluster: ClusterId) -> u64 {
        self.coming(cluster).count() as u64 + u64::from(self.n_asked(cluster))
    }

    /// Returns the server's own unanswered offers on a cluster, the latest first, and their numbers of nodes.
    fn unanswered_offers(&self, cluster: ClusterId) -> Vec<(JobId, NegotiationId, usize)> {
        // An offer of the server is about one cluster.
        let is_here = |negotiation: &Negotiation| {
            negotiation.dialogue.proposal().is_some_and(|proposal| proposal.nodes_by_cluster().contains_key(&cluster))
        };
        let mut offers: Vec<_> = self
            .context
            .state()
            .malleable()
            .flat_map(|job| self.open_negotiations_of(job).map(move |negotiation| (job, negotiation)))
            .filter(|(_, negotiation)| {
                negotiation.phase() == Phase::Offered(Side::Rms) && negotiation.direction() == Direction::Grow
            })
            .filter(|(_, negotiation)| is_here(negotiation))
            .collect();
        offers.sort_by_key(|(job, negotiation)| std::cmp::Reverse((negotiation.opened, *job)));
        offers.into_iter().map(|(job, negotiation)| (job, negotiation.id(), negotiation.held.len())).collect()
    }

    fn open_negotiations_of(&self, job: JobId) -> impl Iterator<Item = &Negotiation> {
        self.negotiations(job).into_iter().flat_map(|negotiations| negotiations.open())
    }

    /// Asks applications to leave drained nodes.
    pub(super) fn clear_drained(&mut self, now: Time, step: &mut Step) {
        let drained: BTreeSet<NodeId> = self.drained().collect();
        if drained.is_empty() {
            return;
        }
        for cluster in self.context.state().clusters().keys().copied().collect::<Vec<_>>() {
            for holder in self.resizable(now, cluster, Direction::Shrink) {
                let candidate = holder.as_candidate();
                let others: Vec<NodeId> =
                    self.others_on(holder.job, cluster).filter(|node| self.can_leave(holder.job, *node)).collect();
                let held = self.n_nodes(holder.job);
                let leaving = nodes_to_leave(held, &others, &drained, candidate.declared);
                let was_declined = candidate.declined > 0 && leaving.len() >= candidate.declined as usize;
                if candidate.is_negotiating || leaving.is_empty() || was_declined {
                    continue;
                }
                let n_leaving = leaving.len() as u32;
                let wanted = ShrinkRequest::Named(leaving.into_iter().collect());
                if self.open_shrink(now, step, (holder.job, cluster), &wanted, None).is_err() {
                    let until = self.retry_time(now);
                    self.negotiators.refusals.note(holder.job, Direction::Shrink, n_leaving, until);
                }
            }
        }
    }

    /// Returns the nodes on which no new job starts but running jobs may finish.
    fn drained(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.context.state().nodes().iter().filter_map(|(node, entry)| match entry.admin {
            NodeAdmin::Drain { .. } => Some(*node),
            NodeAdmin::Enabled | NodeAdmin::Down { .. } => None,
        })
    }

    /// Asks other applications, after a pass, for nodes for waiting growth, the most urgent first. Adds the clusters
    /// where nodes are gathered for it, which must not be given away before; where nodes are gathered for a queued job,
    /// that job is first.
    pub(super) fn make_room_for_growth(&mut self, now: Time, step: &mut Step, gathering: &mut BTreeSet<ClusterId>) {
        let rule = self.context.state().settings().shrink_for;
        if rule == ShrinkRule::Never {
            return;
        }
        let mut supplies = Supplies::new();
        for (_, job, id) in self.waiting_growth() {
            let Some(growth) = self.plan_growth(now, job, id, rule, gathering, &mut supplies) else { continue };
            if !growth.asked.is_empty() && !self.is_worth_it(now, &growth) {
                continue;
            }
            gathering.extend(growth.gathering);
            if !growth.asked.is_empty() {
                supplies.clear();
            }
            for (cluster, Change { job, nodes }) in growth.asked {
                self.ask_for_all(now, step, (job, cluster), nodes);
            }
        }
    }

    /// Returns the growth that waits for nodes, in the order in which it is served.
    pub(super) fn waiting_growth(&self) -> Vec<(Time, JobId, NegotiationId)> {
        let mut waiting: Vec<(Time, JobId, NegotiationId)> = self.negotiators.waiting.iter().copied().collect();
        waiting.sort_by_key(|(opened, job, _)| (Reverse(self.priority(*job)), *opened));
        waiting
    }

    fn priority(&self, job: JobId) -> i32 {
        self.context.state().jobs().get(&job).map_or(0, |entry| entry.spec.priority)
    }

    /// Plans which jobs give which nodes so that a proposal to grow can be met; `None` if it cannot be, or is not about
    /// nodes alone.
    fn plan_growth(
        &self,
        now: Time,
        job: JobId,
        id: NegotiationId,
        rule: ShrinkRule,
        gathering: &BTreeSet<ClusterId>,
        supplies: &mut Supplies,
    ) -> Option<GrowthPlan> {
        // A job that shares CPUs cannot grow now.
        let proposal = self.negotiation(job, id).filter(|_| !self.is_sharing(job))?.dialogue.proposal()?;
        let mut growth = GrowthPlan::default();
        for (set, set_rule) in proposal.rules().iter().enumerate() {
            let live = proposal.items().iter().filter(|item| usize::from(item.set) == set && item.is_live());
            let mut n_met = 0;
            for item in live {
                let is_enough = n_met > 0 && *set_rule != SetRule::All;
                if is_enough {
                    break;
                }
                let is_met = self.plan_item(now, (job, id), item, (rule, gathering), supplies, &mut growth);
                if !is_met && *set_rule == SetRule::All {
                    return None;
                }
                n_met += u32::from(is_met);
            }
            if n_met == 0 {
                return None;
            }
        }
        Some(growth)
    }

    /// Plans one item: as much of it as free nodes, nodes on their way and other applications allow.
    fn plan_item(
        &self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        item: &Item,
        (rule, gathering): (ShrinkRule, &BTreeSet<ClusterId>),
        supplies: &mut Supplies,
        growth: &mut GrowthPlan,
    ) -> bool {
        let Resource::Nodes(cluster) = item.resource else { return false };
        // A growth that names its nodes waits until they are free.
        if !item.nodes.is_empty() || gathering.contains(&cluster) {
            return false;
        }
        let supply = supplies.entry(cluster).or_insert_with(|| Supply {
            donors: self.resizable(now, cluster, Direction::Shrink),
            n_coming: self.n_coming(cluster),
        });
        let (payable, _) = self.most_more_nodes(now, job, id, (cluster, item), &Granted::default());
        let n_free = self.grantable(job, id, cluster, item.quantity.0 as usize).len() as u64;
        let n_here = n_free + supply.n_coming;
        let others: Vec<Candidate<'_>> =
            supply.donors.iter().filter(|donor| donor.job != job).map(Resizable::as_candidate).collect();
        let occasion = Occasion::Waiting { priority: self.priority(job) };
        let most = n_here + most_shrinks(occasion, &others, rule);
        let bound = item.quantity.0.min(payable).min(most);
        let Some(Quantity(quantity)) = item.greatest(Direction::Grow, Quantity(bound)) else { return false };
        let missing = u32::try_from(quantity.saturating_sub(n_here)).unwrap_or(u32::MAX);
        let Some(asked) = shrinks(missing, occasion, &others, rule) else { return false };
        let nodes = u32::try_from(quantity).unwrap_or(u32::MAX);
        growth.gains.push(Gain { job, cluster, nodes });
        growth.gathering.extend((quantity > n_free).then_some(cluster));
        growth.losses.extend(asked.iter().filter_map(|change| self.loss(change.job, cluster, change.nodes)));
        growth.asked.extend(asked.into_iter().map(|change| (cluster, change)));
        true
    }

    /// Returns whether the shrinks would serve the growth: the nodes must not go to a queued job, and the growth must
    /// not delay one beyond the tolerance.
    fn is_worth_it(&self, now: Time, growth: &GrowthPlan) -> bool {
        let Some(free) = plan::plan_after(self.context.state(), now, &growth.losses, &[]) else { return false };
        let goes_to_queue = free.placements.iter().any(|placement| matches!(placement.outcome, Placed::Now { .. }));
        let grown = plan::plan_after(self.context.state(), now, &growth.losses, &growth.gains);
        let undelayed = &self.negotiators.undelayed;
        !goes_to_queue && grown.is_some_and(|grown| !undelayed.would_exceed(&free, &grown, self.delay_tolerance()))
    }
}

/// Returns the jobs that have to wait for nodes that exist and for whose clusters no job before them waits, with their
/// estimated starts.
fn first_waiting(state: &State, plan: &Plan) -> Vec<(JobId, Time)> {
    let n_clusters = state.clusters().len();
    let (mut first, mut wanted) = (Vec::new(), BTreeSet::<ClusterId>::new());
    for placement in &plan.placements {
        if wanted.len() == n_clusters {
            break;
        }
        let Placed::Later { at, .. } = &placement.outcome else { continue };
        let clusters = || state.jobs()[&placement.job].spec.options.iter().flat_map(|size| size.nodes.keys());
        if clusters().all(|cluster| !wanted.contains(cluster)) {
            first.push((placement.job, *at));
        }
        wanted.extend(clusters());
    }
    first
}
