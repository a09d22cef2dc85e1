//! The address at which other agents reach this one: sent again with each hello, because machines move.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Determines the address that peers are told.
#[derive(Clone, Copy, Debug)]
pub struct Advertised {
    /// The configured address, which takes precedence.
    pub ip: Option<IpAddr>,
    /// The address that the endpoint is bound to.
    pub bound: SocketAddr,
}

impl Advertised {
    /// Returns the configured address, else the bound one, else the local address from which packets to the server are
    /// sent now. A link that migrates to another local address continues and sends no hello: peers learn the new
    /// address at the next connection.
    pub fn towards(&self, server: SocketAddr) -> SocketAddr {
        let ip = match self.ip {
            Some(ip) => ip,
            None if !self.bound.ip().is_unspecified() => self.bound.ip(),
            None => source_towards(server).unwrap_or(self.bound.ip()),
        };
        SocketAddr::new(ip, self.bound.port())
    }
}

fn source_towards(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    // Connecting a datagram socket sends nothing; it only chooses the route.
    let probe = UdpSocket::bind((any, 0)).ok()?;
    probe.connect(server).ok()?;
    probe.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ip: Option<&str>, bound: &str, server: &str) -> String {
        let ip = ip.map(|ip| ip.parse().expect("an address"));
        let advertised = Advertised { ip, bound: bound.parse().expect("an address") };
        advertised.towards(server.parse().expect("an address")).to_string()
    }

    #[test]
    fn what_is_configured_goes_before_what_is_bound_and_that_before_the_route() {
        assert_eq!(told(Some("10.0.0.7"), "127.0.0.2:7", "127.0.0.1:1"), "10.0.0.7:7");
        assert_eq!(told(None, "127.0.0.2:7", "127.0.0.1:1"), "127.0.0.2:7");
        assert_eq!(told(None, "0.0.0.0:7", "127.0.0.1:1"), "127.0.0.1:7");
        assert_eq!(told(None, "[::]:7", "127.0.0.1:1"), "127.0.0.1:7", "the way decides, not what is bound");
    }
}
