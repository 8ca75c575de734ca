//! The table `token`. Tokens are not part of commits, because the scheduler does not use them.

use std::path::Path;

use filch_scheduler::name::Name;
use filch_scheduler::record::OperatorAct;
use filch_scheduler::time::Wall;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};

use super::error::Failure;
use super::{notes, owner, rows};
use crate::open::OpenError;
use crate::token::{TokenChange, TokenRow};

const COLUMNS: &str = "id, name, role, queues, digest, created_at, expires_at, revoked_at";

/// Separates the names of queues; names contain no control characters.
const SEPARATOR: char = '\u{1f}';

pub(super) fn list(connection: &Connection) -> Result<Vec<TokenRow>, Failure> {
    let sql = format!("SELECT {COLUMNS} FROM token ORDER BY created_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(())?;
    let mut tokens = Vec::new();
    while let Some(row) = found.next()? {
        tokens.push(read(row)?);
    }
    Ok(tokens)
}

fn read(row: &Row<'_>) -> Result<TokenRow, Failure> {
    let queues = rows::text(row, 3)?;
    let digest: Vec<u8> = row.get(4)?;
    let wall = |column| match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => rows::wall(row, column).map(Some),
    };
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        role: row.get(2)?,
        queues: queues.split(SEPARATOR).filter(|queue| !queue.is_empty()).map(Name::from).collect(),
        digest: digest
            .try_into()
            .map_err(|_| Failure::Content("the digest of a token has a wrong length".into()))?,
        created_at: rows::wall(row, 5)?,
        expires_at: wall(6)?,
        revoked_at: wall(7)?,
    })
}

/// A number that grows with every change.
pub(super) fn version(connection: &Connection) -> Result<u64, Failure> {
    let mut statement = connection.prepare_cached("SELECT token_version FROM store_meta")?;
    let version: i64 = statement.query_row((), |row| row.get(0))?;
    Ok(version.cast_unsigned())
}

/// Makes a change, and writes who did; false if there was nothing to change.
pub(super) fn change(
    connection: &Connection,
    change: &TokenChange,
    by: Option<&Name>,
) -> Result<bool, Failure> {
    let (is_changed, act) = match change {
        TokenChange::Create(token) => {
            (create(connection, token)?, OperatorAct::CreateToken(token.id.as_str().into()))
        }
        TokenChange::Revoke { id, at } => {
            (revoke(connection, id, *at)?, OperatorAct::RevokeToken(id.as_str().into()))
        }
    };
    if is_changed {
        connection.execute("UPDATE store_meta SET token_version = token_version + 1", ())?;
        notes::write_act(connection, by, act)?;
    }
    Ok(is_changed)
}

fn create(connection: &Connection, token: &TokenRow) -> Result<bool, Failure> {
    let queues: Vec<&str> = token.queues.iter().map(Name::as_str).collect();
    let wall = rows::of_wall;
    let sql = format!(
        "INSERT INTO token ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO NOTHING"
    );
    let created = connection.execute(
        &sql,
        (
            &token.id,
            &token.name,
            &token.role,
            queues.join(&SEPARATOR.to_string()),
            token.digest,
            wall(token.created_at),
            token.expires_at.map(wall),
            token.revoked_at.map(wall),
        ),
    )?;
    Ok(created > 0)
}

fn revoke(connection: &Connection, id: &str, at: Wall) -> Result<bool, Failure> {
    let sql = "UPDATE token SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
    Ok(connection.execute(sql, (id, rows::of_wall(at)))? > 0)
}

/// Whether the store in this file has any token, also one that has expired or was revoked. Neither
/// locks nor changes the store; a file that does not exist has none.
pub(crate) fn has_tokens(path: &Path) -> Result<bool, OpenError> {
    let path = owner::resolve(path);
    if !path.exists() {
        return Ok(false);
    }
    look(&path).map_err(|failure| failure.while_opening("look for tokens in", &path))
}

fn look(path: &Path) -> Result<bool, Failure> {
    // Without a log everything is in the file itself, and no file need be created beside it.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = Path::new(&log).metadata().is_ok_and(|log| log.len() > 0);
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str(if has_log { "?mode=ro" } else { "?mode=ro&immutable=1" });
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    let table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'token'";
    if connection.query_row(table, (), |_| Ok(())).optional()?.is_none() {
        return Ok(false);
    }
    Ok(connection.query_row("SELECT 1 FROM token LIMIT 1", (), |_| Ok(())).optional()?.is_some())
}
