//! Finds the end of a WebSocket frame. The payload is not looked at.

/// The length of the first frame in these bytes including its header; `None` if more bytes are
/// needed.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let (&[_, second], rest) = bytes.split_first_chunk()?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (header, payload) = match second & 0x7f {
        126 => (4, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*rest.first_chunk()?)),
        short => (2, u64::from(short)),
    };
    Some(header + mask + usize::try_from(payload).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_of_a_length_are_read_masked_and_unmasked() {
        assert_eq!(length(&[0x81]), None);
        assert_eq!(length(&[0x81, 5]), Some(7));
        assert_eq!(length(&[0x81, 0x80 | 5]), Some(11));
        assert_eq!(length(&[0x81, 126, 1]), None);
        assert_eq!(length(&[0x81, 126, 1, 0]), Some(260));
        assert_eq!(length(&[0x81, 0x80 | 126, 1, 0]), Some(264));
        assert_eq!(length(&[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]), Some(65_546));
    }
}
