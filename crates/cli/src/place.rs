//! Where the server is: said outright, found beside the data, or at the usual address.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;

/// The usual address.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// Which server is meant
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// The server's URL [default: the one that has the data open, else http://127.0.0.1:7420]
    #[arg(long, env = "FILCH_URL", hide_env_values = true, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// The folder with the data
    #[arg(
        long,
        env = "FILCH_DATA",
        hide_env_values = true,
        value_name = "DIR",
        default_value = ".",
        global = true
    )]
    pub(crate) data: PathBuf,
}

impl Place {
    /// The file with everything in it.
    pub(crate) fn file(&self) -> PathBuf {
        self.data.join("filch.db")
    }

    /// The server that has the data open, if there is one.
    pub(crate) fn holder(&self) -> Option<String> {
        filch_store::holder(&self.file())?.url
    }

    /// Where the server should be.
    pub(crate) fn url(&self) -> String {
        let said = self.server.clone().or_else(|| self.holder());
        said.unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url())?)
    }
}
