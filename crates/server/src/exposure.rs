//! Where a server may listen: on loopback always, elsewhere only with tokens and encryption.

use std::fmt;
use std::net::SocketAddr;

use filch_api::access::Plain;

/// How a server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Whether requests need a token.
    pub has_tokens: bool,
    /// Whether connections are encrypted.
    pub has_tls: bool,
    /// Whether plaintext connections are explicitly allowed.
    pub plain: Plain,
}

/// Why a server refuses to listen on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    address: SocketAddr,
    missing: Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Token,
    Tls,
}

impl fmt::Display for Exposed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, missing } = self;
        match missing {
            Missing::Token => write!(
                formatter,
                "refusing to listen on {address} without a token: any host that reaches it could run \
                 commands here\n  help: create a token first with `filch token create --role admin`, \
                 or listen on 127.0.0.1"
            ),
            Missing::Tls => write!(
                formatter,
                "refusing to listen on {address} without TLS: tokens could be read on the network\n  help: pass --tls-cert FILE and --tls-key FILE, or \
                 --insecure-no-tls if the network is encrypted, or listen on 127.0.0.1"
            ),
        }
    }
}

impl std::error::Error for Exposed {}

/// Checks whether a server with this protection may listen on this address.
///
/// # Errors
/// Returns what is missing.
pub fn check(address: SocketAddr, protection: Protection) -> Result<(), Exposed> {
    let Protection { has_tokens, has_tls, plain } = protection;
    if address.ip().is_loopback() {
        return Ok(());
    }
    // `--insecure-no-tls` replaces TLS, never tokens.
    if !has_tokens {
        return Err(Exposed { address, missing: Missing::Token });
    }
    if !has_tls && plain == Plain::Never {
        return Err(Exposed { address, missing: Missing::Tls });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All cases: for each address, with and without tokens, TLS and permission for plaintext.
    #[test]
    fn every_case_is_as_the_table_says() {
        let table = "
            address        nothing  plain  tls    tls+plain  token  token+plain  token+tls  all
            127.0.0.1:1    ok       ok     ok     ok         ok     ok           ok         ok
            [::1]:1        ok       ok     ok     ok         ok     ok           ok         ok
            0.0.0.0:1      token    token  token  token      tls    ok           ok         ok
            [::]:1         token    token  token  token      tls    ok           ok         ok
            192.0.2.1:1    token    token  token  token      tls    ok           ok         ok";
        for line in table.trim().lines().skip(1) {
            let mut words = line.split_whitespace();
            let address = words.next().unwrap().parse().unwrap();
            for case in 0_u8..8 {
                let protection = Protection {
                    has_tokens: case & 4 > 0,
                    has_tls: case & 2 > 0,
                    plain: if case & 1 > 0 { Plain::Permitted } else { Plain::Never },
                };
                let found = match check(address, protection) {
                    Ok(()) => "ok",
                    Err(Exposed { missing: Missing::Token, .. }) => "token",
                    Err(Exposed { missing: Missing::Tls, .. }) => "tls",
                };
                assert_eq!(Some(found), words.next(), "{address} {protection:?}");
            }
        }
    }
}
