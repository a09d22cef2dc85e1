//! Finds the address at which other machines reach this server, for tokens and `client.toml`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// Returns the address as configured (`HOST` or `HOST:PORT`), else the one that the server listens on. If that is the
/// wildcard address: the source address of the default route, or the first one of an interface to other machines.
pub fn advertised_address(advertise: Option<&str>, listening: SocketAddr) -> String {
    match advertise {
        Some(host) => with_port(host, listening.port()),
        None if !listening.ip().is_unspecified() => listening.to_string(),
        None => {
            let ip = own_address(listening.is_ipv6()).unwrap_or(Ipv4Addr::LOCALHOST.into());
            SocketAddr::new(ip, listening.port()).to_string()
        }
    }
}

/// Returns whether a text can be advertised: a name or an address, with or without a port.
pub fn is_advertisable(text: &str) -> bool {
    let address = with_port(text, 1);
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let is_somewhere = match without_brackets(host).parse::<IpAddr>() {
        Ok(ip) => !ip.is_unspecified(),
        Err(_) => is_name(host),
    };
    is_somewhere && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns whether a text is a name of the DNS: parts of letters, digits, `-` and `_`, none with a `-` at an end.
fn is_name(text: &str) -> bool {
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let is_part = |part: &str| !part.is_empty() && is_plain(part) && !part.starts_with('-') && !part.ends_with('-');
    text.strip_suffix('.').unwrap_or(text).split('.').all(is_part)
}

/// Returns an address without the pair of brackets around it, if there is one.
fn without_brackets(address: &str) -> &str {
    address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address)
}

fn with_port(host: &str, port: u16) -> String {
    match without_brackets(host).parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => host.to_owned(),
        Err(_) => format!("{host}:{port}"),
    }
}

fn own_address(with_ipv6: bool) -> Option<IpAddr> {
    routed_address(with_ipv6).or_else(|| interface_address(with_ipv6))
}

/// Returns the source address of the default route. Connecting a datagram socket sends nothing; it only selects a
/// route.
fn routed_address(with_ipv6: bool) -> Option<IpAddr> {
    let source = |any: IpAddr, world: IpAddr| {
        let probe = UdpSocket::bind((any, 0)).ok()?;
        probe.connect((world, 9)).ok()?;
        Some(probe.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    // Addresses reserved for documentation: nobody has them, so only a default route leads there.
    let v4 = source(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(203, 0, 113, 1).into());
    v4.or_else(|| {
        let documentation = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        if with_ipv6 { source(Ipv6Addr::UNSPECIFIED.into(), documentation.into()) } else { None }
    })
}

fn interface_address(with_ipv6: bool) -> Option<IpAddr> {
    let leads_out = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let outside = getifaddrs().ok()?.filter(|interface| {
        interface.flags.contains(leads_out) && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    let addresses: Vec<IpAddr> = outside
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            v4.or(v6)
        })
        .collect();
    let is_usable = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => with_ipv6 && !ip.is_unicast_link_local(),
    };
    let usable = addresses.iter().filter(is_usable);
    // More clients can reach an IPv4 address.
    usable.clone().find(|ip| ip.is_ipv4()).or_else(|| usable.clone().next()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(listening: &str) -> SocketAddr {
        listening.parse().expect("an address")
    }

    #[test]
    fn what_is_configured_goes_before_what_is_bound() {
        assert_eq!(advertised_address(Some("head"), at("0.0.0.0:7117")), "head:7117");
        assert_eq!(advertised_address(Some("head.example.org:70"), at("0.0.0.0:7117")), "head.example.org:70");
        assert_eq!(advertised_address(Some("10.0.0.1"), at("0.0.0.0:7117")), "10.0.0.1:7117");
        assert_eq!(advertised_address(Some("fd00::1"), at("[::]:7117")), "[fd00::1]:7117");
        assert_eq!(advertised_address(Some("[fd00::1]:70"), at("[::]:7117")), "[fd00::1]:70");
        assert_eq!(advertised_address(None, at("10.0.0.7:1")), "10.0.0.7:1");
        assert_eq!(advertised_address(None, at("127.0.0.1:1")), "127.0.0.1:1", "as it was asked for");
    }

    #[test]
    fn who_listens_everywhere_is_not_at_no_address() {
        let found: SocketAddr = advertised_address(None, at("0.0.0.0:7117")).parse().expect("an address");
        assert!(!found.ip().is_unspecified() && found.port() == 7117, "{found}");
        let has_other = interface_address(false).is_some();
        assert_eq!(found.ip().is_loopback(), !has_other && routed_address(false).is_none(), "{found}");
    }

    #[test]
    fn only_what_leads_somewhere_can_be_advertised() {
        let names = ["head", "head.example.org:7117", "head.example.org.", "node-1_a"];
        for right in names.into_iter().chain(["10.0.0.1", "10.0.0.1:1", "fd00::1", "[fd00::1]", "[fd00::1]:1"]) {
            assert!(is_advertisable(right), "{right}");
        }
        for wrong in ["", ":7117", "head:0", "head:x", "a b", "0.0.0.0", "[::]:1", "head:70000", "a:b:1"] {
            assert!(!is_advertisable(wrong), "{wrong}");
        }
        for wrong in ["[::1", "::1]", "[[::1]]", "[::1:7117", "..", ".", "-", "-a", "a..b", ".a", "..:7117"] {
            assert!(!is_advertisable(wrong), "{wrong}");
        }
    }
}
