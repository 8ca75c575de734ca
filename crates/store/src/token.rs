//! What is kept of a token: never the token itself.

use filch_scheduler::name::Name;
use filch_scheduler::time::Wall;

/// A token that was made. It stays when it has ended, so that nobody can pretend it never was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// By what it is known.
    pub id: String,
    /// Whose it is, for people.
    pub name: String,
    /// What it is for, in a word that others read.
    pub role: String,
    /// The only queues that it is for; all if empty.
    pub queues: Vec<Name>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// When it was made.
    pub created_at: Wall,
    /// When it ends by itself.
    pub expires_at: Option<Wall>,
    /// When somebody ended it.
    pub revoked_at: Option<Wall>,
}
