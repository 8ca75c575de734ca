//! Authorization: one line for each operation of the OpenAPI document.
//!
//! docs/security.md has the same table, and a test checks every cell of it. An operation without a
//! line here is for admins only.

use std::collections::HashMap;

use axum::http::Method;
use filch_api::problem::Problem;
use filch_api::token::Role::{self, Admin, Operate, Submit, View, Work};
use utoipa::openapi::OpenApi;

use crate::tokens::Caller;

/// Which clients may use an operation.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    /// All clients, even without a token.
    Everybody,
    /// Clients with any token.
    Bearers,
    /// Clients with a token of one of these roles.
    Roles(&'static [Role]),
}

/// What a token that is limited to some queues may do with an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Narrowed {
    /// As far as these queues go; the endpoint itself checks them.
    ItsQueues,
    /// Nothing: the operation affects all queues.
    Nothing,
}

use Narrowed::{ItsQueues, Nothing};
use Who::{Bearers, Everybody, Roles};

struct Right {
    operation: &'static str,
    who: Who,
    narrowed: Narrowed,
}

const fn right(operation: &'static str, who: Who, narrowed: Narrowed) -> Right {
    Right { operation, who, narrowed }
}

const SUBMITTERS: Who = Roles(&[Submit, Admin]);
const WORKERS: Who = Roles(&[Work, Admin]);
const VIEWERS: Who = Roles(&[View, Operate, Admin]);
const OPERATORS: Who = Roles(&[Operate, Admin]);
const ADMINS: Who = Roles(&[Admin]);

const TABLE: &[Right] = &[
    right("submitJobs", SUBMITTERS, ItsQueues),
    right("submitFlow", SUBMITTERS, ItsQueues),
    // A client that submits a job may see and cancel it: other clients with role submit do not know
    // its id.
    right("showJob", Roles(&[Submit, View, Operate, Admin]), ItsQueues),
    right("jobEvents", Roles(&[Submit, View, Operate, Admin]), ItsQueues),
    right("jobLog", Roles(&[Submit, View, Operate, Admin]), ItsQueues),
    right("cancelJob", Roles(&[Submit, Operate, Admin]), ItsQueues),
    right("listJobs", VIEWERS, ItsQueues),
    right("listDead", VIEWERS, ItsQueues),
    right("deadGroups", VIEWERS, ItsQueues),
    right("listQueues", VIEWERS, ItsQueues),
    right("showQueue", VIEWERS, ItsQueues),
    right("retryJob", OPERATORS, ItsQueues),
    right("setPriority", OPERATORS, ItsQueues),
    right("retryDead", OPERATORS, ItsQueues),
    right("discardDead", OPERATORS, ItsQueues),
    right("setQueue", OPERATORS, ItsQueues),
    right("purgeQueue", OPERATORS, ItsQueues),
    right("strategy", VIEWERS, ItsQueues),
    right("setStrategy", OPERATORS, Nothing),
    right("listActs", VIEWERS, ItsQueues),
    right("listWorkers", VIEWERS, ItsQueues),
    right("drainWorker", OPERATORS, Nothing),
    right("stopWorker", OPERATORS, Nothing),
    right("work", WORKERS, ItsQueues),
    right("claim", WORKERS, ItsQueues),
    right("heartbeat", WORKERS, ItsQueues),
    right("report", WORKERS, ItsQueues),
    right("goodbye", WORKERS, ItsQueues),
    right("events", VIEWERS, Nothing),
    right("metrics", VIEWERS, Nothing),
    right("recruit", VIEWERS, Nothing),
    right("status", Bearers, ItsQueues),
    // Health checks have no tokens, and these responses reveal nothing; the document is the same
    // everywhere.
    right("alive", Everybody, ItsQueues),
    right("ready", Everybody, ItsQueues),
    right("openapi", Everybody, ItsQueues),
    right("workerProtocol", Everybody, ItsQueues),
    right("listTokens", ADMINS, Nothing),
    right("makeToken", ADMINS, Nothing),
    right("revokeToken", ADMINS, Nothing),
];

const UNHEARD_OF: Right = right("", ADMINS, Nothing);

fn right_to(operation: &str) -> &'static Right {
    TABLE.iter().find(|right| right.operation == operation).unwrap_or(&UNHEARD_OF)
}

/// Which clients may use the operation of this name.
pub(crate) fn who(operation: &str) -> Who {
    right_to(operation).who
}

/// The same by method and path, as requests have them.
pub(crate) struct Rights(HashMap<(Method, String), &'static Right>);

impl Rights {
    pub(crate) fn of(document: &OpenApi) -> Self {
        let mut rights = HashMap::new();
        for (path, item) in &document.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in operations {
                let name =
                    operation.as_ref().and_then(|operation| operation.operation_id.as_deref());
                if let Some(name) = name {
                    rights.insert((method, path.clone()), right_to(name));
                }
            }
        }
        Self(rights)
    }

    /// Whether the operation needs no authentication.
    pub(crate) fn is_open(&self, method: &Method, path: Option<&str>) -> bool {
        self.find(method, path).is_some_and(|right| matches!(right.who, Everybody))
    }

    /// Refuses what this caller may not do.
    pub(crate) fn check(
        &self,
        caller: &Caller,
        method: &Method,
        path: Option<&str>,
    ) -> Result<(), Problem> {
        // Unknown paths need no protection, and are refused elsewhere.
        let Some(right) = self.find(method, path) else {
            return Ok(());
        };
        if let Roles(roles) = right.who
            && !roles.contains(&caller.role)
        {
            let title = format!("a token with role {} may not do this", caller.role);
            let words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
            return Err(Problem::new(403, "wrong-role", title).help(format!(
                "role {} is needed; an admin can create a token with `filch token create --role \
                 {}`",
                words.join(" or "),
                words[0]
            )));
        }
        if right.narrowed == Nothing && caller.is_narrowed() {
            let title = "a token that is limited to some queues may not do this, because it affects all queues";
            return Err(Problem::new(403, "wrong-queue", title)
                .help("an admin can create a token without --queue"));
        }
        Ok(())
    }

    fn find(&self, method: &Method, path: Option<&str>) -> Option<&'static Right> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.0.get(&(method.clone(), path?.to_owned())).copied()
    }
}
