//! Tests of the server's aims in its negotiations: which applications it offers nodes, which it asks for some, and at
//! what price.

mod asking;
mod ghosts;
mod keeping;
mod launched;
mod offering;
mod paying;
mod queue;
mod requests;
mod starting;

use negotiation::{Action, Direction, NegotiationId, Reason};
use rms_api::Call;
use rms_api::answer::Answer;
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_model::{Identity, JobId, Malleable, OnResize, Role, Sizes, Span};

use super::negotiate::Scene;
use crate::Event;

/// Returns limits of a job that is told of its size, and takes any of these sizes.
fn told(least: u32, most: u32, sizes: Sizes) -> Malleable {
    Malleable { sizes, ..super::negotiate::malleable(least, most, OnResize::Workers) }
}

/// Returns limits of a job with a negotiator.
fn speaking(least: u32, most: u32, sizes: Sizes) -> Malleable {
    Malleable { sizes, ..super::negotiate::malleable(least, most, OnResize::Negotiates) }
}

fn hour() -> Span {
    Span::from_hours(1)
}

impl Scene {
    /// Creates a server that offers idle nodes and asks for missing ones, as by default.
    fn offering(n_nodes: u32) -> Scene {
        let mut scene = Scene::new(n_nodes);
        scene.set("offer_idle", "equal_share");
        scene.set("shrink_for", "queue");
        scene
    }

    /// Submits a job of this user that starts with `n_nodes` nodes, if they are free.
    fn job_of(&mut self, user: &str, n_nodes: u32, change: impl FnOnce(&mut Submission)) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(hour()) }];
        change(&mut submission);
        let ticket = self.ticket();
        let who = Identity::new(Role::Admin, user).expect("a plain name");
        self.event(Event::Called { ticket, who, call: Call::Submit(Box::new(submission)) });
        match self.answer(ticket) {
            Some(Ok(Answer::Submitted { job })) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn rigid(&mut self, n_nodes: u32, wall: Span) -> JobId {
        self.submit(n_nodes, wall, None)
    }

    fn n_held(&self, job: JobId) -> usize {
        self.held(job).len()
    }

    pub(super) fn cancel(&mut self, job: JobId) {
        self.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("it is there");
    }

    fn offer_to(&self, job: JobId) -> Option<NegotiationId> {
        self.app_hears(job, Direction::Grow)
    }

    fn wish_to(&self, job: JobId) -> Option<NegotiationId> {
        self.app_hears(job, Direction::Shrink)
    }

    /// Returns how many nodes the present proposal is about.
    fn n_proposed(&self, job: JobId, id: NegotiationId) -> u64 {
        self.app_sees(job, id).map_or(0, |template| template.n_nodes())
    }

    fn accepts(&mut self, job: JobId, id: NegotiationId) {
        self.app_acts(job, id, Action::Accept);
    }

    fn declines(&mut self, job: JobId, id: NegotiationId) {
        self.app_acts(job, id, Action::Reject(Reason::Declined));
    }
}
