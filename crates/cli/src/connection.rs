//! Which server to talk to, and with which credentials. The server is named outright, or it is the
//! one that has the data directory open, or the one at the default address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::access::{Access, NoAccess, Plain, read_token_file};
use filch_api::client::{Client, Error};
use filch_api::tls::{ClientFiles, Identity};
use filch_api::token::Secret;
use filch_store::Location;

use crate::exit::{self, Exit};
use crate::usage::Usage;

/// The default address.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// How long a server at the default address may take to answer.
const DEFAULT_SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// How to reach the server
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// URL of the server
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// Data directory of the server
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// File with the access token, unless FILCH_TOKEN holds the token itself
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// CA certificates to trust, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Client certificate for mutual TLS, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_client_cert: Option<PathBuf>,
    /// Private key of the client certificate, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_client_key: Option<PathBuf>,
    /// Allow plaintext connections to other hosts (exposes tokens)
    #[arg(long, global = true)]
    insecure_no_tls: bool,
}

impl Connection {
    /// The data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new("."))
    }

    /// The store in the data directory.
    pub(crate) fn store(&self) -> Location {
        Location::from(self.data_dir().join("filch.db"))
    }

    /// The URL of the server that has the data directory open, if there is one.
    pub(crate) fn running_server(&self) -> Option<String> {
        filch_store::holder(&self.store())?.url
    }

    /// The URL of the server. If a data directory was named, the default address does not count: it
    /// may belong to a server with other data.
    pub(crate) fn url(&self) -> Result<String> {
        match self.server.clone().or_else(|| self.running_server()) {
            Some(url) => Ok(url),
            None if self.data.is_none() => Ok(DEFAULT_URL.to_owned()),
            None => {
                let text = format!(
                    "no server has {} open\n  help: start one with `filch up --data {}`, or name a \
                     running one with --data DIR or --server URL",
                    self.store(),
                    self.data_dir().display()
                );
                Err(Exit::new(exit::UNREACHABLE, text).into())
            }
        }
    }

    pub(crate) fn client(&self) -> Result<Client> {
        self.client_at(&self.url()?)
    }

    /// A client for another server, with the same credentials.
    pub(crate) fn client_at(&self, url: &str) -> Result<Client> {
        Ok(Client::with(url, &self.access()?)?)
    }

    /// The server at the default address, if one answers there, even if it rejects our token. It is
    /// only used if no data directory was named and the current one holds no data.
    pub(crate) async fn default_server(&self) -> Result<Option<Client>> {
        if self.data.is_some() || self.store().exists() {
            return Ok(None);
        }
        let client = self.client_at(DEFAULT_URL)?;
        let answer = tokio::time::timeout(DEFAULT_SERVER_TIMEOUT, client.status()).await;
        Ok(matches!(answer, Ok(Ok(_) | Err(Error::Refused(_)))).then_some(client))
    }

    /// The credentials for the server.
    pub(crate) fn access(&self) -> Result<Access> {
        let token = self.token().map_err(Error::NoAccess)?;
        let identity = match (&self.tls_client_cert, &self.tls_client_key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let what = "a client certificate and its key must be given together";
                return Err(Usage::new(what, "give --tls-client-cert and --tls-client-key").into());
            }
        };
        let tls = ClientFiles { ca: self.tls_ca.clone(), identity };
        Ok(Access { token, tls, plain: self.plain() })
    }

    /// Whether plaintext connections to other hosts are allowed.
    pub(crate) const fn plain(&self) -> Plain {
        if self.insecure_no_tls { Plain::Permitted } else { Plain::Never }
    }

    /// The token is never a command-line argument, which every process on the machine could read.
    fn token(&self) -> Result<Option<Secret>, NoAccess> {
        if let Some(text) = std::env::var_os("FILCH_TOKEN").filter(|text| !text.is_empty()) {
            let secret = text.to_str().and_then(|text| Secret::read(text.trim()));
            let none = "malformed token in FILCH_TOKEN\n  help: copy the whole token; it starts with filch_";
            return secret.map(Some).ok_or_else(|| NoAccess(none.to_owned()));
        }
        self.token_file.as_deref().map(read_token_file).transpose()
    }
}
