//! What is shipped for administrators fits the programs.

use super::read;

#[test]
fn the_agents_unit_lets_jobs_outlive_it() {
    let unit = read("deploy/node-agent.service");
    for line in ["Delegate=yes", "DelegateSubgroup=limber-agent", "KillMode=process"] {
        assert!(unit.lines().any(|found| found == line), "deploy/node-agent.service has no {line}");
    }
}
