//! An application may choose only from a share of each cluster (001, §8).

use super::*;

#[test]
fn a_launcher_is_shown_a_share_of_each_cluster_and_asks_for_no_more() {
    let mut launchers = Launchers::new();
    launchers.set("view_share", "50");
    let holder = launchers.waiting(on_a(1, 100));
    launchers.accept(holder, 1);
    let (job, other) = (launchers.subscribe(), launchers.subscribe());
    launchers.set("view_share@b", "1");
    let changes = launchers.changes(job);
    let first = launchers.shape(&changes[0]);
    assert_eq!(first, [(A, (2, Some(Vec::new()))), (B, (1, Some(Vec::new())))].into(), "of 4 with 3 free, and of 2");
    let infos = launchers.infos(job);
    assert_eq!(infos.clusters.iter().map(|info| info.nodes).collect::<Vec<_>>(), [2, 1]);
    let refused = launchers.try_request(job, 1, on_a(3, 60)).expect_err("it is more than the share").to_string();
    let possible = "cluster a lets one application choose from 2 of its 4 (view_share), \
                    cluster b lets one application choose from 1 of its 2 (view_share)";
    assert_eq!(refused, format!("3 nodes are needed, but {possible}"));
    launchers.request(job, 1, on_a(2, 60));
    launchers.grant(job);
    assert_eq!(
        launchers.changes(other).last().map(|change| launchers.shape(change)[&A].clone()),
        Some((2, Some(vec![(60, 1)])))
    );
}

/// The share is rounded up, and filters that want more nodes do not show the cluster.
#[test]
fn a_filter_wants_its_least_nodes_of_the_share() {
    let mut launchers = Launchers::new();
    launchers.set("view_share", "51");
    let of_three = launchers.subscribe_with(Filter { least_nodes: 3, ..Filter::default() }).expect("a has them");
    let change = launchers.change(of_three);
    assert_eq!(launchers.shape(&change), [(A, (3, Some(Vec::new())))].into());
    let of_four = launchers.subscribe_with(Filter { least_nodes: 4, ..Filter::default() });
    assert!(of_four.expect_err("nobody may choose from 4").to_string().contains("choose from 3 of its 4"));
}

/// Changes beyond the share are not notified; a change of the share is.
#[test]
fn only_what_is_shown_is_news() {
    let mut launchers = Launchers::new();
    launchers.set("view_share@a", "50");
    let job = launchers.subscribe();
    launchers.told.clear();
    launchers.waiting(on_a(1, 100));
    assert_eq!(launchers.changes(job), [], "3 are free, and 2 are shown");
    launchers.waiting(on_a(1, 50));
    assert_eq!(launchers.changes(job), [], "2 are free");
    launchers.waiting(on_a(1, 30));
    let change = launchers.change(job);
    assert_eq!(launchers.shape(&change), [(A, (2, Some(vec![(30, 1)])))].into());
    launchers.set("view_share@a", "default");
    let change = launchers.change(job);
    assert_eq!(launchers.shape(&change), [(A, (4, Some(vec![(30, 3), (20, 2), (50, 1)])))].into());
    assert!(change.clusters.iter().all(|cluster| cluster.info), "the cluster looks larger");
}
