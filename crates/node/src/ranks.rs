//! A set of workers that finds its k-th member, in worker order, in logarithmic time.

/// A Fenwick tree of ones and zeros: each cell counts the members in the range it covers.
pub(crate) struct Ranks {
    cells: Vec<u32>,
    count: usize,
}

impl Ranks {
    pub(crate) fn new(members: impl ExactSizeIterator<Item = bool>) -> Self {
        let mut cells = Vec::with_capacity(members.len() + 1);
        cells.push(0);
        cells.extend(members.map(u32::from));
        let count = cells.iter().sum::<u32>() as usize;
        for cell in 1..cells.len() {
            let parent = cell + (cell & cell.wrapping_neg());
            if parent < cells.len() {
                cells[parent] += cells[cell];
            }
        }
        Self { cells, count }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, index: usize) {
        let mut cell = index + 1;
        while cell < self.cells.len() {
            self.cells[cell] -= 1;
            cell += cell & cell.wrapping_neg();
        }
        self.count -= 1;
    }

    /// The member that has `rank` members before it.
    pub(crate) fn at(&self, rank: usize) -> usize {
        assert!(rank < self.count, "a rank is below the count");
        let mut before = rank as u32;
        let mut position = 0;
        let mut step = self.cells.len().next_power_of_two() / 2;
        while step > 0 {
            let cell = position + step;
            if cell < self.cells.len() && self.cells[cell] <= before {
                before -= self.cells[cell];
                position = cell;
            }
            step /= 2;
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn ranks_match_a_plain_list(
            members in proptest::collection::vec(proptest::bool::ANY, 0..70),
            removals in proptest::collection::vec(0_usize..70, 0..70),
        ) {
            let mut list: Vec<usize> =
                (0..members.len()).filter(|&index| members[index]).collect();
            let mut ranks = Ranks::new(members.iter().copied());
            for removal in removals {
                proptest::prop_assert_eq!(ranks.count(), list.len());
                for (rank, &index) in list.iter().enumerate() {
                    proptest::prop_assert_eq!(ranks.at(rank), index);
                }
                if list.is_empty() {
                    break;
                }
                ranks.remove(list.remove(removal % list.len()));
            }
        }
    }
}
