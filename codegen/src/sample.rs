//! The part of a long test's cases that one run takes.

/// One of a number of equal parts of a test's cases, chosen by the number in `TILEWRIGHT_SEED` or
/// 0; with `TILEWRIGHT_LONG` in the environment all of them.
///
/// ```
/// use tilewright_codegen::sample::Sample;
/// let parts = [0, 1, 2].map(|seed| Sample::new(3, seed).of(&[10, 20, 30, 40]));
/// assert_eq!(parts, [vec![10, 40], vec![20], vec![30]]);
/// assert_eq!(Sample::ALL.of(&[10, 20]), [10, 20]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    parts: usize,
    part: usize,
}

impl Sample {
    /// All cases.
    pub const ALL: Sample = Sample { parts: 1, part: 0 };

    /// One of `parts` parts, by a seed; of 0 parts, all cases.
    pub fn new(parts: usize, seed: u64) -> Sample {
        let parts = parts.max(1);
        Sample { parts, part: (seed % parts as u64) as usize }
    }

    /// The part that the environment chooses, which it prints.
    ///
    /// # Panics
    /// If `TILEWRIGHT_SEED` is no number.
    pub fn one_of(parts: usize) -> Sample {
        if std::env::var_os("TILEWRIGHT_LONG").is_some() {
            return Sample::ALL;
        }
        let seed =
            std::env::var("TILEWRIGHT_SEED").map_or(0, |seed| seed.parse().expect("TILEWRIGHT_SEED is a number"));
        let sample = Sample::new(parts, seed);
        println!("{sample}; TILEWRIGHT_SEED chooses another, TILEWRIGHT_LONG takes all");
        sample
    }

    /// Whether it has all cases.
    pub fn is_all(self) -> bool {
        self.parts == 1
    }

    /// Whether it has the case of this number.
    pub fn has(self, number: usize) -> bool {
        number % self.parts == self.part
    }

    /// Whether it has the case of this number, if cases of near numbers are much alike: they are
    /// spread over the parts.
    ///
    /// ```
    /// use tilewright_codegen::sample::Sample;
    /// let of = |seed| (0..4000).filter(|&place| Sample::new(4, seed).has_spread(place)).count();
    /// assert!((800..1200).contains(&of(1)));
    /// // The seeds 0 to 3 together take every case once.
    /// assert!((0..4000).all(|place| (0..4).filter(|&seed| Sample::new(4, seed).has_spread(place)).count() == 1));
    /// assert!(Sample::ALL.has_spread(7));
    /// ```
    pub fn has_spread(self, number: usize) -> bool {
        self.has(((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize)
    }

    /// Its cases, of all; at least one.
    pub fn of<T: Clone>(self, all: &[T]) -> Vec<T> {
        let parts = self.parts.clamp(1, all.len().max(1));
        all.iter().skip(self.part % parts).step_by(parts).cloned().collect()
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_all() { f.write_str("all") } else { write!(f, "part {} of {}", self.part, self.parts) }
    }
}
