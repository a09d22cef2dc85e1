//! What an external launcher has started changes its size as a submitted job does.

use std::collections::BTreeMap;

use negotiation::Direction;
use rms_api::subscription::{Launchable, LauncherCall, LauncherRequest, Subscription, Tag};
use rms_model::{ClusterId, Identity, JobId, Malleable, Request, Role, Sizes, Work};

use super::super::negotiate::nodes;
use super::{Scene, hour, speaking, told};
use crate::Event;

impl Scene {
    fn launcher(&mut self, call: LauncherCall) {
        let (ticket, who) = (self.ticket(), Identity::new(Role::User, "ann").expect("a plain name"));
        self.event(Event::LauncherCalled { ticket, who, call });
    }

    /// Starts an application that was granted `n_nodes` nodes.
    fn granted(&mut self, n_nodes: u32, malleable: Option<Malleable>) -> JobId {
        let subscription = Subscription { malleable, ..Subscription::named("app") };
        self.launcher(LauncherCall::Subscribe(Box::new(subscription)));
        let job = self.world.rms.state().jobs().keys().next_back().copied().expect("it is there");
        let request = Request { nodes: BTreeMap::from([(ClusterId(0), n_nodes)]), wall: hour() };
        self.launcher(LauncherCall::Request { job, wish: LauncherRequest::of_nodes(Tag(1), 0, request) });
        assert_eq!(self.n_held(job), n_nodes as usize);
        job
    }

    fn launch(&mut self, job: JobId, malleable: Option<Malleable>) {
        let work = Work::Tasks { argv: vec!["solve".to_owned()] };
        let launch = Box::new(Launchable { malleable, ..Launchable::of(work) });
        self.launcher(LauncherCall::Launch { job, tag: Tag(1), launch });
    }
}

#[test]
fn workers_of_a_launcher_take_what_is_idle_and_give_it_back_for_who_waits() {
    let workers = || Some(told(1, 8, Sizes::Any));
    let other = || Some(told(2, 2, Sizes::Any));
    for (subscribed, launched) in [(None, workers()), (workers(), None), (other(), workers())] {
        let mut scene = Scene::offering(8);
        let job = scene.granted(2, subscribed);
        assert_eq!(scene.n_held(job), 2, "nothing runs there yet that could use more");
        scene.launch(job, launched);
        assert_eq!(scene.n_held(job), 8);
        let waits = scene.rigid(3, hour());
        assert!(scene.is_started(waits));
        assert_eq!(scene.n_held(job), 5);
        scene.is_durable();
    }
}

#[test]
fn what_a_launcher_has_started_negotiates_by_itself() {
    let mut scene = Scene::offering(8);
    scene.set("offer_idle", "never");
    let job = scene.granted(2, None);
    scene.launch(job, Some(speaking(1, 8, Sizes::Any)));
    scene.attach(job).expect("it may");
    let item = scene.item(job, 2);
    scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.n_held(job), 4);
    scene.is_durable();
}

#[test]
fn who_uses_its_nodes_by_its_own_means_or_said_nothing_is_asked_nothing() {
    let mut scene = Scene::offering(8);
    let accepted = scene.granted(2, Some(told(1, 8, Sizes::Any)));
    scene.launcher(LauncherCall::Accept { job: accepted, tag: Tag(1) });
    let rigid = scene.granted(2, None);
    scene.launch(rigid, None);
    for job in [accepted, rigid] {
        let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
        assert!(scene.refusal(ticket).is_some(), "its launcher would not hear of it");
        assert_eq!(scene.n_held(job), 2);
    }
}
