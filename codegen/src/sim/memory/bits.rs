//! One bit per byte: whether it was written.

/// A set of bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(bytes: usize, full: bool) -> Bits {
        Bits { words: vec![if full { u64::MAX } else { 0 }; bytes.div_ceil(64)] }
    }

    /// The words that a range touches, with the bits of the range in each.
    fn parts(start: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
        let end = start + bytes;
        let words = if bytes == 0 { 0..0 } else { start / 64..end.div_ceil(64) };
        words.map(move |word| {
            let low = start.max(word * 64) - word * 64;
            let high = end.min(word * 64 + 64) - word * 64;
            (word, u64::MAX >> (64 - (high - low)) << low)
        })
    }

    pub(crate) fn set(&mut self, start: usize, bytes: usize) {
        for (word, mask) in Self::parts(start, bytes) {
            self.words[word] |= mask;
        }
    }

    pub(crate) fn clear(&mut self, start: usize, bytes: usize) {
        for (word, mask) in Self::parts(start, bytes) {
            self.words[word] &= !mask;
        }
    }

    /// The first byte of a range that is not in the set.
    pub(crate) fn first_missing(&self, start: usize, bytes: usize) -> Option<usize> {
        // Most ranges are a few bytes of one word.
        let low = start % 64;
        if bytes != 0 && low + bytes <= 64 {
            let missing = !self.words[start / 64] & (u64::MAX >> (64 - bytes) << low);
            return (missing != 0).then(|| start - low + missing.trailing_zeros() as usize);
        }
        Self::parts(start, bytes).find_map(|(word, mask)| {
            let missing = mask & !self.words[word];
            (missing != 0).then(|| word * 64 + missing.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_words() {
        let mut bits = Bits::new(300, false);
        bits.set(60, 100);
        assert_eq!(bits.first_missing(60, 100), None);
        assert_eq!(bits.first_missing(59, 2), Some(59));
        assert_eq!(bits.first_missing(128, 64), Some(160));
        assert_eq!(bits.first_missing(0, 0), None);
        bits.clear(100, 30);
        assert_eq!((bits.first_missing(60, 100), bits.first_missing(130, 30)), (Some(100), None));
        assert_eq!(Bits::new(64, true).first_missing(0, 64), None);
    }
}
