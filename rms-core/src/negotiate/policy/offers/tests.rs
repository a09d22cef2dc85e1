//! Which application is offered what: examples with one point each, and properties of every distribution.

use negotiation::Price;
use rms_api::negotiate::Declared;
use rms_model::{Sizes, Span, Speedup};

use super::*;
use test_kit::{Dice, for_seeds};

const FREE: UserWeight = UserWeight { share: 1, may_gain: None, may_spend: None };

/// Returns the limits of a job that can have from 1 to 100 nodes, of a user of its own.
fn declared(sizes: Sizes) -> Declared {
    Declared { least: 1, most: 100, sizes, speedup: Speedup::default() }
}

fn candidate(job: u64, held: u32, declared: &Declared) -> Candidate<'_> {
    Candidate {
        job: JobId(job),
        user: "ada",
        held,
        started_with: held,
        declared,
        priority: 0,
        is_negotiating: false,
        declined: 0,
        room: u32::MAX,
        price: Price(0),
        paid_for: Span::ZERO,
    }
}

fn check(idle: u32, candidates: &[Candidate<'_>], rule: OfferRule, expected: &[(u64, u32)]) {
    check_for(idle, candidates, &BTreeMap::new(), rule, expected);
}

fn check_for(
    idle: u32,
    candidates: &[Candidate<'_>],
    users: &BTreeMap<&str, UserWeight>,
    rule: OfferRule,
    expected: &[(u64, u32)],
) {
    let offered = offers(idle, candidates, users, rule);
    let offered: Vec<(u64, u32)> = offered.iter().map(|change| (change.job.0, change.nodes)).collect();
    assert_eq!(offered, expected, "{rule}");
}

/// 002 (c): a malleable application on 4 nodes, whose other 4 a short job used.
#[test]
fn who_is_alone_is_offered_all_that_is_idle() {
    let declared = declared(Sizes::PowerOfTwo);
    for rule in [OfferRule::EqualShare, OfferRule::FewestAboveMinimum, OfferRule::Efficiency] {
        check(4, &[candidate(1, 4, &declared)], rule, &[(1, 4)]);
        check(3, &[candidate(1, 4, &declared)], rule, &[]);
        check(15, &[candidate(1, 8, &declared)], rule, &[(1, 8)]);
    }
    check(4, &[candidate(1, 4, &declared)], OfferRule::Never, &[]);
}

#[test]
fn three_jobs_share_equally_and_the_oldest_takes_what_does_not_divide() {
    let declared = declared(Sizes::Any);
    let three = [1, 2, 3].map(|job| candidate(job, 2, &declared));
    check(6, &three, OfferRule::EqualShare, &[(1, 2), (2, 2), (3, 2)]);
    check(7, &three, OfferRule::EqualShare, &[(1, 3), (2, 2), (3, 2)]);
    check(1, &three, OfferRule::EqualShare, &[(1, 1)]);
}

#[test]
fn what_was_gained_before_counts_in_an_equal_share() {
    let declared = declared(Sizes::Any);
    let grown = Candidate { held: 5, ..candidate(1, 2, &declared) };
    check(3, &[grown, candidate(2, 2, &declared)], OfferRule::EqualShare, &[(2, 3)]);
    check(5, &[grown, candidate(2, 2, &declared)], OfferRule::EqualShare, &[(1, 1), (2, 4)]);
}

#[test]
fn shares_are_those_of_users_however_many_jobs_they_have() {
    let declared = declared(Sizes::Any);
    let of = |job, user| Candidate { user, ..candidate(job, 2, &declared) };
    let jobs = [of(1, "ada"), of(2, "ada"), of(3, "bob")];
    let mut users =
        BTreeMap::from([("ada", UserWeight { share: 1, ..FREE }), ("bob", UserWeight { share: 1, ..FREE })]);
    check_for(8, &jobs, &users, OfferRule::EqualShare, &[(1, 2), (2, 2), (3, 4)]);
    users.insert("ada", UserWeight { share: 3, ..FREE });
    check_for(8, &jobs, &users, OfferRule::EqualShare, &[(1, 3), (2, 3), (3, 2)]);
}

#[test]
fn the_limit_of_a_user_holds_for_all_its_jobs_together() {
    let declared = declared(Sizes::Any);
    let jobs = [candidate(1, 2, &declared), candidate(2, 2, &declared)];
    let users = BTreeMap::from([("ada", UserWeight { share: 1, may_gain: Some(3), ..FREE })]);
    check_for(8, &jobs, &users, OfferRule::EqualShare, &[(1, 2), (2, 1)]);
    check_for(8, &jobs, &users, OfferRule::FewestAboveMinimum, &[(1, 2), (2, 1)]);
}

#[test]
fn what_a_job_gave_back_comes_again_whatever_the_limit() {
    let declared = declared(Sizes::Any);
    let shrunk = Candidate { held: 1, ..candidate(1, 4, &declared) };
    let users = BTreeMap::from([("ada", UserWeight { may_gain: Some(0), ..FREE })]);
    check_for(8, &[shrunk], &users, OfferRule::EqualShare, &[(1, 3)]);
}

#[test]
fn the_fewest_above_its_minimum_goes_first() {
    let (low, high) = (declared(Sizes::Any), Declared { least: 6, ..declared(Sizes::Any) });
    let jobs = [candidate(1, 6, &low), candidate(2, 8, &high)];
    check(3, &jobs, OfferRule::FewestAboveMinimum, &[(2, 3)]);
    check(5, &jobs, OfferRule::FewestAboveMinimum, &[(1, 1), (2, 4)]);
}

#[test]
fn the_best_speed_up_takes_nodes_until_another_gains_more() {
    let with = |points: &[(u32, u32)]| Declared { speedup: Speedup(points.to_vec()), ..declared(Sizes::Any) };
    let steep = with(&[(1, 1000), (4, 3700), (8, 4100)]);
    let even = with(&[(1, 1000), (100, 60_400)]);
    let flat = with(&[(1, 1000), (2, 1500), (100, 1500)]);
    let unknown = declared(Sizes::Any);
    let jobs = [candidate(1, 2, &flat), candidate(2, 2, &unknown), candidate(3, 2, &even), candidate(4, 2, &steep)];
    check(6, &jobs, OfferRule::Efficiency, &[(3, 4), (4, 2)]);
    check(102, &jobs, OfferRule::Efficiency, &[(3, 98), (4, 4)]);
    check(110, &jobs, OfferRule::Efficiency, &[(2, 6), (3, 98), (4, 6)]);
}

#[test]
fn who_declined_is_offered_more_or_nothing() {
    let declared = declared(Sizes::Any);
    let declined = Candidate { declined: 2, ..candidate(1, 4, &declared) };
    check(2, &[declined], OfferRule::EqualShare, &[]);
    check(3, &[declined], OfferRule::EqualShare, &[(1, 3)]);
    check(2, &[declined, candidate(2, 4, &declared)], OfferRule::EqualShare, &[(2, 2)]);
}

#[test]
fn nobody_is_offered_more_than_there_is_room_for() {
    let declared = declared(Sizes::Any);
    let short = Candidate { room: 1, ..candidate(1, 4, &declared) };
    check(6, &[short, candidate(2, 4, &declared)], OfferRule::EqualShare, &[(1, 1), (2, 5)]);
}

#[test]
fn who_negotiates_already_is_passed_over() {
    let declared = declared(Sizes::Any);
    let negotiating = Candidate { is_negotiating: true, ..candidate(1, 4, &declared) };
    check(3, &[negotiating, candidate(2, 4, &declared)], OfferRule::EqualShare, &[(2, 3)]);
}

#[test]
fn a_step_that_does_not_fit_leaves_the_rest_to_others() {
    let (twos, any) = (declared(Sizes::PowerOfTwo), declared(Sizes::Any));
    let urgent = Candidate { priority: 9, ..candidate(1, 8, &twos) };
    check(7, &[urgent, candidate(2, 2, &any)], OfferRule::FewestAboveMinimum, &[(2, 7)]);
}

#[test]
fn of_equals_the_higher_priority_goes_first() {
    let declared = declared(Sizes::Any);
    let urgent = Candidate { priority: 1, ..candidate(2, 2, &declared) };
    check(1, &[candidate(1, 2, &declared), urgent], OfferRule::EqualShare, &[(2, 1)]);
}

fn random_sizes(dice: &mut Dice) -> Sizes {
    match dice.number(0, 3) {
        0 => Sizes::Any,
        1 => Sizes::PowerOfTwo,
        2 => Sizes::MultipleOf(dice.number(1, 4).into()),
        _ => {
            let mut sizes: Vec<u64> = (0..dice.number(1, 5)).map(|_| dice.number(1, 20).into()).collect();
            sizes.sort_unstable();
            sizes.dedup();
            Sizes::Listed(sizes)
        }
    }
}

fn random_declared(dice: &mut Dice) -> Declared {
    let least = dice.number(1, 6);
    let mut points: Vec<(u32, u32)> = Vec::new();
    for _ in 0..dice.number(0, 4) {
        let nodes = points.last().map_or(0, |(nodes, _)| *nodes) + dice.number(1, 5);
        points.push((nodes, dice.number(0, 9000)));
    }
    Declared { least, most: least + dice.number(0, 20), sizes: random_sizes(dice), speedup: Speedup(points) }
}

/// Returns how many nodes a job would have beyond those that it started with.
fn beyond_start(candidate: &Candidate<'_>, more: u32) -> u32 {
    (candidate.held + more).saturating_sub(candidate.started_with)
}

#[test]
fn no_distribution_breaks_a_limit_or_leaves_a_node_that_somebody_could_use() {
    for_seeds("no_distribution_breaks_a_limit", 3000, |dice| {
        let all: Vec<Declared> = (0..dice.number(0, 6)).map(|_| random_declared(dice)).collect();
        let names = ["ada", "bob", "cy"];
        let mut users = BTreeMap::new();
        for name in names {
            let may_gain = if dice.chance(50) { Some(dice.number(0, 9)) } else { None };
            let may_spend = if dice.chance(50) { Some(dice.number(0, 30).into()) } else { None };
            users.insert(name, UserWeight { share: dice.number(0, 4), may_gain, may_spend });
        }
        let candidates: Vec<Candidate<'_>> = (1..)
            .zip(&all)
            .map(|(job, declared)| Candidate {
                user: names[dice.number(0, 2) as usize],
                held: dice.number(1, declared.most),
                priority: dice.number(0, 2) as i32,
                is_negotiating: dice.chance(10),
                room: if dice.chance(20) { dice.number(0, 6) } else { u32::MAX },
                declined: if dice.chance(20) { dice.number(1, 8) } else { 0 },
                price: Price(if dice.chance(50) { dice.number(0, 3000).into() } else { 0 }),
                paid_for: Span::from_secs(dice.number(0, 9000).into()),
                ..candidate(job, dice.number(1, declared.most), declared)
            })
            .collect();
        let idle = dice.number(0, 40);
        let rule = OfferRule::ALL[dice.number(0, 3) as usize];
        let offered = offers(idle, &candidates, &users, rule);
        let nodes_of = |job| offered.iter().find(|change| change.job == job).map_or(0, |change| change.nodes);
        let left = idle - offered.iter().map(|change| change.nodes).sum::<u32>();
        let left_of = |name: &str| {
            let own = || candidates.iter().filter(|one| one.user == name);
            let gained: u32 = own().map(|one| beyond_start(one, nodes_of(one.job)) - beyond_start(one, 0)).sum();
            let spent: u64 = own().map(|one| one.price.cost(nodes_of(one.job), one.paid_for)).sum();
            let UserWeight { may_gain, may_spend, .. } = users[name];
            let may_gain = may_gain.map(|limit| limit.checked_sub(gained).expect("the limit of the user is kept"));
            (may_gain, may_spend.map(|sum| sum.checked_sub(spent).expect("the user can pay")))
        };
        for candidate in &candidates {
            let (nodes, (limit, money)) = (nodes_of(candidate.job), left_of(candidate.user));
            let cost = |nodes| candidate.price.cost(nodes, candidate.paid_for);
            let total = candidate.held + nodes;
            assert!(offered.len() <= candidates.len());
            if nodes > 0 {
                assert!(total <= candidate.declared.most && candidate.declared.sizes.fits(total.into()));
                assert!(nodes <= candidate.room);
                assert!(nodes > candidate.declined && !candidate.is_negotiating && rule != OfferRule::Never);
            }
            // No node that an application could use stays idle, except under the efficiency rule.
            let deals_all = matches!(rule, OfferRule::EqualShare | OfferRule::FewestAboveMinimum);
            if deals_all && !candidate.is_negotiating {
                let could_use = |more: &u32| {
                    let next = u64::from(total + more);
                    let is_size = next >= candidate.declared.least.into() && candidate.declared.sizes.fits(next);
                    let is_paid = money.is_none_or(|money| cost(nodes + more) - cost(nodes) <= money);
                    let gain = beyond_start(candidate, nodes + more) - beyond_start(candidate, nodes);
                    let is_allowed = limit.is_none_or(|limit| gain <= limit) && is_paid;
                    let is_new = nodes + more > candidate.declined && nodes + more <= candidate.room;
                    is_size && is_allowed && is_new && next <= candidate.declared.most.into()
                };
                assert_eq!((1..=left).find(could_use), None, "{rule}: {candidate:?} of {left} left");
            }
        }
    });
}

#[test]
fn equal_shares_of_equal_jobs_differ_by_one_node_at_most() {
    for_seeds("equal_shares_of_equal_jobs", 500, |dice| {
        let declared = declared(Sizes::Any);
        let n_jobs = dice.number(1, 7);
        let jobs: Vec<Candidate<'_>> =
            (1..=n_jobs).map(|job| candidate(job.into(), dice.number(1, 30), &declared)).collect();
        let offered = offers(dice.number(n_jobs, 100), &jobs, &BTreeMap::new(), OfferRule::EqualShare);
        let counts = || offered.iter().map(|change| change.nodes);
        assert_eq!(offered.len(), n_jobs as usize);
        assert!(counts().max() <= counts().min().map(|least| least + 1), "{offered:?}");
    });
}

/// Where each further node gains less than the one before, choosing the best next node each time is optimal.
#[test]
fn efficiency_finds_the_greatest_speed_of_all_together() {
    for_seeds("efficiency_finds_the_greatest_speed", 300, |dice| {
        let mut all = Vec::new();
        for _ in 0..dice.number(1, 3) {
            let (mut points, mut speed, mut gain) = (Vec::new(), 0, dice.number(500, 1500));
            for nodes in 1..=8 {
                speed += gain;
                points.push((nodes, speed));
                gain -= dice.number(0, gain);
            }
            all.push(Declared { most: 8, speedup: Speedup(points), ..declared(Sizes::Any) });
        }
        let jobs: Vec<Candidate<'_>> =
            (1..).zip(&all).map(|(job, declared)| candidate(job, dice.number(1, 8), declared)).collect();
        let idle = dice.number(0, 10);
        let offered = offers(idle, &jobs, &BTreeMap::new(), OfferRule::Efficiency);
        let speed = |idx: usize, nodes: u32| jobs[idx].declared.speedup.at(nodes).expect("declared");
        let nodes_of = |job| offered.iter().find(|change| change.job == job).map_or(0, |change| change.nodes);
        let reached: u32 = jobs.iter().enumerate().map(|(idx, job)| speed(idx, job.held + nodes_of(job.job))).sum();
        // The best sum for each number of nodes, job by job.
        let mut best = vec![0; idle as usize + 1];
        for (idx, job) in jobs.iter().enumerate() {
            let sum = |given: usize| {
                let options = (0..=given as u32).filter(|more| job.held + more <= 8);
                options.map(|more| best[given - more as usize] + speed(idx, job.held + more)).max().unwrap_or(0)
            };
            best = (0..=idle as usize).map(sum).collect();
        }
        assert_eq!(Some(&reached), best.last(), "{offered:?}");
    });
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let huge =
        Declared { least: 1, most: u32::MAX, sizes: Sizes::Listed(vec![1, 1 << 31, 1 << 40]), ..declared(Sizes::Any) };
    for rule in OfferRule::ALL {
        let job = Candidate { held: 1, declined: u32::MAX, ..candidate(1, u32::MAX, &huge) };
        check(u32::MAX, &[job], rule, &[]);
    }
    check(u32::MAX, &[candidate(1, 1, &huge)], OfferRule::EqualShare, &[(1, (1 << 31) - 1)]);
}
