//! Regions: the part of a buffer that a task reads or writes, as a box of index intervals.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::BufferId;

/// Largest rank of a buffer.
pub const MAX_RANK: usize = 4;

/// What a task does to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// It reads it.
    Read,
    /// It writes it.
    Write,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
        })
    }
}

/// A half-open interval of indexes, `lo..hi`; `[lo, hi]` in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// First index.
    pub lo: usize,
    /// The exclusive end.
    pub hi: usize,
}

impl Span {
    /// The interval `lo..hi`.
    pub const fn new(lo: usize, hi: usize) -> Span {
        Span { lo, hi }
    }

    /// The whole of a dimension: `0..extent`.
    pub const fn all(extent: usize) -> Span {
        Span { lo: 0, hi: extent }
    }

    /// The single index `at`.
    pub const fn one(at: usize) -> Span {
        Span { lo: at, hi: at.saturating_add(1) }
    }

    /// Indexes in it; 0 for an interval that ends before it starts.
    pub const fn len(self) -> usize {
        self.hi.saturating_sub(self.lo)
    }

    /// Whether it begins and ends at multiples of `step`.
    ///
    /// ```
    /// use tilewright_megakernel::program::Span;
    /// assert!(Span::new(8, 24).is_in_steps_of(8) && !Span::new(4, 24).is_in_steps_of(8) && !Span::new(8, 20).is_in_steps_of(8));
    /// ```
    pub const fn is_in_steps_of(self, step: usize) -> bool {
        self.lo.is_multiple_of(step) && self.hi.is_multiple_of(step)
    }

    /// Whether it holds no index.
    pub const fn is_empty(self) -> bool {
        self.hi <= self.lo
    }

    /// The indexes in both.
    pub fn meet(self, other: Span) -> Span {
        Span { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    /// Whether some index is in both.
    pub fn overlaps(self, other: Span) -> bool {
        !self.meet(other).is_empty()
    }

    /// Its indexes.
    pub fn iter(self) -> std::ops::Range<usize> {
        self.lo..self.hi
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lo, self.hi)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.lo, self.hi].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        <[usize; 2]>::deserialize(deserializer).map(|[lo, hi]| Span { lo, hi })
    }
}

/// A box of indexes of one buffer: one interval per dimension.
///
/// ```
/// use tilewright_megakernel::program::{BufferId, Region, Span};
/// let tile = Region::new(BufferId(3), &[Span::all(1), Span::new(8, 16)]);
/// let row = Region::new(BufferId(3), &[Span::one(0), Span::all(2048)]);
/// assert!(tile.overlaps(&row));
/// assert_eq!(tile.to_string(), "b3[0:1, 8:16]");
/// assert_eq!(tile.elements(), 8);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The buffer.
    pub buffer: BufferId,
    rank: u8,
    spans: [Span; MAX_RANK],
}

impl Region {
    /// The box of `spans` in `buffer`, outermost dimension first.
    ///
    /// # Panics
    /// If there are more than [`MAX_RANK`] spans; a region that is read from JSON is refused
    /// instead.
    pub fn new(buffer: BufferId, spans: &[Span]) -> Region {
        Region::try_new(buffer, spans).expect("a region has at most MAX_RANK dimensions")
    }

    /// Creates a region as [`Region::new`] does; `None` if there are more than [`MAX_RANK`] spans.
    pub fn try_new(buffer: BufferId, spans: &[Span]) -> Option<Region> {
        let mut all = [Span::new(0, 0); MAX_RANK];
        all.get_mut(..spans.len())?.copy_from_slice(spans);
        Some(Region { buffer, rank: spans.len() as u8, spans: all })
    }

    /// The whole of a buffer of that shape (rank at most [`MAX_RANK`]).
    ///
    /// # Panics
    /// As [`Region::new`].
    pub fn whole(buffer: BufferId, shape: &[usize]) -> Region {
        let spans: Vec<Span> = shape.iter().map(|&extent| Span::all(extent)).collect();
        Region::new(buffer, &spans)
    }

    /// The intervals, outermost first.
    pub fn spans(&self) -> &[Span] {
        &self.spans[..self.rank as usize]
    }

    /// Extents of the box, outermost first.
    pub fn extents(&self) -> Vec<usize> {
        self.spans().iter().map(|s| s.len()).collect()
    }

    /// Elements in the box; saturates.
    pub fn elements(&self) -> usize {
        self.spans().iter().fold(1, |n, s| n.saturating_mul(s.len()))
    }

    /// Whether the box holds no element.
    pub fn is_empty(&self) -> bool {
        self.spans().iter().any(|s| s.is_empty())
    }

    /// Whether some element is in both boxes. Boxes of different buffers or ranks share none.
    pub fn overlaps(&self, other: &Region) -> bool {
        self.buffer == other.buffer
            && self.rank == other.rank
            && self.spans().iter().zip(other.spans()).all(|(a, b)| a.overlaps(*b))
    }

    /// Whether every element of another region is one of this, too.
    ///
    /// ```
    /// use tilewright_megakernel::program::{BufferId, Region, Span};
    /// let region = |rows| Region::new(BufferId::from(0), &[rows, Span::all(8)]);
    /// assert!(region(Span::new(0, 4)).contains(&region(Span::one(3))));
    /// assert!(!region(Span::new(0, 4)).contains(&region(Span::new(3, 5))));
    /// ```
    pub fn contains(&self, other: &Region) -> bool {
        let within = |(a, b): (&Span, &Span)| b.is_empty() || (a.lo <= b.lo && b.hi <= a.hi);
        self.buffer == other.buffer && self.rank == other.rank && self.spans().iter().zip(other.spans()).all(within)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.buffer)?;
        for (at, span) in self.spans().iter().enumerate() {
            write!(f, "{}{span}", if at > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A region as JSON spells it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionRecord<S> {
    buffer: BufferId,
    index: S,
}

impl Serialize for Region {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RegionRecord { buffer: self.buffer, index: self.spans() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Region, D::Error> {
        let record = RegionRecord::<Vec<Span>>::deserialize(deserializer)?;
        Region::try_new(record.buffer, &record.index).ok_or_else(|| {
            serde::de::Error::custom(format_args!(
                "a region of {} has {} dimensions; at most {MAX_RANK} are supported",
                record.buffer,
                record.index.len()
            ))
        })
    }
}
