//! How a program reaches a server: the server's address, and the program's credentials.

use std::fmt;
use std::path::Path;

use crate::tls::ClientFiles;
use crate::token::{self, Secret};

/// The credentials of a client or worker.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The token. Sent in the header `Authorization`, and nowhere else.
    pub token: Option<Secret>,
    /// The CA it trusts and its own certificate, for TLS.
    pub tls: ClientFiles,
    /// Whether the token may also be sent unencrypted to another machine.
    pub plain: Plain,
}

/// What may be sent over a connection that others could intercept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plain {
    /// No token.
    #[default]
    Never,
    /// Tokens may be sent too: the user has permitted it.
    Permitted,
}

/// The address of a server, from its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether to connect over TLS.
    pub is_tls: bool,
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The URL without slashes at its end.
    pub url: String,
}

/// Why a server cannot be accessed as configured. The configuration has to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAccess(pub String);

impl fmt::Display for NoAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NoAccess {}

impl Target {
    /// Reads a URL: `http://127.0.0.1:7420`.
    ///
    /// # Errors
    /// If it is malformed or contains a secret. The error does not repeat the secret.
    pub fn read(url: &str) -> Result<Self, NoAccess> {
        let no = |why: String| Err(NoAccess(why));
        if token::is_in(url) || url.contains(['@', '?', '#']) {
            return no(
                "the server's URL must not contain credentials or a query: URLs end up in logs \
                       and process lists\n  help: use scheme://host:port, and set FILCH_TOKEN or \
                       FILCH_TOKEN_FILE"
                    .to_owned(),
            );
        }
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => {
                return no(format!(
                    "the server's URL {url} does not begin with http:// or https://\n  \
                     help: write one like http://127.0.0.1:7420"
                ));
            }
        };
        let rest = rest.trim_end_matches('/');
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = match authority.strip_prefix('[').and_then(|six| six.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let usual = if is_tls { 443 } else { 80 };
        let port = port.map_or(Some(usual), |port| port.parse().ok());
        let (Some(port), false) = (port, host.is_empty()) else {
            return no(format!(
                "malformed server URL {url}: missing host or invalid port\n  \
                 help: write one like https://build.example:7420"
            ));
        };
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { is_tls, host: host.to_owned(), port, url })
    }

    /// Whether it is on this machine, so that the connection cannot be intercepted.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost"
            || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }
}

impl Access {
    /// The token to send to this server, if any.
    ///
    /// # Errors
    /// If the connection could be intercepted.
    pub fn token_for(&self, target: &Target) -> Result<Option<&Secret>, NoAccess> {
        let is_safe = target.is_tls || target.is_here() || self.plain == Plain::Permitted;
        if self.token.is_some() && !is_safe {
            return Err(NoAccess(format!(
                "the token was not sent to {}: the connection is not encrypted\n  help: use https://, \
                 or pass --insecure-no-tls on a network that you trust",
                target.host
            )));
        }
        Ok(self.token.as_ref())
    }
}

/// Reads a token from a file that only its owner can read.
///
/// # Errors
/// If other users can read the file, or it contains no token.
pub fn read_token_file(path: &Path) -> Result<Secret, NoAccess> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    let cannot =
        |error: std::io::Error| NoAccess(format!("cannot read the token in {shown}: {error}"));
    let mode = std::fs::metadata(path).map_err(cannot)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(NoAccess(format!(
            "other users can read the token file {shown} (mode {:03o})\n  help: chmod 600 {shown}; if \
             the token may have leaked, revoke it and create another",
            mode & 0o777
        )));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    Secret::read(text.trim()).ok_or_else(|| {
        NoAccess(format!(
            "no token in {shown}\n  help: the file must hold one line that begins with {}",
            token::PREFIX
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_a_server_is() {
        for (url, is_tls, host, port, is_here) in [
            ("http://127.0.0.1:7420", false, "127.0.0.1", 7420, true),
            ("http://localhost/", false, "localhost", 80, true),
            ("https://[::1]:9", true, "::1", 9, true),
            ("https://build.example", true, "build.example", 443, false),
            ("http://10.0.0.1:7420/filch/", false, "10.0.0.1", 7420, false),
        ] {
            let target = Target::read(url).expect("a URL");
            assert_eq!((target.is_tls, &*target.host, target.port), (is_tls, host, port), "{url}");
            assert_eq!(target.is_here(), is_here, "{url}");
        }
        for url in ["", "127.0.0.1:7420", "ftp://a", "http://", "http://a:b", "http://:7420"] {
            assert!(Target::read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn secrets_in_urls_are_refused_and_not_repeated() {
        let secret = Secret::generate();
        let token = secret.reveal();
        for url in [
            format!("http://user:{token}@127.0.0.1:7420"),
            format!("http://{token}@127.0.0.1:7420"),
            format!("http://127.0.0.1:7420/?token={token}"),
            format!("http://127.0.0.1:7420/{token}"),
            "https://a?token=secret".to_owned(),
        ] {
            let said = Target::read(&url).unwrap_err().to_string();
            assert!(said.contains("FILCH_TOKEN"), "{said}");
            assert!(!token::is_in(&said) && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_token_is_not_sent_where_others_can_read_it() {
        let mut access = Access { token: Some(Secret::generate()), ..Access::default() };
        let may = |access: &Access, url| {
            access.token_for(&Target::read(url).expect("a URL")).map(|token| token.is_some())
        };
        assert_eq!(may(&access, "http://127.0.0.1:1"), Ok(true));
        assert_eq!(may(&access, "https://a:1"), Ok(true));
        let said = may(&access, "http://a:1").unwrap_err().to_string();
        assert!(said.contains("--insecure-no-tls") && !token::is_in(&said), "{said}");
        access.plain = Plain::Permitted;
        assert_eq!(may(&access, "http://a:1"), Ok(true));
        assert_eq!(may(&Access::default(), "http://a:1"), Ok(false));
    }
}
