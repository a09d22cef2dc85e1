//! What is shipped for administrators fits the programs.

use super::read;

/// `getifaddrs` finds the address that is advertised where no default route leads out; else it is that of the machine
/// itself.
#[test]
fn the_servers_unit_lets_it_find_its_addresses() {
    let unit = read("deploy/rms-server.service");
    let families = unit.lines().find_map(|line| line.strip_prefix("RestrictAddressFamilies=")).expect("a line");
    assert!(families.split(' ').any(|family| family == "AF_NETLINK"), "{families}");
}

#[test]
fn the_agents_unit_lets_jobs_outlive_it() {
    let unit = read("deploy/node-agent.service");
    for line in ["Delegate=yes", "DelegateSubgroup=limber-agent", "KillMode=process"] {
        assert!(unit.lines().any(|found| found == line), "deploy/node-agent.service has no {line}");
    }
}
