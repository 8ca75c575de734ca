//! The host names of a server. An attacker's site can make its own name resolve to any address (DNS
//! rebinding), and a browser then treats this server as that site; so requests with a name that was
//! not configured for this server are refused. An IP address cannot be rebound, so it is accepted.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The names and addresses of one server.
pub(crate) struct Names {
    address: SocketAddr,
    scheme: &'static str,
    /// Further names, from the configuration.
    given: Vec<String>,
}

impl Names {
    pub(crate) fn new(address: SocketAddr, is_tls: bool, given: &[String]) -> Self {
        let given = given.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { address, scheme: if is_tls { "https" } else { "http" }, given }
    }

    /// A URL for clients.
    pub(crate) fn url(&self) -> String {
        let ip = match self.address.ip() {
            // It listens on all addresses; this machine reaches it by loopback.
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let port = self.address.port();
        match self.given.first() {
            // A certificate is issued for a name.
            Some(name) if self.scheme == "https" => format!("https://{name}:{port}"),
            _ => format!("{}://{}", self.scheme, SocketAddr::new(ip, port)),
        }
    }

    /// Whether a `Host` header names this server.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[').and_then(|six| six.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match host.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (host, None),
            },
        };
        let name = name.to_ascii_lowercase();
        if self.given.contains(&name) {
            // There may be a proxy in front that listens on another port.
            return port.is_none_or(|port| port.parse::<u16>().is_ok());
        }
        let usual = if self.scheme == "https" { 443 } else { 80 };
        let port = port.map_or(Some(usual), |port| port.parse().ok());
        port == Some(self.address.port()) && self.is_own(&name)
    }

    fn is_own(&self, name: &str) -> bool {
        if name == "localhost" {
            return true;
        }
        let Ok(ip) = name.parse::<IpAddr>() else {
            return false;
        };
        ip.is_loopback() || !self.address.ip().is_loopback()
    }

    /// Whether an `Origin` is this server.
    pub(crate) fn is_origin(&self, origin: &str) -> bool {
        let host = origin.strip_prefix(self.scheme).and_then(|rest| rest.strip_prefix("://"));
        host.is_some_and(|host| self.is_host(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str, is_tls: bool, given: &[&str]) -> Names {
        let given: Vec<String> = given.iter().map(ToString::to_string).collect();
        Names::new(address.parse().expect("an address"), is_tls, &given)
    }

    #[test]
    fn only_known_host_names_are_accepted() {
        let here = names("127.0.0.1:7420", false, &[]);
        for host in ["127.0.0.1:7420", "localhost:7420", "LocalHost:7420", "[::1]:7420"] {
            assert!(here.is_host(host), "{host}");
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:7420",
            "localhost.evil.example:7420",
            "127.0.0.1.evil.example:7420",
            "10.0.0.1:7420",
            "[::1",
            "",
        ] {
            assert!(!here.is_host(host), "{host}");
        }
        assert!(
            here.is_origin("http://localhost:7420") && !here.is_origin("https://localhost:7420")
        );
        assert!(names("127.0.0.1:80", false, &[]).is_host("localhost"));
    }

    #[test]
    fn a_reachable_server_accepts_its_addresses_and_given_names() {
        let there = names("0.0.0.0:7420", true, &["Build.example"]);
        for host in ["10.0.0.1:7420", "[fe80::1]:7420", "build.example", "BUILD.example:1"] {
            assert!(there.is_host(host), "{host}");
        }
        for host in ["evil.example:7420", "10.0.0.1:80", "build.example:x", "x.build.example"] {
            assert!(!there.is_host(host), "{host}");
        }
        assert!(
            there.is_origin("https://build.example") && !there.is_origin("http://build.example")
        );
    }

    #[test]
    fn its_url_can_be_used() {
        for (address, is_tls, given, url) in [
            ("127.0.0.1:1", false, &[][..], "http://127.0.0.1:1"),
            ("0.0.0.0:1", false, &["a"], "http://127.0.0.1:1"),
            ("[::]:1", true, &[], "https://[::1]:1"),
            ("10.0.0.1:1", true, &[], "https://10.0.0.1:1"),
            ("10.0.0.1:1", true, &["a.example", "b"], "https://a.example:1"),
        ] {
            assert_eq!(names(address, is_tls, given).url(), url);
        }
    }
}
