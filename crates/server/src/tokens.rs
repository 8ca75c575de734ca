//! Tokens: authentication. `http::rights` lists what each role may do.
//!
//! All stored tokens are also in memory, so that requests need no look at the store. As long as no
//! token was ever created, every client is accepted; from the first one on every request needs a
//! token, even if all tokens have been revoked or have expired.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_api::token::{Made, Role, Secret, Token, ValidatedToken};
use filch_engine::server::LinkScope;
use filch_scheduler::name::Name;
use filch_scheduler::time::Wall;
use filch_store::{Store, StoreError, TokenRow};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::http::store_problem;

/// How many tokens may exist, including revoked and expired ones.
const TOKENS_MAX: usize = 10_000;

/// How often streams check the wall clock for the expiry of their token.
const LOOK: Duration = Duration::from_secs(30);

/// Creates a token in this store.
///
/// # Errors
/// If it would be the first and its role is not admin, if there are too many, or if the store
/// fails.
pub fn make(store: &dyn Store, wanted: ValidatedToken) -> Result<Made, Problem> {
    let rows = store.tokens().map_err(|error| store_problem(&error))?;
    let ValidatedToken { role, queues, expires, name } = wanted;
    if rows.is_empty() && role != Role::Admin {
        let title = "the first token must have role admin: once there is a token, every request \
                     needs one, and only an admin can create more";
        return Err(Problem::new(409, "first-token", title).help(
            "run `filch token create --role admin` first, and set FILCH_TOKEN to the result",
        ));
    }
    if rows.len() >= TOKENS_MAX {
        let title = format!("there are {TOKENS_MAX} tokens already, which is the limit");
        return Err(Problem::new(409, "too-many-tokens", title));
    }
    let secret = loop {
        let secret = Secret::generate();
        if rows.iter().all(|row| row.id != secret.id()) {
            break secret;
        }
    };
    let created_at = now();
    let after = |span: Duration| {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Wall(created_at.0.saturating_add(millis))
    };
    let row = TokenRow {
        id: secret.id().to_owned(),
        name,
        role: role.word().to_owned(),
        queues,
        digest: secret.digest(),
        created_at,
        expires_at: expires.map(after),
        revoked_at: None,
    };
    store.keep_token(&row).map_err(|error| store_problem(&error))?;
    Ok(Made { secret, token: shown(&row, role) })
}

/// All tokens of this store, including revoked and expired ones.
///
/// # Errors
/// If the store fails.
pub fn list(store: &dyn Store) -> Result<Vec<Token>, Problem> {
    let rows = store.tokens().map_err(|error| store_problem(&error))?;
    // A token with an unknown role authenticates no request, so it is not listed either.
    let known = |row: &TokenRow| Some(shown(row, row.role.parse().ok()?));
    Ok(rows.iter().filter_map(known).collect())
}

/// Revokes a token of this store.
///
/// # Errors
/// If there is no active token with this id, or the store fails.
pub fn revoke(store: &dyn Store, id: &str) -> Result<(), Problem> {
    match store.revoke_token(id, now()).map_err(|error| store_problem(&error))? {
        true => Ok(()),
        false => Err(Problem::not_found(format!("no active token {id:?}"))
            .help("list tokens with `filch token list`")),
    }
}

fn shown(row: &TokenRow, role: Role) -> Token {
    Token {
        id: row.id.clone(),
        name: row.name.clone(),
        role,
        queues: row.queues.iter().map(ToString::to_string).collect(),
        created_at: Moment(row.created_at),
        expires_at: row.expires_at.map(Moment),
        revoked_at: row.revoked_at.map(Moment),
    }
}

fn now() -> Wall {
    // A clock before 1970 counts as 1970.
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// All tokens, in memory.
pub(crate) struct Tokens {
    by_id: RwLock<BTreeMap<String, Known>>,
    /// Whether requests need a token.
    required: watch::Sender<bool>,
}

struct Known {
    digest: [u8; 32],
    role: Role,
    queues: Option<Arc<[Name]>>,
    expires_at: Option<Wall>,
    revoked: watch::Sender<bool>,
}

/// The sender of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// The queues that it is limited to; all if `None`.
    queues: Option<Arc<[Name]>>,
    expires_at: Option<Wall>,
    brings: Brings,
    /// The id of its token, if it has one.
    id: Option<Arc<str>>,
    /// True once its token is no longer valid.
    over: watch::Receiver<bool>,
}

/// How a sender was authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brings {
    Token,
    /// No token was required when it connected.
    Nothing,
}

impl Tokens {
    /// Loads the tokens of this store.
    pub(crate) fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let rows = store.tokens()?;
        let required = watch::Sender::new(!rows.is_empty());
        let known = |row: TokenRow| {
            // A token with an unknown role authenticates no request.
            let role = row.role.parse().ok()?;
            Some((row.id.clone(), Known::new(&row, role)))
        };
        let by_id = rows.into_iter().filter_map(known).collect();
        Ok(Self { by_id: RwLock::new(by_id), required })
    }

    /// Whether requests need a token.
    pub(crate) fn are_required(&self) -> bool {
        *self.required.borrow()
    }

    /// Creates an admin token for this process, which is not stored.
    pub(crate) fn insider(&self) -> Secret {
        let secret = Secret::generate();
        let known = Known {
            digest: secret.digest(),
            role: Role::Admin,
            queues: None,
            expires_at: None,
            revoked: watch::Sender::new(false),
        };
        self.by_id
            .write()
            .expect("no panic while it is locked")
            .insert(secret.id().to_owned(), known);
        secret
    }

    /// Adds a token; from now on every request needs one.
    pub(crate) fn add(&self, made: &Made) {
        let Token { role, queues, expires_at, .. } = &made.token;
        let known = Known {
            digest: made.secret.digest(),
            role: *role,
            queues: narrowed(queues.iter().map(|queue| Name::from(queue.as_str())).collect()),
            expires_at: expires_at.map(|moment| moment.0),
            revoked: watch::Sender::new(false),
        };
        let id = made.token.id.clone();
        self.by_id.write().expect("no panic while it is locked").insert(id, known);
        self.required.send_replace(true);
    }

    /// Revokes a token; clients that use it are disconnected.
    pub(crate) fn end(&self, id: &str) {
        if let Some(known) = self.by_id.read().expect("no panic while it is locked").get(id) {
            known.revoked.send_replace(true);
        }
    }

    /// Authenticates a request with this token, or without one. As long as no token is required, a
    /// token of another server does no harm.
    pub(crate) fn admit(&self, secret: Option<&Secret>) -> Result<Caller, Problem> {
        let is_required = self.are_required();
        let by_id = self.by_id.read().expect("no panic while it is locked");
        let known = secret.and_then(|secret| by_id.get(secret.id()));
        let (Some(secret), Some(known)) = (secret, known) else {
            if secret.is_some() && is_required {
                return Err(unknown());
            }
            if is_required {
                return Err(Problem::new(401, "no-token", "a token is required").help(
                    "set FILCH_TOKEN, or FILCH_TOKEN_FILE to a file that contains it; an admin can \
                         create one with `filch token create --role ROLE`",
                ));
            }
            let over = self.required.subscribe();
            let (role, brings) = (Role::Admin, Brings::Nothing);
            return Ok(Caller { role, queues: None, expires_at: None, brings, id: None, over });
        };
        if !bool::from(known.digest.ct_eq(&secret.digest())) {
            return Err(unknown());
        }
        let id = secret.id();
        if *known.revoked.borrow() {
            return Err(over(format!("the token {id} was revoked")));
        }
        if known.expires_at.is_some_and(|end| end <= now()) {
            return Err(over(format!("the token {id} has expired")));
        }
        Ok(Caller {
            role: known.role,
            queues: known.queues.clone(),
            expires_at: known.expires_at,
            brings: Brings::Token,
            id: Some(id.into()),
            over: known.revoked.subscribe(),
        })
    }
}

fn unknown() -> Problem {
    over("unknown token".into())
}

fn over(title: String) -> Problem {
    Problem::new(401, "bad-token", title)
        .help("an admin can create a token with `filch token create --role ROLE`")
}

fn narrowed(queues: Vec<Name>) -> Option<Arc<[Name]>> {
    (!queues.is_empty()).then(|| queues.into())
}

impl Known {
    fn new(row: &TokenRow, role: Role) -> Self {
        Self {
            digest: row.digest,
            role,
            queues: narrowed(row.queues.clone()),
            expires_at: row.expires_at,
            revoked: watch::Sender::new(row.revoked_at.is_some()),
        }
    }
}

impl Caller {
    /// Whether it is limited to some queues.
    pub(crate) const fn is_narrowed(&self) -> bool {
        self.queues.is_some()
    }

    /// The queues that it is limited to; all if `None`.
    pub(crate) fn queues(&self) -> Option<&[Name]> {
        self.queues.as_deref()
    }

    /// What a worker with this token may do.
    pub(crate) fn scope(&self) -> LinkScope {
        LinkScope { token: self.id.clone(), queues: self.queues.clone(), is_embedded: false }
    }

    /// Whether it may use this queue.
    pub(crate) fn may_use(&self, queue: &Name) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    /// Refuses queues that it may not use.
    pub(crate) fn check(&self, queue: &Name) -> Result<(), Problem> {
        let Some(queues) = self.queues.as_ref().filter(|queues| !queues.contains(queue)) else {
            return Ok(());
        };
        let title = format!("this token is not valid for queue {queue:?}");
        let names: Vec<&str> = queues.iter().map(Name::as_str).collect();
        Err(Problem::new(403, "wrong-queue", title).help(format!(
            "it is valid for {}; an admin can create a token for other queues",
            names.join(", ")
        )))
    }

    /// Limits the queues that a worker wants to serve to those of its token.
    pub(crate) fn serve(&self, wanted: &mut Option<Vec<String>>) -> Result<(), Problem> {
        match (&self.queues, &*wanted) {
            (None, _) => Ok(()),
            (Some(queues), None) => {
                *wanted = Some(queues.iter().map(ToString::to_string).collect());
                Ok(())
            }
            (Some(_), Some(names)) => {
                names.iter().try_for_each(|name| self.check(&Name::from(name.as_str())))
            }
        }
    }

    /// Waits until its token is no longer valid, and returns why.
    pub(crate) async fn over(&self) -> Problem {
        let mut over = self.over.clone();
        let expired = async {
            let Some(end) = self.expires_at else {
                return std::future::pending().await;
            };
            // The wall clock may be changed, so it is read again and again.
            while let Some(left) = end.0.checked_sub(now().0).filter(|left| *left > 0) {
                tokio::time::sleep(Duration::from_millis(left).min(LOOK)).await;
            }
        };
        tokio::select! {
            // If the sender of this signal is gone, the server is ending.
            _ = over.wait_for(|over| *over) => {}
            () = expired => {}
        }
        self.farewell()
    }

    fn farewell(&self) -> Problem {
        match self.brings {
            Brings::Token => over("the token was revoked or has expired".into()),
            // Short, so that it fits the reason of a close frame.
            Brings::Nothing => Problem::new(401, "no-token", "a token is required now").help(
                "set FILCH_TOKEN; an admin creates one with `filch token create --role work`",
            ),
        }
    }
}
