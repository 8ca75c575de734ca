//! A list of values by number, in which the number of a removed value is reused.

pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// The number that the next value gets.
    pub(crate) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    pub(crate) fn insert(&mut self, thing: T) -> usize {
        if let Some(number) = self.free.pop() {
            self.slots[number] = Some(thing);
            return number;
        }
        self.slots.push(Some(thing));
        self.slots.len() - 1
    }

    #[cfg(any(feature = "net", test))]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.slots.get_mut(number)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        let thing = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Removes all values. Their numbers are free again.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.slots.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_it_is_free() {
        let mut slots = Slots::new();
        assert_eq!((slots.insert('a'), slots.insert('b')), (0, 1));
        assert_eq!(slots.remove(0), Some('a'));
        assert_eq!(slots.remove(0), None);
        assert_eq!(slots.next(), 0);
        assert_eq!(slots.insert('c'), 0);
        assert_eq!((slots.len(), slots.get_mut(1)), (2, Some(&mut 'b')));
        assert_eq!(slots.drain().collect::<String>(), "cb");
        assert!(slots.is_empty());
    }
}
