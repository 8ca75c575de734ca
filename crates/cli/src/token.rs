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
use filch_api::token::{Made, Role, Token, Wanted, read_span};
use filch_server::tokens;
use filch_store::{OwnerNote, Sqlite};
use serde::Serialize;

use crate::confirm::Caution;
use crate::data;
use crate::document::{self, Json, JsonOrLines};
use crate::exit::{self, Exit};
use crate::output::{self, talk};
use crate::place::Place;
use crate::runtime::ask;
use crate::table;
use crate::table::Column::Text;

/// Say who may do what: make tokens, list and revoke them
#[derive(Args)]
#[command(after_help = "Examples:
  filch token create --role admin
  filch token list
  filch token revoke --dry-run 1f9a0c33
  filch token revoke 1f9a0c33")]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Make a token; it is shown once and never again
#[derive(Args)]
#[command(after_help = "Roles: submit hands jobs in and sees to them by their ids; work runs jobs;
view looks; operate looks and sees to what is there; admin may do everything.
The first token has to be an admin's: from then on everybody needs one.

Examples:
  (umask 077; filch token create --role admin > admin.token)
  FILCH_TOKEN_FILE=admin.token filch token create --role submit --queue ci --expires 30d")]
struct Create {
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
struct List {
    #[command(flatten)]
    form: JsonOrLines,
}

/// End a token at once; whoever is connected with it is sent away
#[derive(Args)]
struct Revoke {
    #[command(flatten)]
    caution: Caution,
    #[command(flatten)]
    form: Json,
    /// Its id, as `filch token list` shows it
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

fn checked_span(text: &str) -> Result<String, String> {
    read_span(text).map(|_| text.to_owned())
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, command } = options;
    ask(async {
        let keeper = Keeper::find(&place, &command).await?;
        match command {
            Command::Create(create) => self::create(&keeper, create).await,
            Command::List(list) => self::list(&keeper, &list).await,
            Command::Revoke(revoke) => self::revoke(&keeper, &revoke).await,
        }
    })
}

/// Who keeps the tokens.
enum Keeper {
    /// A server.
    There(Client),
    /// We ourselves, for a moment.
    Here(Box<Sqlite>),
}

impl Keeper {
    async fn find(place: &Place, command: &Command) -> Result<Self> {
        if place.server.is_some() || place.holder().is_some() {
            return Ok(Self::There(place.client()?));
        }
        if !data::is_there(&place.file()) {
            if let Some(usual) = place.usual().await? {
                return Ok(Self::There(usual));
            }
            if !matches!(command, Command::Create(_)) {
                let text = format!(
                    "there are no tokens: nothing is kept in {}, and no server was found\n  \
                     help: say where they are, with --data DIR or --server URL",
                    place.data().display()
                );
                return Err(Exit::new(exit::NOT_FOUND, text).into());
            }
        }
        data::make(place.data())?;
        let file = place.file();
        let opening = move || {
            Sqlite::open(&file, &OwnerNote::this_process())
                .map_err(|error| data::unopened(&file, &error))
        };
        Ok(Self::Here(Box::new(tokio::task::spawn_blocking(opening).await??)))
    }
}

/// What the store said no to, as a server would have.
fn refused(problem: Problem) -> anyhow::Error {
    Error::Refused(problem).into()
}

async fn create(keeper: &Keeper, create: Create) -> Result<ExitCode> {
    let Create { form, role, queues, expires, name } = create;
    let wanted = Wanted { role, queues, expires, name };
    let made = match keeper {
        Keeper::There(client) => client.make_token(&wanted).await?,
        Keeper::Here(store) => {
            wanted.judge().and_then(|judged| tokens::make(&**store, judged)).map_err(refused)?
        }
    };
    if form.json {
        document::print(&made)?;
    } else {
        output::data(&format!("{}\n", made.secret.reveal()))?;
    }
    let Made { token: Token { id, role, .. }, .. } = &made;
    talk(format_args!(
        "made token {id} with the role {role}; it is not shown again\n  \
         to use it: write it to a file with mode 600 and set FILCH_TOKEN_FILE to that file's name"
    ));
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Tokens {
    tokens: Vec<Token>,
}

async fn list(keeper: &Keeper, options: &List) -> Result<ExitCode> {
    let tokens = all(keeper).await?;
    if options.form.json {
        document::print(Tokens { tokens })?;
    } else if options.form.jsonl {
        tokens.iter().try_for_each(document::line)?;
    } else {
        show(&tokens)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(keeper: &Keeper) -> Result<Vec<Token>> {
    Ok(match keeper {
        Keeper::There(client) => client.tokens().await?,
        Keeper::Here(store) => tokens::list(&**store).map_err(refused)?,
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

async fn revoke(keeper: &Keeper, options: &Revoke) -> Result<ExitCode> {
    let Revoke { caution, form, id } = options;
    if filch_api::token::is_in(id) {
        let text = "this is a token itself, where its id is meant; now it is in the list of processes \
                    and perhaps in a history\n  help: `filch token list` shows the id: the eight \
                    digits after filch_";
        return Err(Exit::new(exit::USAGE, text).into());
    }
    if caution.dry_run {
        let mut tokens = all(keeper).await?;
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
        talk(format_args!("token {id} would be revoked"));
        return Ok(ExitCode::SUCCESS);
    }
    caution.confirm(&format!("revoke token {id}?"))?;
    match keeper {
        Keeper::There(client) => client.revoke_token(id).await?,
        Keeper::Here(store) => tokens::revoke(&**store, id).map_err(refused)?,
    }
    if form.json {
        document::print(Revoked { revoked: id, dry_run: false })?;
    }
    talk(format_args!("revoked token {id}"));
    Ok(ExitCode::SUCCESS)
}
