//! The jobs of a lease row as bytes.
//!
//! A claim mostly takes jobs with consecutive numbers, and their fences are small: each job is
//! encoded as its distance from the one before and its fence, in variable-length integers. That
//! usually takes two bytes per job, where two fixed-size integers would take sixteen.

use filch_scheduler::id::{Fence, Hold, Seq};

use super::error::Failure;

/// Encodes the jobs of one row into `bytes`, which is cleared first.
pub(super) fn pack(jobs: &[Hold], bytes: &mut Vec<u8>) {
    bytes.clear();
    let mut last = 0_u64;
    for hold in jobs {
        let distance = hold.job.0.wrapping_sub(last).cast_signed();
        // Zigzag encoding, so that a small step back is a small number too.
        push(((distance << 1) ^ (distance >> 63)).cast_unsigned(), bytes);
        push(hold.fence.0, bytes);
        last = hold.job.0;
    }
}

/// The jobs of one row, in their order.
pub(super) fn unpack(bytes: &[u8]) -> impl Iterator<Item = Result<Hold, Failure>> {
    let (mut rest, mut last) = (bytes, 0_u64);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let pair = pull(&mut rest).zip(pull(&mut rest));
        let Some((folded, fence)) = pair else {
            rest = &[];
            return Some(Err(Failure::Content("a lease row is truncated".into())));
        };
        let distance = (folded >> 1).cast_signed() ^ -((folded & 1).cast_signed());
        last = last.wrapping_add(distance.cast_unsigned());
        Some(Ok(Hold { job: Seq(last), fence: Fence(fence) }))
    })
}

/// Seven bits per byte, the lowest first; the highest bit means that more bytes follow.
fn push(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn pull(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Hold>, Failure> {
        unpack(bytes).collect()
    }

    #[test]
    fn consecutive_jobs_take_two_bytes_each() {
        let hold = |job| Hold { job: Seq(job), fence: Fence(1) };
        let jobs: Vec<Hold> = (1_000_000..1_000_100).map(hold).collect();
        let mut bytes = Vec::new();
        pack(&jobs, &mut bytes);
        assert_eq!(bytes.len(), 2 * 100 + 2);
        assert_eq!(read(&bytes).unwrap(), jobs);
    }

    #[test]
    fn truncated_bytes_are_an_error() {
        assert_eq!(read(&[]).unwrap(), []);
        for bytes in [&[2][..], &[2, 1, 0x80], &[0x80; 11]] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_jobs_read_back(pairs in prop::collection::vec(any::<(u64, u64)>(), 0..20)) {
            let hold = |&(job, fence): &(u64, u64)| Hold { job: Seq(job), fence: Fence(fence) };
            let jobs: Vec<Hold> = pairs.iter().map(hold).collect();
            let mut bytes = Vec::new();
            pack(&jobs, &mut bytes);
            prop_assert_eq!(read(&bytes).unwrap(), jobs);
        }
    }
}
