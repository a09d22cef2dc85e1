//! Prices that are negotiated, and budgets that run out.

use negotiation::{Action, Direction, Item, Phase, Price, Quantity, Reason, Resource, SetRule, Template, Terms};
use rms_api::Call;
use rms_api::answer::Answer;
use rms_api::call::Select;
use rms_api::call::update::{Changes, WallChange};
use rms_api::negotiate::{Ask, AskOutcome, Asked, BudgetLine, BudgetShortage, Said};
use rms_model::{Identity, JobId, Role, Sizes, Span};

use super::{Scene, hour, speaking, told};
use crate::negotiate;
use crate::tests::negotiate::nodes;

impl Scene {
    fn paying_job(&mut self, n_nodes: u32) -> JobId {
        let job = self.job_of("ada", n_nodes, |submission| {
            submission.malleable = Some(speaking(1, 16, Sizes::Any));
        });
        self.attach(job).expect("it may");
        self.after(Span::from_secs(1));
        job
    }

    fn price(&self, job: JobId, id: negotiation::NegotiationId) -> u64 {
        let template = self.app_sees(job, id).expect("something stands");
        template.items()[0].terms.price.0
    }

    fn bids(&mut self, job: JobId, id: negotiation::NegotiationId, price: u64) {
        let template = self.app_sees(job, id).expect("something stands");
        let bid = at(&template, price);
        self.app_acts(job, id, Action::Propose { template: bid, valid_for: Span::from_mins(1) });
    }

    fn spent(&self, user: &str) -> u64 {
        negotiate::balance(self.world.rms.state(), self.world.now, user, None).spent
    }

    fn reserved(&self, user: &str) -> u64 {
        negotiate::balance(self.world.rms.state(), self.world.now, user, None).reserved
    }
}

fn at(template: &Template, price: u64) -> Template {
    let items = template.items().iter().map(|item| {
        let mut item: Item = item.clone();
        item.terms.price = Price(price);
        item
    });
    template.with_items(items.collect()).expect("a right template")
}

/// 002 (e): a priced offer is countered at a lower price, and accepted, rejected or countered again by policy.
#[test]
fn a_price_is_bargained_about_down_to_the_floor() {
    let mut scene = Scene::offering(8);
    scene.set("price@c", "1000");
    scene.set("price_floor", "50");
    let job = scene.paying_job(4);
    let offer = scene.offer_to(job).expect("four are idle");
    assert_eq!((scene.n_proposed(job, offer), scene.price(job, offer)), (4, 1000));
    let mut asked = 1000;
    for bid in [100, 200, 300] {
        scene.bids(job, offer, bid);
        assert_eq!(scene.app_phase(job, offer), Phase::Countered(negotiation::Side::Rms));
        let now = scene.price(job, offer);
        assert!(now < asked && now >= 500, "{now} after {asked}");
        asked = now;
    }
    scene.bids(job, offer, asked);
    assert_eq!(scene.n_held(job), 8, "it has bid what was asked");
    scene.is_durable();
}

#[test]
fn users_see_what_they_have_paid_and_admins_what_all_have() {
    let mut scene = Scene::offering(8);
    scene.set("price@c", "1000");
    scene.set("budget@ada", "900000");
    scene.set("budget@bob", "7");
    let job = scene.paying_job(4);
    let offer = scene.offer_to(job).expect("four are idle");
    scene.app_acts(job, offer, Action::Accept);
    assert_eq!(scene.n_held(job), 8);
    scene.after(Span::from_mins(30));
    let seen = |scene: &Scene, role, name: &str| {
        negotiate::budgets(scene.world.rms.state(), scene.world.now, &Identity { role, name: name.to_owned() })
    };
    let (spent, reserved) = (scene.spent("ada"), scene.reserved("ada"));
    assert!((1_990..=2_010).contains(&spent) && reserved > 0, "four nodes for half an hour cost {spent}");
    let of_ada = BudgetLine { user: "ada".to_owned(), budget: Some(900_000), spent, reserved };
    let of_bob = BudgetLine { user: "bob".to_owned(), budget: Some(7), spent: 0, reserved: 0 };
    assert_eq!(seen(&scene, Role::Admin, "root"), [of_ada.clone(), of_bob.clone()]);
    assert_eq!(seen(&scene, Role::User, "ada"), [of_ada]);
    assert_eq!(seen(&scene, Role::User, "bob"), [of_bob]);
    let nobody = BudgetLine { user: "eve".to_owned(), budget: None, spent: 0, reserved: 0 };
    assert_eq!(seen(&scene, Role::User, "eve"), [nobody]);
}

#[test]
fn who_never_bids_the_floor_gets_nothing_and_the_talk_ends() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    scene.set("price_floor", "80");
    let job = scene.paying_job(4);
    let offer = scene.offer_to(job).expect("four are idle");
    let mut n_bids = 0;
    while !scene.app_phase(job, offer).is_over() {
        scene.bids(job, offer, 799);
        n_bids += 1;
        assert!(n_bids < 100, "the rounds are bounded");
    }
    let line = scene.lines(job).pop().expect("it is remembered");
    assert_eq!(scene.n_held(job), 4);
    assert!(matches!(line.phase, Phase::Ended(_)), "{:?}", line.phase);
}

#[test]
fn an_application_that_asks_pays_what_it_bids_if_that_is_the_price() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    scene.set("offer_idle", "never");
    let job = scene.paying_job(4);
    let mut item = scene.item(job, 2);
    item.terms.price = Price(400);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.price(job, id), 1000, "too little is countered");
    scene.accepts(job, id);
    assert_eq!((scene.n_held(job), scene.app_phase(job, id)), (6, Phase::Applied));
    scene.after(Span::from_mins(30));
    assert_eq!(scene.spent("ada"), 1000, "two nodes for half an hour");
}

#[test]
fn what_is_agreed_is_set_aside_and_what_is_not_used_comes_back() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    scene.set("offer_idle", "never");
    let job = scene.paying_job(4);
    let mut item = scene.item(job, 4);
    item.terms.price = Price(1000);
    scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.n_held(job), 8);
    assert_eq!((scene.spent("ada"), scene.reserved("ada")), (0, 4 * 3599 * 1000 / 3600 + 1));
    scene.after(Span::from_mins(6));
    let item = scene.item(job, 3);
    let back = scene.app_opens(job, Direction::Shrink, item);
    let nodes = scene.held(job)[5..].iter().copied().map(rms_model::NodeId).collect();
    scene.app_acts(job, back, Action::Commit(nodes));
    assert_eq!(scene.n_held(job), 5);
    assert_eq!(scene.spent("ada"), 400, "four nodes for six minutes");
    scene.after(Span::from_mins(6));
    assert_eq!(scene.spent("ada"), 500, "and one for six more");
    scene.cancel(job);
    scene.after(Span::from_mins(6));
    assert_eq!((scene.spent("ada"), scene.reserved("ada")), (500, 0));
    scene.is_durable();
}

#[test]
fn a_budget_that_is_exhausted_ends_growth() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    // Two and a half node-hours.
    scene.set("budget@ada", "2500");
    let job = scene.paying_job(4);
    let offer = scene.offer_to(job).expect("four are idle");
    assert_eq!(scene.n_proposed(job, offer), 2, "more cannot be paid until its end");
    scene.accepts(job, offer);
    assert_eq!((scene.n_held(job), scene.offer_to(job)), (6, None));
    let mut item = scene.item(job, 2);
    item.terms.price = Price(1000);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Ended(negotiation::Ending::Rejected));
    let line = scene.lines(job).pop().expect("it is remembered");
    let last = line.record.rounds.last().map(|round| round.said.clone());
    assert!(matches!(last, Some(Said::Phase { reason: Some(Reason::Price), .. })), "{last:?}");
    scene.set("budget@ada", "none");
    scene.after(Span::from_secs(1));
    let offer = scene.offer_to(job).expect("it may be afforded now");
    scene.declines(job, offer);
    assert_eq!(scene.n_held(job), 6);
}

#[test]
fn where_nobody_can_agree_to_a_price_nothing_is_offered_at_one() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1");
    let job = scene.submit(4, hour(), Some(told(1, 8, Sizes::Any)));
    scene.after(Span::from_secs(1));
    assert_eq!(scene.n_held(job), 4);
    scene.set("price@c", "0");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.n_held(job), 8);
}

#[test]
fn a_rigid_job_for_which_somebody_asks_pays_and_is_limited_like_any_other() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    scene.set("growth_limit@ada", "3");
    let job = scene.job_of("ada", 2, |_| {});
    scene.after(Span::from_secs(1));
    let ask = |quantity| Ask { price: Price(1000), ..nodes(Direction::Grow, quantity, 1) };
    let ticket = scene.ask(job, ask(2));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    scene.after(Span::from_mins(30));
    assert_eq!(scene.spent("ada"), 1000);
    let ticket = scene.ask(job, ask(4));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })), "three are the limit");
    scene.set("budget@ada", "2000");
    scene.set("growth_limit@ada", "none");
    let ticket = scene.ask(job, ask(1));
    let refused = AskOutcome::Failed {
        negotiation: scene.lines(job).last().expect("it is there").record.id,
        reason: Reason::Price,
        free: None,
        short: Some(BudgetShortage { needed: 500, left: 0 }),
    };
    assert_eq!(scene.outcome(ticket), Some(refused));
}

/// A job of ada's with two nodes for a minute, at one thousandth a second for each gained node, and a budget of 120.
fn thrifty(scene: &mut Scene) -> JobId {
    scene.set("price", "3600");
    scene.set("offer_idle", "never");
    scene.set("budget@ada", "120");
    let job = scene.job_of("ada", 2, |submission| submission.shapes[0].wall = Some(Span::from_mins(1)));
    scene.after(Span::from_secs(1));
    job
}

fn grow_for(quantity: u64, duration: Option<Span>) -> Ask {
    Ask { price: Price(3600), duration, ..nodes(Direction::Grow, quantity, 1) }
}

fn longer(seconds: u64, least: u64) -> Ask {
    let (quantity, least) = (seconds * 1000, least * 1000);
    Ask { what: Asked::Time, quantity, least, ..nodes(Direction::Grow, 1, 1) }
}

#[test]
fn a_job_with_priced_nodes_is_extended_only_as_far_as_its_user_can_pay() {
    let mut scene = Scene::offering(8);
    let job = thrifty(&mut scene);
    let ticket = scene.ask(job, longer(30, 30));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "it has no priced node");
    let ticket = scene.ask(job, grow_for(1, None));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
    assert_eq!((scene.spent("ada"), scene.reserved("ada")), (0, 89));
    let ticket = scene.ask(job, longer(60, 60));
    let Some(AskOutcome::Failed { reason: Reason::Price, short, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!(short, Some(BudgetShortage { needed: 60, left: 31 }));
    let ticket = scene.ask(job, longer(60, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 31_000, .. })), "as long as it can pay");
    assert_eq!(scene.reserved("ada"), 120);
    scene.after(Span::from_mins(3));
    assert_eq!((scene.spent("ada"), scene.reserved("ada")), (120, 0));
}

/// One negotiation about both: the nodes are paid for until the later end.
#[test]
fn more_time_and_more_nodes_at_once_are_paid_for_together() {
    let mut scene = Scene::offering(8);
    scene.set("price", "3600");
    scene.set("offer_idle", "never");
    scene.set("budget@ada", "8000");
    let job = scene.paying_job(4);
    let mut more_nodes = scene.item(job, 2);
    more_nodes.terms.price = Price(3600);
    let wall = scene.world.rms.state().jobs()[&job].started().expect("it runs").request.wall;
    let half = Span::from_mins(30).as_millis() as u64;
    let mut more_time = Item::up_to(Resource::Time, wall.as_millis() as u64, half);
    more_time.terms.least = Quantity(half);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, vec![more_nodes, more_time]);
    let template = scene.app_sees(job, id).expect("it is answered");
    assert_eq!(template.n_nodes(), 1, "two cost 10798 in one and a half hours");
    scene.accepts(job, id);
    assert_eq!((scene.n_held(job), scene.reserved("ada")), (5, 5399));
}

#[test]
fn no_update_makes_a_job_longer_than_its_user_can_pay_what_it_is_promised() {
    let mut scene = Scene::offering(8);
    scene.set("price", "3600");
    scene.set("budget@ada", "4000");
    let job = scene.paying_job(4);
    let offer = scene.offer_to(job).expect("four are idle");
    assert_eq!(scene.n_proposed(job, offer), 1);
    let update = |hours: i64| {
        let wall = Some(WallChange::To(Span::from_hours(hours)));
        Call::Update { select: Select::Ids(vec![job]), changes: Box::new(Changes { wall, ..Changes::default() }) }
    };
    let refused = |answer| match answer {
        Ok(Answer::Jobs { refused, .. }) => refused.into_iter().map(|(_, why)| why.message).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let why = refused(scene.call(update(2))).concat();
    assert!(why.contains("its owner's budget is too small: this costs 3.6 at least, and 0.4"), "{why}");
    scene.set("budget@ada", "8000");
    assert_eq!(refused(scene.call(update(2))), [""; 0], "it can be paid");
    assert!(scene.reserved("ada") > 7000);
}

#[test]
fn a_node_for_a_limited_time_needs_the_money_for_that_time_only() {
    let mut scene = Scene::offering(8);
    let job = thrifty(&mut scene);
    let ticket = scene.ask(job, grow_for(4, Some(Span::from_secs(30))));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 4, .. })));
    assert_eq!(scene.reserved("ada"), 120);
    scene.set("budget@ada", "130");
    let ticket = scene.ask(job, grow_for(1, Some(Span::from_secs(30))));
    let Some(AskOutcome::Failed { reason: Reason::Price, short, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!(short, Some(BudgetShortage { needed: 30, left: 10 }));
}

/// The server may not lower what it has offered, so it repeats that at a lower price.
#[test]
fn a_price_is_bargained_about_for_less_than_was_offered() {
    for asked_first in [false, true] {
        for lasts in [None, Some(Span::from_mins(20))] {
            let mut scene = Scene::offering(8);
            scene.set("price", "1000");
            scene.set("price_floor", "50");
            scene.set("offer_idle", if asked_first { "never" } else { "equal_share" });
            let job = scene.paying_job(4);
            let id = match asked_first {
                false => scene.offer_to(job).expect("four are idle"),
                true => {
                    let mut item = scene.item(job, 4);
                    item.terms.price = Price(500);
                    item.terms.least = Quantity(1);
                    scene.app_opens(job, Direction::Grow, item)
                }
            };
            let first = scene.price(job, id);
            let template = scene.app_sees(job, id).expect("something stands");
            let less = |price: u64| {
                let mut item = template.items()[0].clone();
                item.quantity = Quantity(2);
                item.terms = Terms { price: Price(price), duration: lasts, ..item.terms };
                let template = template.with_items(vec![item]).expect("a right template");
                Action::Propose { template, valid_for: Span::from_mins(1) }
            };
            scene.app_acts(job, id, less(500));
            assert_eq!(scene.app_phase(job, id), Phase::Countered(negotiation::Side::Rms));
            let second = scene.price(job, id);
            assert!(second < first, "{second} after {first}");
            assert_eq!(scene.n_proposed(job, id), 4, "what it has offered is there still");
            scene.app_acts(job, id, less(second));
            assert_eq!((scene.n_held(job), scene.app_phase(job, id)), (6, Phase::Applied));
            scene.is_durable();
        }
    }
}

/// Two jobs of a user end within the hour; what is left of the budget pays for three nodes more.
#[test]
fn offers_of_one_pass_are_paid_for_together() {
    let mut scene = Scene::offering(8);
    scene.set("offer_idle", "never");
    scene.set("price", "1000");
    scene.set("budget@ada", "3000");
    let jobs = [scene.paying_job(2), scene.paying_job(2)];
    scene.set("offer_idle", "equal_share");
    scene.after(Span::from_secs(1));
    let offers = jobs.map(|job| scene.offer_to(job).expect("four are idle"));
    let offered = [0, 1].map(|idx| scene.n_proposed(jobs[idx], offers[idx]));
    assert_eq!(offered.iter().sum::<u64>(), 3, "{offered:?}");
    assert!(scene.reserved("ada") <= 3000, "{}", scene.reserved("ada"));
    (0..2).for_each(|idx| scene.accepts(jobs[idx], offers[idx]));
    scene.after(Span::from_mins(59));
    let (spent, reserved) = (scene.spent("ada"), scene.reserved("ada"));
    assert!(spent > 2900 && spent + reserved <= 3000, "{spent} {reserved}");
}

/// At the list price, three nodes cost 3000 until the job's end, and 1500 at the floor.
#[test]
fn who_can_pay_the_floor_alone_gets_nodes_at_the_floor() {
    let ask = |budget: &str, price: u64, quantity: u64| {
        let mut scene = Scene::offering(8);
        scene.set("price", "1000");
        scene.set("price_floor", "50");
        scene.set("offer_idle", "never");
        scene.set("budget@ada", budget);
        let job = scene.job_of("ada", 2, |_| {});
        scene.after(Span::from_secs(1));
        let ticket = scene.ask(job, Ask { price: Price(price), ..nodes(Direction::Grow, quantity, quantity) });
        (0..20).for_each(|_| scene.after(Span::from_secs(10)));
        let outcome = scene.outcome(ticket);
        (outcome.expect("it is decided"), scene.reserved("ada") + scene.spent("ada"), scene.lines(job).pop())
    };
    let (outcome, cost, _) = ask("1600", 500, 3);
    assert!(matches!(outcome, AskOutcome::Ready { quantity: 3, .. }), "{outcome:?}");
    assert!((1450..=1500).contains(&cost), "{cost}");
    let (outcome, ..) = ask("1600", 499, 3);
    assert!(matches!(outcome, AskOutcome::Failed { reason: Reason::Price, short: None, .. }), "{outcome:?}");
    let (outcome, ..) = ask("1400", 500, 3);
    let AskOutcome::Failed { reason: Reason::Price, short: Some(short), .. } = outcome else { panic!("{outcome:?}") };
    assert!((1450..=1500).contains(&short.needed) && short.left == 1400, "{short:?}");
    let (outcome, cost, _) = ask("3100", 500, 3);
    assert!(matches!(outcome, AskOutcome::Ready { quantity: 3, .. }), "{outcome:?}");
    assert!((1400..=1500).contains(&cost), "{cost}");
}

#[test]
fn who_offers_the_floor_by_command_gets_nodes_at_the_floor() {
    let mut scene = Scene::offering(8);
    scene.set("price", "1000");
    scene.set("price_floor", "50");
    scene.set("offer_idle", "never");
    let job = scene.job_of("ada", 2, |_| {});
    scene.after(Span::from_secs(1));
    let at = |price| Ask { price: Price(price), ..nodes(Direction::Grow, 2, 1) };
    let ticket = scene.ask(job, at(499));
    let Some(AskOutcome::Failed { reason: Reason::Price, short: None, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    let ticket = scene.ask(job, at(500));
    assert!(
        matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })),
        "{:?}",
        scene.outcome(ticket)
    );
    scene.after(Span::from_mins(30));
    assert_eq!(scene.spent("ada"), 500, "two nodes at half the price for half an hour");
    scene.is_durable();
}

/// Nodes that come last leave first, but for those that are overdue.
#[test]
fn a_node_that_is_kept_longer_than_agreed_is_paid_for_until_it_is_given_back() {
    let mut scene = Scene::offering(8);
    scene.set("price", "3600");
    scene.set("offer_idle", "never");
    let job = scene.paying_job(4);
    let mut lent = scene.item(job, 1);
    lent.terms.price = Price(3600);
    lent.terms.duration = Some(Span::from_secs(30));
    scene.app_opens(job, Direction::Grow, lent);
    let mut kept = scene.item(job, 1);
    kept.terms.price = Price(7200);
    scene.app_opens(job, Direction::Grow, kept);
    assert_eq!(scene.n_held(job), 6);
    scene.after(Span::from_secs(50));
    assert_eq!(scene.spent("ada"), 50 + 100, "the first one is overdue");
    let wish = scene.wish_to(job).expect("it is asked back");
    scene.accepts(job, wish);
    let node = rms_model::NodeId(*scene.held(job).last().expect("it has some"));
    scene.app_acts(job, wish, Action::Commit([node].into()));
    assert_eq!(scene.n_held(job), 5);
    let spent = scene.spent("ada");
    scene.after(Span::from_secs(50));
    assert_eq!(scene.spent("ada"), spent + 100, "only the one that it keeps costs");
    scene.is_durable();
}
