//! Hosts with addresses of their own: network namespaces around one bridge, gone when the test is over.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

/// Some hosts on one Ethernet. Host `n` has the address `10.77.0.<n + 1>`.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    n_hosts: u8,
}

impl Network {
    /// `None`, and says why, where no namespaces can be made.
    pub fn of_hosts(n_hosts: u8) -> Option<Network> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can make network namespaces");
            return None;
        }
        // Names of interfaces are short; those of namespaces are the machine's, so the process id is in them.
        let network = Network { prefix: format!("lm{}", std::process::id()), n_hosts };
        if !ip(&["netns", "add", &network.switch()]) {
            eprintln!("skipped: this machine allows no network namespaces");
            return None;
        }
        let switch = network.switch();
        if !ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"]) {
            eprintln!("skipped: this machine has no bridges");
            return None;
        }
        must(&["-n", &switch, "link", "set", "br0", "up"]);
        for host in 0..n_hosts {
            network.add_host(host);
        }
        Some(network)
    }

    fn add_host(&self, host: u8) {
        let (switch, name, port) = (self.switch(), self.host(host), port(host));
        must(&["netns", "add", &name]);
        must(&["-n", &name, "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns", &switch]);
        must(&["-n", &switch, "link", "set", &port, "master", "br0", "up"]);
        must(&["-n", &name, "addr", "add", &format!("{}/24", self.ip(host)), "dev", "eth0"]);
        must(&["-n", &name, "link", "set", "lo", "up"]);
        must(&["-n", &name, "link", "set", "eth0", "up"]);
    }

    pub fn ip(&self, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, host + 1))
    }

    /// The command that enters a host, and gives it a name of its own where `hostname` is said.
    pub fn enter(&self, host: u8, hostname: Option<&str>) -> Vec<String> {
        let net = format!("--net=/run/netns/{}", self.host(host));
        let mut words = vec!["nsenter".to_owned(), net];
        if let Some(hostname) = hostname {
            let script = format!("hostname {hostname} && exec \"$@\"");
            words.extend(["unshare", "-u", "sh", "-c", &script, "sh"].map(str::to_owned));
        }
        words
    }

    /// Pulls the host's cable, or puts it in again.
    pub fn connect(&self, host: u8, is_connected: bool) {
        let state = if is_connected { "up" } else { "down" };
        must(&["-n", &self.switch(), "link", "set", &port(host), state]);
    }

    /// Loses everything that one host sends to another; the other way stays.
    pub fn lose(&self, from: u8, to: u8, is_lost: bool) {
        let (host, to) = (self.host(from), self.ip(to).to_string());
        if is_lost {
            // Frames for a station that does not exist.
            let nobody = "02:00:00:00:00:99";
            must(&["-n", &host, "neigh", "replace", &to, "lladdr", nobody, "dev", "eth0", "nud", "permanent"]);
        } else {
            must(&["-n", &host, "neigh", "del", &to, "dev", "eth0"]);
        }
    }

    /// Gives the host another address: `10.77.0.<100 + n>`.
    pub fn readdress(&self, host: u8) -> IpAddr {
        let (name, old) = (self.host(host), self.ip(host));
        let new = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 100 + host));
        must(&["-n", &name, "addr", "add", &format!("{new}/24"), "dev", "eth0"]);
        must(&["-n", &name, "addr", "del", &format!("{old}/24"), "dev", "eth0"]);
        // Secondary addresses may go with the primary one.
        ip(&["-n", &name, "addr", "add", &format!("{new}/24"), "dev", "eth0"]);
        new
    }

    fn switch(&self) -> String {
        format!("{}sw", self.prefix)
    }

    fn host(&self, host: u8) -> String {
        format!("{}h{host}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.n_hosts {
            ip(&["netns", "del", &self.host(host)]);
        }
        ip(&["netns", "del", &self.switch()]);
    }
}

fn port(host: u8) -> String {
    format!("port{host}")
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

fn must(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
