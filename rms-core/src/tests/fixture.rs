//! What one handler works with, and nothing above it: tests of a handler call it directly.

use std::sync::Arc;

use rms_model::{
    ClusterId, Identity, Inventory, JobId, JobSpec, Labels, NodeId, NodeLink, Owner, Request, Role, Run, Span, Time,
    Work,
};

use crate::Fact;
use crate::context::{Config, Context};
use crate::effect::Effect;
use crate::jobs::Jobs;
use crate::negotiate::{Negotiations, Negotiators};
use crate::quota::SubmitRates;
use crate::state::State;
use crate::step::{Journal, Step};

pub(crate) const NOW: Time = Time::from_secs(1_000_000);

/// The contexts of all handlers, on a state that is made of facts.
pub(crate) struct Fixture {
    pub(crate) context: Context,
    pub(crate) negotiators: Negotiators,
    pub(crate) submit_rates: SubmitRates,
}

#[derive(Default)]
struct RecordingJournal(Vec<Fact>);

impl Journal for RecordingJournal {
    type Error = std::convert::Infallible;

    fn append(&mut self, facts: &[Fact]) -> Result<(), Self::Error> {
        self.0.extend_from_slice(facts);
        Ok(())
    }
}

/// Returns the facts and the effects of a step.
pub(crate) fn outcome(step: Step) -> (Vec<Fact>, Vec<Effect>) {
    let mut journal = RecordingJournal::default();
    let Ok(effects) = step.commit(&mut journal);
    (journal.0, effects)
}

pub(crate) fn user(name: &str) -> Identity {
    Identity::new(Role::User, name).expect("a plain name")
}

pub(crate) fn admin() -> Identity {
    Identity::new(Role::Admin, "root").expect("a plain name")
}

impl Fixture {
    /// Creates a fixture with `n_nodes` connected nodes `n1`, `n2`, … of the cluster `c`.
    pub(crate) fn with_nodes(n_nodes: u32) -> Fixture {
        let config = Config::default();
        let state = State::new(config.settings.clone());
        let (negotiators, submit_rates) = (Negotiators::default(), SubmitRates::default());
        let mut fixture = Fixture { context: Context::new(config, state), negotiators, submit_rates };
        let cluster = ClusterId(1);
        fixture.record(Fact::ClusterAdded { cluster, name: "c".to_owned() });
        for node in (1..=n_nodes).map(NodeId) {
            let (name, address, inventory) = (format!("n{}", node.0), "127.0.0.1:1".to_owned(), Inventory::default());
            fixture.record(Fact::NodeJoined { node, cluster, name, inventory, address, at: NOW });
            fixture.record(Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: NOW } });
        }
        fixture.context.passes.wanted = false;
        fixture
    }

    pub(crate) fn record(&mut self, fact: Fact) {
        let mut step = Step::default();
        self.context.record(&mut step, fact);
        drop(outcome(step));
    }

    pub(crate) fn state(&self) -> &State {
        self.context.state()
    }

    /// Adds a job of `owner` that waits for `n_nodes` nodes.
    pub(crate) fn waiting(&mut self, owner: &str, n_nodes: u32, change: impl FnOnce(&mut JobSpec)) -> JobId {
        let job = self.state().last_job.next();
        let work = Work::Tasks { argv: vec!["true".to_owned()] };
        let options = vec![Request::on_one(ClusterId(1), n_nodes, Span::from_hours(1))];
        let mut spec = JobSpec { labels: Labels::named("j"), ..JobSpec::of(Owner(owner.to_owned()), work, options) };
        change(&mut spec);
        self.record(Fact::JobSubmitted { job, at: NOW, spec: Arc::new(spec), held: false });
        self.record(Fact::RequestSent { job, at: NOW });
        job
    }

    /// Starts a waiting job on these nodes.
    pub(crate) fn start(&mut self, job: JobId, nodes: &[NodeId]) -> Run {
        let run = self.order(job, nodes);
        for node in nodes {
            self.record(Fact::ShareRunning { job, node: *node, since: NOW });
        }
        run
    }

    /// Starts a job that no node has reported running.
    pub(crate) fn order(&mut self, job: JobId, nodes: &[NodeId]) -> Run {
        let entry = &self.state().jobs()[&job];
        let (run, request) = (entry.run.next(), entry.spec.options[0].clone());
        self.record(Fact::JobStarted { job, run, at: NOW, request, nodes: nodes.to_vec(), grants: Default::default() });
        run
    }

    pub(crate) fn jobs(&mut self) -> Jobs<'_> {
        Jobs { context: &mut self.context, negotiators: &mut self.negotiators }
    }

    pub(crate) fn negotiations(&mut self) -> Negotiations<'_> {
        Negotiations { context: &mut self.context, negotiators: &mut self.negotiators }
    }
}
