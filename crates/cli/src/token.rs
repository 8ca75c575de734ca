//! `filch token`: creates, lists and revokes access tokens.
//!
//! If a server has the data open, the commands ask it. Otherwise they open the store, so that the
//! first token can be created before the first start.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use filch_api::client::{Client, Error};
use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_api::token::{Made, Role, Token, TokenRequest, read_span};
use filch_server::tokens;
use filch_store::{OwnerNote, Store};
use serde::Serialize;

use crate::confirm::ConfirmOptions;
use crate::connection::Connection;
use crate::data;
use crate::document::{self, Json, JsonOrLines};
use crate::exit::{self, Exit};
use crate::group::Group;
use crate::output::{self, message};
use crate::runtime::block_on_interruptible;
use crate::table;
use crate::table::Column::Text;

/// Create, list and revoke access tokens
#[derive(Subcommand)]
#[command(after_help = "Examples:
  filch token create --role admin
  filch token list
  filch token revoke --dry-run 1f9a0c33
  filch token revoke 1f9a0c33")]
pub(crate) enum TokenCommand {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Create a token and print it; it is shown only once
#[derive(Args)]
#[command(
    after_help = "Roles: submit may submit jobs, and show and cancel them by id; work may run jobs; view may read
everything; operate may also change jobs, queues and workers; admin may do everything. The first
token must have the role admin; from then on every request needs a token.

Examples:
  (umask 077; filch token create --role admin > admin.token)
  FILCH_TOKEN_FILE=admin.token filch token create --role submit --queue ci --expires 30d"
)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    form: Json,
    /// Role: submit, work, view, operate or admin
    #[arg(long, value_name = "ROLE")]
    role: Role,
    /// Restrict the token to this queue (repeatable)
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
    /// Expire after this time (30d, 12h)
    #[arg(long, value_name = "DURATION", value_parser = checked_span)]
    expires: Option<String>,
    /// Description, such as the name of the user
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
}

/// List tokens, including expired and revoked ones (without the secrets)
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    form: JsonOrLines,
}

/// Revoke a token at once and close its connections
#[derive(Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Token id, from `filch token list`
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

fn checked_span(text: &str) -> Result<String, String> {
    read_span(text).map(|_| text.to_owned())
}

pub(crate) fn run(group: Group<TokenCommand>) -> Result<ExitCode> {
    let Group { connection, command } = group;
    block_on_interruptible(async {
        let store = TokenStore::find(&connection, &command).await?;
        match command {
            TokenCommand::Create(create) => self::create(&store, create).await,
            TokenCommand::List(list) => self::list(&store, &list).await,
            TokenCommand::Revoke(revoke) => self::revoke(&store, &revoke).await,
        }
    })
}

/// Where the tokens are.
enum TokenStore {
    /// On a running server.
    Server(Client),
    /// In a store that no server has open.
    File(Box<dyn Store>),
}

impl TokenStore {
    async fn find(connection: &Connection, command: &TokenCommand) -> Result<Self> {
        if connection.server.is_some() || connection.running_server().is_some() {
            return Ok(Self::Server(connection.client()?));
        }
        if !connection.store().exists() {
            if let Some(usual) = connection.default_server().await? {
                return Ok(Self::Server(usual));
            }
            if !matches!(command, TokenCommand::Create(_)) {
                let text = format!(
                    "no tokens: there is no store in {}, and no server was found\n  help: name the \
                     data directory with --data DIR, or the server with --server URL",
                    connection.data_dir().display()
                );
                return Err(Exit::new(exit::NOT_FOUND, text).into());
            }
        }
        data::make(connection.data_dir())?;
        let store = connection.store();
        let opening = move || {
            filch_store::open(&store, &OwnerNote::this_process())
                .map_err(|error| data::unopened(&store, &error))
        };
        Ok(Self::File(tokio::task::spawn_blocking(opening).await??))
    }
}

/// A refusal by the store, in the same form as a refusal by a server.
fn refused(problem: Problem) -> anyhow::Error {
    Error::Refused(problem).into()
}

async fn create(store: &TokenStore, create: CreateArgs) -> Result<ExitCode> {
    let CreateArgs { form, role, queues, expires, name } = create;
    let wanted = TokenRequest { role, queues, expires, name };
    let made = match store {
        TokenStore::Server(client) => client.make_token(&wanted).await?,
        TokenStore::File(store) => wanted
            .validate()
            .and_then(|judged| tokens::make(&**store, judged, None))
            .map_err(refused)?,
    };
    if form.json {
        document::print(&made)?;
    } else {
        output::data(&format!("{}\n", made.secret.reveal()))?;
    }
    let Made { token: Token { id, role, .. }, .. } = &made;
    message(format_args!(
        "created token {id} with the role {role}; it is not shown again\n  help: store it in a \
         file with mode 600, and set FILCH_TOKEN_FILE to the path of that file"
    ));
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Tokens {
    tokens: Vec<Token>,
}

async fn list(store: &TokenStore, options: &ListArgs) -> Result<ExitCode> {
    let tokens = all(store).await?;
    document::list(options.form, tokens, |tokens| Tokens { tokens }, show)?;
    Ok(ExitCode::SUCCESS)
}

async fn all(store: &TokenStore) -> Result<Vec<Token>> {
    Ok(match store {
        TokenStore::Server(client) => client.tokens().await?,
        TokenStore::File(store) => tokens::list(&**store).map_err(refused)?,
    })
}

fn show(tokens: &[Token]) -> Result<()> {
    let moment = |moment: &Option<Moment>| moment.map(|at| at.to_string()).unwrap_or_default();
    let row = |token: &Token| {
        vec![
            token.id.clone(),
            token.role.to_string(),
            token.queues.join(","),
            token.created_at.to_string(),
            moment(&token.expires_at),
            moment(&token.revoked_at),
            token.name.clone(),
        ]
    };
    let columns = ["id", "role", "queues", "created", "expires", "revoked", "name"].map(Text);
    table::list(&columns, &tokens.iter().map(row).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Revoked<'a> {
    revoked: &'a str,
    dry_run: bool,
}

async fn revoke(store: &TokenStore, options: &RevokeArgs) -> Result<ExitCode> {
    let RevokeArgs { confirm, form, id } = options;
    if filch_api::token::is_in(id) {
        let text = "this is the secret token, not its id; it is now visible in the process list and perhaps \
                    in the shell history\n  help: revoke it by its id, the eight digits after \
                    filch_ (see `filch token list`)";
        return Err(Exit::new(exit::USAGE, text).into());
    }
    if confirm.dry_run {
        let mut tokens = all(store).await?;
        tokens.retain(|token| token.id == *id && token.revoked_at.is_none());
        if tokens.is_empty() {
            let text =
                format!("no active token {id:?}\n  help: list the tokens with `filch token list`");
            return Err(Exit::new(exit::NOT_FOUND, text).into());
        }
        if form.json {
            document::print(Revoked { revoked: id, dry_run: true })?;
        } else {
            show(&tokens)?;
        }
        message(format_args!("token {id} would be revoked"));
        return Ok(ExitCode::SUCCESS);
    }
    confirm.confirm(&format!("revoke token {id}?"))?;
    match store {
        TokenStore::Server(client) => client.revoke_token(id).await?,
        TokenStore::File(store) => tokens::revoke(&**store, id, None).map_err(refused)?,
    }
    if form.json {
        document::print(Revoked { revoked: id, dry_run: false })?;
    }
    message(format_args!("revoked token {id}"));
    Ok(ExitCode::SUCCESS)
}
