//! Names that many jobs share: queues, kinds, keys.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A short text, cheap to hand around.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

/// Small numbers for names in use. A name that is no longer used is dropped and its number is used
/// again, so clients that invent names cannot make this grow for ever.
#[derive(Default)]
pub(crate) struct Names {
    numbers: BTreeMap<Name, u32>,
    names: Vec<Option<(Name, u32)>>,
    free: Vec<u32>,
}

impl Names {
    /// The number of `name`, with one more user.
    pub(crate) fn take(&mut self, name: &Name) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            self.names[number as usize].as_mut().expect("a numbered name is in use").1 += 1;
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            u32::try_from(self.names.len() - 1).expect("fewer names than 32 bits")
        });
        self.names[number as usize] = Some((name.clone(), 1));
        self.numbers.insert(name.clone(), number);
        number
    }

    /// One user of `number` fewer.
    pub(crate) fn release(&mut self, number: u32) {
        let entry = &mut self.names[number as usize];
        let (name, users) = entry.as_mut().expect("a released name is in use");
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(name);
            *entry = None;
            self.free.push(number);
        }
    }

    pub(crate) fn get(&self, number: u32) -> &Name {
        &self.names[number as usize].as_ref().expect("the name of a number in use").0
    }

    /// Every number in use with its count of users, for the audit.
    pub(crate) fn users(&self) -> impl Iterator<Item = (u32, u32)> {
        let used = self.names.iter().zip(0..);
        used.filter_map(|(entry, number)| entry.as_ref().map(|(_, users)| (number, *users)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_unused_name_is_reused() {
        let mut names = Names::default();
        let a = names.take(&"a".into());
        assert_eq!(names.take(&"a".into()), a);
        let b = names.take(&"b".into());
        assert_ne!(a, b);
        names.release(a);
        assert_eq!(names.get(a).as_str(), "a");
        names.release(a);
        assert_eq!(names.take(&"c".into()), a);
        assert_eq!(names.users().collect::<Vec<_>>(), [(a, 1), (b, 1)]);
    }
}
