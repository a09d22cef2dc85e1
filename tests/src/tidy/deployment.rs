//! What is shipped for administrators fits the programs.

use super::read;

#[test]
fn the_sample_configuration_of_the_server_is_the_one_it_documents() {
    assert_eq!(
        read("deploy/rms-server.toml"),
        rms_server::config::DEFAULTS,
        "write it anew: rms-server print-config > deploy/rms-server.toml"
    );
}

#[test]
fn the_agents_unit_lets_jobs_outlive_it() {
    let unit = read("deploy/node-agent.service");
    for line in ["Delegate=yes", "KillMode=process"] {
        assert!(unit.lines().any(|found| found == line), "deploy/node-agent.service has no {line}");
    }
}
