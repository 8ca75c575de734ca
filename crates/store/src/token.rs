//! What is stored about a token: never the token itself.

use filch_scheduler::name::Name;
use filch_scheduler::time::Wall;

/// A token that was created. The row stays when the token has expired or was revoked, as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its public id.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Its role, as text; the server interprets it.
    pub role: String,
    /// The queues that it is limited to; empty for all.
    pub queues: Vec<Name>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// When it was created.
    pub created_at: Wall,
    /// When it expires.
    pub expires_at: Option<Wall>,
    /// When it was revoked.
    pub revoked_at: Option<Wall>,
}

/// A change of the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenChange {
    /// Stores a new token, unless its id is in use.
    Create(TokenRow),
    /// Revokes a token, unless there is no token with this id, or it was revoked before.
    Revoke {
        /// Its id.
        id: String,
        /// When.
        at: Wall,
    },
}
