//! Tests of the admins' handler: what it refuses before it is recorded.

use rms_model::{Inventory, Mebibytes, NodeId};

use super::*;
use crate::tests::fixture::{Fixture, NOW, admin, outcome};

fn set(fixture: &mut Fixture, key: &str, value: &str) -> Result<Answer, Refusal> {
    let mut step = Step::default();
    let answer = Admin { jobs: fixture.jobs() }.set(NOW, &mut step, &admin(), key, value);
    drop(outcome(step));
    answer
}

#[test]
fn the_reason_of_a_drain_is_a_line_that_people_can_read() {
    let drain = |reason: &str| {
        let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
        let admin_of = NodeAdmin::Drain { reason: reason.to_owned(), by: "root".to_owned(), since: NOW };
        let names = ["n1".to_owned()];
        let answer = Admin { jobs: fixture.jobs() }.set_admin(NOW, &mut step, &admin(), &names, admin_of);
        drop(outcome(step));
        answer.map(drop).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(drain("fan"), Ok(()));
    assert_eq!(drain(&"x".repeat(1024)), Ok(()));
    let long = drain(&"x".repeat(1025)).expect_err("too long");
    assert!(long.contains("1024 bytes at most"), "{long}");
    for nothing in ["", "  "] {
        let refusal = drain(nothing).expect_err("it says nothing");
        assert!(refusal.contains("--reason"), "{refusal}");
    }
}

#[test]
fn memory_that_no_node_has_is_not_counted_for_each_cpu() {
    let mut fixture = Fixture::with_nodes(1);
    let inventory = Inventory { memory: Mebibytes(1000), ..Inventory::default() };
    fixture.record(Fact::NodeDescribed { node: NodeId(1), inventory, address: "127.0.0.1:1".to_owned() });
    set(&mut fixture, "memory_per_cpu@c", "1000").expect("the node has it");
    for key in ["memory_per_cpu@c", "memory_per_cpu"] {
        let refusal = set(&mut fixture, key, "1001").expect_err("no node has it").to_string();
        let expected = format!("{key} = 1001: the largest node");
        assert!(refusal.contains(&expected) && refusal.contains("has 1000"), "{refusal}");
    }
    set(&mut Fixture::with_nodes(0), "memory_per_cpu", "1001").expect("nodes may come that have it");
}
