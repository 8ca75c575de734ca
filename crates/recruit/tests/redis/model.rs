//! `VolatileHash` compared with a model: a map from fields to values and expiries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use filch_recruit::redis::VolatileHash;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::{Commands as _, Connection};

use crate::server::Server;

const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: usize = 3;

#[derive(Clone, Debug)]
enum Act {
    Set {
        field: u8,
        value: u32,
        is_expired: bool,
    },
    /// Only this field expires, at this moment.
    Expire {
        field: u8,
        at: u64,
    },
    Get {
        field: u8,
    },
    Remove {
        field: u8,
    },
    Reap,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let field = 0..8_u8;
    let act = prop_oneof![
        4 => (field.clone(), any::<u32>(), any::<bool>())
            .prop_map(|(field, value, is_expired)| Act::Set { field, value, is_expired }),
        2 => (field.clone(), 0..1000_u64).prop_map(|(field, at)| Act::Expire { field, at }),
        2 => field.clone().prop_map(|field| Act::Get { field }),
        1 => field.prop_map(|field| Act::Remove { field }),
        2 => Just(Act::Reap),
    ];
    prop::collection::vec(act, 1..40)
}

/// The value of each field, and its expiry if it has expired. Expiries are only compared.
#[derive(Default)]
struct Model(BTreeMap<u8, (u32, Option<u64>)>);

impl Model {
    /// Removes the oldest expired fields and returns how many.
    fn reap(&mut self) -> usize {
        let expired = self.0.iter().filter_map(|(field, (_, at))| at.map(|at| (at, *field)));
        let mut expired: Vec<_> = expired.collect();
        expired.sort_unstable();
        expired.truncate(LIMIT);
        for (_, field) in &expired {
            self.0.remove(field);
        }
        expired.len()
    }

    fn values(&self) -> BTreeMap<u8, u32> {
        self.0.iter().map(|(field, (value, _))| (*field, *value)).collect()
    }
}

fn play(connection: &mut Connection, acts: Vec<Act>) {
    let () = redis::cmd("FLUSHALL").query(connection).expect("it works");
    let hash = VolatileHash::new("model").limit(LIMIT);
    let mut model = Model::default();
    for (turn, act) in acts.into_iter().enumerate() {
        match act {
            Act::Set { field, value, is_expired } => {
                let ttl = if is_expired { Duration::ZERO } else { HOUR };
                hash.set(connection, field, value, ttl).expect("it is set");
                // Later than any moment of `Expire`.
                let at = is_expired.then_some(1000 + turn as u64);
                model.0.insert(field, (value, at));
            }
            Act::Expire { field, at } => {
                if let Some((_, expiry)) = model.0.get_mut(&field) {
                    let () = connection.zadd("{model}:expiries", field, at).expect("it is set");
                    *expiry = Some(at);
                }
            }
            Act::Get { field } => {
                let wanted = model.0.get(&field).filter(|(_, at)| at.is_none());
                let wanted = wanted.map(|(value, _)| *value);
                assert_eq!(hash.get(connection, field), Ok(wanted));
            }
            Act::Remove { field } => {
                let was_there = model.0.remove(&field).is_some();
                assert_eq!(hash.remove(connection, field), Ok(was_there));
            }
            Act::Reap => assert_eq!(hash.reap(connection), Ok(model.reap())),
        }
        assert_eq!(connection.hgetall("{model}:fields"), Ok(model.values()));
        assert_eq!(connection.zcard("{model}:expiries"), Ok(model.0.len()));
    }
}

#[test]
fn the_hash_behaves_like_the_model() {
    let server = Server::start();
    let connection = RefCell::new(server.connect());
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&acts(), |acts| {
        play(&mut connection.borrow_mut(), acts);
        Ok(())
    });
    outcome.expect("the hash behaves like the model");
}
