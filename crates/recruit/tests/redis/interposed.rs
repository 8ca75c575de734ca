//! A connection that calls a function just before each transaction is sent, to simulate another
//! client, and that counts the transactions.

use redis::{Connection, ConnectionLike, RedisResult, Value};

pub(crate) struct Interposed<F> {
    pub(crate) connection: Connection,
    pub(crate) before_transaction: F,
    /// The number of transactions sent.
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
