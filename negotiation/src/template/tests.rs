//! Tests which templates are valid, and which quantities satisfy one.

use rms_model::{JobId, Run};

use super::*;
use crate::subject::Side;
use crate::terms::Price;

const CLUSTER: Resource = Resource::Nodes(ClusterId(0));

fn parties() -> Parties {
    Parties { job: JobId(7), run: Run(1), initiator: Side::Application }
}

fn grow(item: Item) -> Result<Template, TemplateError> {
    Template::of_one(parties(), Direction::Grow, item)
}

fn nodes(held: u64, quantity: u64, change: impl FnOnce(&mut Item)) -> Item {
    let mut item = Item::up_to(CLUSTER, held, quantity);
    change(&mut item);
    item
}

fn refused(item: Item) -> Item {
    Item { status: ItemStatus::Refused, ..item }
}

#[test]
fn a_good_template_is_taken_and_read_back() {
    let item = nodes(8, 24, |item| {
        item.terms.sizes = Sizes::PowerOfTwo;
        item.terms.price = Price(1500);
        item.terms.duration = Some(Span::from_hours(2));
        item.terms.deadline = Some(Time::from_secs(60));
        item.terms.give_back_by = Some(Time::from_secs(9000));
        item.terms.priority = -3;
    });
    let template = grow(item).expect("it is right");
    assert_eq!(template.status(), Status::Open);
    let text = serde_json::to_string(&template).expect("it can be written");
    assert_eq!(serde_json::from_str::<Template>(&text).expect("it can be read"), template);
    let broken = text.replace("\"kind\":1", "\"kind\":9");
    let error = serde_json::from_str::<Template>(&broken).expect_err("it has an unknown kind");
    assert!(error.to_string().contains("unknown kind 9"), "{error}");
}

#[test]
fn every_wrong_template_is_refused_with_its_reason() {
    fn check(item: Item, expected: &str) {
        let error = grow(item).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let sizes = |sizes: Sizes| nodes(8, 24, |item| item.terms.sizes = sizes);
    check(nodes(8, 0, |_| ()), "the change of nodes asks for nothing");
    check(
        Item::up_to(Resource::Licences(ClusterId(0), "matlab".to_owned()), 0, 0),
        "the change of licences of matlab asks",
    );
    check(nodes(8, u64::MAX, |_| ()), "never more than 1048576");
    check(nodes(u64::MAX, 1, |_| ()), "never more than 1048576");
    check(nodes(MAX_NODES, 1, |_| ()), "comes to 1048577");
    check(nodes(8, 4, |item| item.terms.most = Quantity(u64::MAX)), "never more than 1048576");
    check(nodes(8, 4, |item| item.terms.least = Quantity(5)), "no quantity between at least 5 and at most 4");
    check(nodes(8, 4, |item| item.terms.least = Quantity(0)), "no quantity between at least 0");
    check(sizes(Sizes::MultipleOf(0)), "multiples of 0");
    check(sizes(Sizes::Listed(vec![])), "empty list");
    check(sizes(Sizes::Listed(vec![32, 16])), "out of order");
    check(sizes(Sizes::Listed(vec![16, 16, 32])), "out of order or twice");
    check(sizes(Sizes::Listed((0..300).collect())), "lists 300 sizes");
    check(sizes(Sizes::Listed(vec![16])), "the change of nodes makes 32 nodes in all, which is not listed");
    check(sizes(Sizes::MultipleOf(5)), "makes 32 nodes in all, which is not a multiple of 5");
    check(nodes(8, 4, |item| item.terms.most = Quantity(3)), "proposes 4 against its own terms");
    check(nodes(8, 4, |item| item.terms.price = Price(MAX_PRICE + 1)), "price above");
    check(nodes(8, 4, |item| item.terms.duration = Some(Span::ZERO)), "duration");
    check(nodes(8, 4, |item| item.terms.duration = Some(Span::from_millis(i64::MAX))), "duration");
    let crossed = nodes(8, 4, |item| {
        item.terms.deadline = Some(Time::from_secs(9));
        item.terms.give_back_by = Some(Time::from_secs(9));
    });
    check(crossed, "given back before");
    let lent = Item::up_to(Resource::Time, 1000, 1000);
    let lent = Item { terms: Terms { duration: Some(Span::from_secs(1)), ..lent.terms.clone() }, ..lent };
    check(lent, "cannot be lent");
    check(nodes(8, 4, |item| item.nodes = BTreeSet::from([NodeId(1)])), "names 1 node for a quantity of 4");
    for resource in [Resource::Time, Resource::Licences(ClusterId(0), "matlab".to_owned())] {
        let item = Item { nodes: BTreeSet::from([NodeId(1)]), ..Item::up_to(resource, 1, 1) };
        check(item, "licences and wall time are not on nodes");
    }
    check(nodes(8, 4, |item| item.status = ItemStatus::Ready), "only the outcome");
    check(refused(nodes(8, 4, |_| ())), "some set cannot be met");
    let shrink = Template::of_one(parties(), Direction::Shrink, nodes(3, 4, |_| ()));
    assert_eq!(
        shrink,
        Err(TemplateError::MoreThanHeld {
            item: Which::Only(CLUSTER),
            resource: Resource::Nodes(ClusterId(0)),
            asked: Quantity(4),
            held: Quantity(3)
        }),
        "what is not held cannot be given back"
    );
}

#[test]
fn sets_and_items_must_fit_together() {
    let other = |set: u16| Item { set, ..Item::up_to(Resource::Nodes(ClusterId(1)), 0, 4) };
    let make = |sets: &[SetRule], items: &[Item]| Template::new(parties(), Direction::Grow, sets.into(), items.into());
    let item = nodes(8, 4, |_| ());
    assert_eq!(make(&[SetRule::All], &[]), Err(TemplateError::NoItems));
    let one = std::slice::from_ref(&item);
    let unheard = make(&[SetRule::All], &[item.clone(), Item { quantity: Quantity(0), ..other(0) }]);
    assert_eq!(unheard.map_err(|error| error.to_string()), Err("item 1 asks for nothing".to_owned()));
    assert_eq!(make(&[], one), Err(TemplateError::NoSuchSet { item: 0, set: 0 }));
    assert_eq!(make(&[SetRule::All, SetRule::All], one), Err(TemplateError::EmptySet { set: 1 }));
    let twice = [item.clone(), item.clone()];
    assert_eq!(make(&[SetRule::All], &twice), Err(TemplateError::TwiceTheSame { item: 1 }));
    assert!(make(&[SetRule::OneOf], &twice).is_ok(), "alternatives may be of one resource");
    let unequal = [item.clone(), nodes(9, 4, |_| ())];
    assert_eq!(make(&[SetRule::OneOf], &unequal), Err(TemplateError::HeldDiffers { item: 1 }));
    let many = vec![item.clone(); MAX_ITEMS + 1];
    assert_eq!(make(&[SetRule::OneOf], &many), Err(TemplateError::TooManyItems { n_items: 65, n_sets: 1 }));
    assert!(make(&[SetRule::All, SetRule::AnyOf], &[item, other(1)]).is_ok());
}

#[test]
fn the_status_follows_from_the_items() {
    let other = Item::up_to(Resource::Nodes(ClusterId(1)), 0, 4);
    let items = |second: Item| vec![nodes(8, 4, |_| ()), second];
    let make = |rule: SetRule, second: Item| Template::new(parties(), Direction::Grow, vec![rule], items(second));

    let open = |rule: SetRule| make(rule, other.clone()).expect("both are proposed");
    let is_definite = [SetRule::All, SetRule::AnyOf, SetRule::OneOf].map(|rule| open(rule).is_definite());
    assert_eq!(is_definite, [true, true, false], "alternatives must be chosen from first");

    assert_eq!(make(SetRule::All, refused(other.clone())), Err(TemplateError::CannotBeMet));
    for rule in [SetRule::AnyOf, SetRule::OneOf] {
        let partly = make(rule, refused(other.clone())).expect("one is left");
        assert_eq!((partly.is_definite(), partly.status(), partly.n_nodes()), (true, Status::Open, 4));
        assert_eq!(partly.at(ItemStatus::Accepted).status(), Status::Accepted);
        assert_eq!(partly.at(ItemStatus::Ready).status(), Status::Ready);
        assert_eq!(partly.at(ItemStatus::Failed).status(), Status::Failed);
        assert_eq!(partly.at(ItemStatus::Refused).status(), Status::Rejected);
    }
    assert_eq!(open(SetRule::All).at(ItemStatus::Failed).status(), Status::Failed);
}

#[test]
fn an_application_on_8_that_needs_a_power_of_two_can_use_8_of_15() {
    let item = nodes(8, 24, |item| item.terms.sizes = Sizes::PowerOfTwo);
    assert_eq!(item.greatest(Direction::Grow, Quantity(15)), Some(Quantity(8)));
    assert_eq!(item.greatest(Direction::Grow, Quantity(7)), None);
    assert_eq!(item.least(Direction::Grow, Quantity(1)), Some(Quantity(8)));
    assert_eq!(item.least(Direction::Grow, Quantity(9)), Some(Quantity(24)));
    let all: Vec<u64> = item.quantities(Direction::Grow).map(|quantity| quantity.0).collect();
    assert_eq!(all, [8, 24]);
    let back: Vec<u64> = item.quantities(Direction::Shrink).map(|quantity| quantity.0).collect();
    assert_eq!(back, [4, 6, 7], "to 4, to 2, to 1");
}

#[test]
fn the_helpers_find_what_a_search_finds() {
    let sizes = [
        Sizes::Any,
        Sizes::PowerOfTwo,
        Sizes::MultipleOf(3),
        Sizes::MultipleOf(1),
        Sizes::Listed(vec![0, 5, 6, 11, 20]),
    ];
    for (held, least, most) in [(0, 1, 9), (8, 1, 24), (8, 3, 7), (5, 2, 40), (16, 1, 16), (1, 1, 1)] {
        for sizes in &sizes {
            for direction in [Direction::Grow, Direction::Shrink] {
                let item = nodes(held, most, |item| {
                    item.terms.least = Quantity(least);
                    item.terms.sizes = sizes.clone();
                });
                let fitting: Vec<Quantity> = (0..100).map(Quantity).filter(|n| item.fits(direction, *n)).collect();
                assert_eq!(item.quantities(direction).collect::<Vec<_>>(), fitting, "{item:?} {direction:?}");
                for bound in (0..60).map(Quantity) {
                    let greatest = fitting.iter().rev().find(|n| **n <= bound).copied();
                    assert_eq!(item.greatest(direction, bound), greatest, "{item:?} {direction:?} up to {bound}");
                    let least = fitting.iter().find(|n| **n >= bound).copied();
                    assert_eq!(item.least(direction, bound), least, "{item:?} {direction:?} from {bound}");
                }
            }
        }
    }
}
