//! Where the server is: said outright, found beside the data, or at the usual address; and what is shown
//! to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::access::{Access, NoAccess, Plain, read_token_file};
use filch_api::client::{Client, Error};
use filch_api::tls::{ClientFiles, Identity};
use filch_api::token::Secret;

use crate::data;
use crate::exit::{self, Exit};
use crate::usage::Usage;

/// The usual address.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// How long somebody at the usual address may take to answer.
const DEFAULT_SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Which server is meant
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The server's URL
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// The folder with the data
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// A file that holds the token to show, unless FILCH_TOKEN is the token itself
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The CA of the server's certificate, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// A certificate to show to a server that wants to see one, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_client_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", global = true)]
    tls_client_key: Option<PathBuf>,
    /// Speak also with other machines without TLS: whoever can listen then has the tokens
    #[arg(long, global = true)]
    insecure_no_tls: bool,
}

impl Connection {
    /// The folder with the data.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new("."))
    }

    /// The file with everything in it.
    pub(crate) fn store_file(&self) -> PathBuf {
        self.data_dir().join("filch.db")
    }

    /// The server that has the data open, if there is one.
    pub(crate) fn running_server(&self) -> Option<String> {
        filch_store::holder(&self.store_file())?.url
    }

    /// Where the server should be. Whoever says which data is meant does not mean another server's.
    pub(crate) fn url(&self) -> Result<String> {
        match self.server.clone().or_else(|| self.running_server()) {
            Some(url) => Ok(url),
            None if self.data.is_none() => Ok(DEFAULT_URL.to_owned()),
            None => {
                let text = format!(
                    "no server has {} open\n  help: start one with `filch up --data {}`, or say \
                     where it is with --data DIR or --server URL",
                    self.store_file().display(),
                    self.data_dir().display()
                );
                Err(Exit::new(exit::UNREACHABLE, text).into())
            }
        }
    }

    pub(crate) fn client(&self) -> Result<Client> {
        self.client_at(&self.url()?)
    }

    /// The way to another server, with the same to show.
    pub(crate) fn client_at(&self, url: &str) -> Result<Client> {
        Ok(Client::with(url, &self.access()?)?)
    }

    /// The server at the usual address, if one is there: also if it wants to see another token first. It
    /// counts only for those who do not say which data is meant, and have none here.
    pub(crate) async fn default_server(&self) -> Result<Option<Client>> {
        if self.data.is_some() || data::is_there(&self.store_file()) {
            return Ok(None);
        }
        let client = self.client_at(DEFAULT_URL)?;
        let answer = tokio::time::timeout(DEFAULT_SERVER_TIMEOUT, client.status()).await;
        Ok(matches!(answer, Ok(Ok(_) | Err(Error::Refused(_)))).then_some(client))
    }

    /// What is shown to a server.
    pub(crate) fn access(&self) -> Result<Access> {
        let token = self.token().map_err(Error::NoAccess)?;
        let identity = match (&self.tls_client_cert, &self.tls_client_key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let what = "a certificate is of no use without its key, nor a key without it";
                return Err(Usage::new(what, "give --tls-client-cert and --tls-client-key").into());
            }
        };
        let tls = ClientFiles { ca: self.tls_ca.clone(), identity };
        Ok(Access { token, tls, plain: self.plain() })
    }

    /// What may be said in the open.
    pub(crate) const fn plain(&self) -> Plain {
        if self.insecure_no_tls { Plain::Permitted } else { Plain::Never }
    }

    /// A token itself is never on the command line, where every process of the machine can read it.
    fn token(&self) -> Result<Option<Secret>, NoAccess> {
        if let Some(text) = std::env::var_os("FILCH_TOKEN").filter(|text| !text.is_empty()) {
            let secret = text.to_str().and_then(|text| Secret::read(text.trim()));
            let none =
                "FILCH_TOKEN holds no token\n  help: it should begin with filch_ and be whole";
            return secret.map(Some).ok_or_else(|| NoAccess(none.to_owned()));
        }
        self.token_file.as_deref().map(read_token_file).transpose()
    }
}
