//! A connection that lets somebody else act first, just before a transaction is sent, and that counts.

use redis::{Connection, ConnectionLike, RedisResult, Value};

pub(crate) struct Interposed<F> {
    pub(crate) connection: Connection,
    pub(crate) before_transaction: F,
    /// How many transactions were sent.
    pub(crate) transactions: usize,
}

impl<F: FnMut()> Interposed<F> {
    pub(crate) fn new(connection: Connection, before_transaction: F) -> Self {
        Self { connection, before_transaction, transactions: 0 }
    }
}

impl<F: FnMut()> ConnectionLike for Interposed<F> {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        (self.before_transaction)();
        self.transactions += 1;
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.connection.check_connection()
    }

    fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}
