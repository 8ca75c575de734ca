//! Tokens: authentication. `http::rights` lists what each role may do.
//!
//! All stored tokens are also in memory, so that requests need no look at the store. Changes by
//! another server over the same store are taken over within a second. As long as no
//! token was ever created, every client is accepted; from the first one on every request needs a
//! token, even if all tokens have been revoked or have expired.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_api::token::{Made, Role, Secret, Token, ValidatedToken};
use filch_engine::server::LinkScope;
use filch_scheduler::name::Name;
use filch_scheduler::time::Wall;
use filch_store::{CommitError, Store, StoreError, TokenChange, TokenRow};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::http::store_problem;
use crate::shell::{Handle, Urgent};

/// How many tokens may exist, including revoked and expired ones.
const TOKENS_MAX: usize = 10_000;

/// How often streams check the wall clock for the expiry of their token.
const LOOK: Duration = Duration::from_secs(30);

/// Creates a token in this store, and records who did.
///
/// # Errors
/// If it would be the first and its role is not admin, if there are too many, or if the store
/// fails.
pub fn make(store: &dyn Store, wanted: ValidatedToken, by: Option<&Name>) -> Result<Made, Problem> {
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
    let created_at = now();
    let after = |span: Duration| {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Wall(created_at.0.saturating_add(millis))
    };
    loop {
        let secret = Secret::generate();
        let row = TokenRow {
            id: secret.id().to_owned(),
            name: name.clone(),
            role: role.word().to_owned(),
            queues: queues.clone(),
            digest: secret.digest(),
            created_at,
            expires_at: expires.map(after),
            revoked_at: None,
        };
        let token = shown(&row, role);
        // Ids are short, so now and then one is in use.
        let created = store.change_token(&TokenChange::Create(row), by);
        if created.map_err(|error| unwritten(&error))? {
            return Ok(Made { secret, token });
        }
    }
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

/// Revokes a token of this store, and records who did.
///
/// # Errors
/// If there is no active token with this id, or the store fails.
pub fn revoke(store: &dyn Store, id: &str, by: Option<&Name>) -> Result<(), Problem> {
    let change = TokenChange::Revoke { id: id.to_owned(), at: now() };
    match store.change_token(&change, by).map_err(|error| unwritten(&error))? {
        true => Ok(()),
        false => Err(Problem::not_found(format!("no active token {id:?}"))
            .help("list tokens with `filch token list`")),
    }
}

/// A token could not be written.
fn unwritten(error: &CommitError) -> Problem {
    tracing::error!(%error, "store error: cannot write a token");
    match error {
        CommitError::DiskFull(_) => Problem::new(507, "disk-full", error.to_string())
            .help("free disk space on the server, then repeat the request"),
        CommitError::Superseded => Problem::new(503, "stopping", error.to_string())
            .help("repeat the request with the server that owns the store now"),
        _ => Problem::new(500, "store", error.to_string()),
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
    /// The version of the store's tokens that are here.
    version: AtomicU64,
    /// Whether requests need a token.
    required: watch::Sender<bool>,
}

struct Known {
    /// Its name and id, for the record.
    label: Name,
    digest: [u8; 32],
    role: Role,
    queues: Option<Arc<[Name]>>,
    expires_at: Option<Wall>,
    /// Whether it was announced that it has expired.
    is_expired: AtomicBool,
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
    /// How its token is named in the audit trail.
    label: Option<Name>,
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

/// How often the store is asked whether another server has changed its tokens.
const REFRESH: Duration = Duration::from_millis(500);

/// Follows the tokens of a store until the server closes.
pub(crate) async fn follow(
    tokens: Arc<Tokens>,
    store: Arc<dyn Store>,
    handle: Handle,
    mut closed: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            // If the sender is gone, the server is closed, too.
            _ = closed.wait_for(|closed| *closed) => return,
            () = tokio::time::sleep(REFRESH) => {}
        }
        let (asked, asking) = (Arc::clone(&store), Arc::clone(&tokens));
        let read = tokio::task::spawn_blocking(move || asking.refresh(&*asked)).await;
        match read {
            Ok(Ok(revoked)) => {
                for id in revoked {
                    // Workers that it introduced may come back with another token.
                    if handle.urgent(Urgent::TokenEnded(id.into())).await.is_err() {
                        return;
                    }
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "cannot read the tokens"),
            // The server is ending.
            Err(_) => return,
        }
    }
}

impl Tokens {
    /// Loads the tokens of this store.
    pub(crate) fn load(store: &dyn Store) -> Result<Self, StoreError> {
        // Read first: a change after it is read again.
        let version = AtomicU64::new(store.token_version()?);
        let rows = store.tokens()?;
        let required = watch::Sender::new(!rows.is_empty());
        let known = |row: TokenRow| {
            // A token with an unknown role authenticates no request.
            let role = row.role.parse().ok()?;
            Some((row.id.clone(), Known::new(&row, role)))
        };
        let by_id = rows.into_iter().filter_map(known).collect();
        Ok(Self { by_id: RwLock::new(by_id), version, required })
    }

    /// Takes over changes that another server has made to this store. Returns the ids of tokens
    /// that were revoked since.
    fn refresh(&self, store: &dyn Store) -> Result<Vec<String>, StoreError> {
        let version = store.token_version()?;
        if self.version.load(Ordering::Relaxed) == version {
            return Ok(self.expired());
        }
        let rows = store.tokens()?;
        let mut revoked = Vec::new();
        let mut by_id = self.by_id.write().expect("no panic while it is locked");
        if !rows.is_empty() {
            self.required.send_if_modified(|required| !std::mem::replace(required, true));
        }
        for row in rows {
            match by_id.get(&row.id) {
                Some(known) if row.revoked_at.is_some() => {
                    if !known.revoked.send_replace(true) {
                        revoked.push(row.id);
                    }
                }
                Some(_) => {}
                None => {
                    if let Ok(role) = row.role.parse() {
                        by_id.insert(row.id.clone(), Known::new(&row, role));
                    }
                }
            }
        }
        drop(by_id);
        // Only now: if the rows cannot be read, they are read again at the next look.
        self.version.store(version, Ordering::Relaxed);
        revoked.extend(self.expired());
        Ok(revoked)
    }

    /// The ids of tokens that have expired and were not returned before.
    fn expired(&self) -> Vec<String> {
        let now = now();
        let by_id = self.by_id.read().expect("no panic while it is locked");
        let is_over = |known: &&Known| known.expires_at.is_some_and(|end| end <= now);
        let is_new = |known: &&Known| !known.is_expired.swap(true, Ordering::Relaxed);
        let over = by_id.iter().filter(|(_, known)| is_over(known) && is_new(known));
        over.map(|(id, _)| id.clone()).collect()
    }

    /// Whether requests need a token.
    pub(crate) fn are_required(&self) -> bool {
        *self.required.borrow()
    }

    /// Creates an admin token for this process, which is not stored.
    pub(crate) fn insider(&self) -> Secret {
        let secret = Secret::generate();
        let known = Known {
            label: Name::from("the server's own process"),
            digest: secret.digest(),
            role: Role::Admin,
            queues: None,
            expires_at: None,
            is_expired: AtomicBool::new(false),
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
            label: label(&made.token.name, &made.token.id),
            digest: made.secret.digest(),
            role: *role,
            queues: narrowed(queues.iter().map(|queue| Name::from(queue.as_str())).collect()),
            expires_at: expires_at.map(|moment| moment.0),
            is_expired: AtomicBool::new(false),
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
            return Ok(Caller {
                role,
                queues: None,
                expires_at: None,
                brings,
                id: None,
                label: None,
                over,
            });
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
            label: Some(known.label.clone()),
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

/// How a token is named in the audit trail.
fn label(name: &str, id: &str) -> Name {
    if name.is_empty() { Name::from(id) } else { Name::from(format!("{name} ({id})").as_str()) }
}

fn narrowed(queues: Vec<Name>) -> Option<Arc<[Name]>> {
    (!queues.is_empty()).then(|| queues.into())
}

impl Known {
    fn new(row: &TokenRow, role: Role) -> Self {
        Self {
            label: label(&row.name, &row.id),
            digest: row.digest,
            role,
            queues: narrowed(row.queues.clone()),
            expires_at: row.expires_at,
            is_expired: AtomicBool::new(false),
            revoked: watch::Sender::new(row.revoked_at.is_some()),
        }
    }
}

impl Caller {
    /// How its token is named in the audit trail, if it has one.
    pub(crate) const fn label(&self) -> Option<&Name> {
        self.label.as_ref()
    }

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
        if self.may_use(queue) { Ok(()) } else { Err(self.wrong_queue(queue)) }
    }

    /// It may not use this queue.
    pub(crate) fn wrong_queue(&self, queue: &Name) -> Problem {
        let title = format!("this token is not valid for queue {queue:?}");
        let names: Vec<&str> =
            self.queues.iter().flat_map(|it| it.iter()).map(Name::as_str).collect();
        Problem::new(403, "wrong-queue", title).help(format!(
            "it is valid for {}; an admin can create a token for other queues",
            names.join(", ")
        ))
    }

    /// Refuses if its token is no longer valid. A request that takes long asks again whenever it is
    /// about to change something.
    pub(crate) fn check_valid(&self) -> Result<(), Problem> {
        let has_expired = self.expires_at.is_some_and(|end| end <= now());
        if *self.over.borrow() || has_expired { Err(self.farewell()) } else { Ok(()) }
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

    /// Its token is no longer valid.
    pub(crate) fn farewell(&self) -> Problem {
        match self.brings {
            Brings::Token => over("the token was revoked or has expired".into()),
            // Short, so that it fits the reason of a close frame.
            Brings::Nothing => Problem::new(401, "no-token", "a token is required now").help(
                "set FILCH_TOKEN; an admin creates one with `filch token create --role work`",
            ),
        }
    }
}
