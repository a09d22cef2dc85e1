//! Tests of settings: values of the file, values set by an admin at run time, and which of them apply after a restart.

use std::fs;

use rms_api::Answer;
use rms_api::Call;
use rms_api::call::Query;

use crate::deployment::{Client, FakeAgent, Server, tell};

async fn value(client: &Client, key: &str) -> String {
    match client.call(&Call::Query(Query::Settings)).await.expect("settings") {
        Answer::Settings(settings) => settings.into_iter().find(|(name, _)| name == key).expect("a setting").1,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_file_sets_what_no_admin_has_set() {
    tell(async {
        let mut server = Server::start();
        let config = server.path().join("rms-server.toml");
        server.kill();
        fs::write(&config, "[settings]\nfair_start = '5s'\nqueue_depth = 7\n").expect("a file");
        server.restart();
        let admin = server.admin().await;
        assert_eq!(value(&admin, "fair_start").await, "5s");
        let set = Call::Set { key: "fair_start".to_owned(), value: "30s".to_owned() };
        assert_eq!(admin.call(&set).await.expect("an admin may"), Answer::Done);

        server.kill();
        fs::write(&config, "[settings]\nfair_start = '6s'\nqueue_depth = 8\n").expect("a file");
        server.restart();
        let admin = server.admin().await;
        assert_eq!(value(&admin, "fair_start").await, "30s", "set by an admin");
        assert_eq!(value(&admin, "queue_depth").await, "8", "never set by an admin");
        let Answer::Audit(changes) = admin.call(&Call::Query(Query::Audit)).await.expect("an audit") else {
            panic!("no audit")
        };
        let told: Vec<(&str, &str, &str, &str)> = changes
            .iter()
            .map(|change| (change.by.as_str(), change.subject.as_str(), change.old.as_str(), change.new.as_str()))
            .collect();
        let admin_name = nix::unistd::User::from_uid(nix::unistd::getuid()).expect("a lookup").expect("a user").name;
        assert_eq!(
            told,
            [
                ("the configuration file", "fair_start", "0s", "5s"),
                ("the configuration file", "queue_depth", "1000", "7"),
                (admin_name.as_str(), "fair_start", "5s", "30s"),
                ("the configuration file", "queue_depth", "7", "8"),
            ]
        );
    });
}

/// The driver measures passes: a queue for which they are fast enough is considered to its end.
#[test]
fn long_the_depth_of_the_queue_follows_how_long_passes_take() {
    tell(async {
        let server = Server::start();
        let admin = server.admin().await;
        for (key, value) in [("queue_depth", "auto"), ("pass_time", "1h"), ("submit_limit", "none")] {
            let set = Call::Set { key: key.to_owned(), value: value.to_owned() };
            assert_eq!(admin.call(&set).await.expect("an admin may"), Answer::Done);
        }
        let credentials = server.agent_credentials("n1").await;
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        assert_eq!(depth(&admin).await, Some(1000));
        for _ in 0..1010 {
            admin.submit("waits").await;
        }
        for _ in 0..100 {
            if depth(&admin).await == Some(2000) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("it stays at {:?}", depth(&admin).await);
    });
}

async fn depth(client: &Client) -> Option<u32> {
    match client.call(&Call::Query(Query::Status)).await.expect("a status") {
        Answer::Status(status) => status.queue_depth,
        other => panic!("{other:?}"),
    }
}
