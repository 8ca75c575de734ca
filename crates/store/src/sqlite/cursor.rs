//! Reads the rows of a query in the order of their first column, in step with other queries.

use rusqlite::{Row, Rows, Statement};

use super::error::Failure;
use super::rows;

/// A row with its number.
type Numbered<T> = (u64, Result<T, Failure>);

/// Rows that are read one by one. A row that cannot be decoded is returned as an error, and reading
/// goes on.
pub(super) struct Cursor<'walk, T> {
    rows: Rows<'walk>,
    next: Option<Numbered<T>>,
    read: fn(&Row<'_>) -> Result<T, Failure>,
}

impl<'walk, T> Cursor<'walk, T> {
    pub(super) fn new(
        statement: &'walk mut Statement<'_>,
        read: fn(&Row<'_>) -> Result<T, Failure>,
    ) -> Result<Self, Failure> {
        let mut cursor = Self { rows: statement.query(())?, next: None, read };
        cursor.advance()?;
        Ok(cursor)
    }

    /// The next row, if its number is at most `last`.
    pub(super) fn next_to(&mut self, last: u64) -> Result<Option<Numbered<T>>, Failure> {
        let next = self.next.take_if(|(number, _)| *number <= last);
        if next.is_some() {
            self.advance()?;
        }
        Ok(next)
    }

    /// The rows with this number; skips the rows before them.
    pub(super) fn of(&mut self, number: u64) -> Result<Vec<T>, Failure> {
        let mut found = Vec::new();
        while let Some((at, row)) = self.next_to(number)? {
            if at == number {
                found.push(row?);
            }
        }
        Ok(found)
    }

    fn advance(&mut self) -> Result<(), Failure> {
        self.next = match self.rows.next()? {
            Some(row) => Some((rows::unsigned(row, 0)?, (self.read)(row))),
            None => None,
        };
        Ok(())
    }
}
