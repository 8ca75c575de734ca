//! `filch token`: who may do what with a server.
//!
//! A server that runs is asked; if none has the data open, the file with the data is. So the first token
//! can be made before the first start.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use filch_api::client::{Client, Error};
use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_api::token::{Made, Role, Token, TokenRequest, read_span};
use filch_server::tokens;
use filch_store::{OwnerNote, Sqlite};
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

/// Make a token; it is shown once and never again
#[derive(Args)]
#[command(after_help = "Roles: submit hands jobs in and sees to them by their ids; work runs jobs;
view looks; operate looks and sees to what is there; admin may do everything.
The first token has to be an admin's: from then on everybody needs one.

Examples:
  (umask 077; filch token create --role admin > admin.token)
  FILCH_TOKEN_FILE=admin.token filch token create --role submit --queue ci --expires 30d")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    form: Json,
    /// What it is for: submit, work, view, operate or admin
    #[arg(long, value_name = "ROLE")]
    role: Role,
    /// Only for this queue; may be given several times
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
    /// Let it end after this span: 30d, 12h
    #[arg(long, value_name = "SPAN", value_parser = checked_span)]
    expires: Option<String>,
    /// Whose it is, for people
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
}

/// List tokens, those that have ended too; never the tokens themselves
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    form: JsonOrLines,
}

/// End a token at once; whoever is connected with it is sent away
#[derive(Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Its id, as `filch token list` shows it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

fn checked_span(text: &str) -> Result<String, String> {
    read_span(text).map(|_| text.to_owned())
}

pub(crate) fn run(group: Group<TokenCommand>) -> Result<ExitCode> {
    let Group { connection, command } = group;
    block_on_interruptible(async {
        let tokens_in = TokenStore::find(&connection, &command).await?;
        match command {
            TokenCommand::Create(create) => self::create(&tokens_in, create).await,
            TokenCommand::List(list) => self::list(&tokens_in, &list).await,
            TokenCommand::Revoke(revoke) => self::revoke(&tokens_in, &revoke).await,
        }
    })
}

/// Who keeps the tokens.
enum TokenStore {
    /// A server.
    Server(Client),
    /// We ourselves, for a moment.
    File(Box<Sqlite>),
}

impl TokenStore {
    async fn find(connection: &Connection, command: &TokenCommand) -> Result<Self> {
        if connection.server.is_some() || connection.running_server().is_some() {
            return Ok(Self::Server(connection.client()?));
        }
        if !data::is_there(&connection.store_file()) {
            if let Some(usual) = connection.default_server().await? {
                return Ok(Self::Server(usual));
            }
            if !matches!(command, TokenCommand::Create(_)) {
                let text = format!(
                    "there are no tokens: nothing is kept in {}, and no server was found\n  \
                     help: say where they are, with --data DIR or --server URL",
                    connection.data_dir().display()
                );
                return Err(Exit::new(exit::NOT_FOUND, text).into());
            }
        }
        data::make(connection.data_dir())?;
        let file = connection.store_file();
        let opening = move || {
            Sqlite::open(&file, &OwnerNote::this_process())
                .map_err(|error| data::unopened(&file, &error))
        };
        Ok(Self::File(Box::new(tokio::task::spawn_blocking(opening).await??)))
    }
}

/// What the store said no to, as a server would have.
fn refused(problem: Problem) -> anyhow::Error {
    Error::Refused(problem).into()
}

async fn create(tokens_in: &TokenStore, create: CreateArgs) -> Result<ExitCode> {
    let CreateArgs { form, role, queues, expires, name } = create;
    let wanted = TokenRequest { role, queues, expires, name };
    let made = match tokens_in {
        TokenStore::Server(client) => client.make_token(&wanted).await?,
        TokenStore::File(store) => {
            wanted.validate().and_then(|judged| tokens::make(&**store, judged)).map_err(refused)?
        }
    };
    if form.json {
        document::print(&made)?;
    } else {
        output::data(&format!("{}\n", made.secret.reveal()))?;
    }
    let Made { token: Token { id, role, .. }, .. } = &made;
    message(format_args!(
        "made token {id} with the role {role}; it is not shown again\n  \
         to use it: write it to a file with mode 600 and set FILCH_TOKEN_FILE to that file's name"
    ));
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Tokens {
    tokens: Vec<Token>,
}

async fn list(tokens_in: &TokenStore, options: &ListArgs) -> Result<ExitCode> {
    let tokens = all(tokens_in).await?;
    if options.form.json {
        document::print(Tokens { tokens })?;
    } else if options.form.jsonl {
        tokens.iter().try_for_each(document::line)?;
    } else {
        show(&tokens)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(tokens_in: &TokenStore) -> Result<Vec<Token>> {
    Ok(match tokens_in {
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

async fn revoke(tokens_in: &TokenStore, options: &RevokeArgs) -> Result<ExitCode> {
    let RevokeArgs { confirm, form, id } = options;
    if filch_api::token::is_in(id) {
        let text = "this is a token itself, where its id is meant; now it is in the list of processes \
                    and perhaps in a history\n  help: `filch token list` shows the id: the eight \
                    digits after filch_";
        return Err(Exit::new(exit::USAGE, text).into());
    }
    if confirm.dry_run {
        let mut tokens = all(tokens_in).await?;
        tokens.retain(|token| token.id == *id && token.revoked_at.is_none());
        if tokens.is_empty() {
            let text = format!("no token {id:?} is in use\n  help: `filch token list` shows them");
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
    match tokens_in {
        TokenStore::Server(client) => client.revoke_token(id).await?,
        TokenStore::File(store) => tokens::revoke(&**store, id).map_err(refused)?,
    }
    if form.json {
        document::print(Revoked { revoked: id, dry_run: false })?;
    }
    message(format_args!("revoked token {id}"));
    Ok(ExitCode::SUCCESS)
}
