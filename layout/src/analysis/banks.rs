//! Bank conflicts in shared memory.

use crate::{Composed, LayoutError};

/// Banks of shared memory.
pub const BANKS: usize = 32;

/// Bytes that a bank delivers at a time.
pub const BANK_BYTES: i64 = 4;

/// Threads of a warp.
const WARP: i64 = 32;

/// Reads of shared memory that one access of a warp costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wavefronts {
    /// The number of reads.
    pub count: i64,
    /// The number of reads without a conflict.
    pub ideal: i64,
}

impl Wavefronts {
    /// Reads that conflicts cost.
    pub const fn excess(&self) -> i64 {
        self.count - self.ideal
    }
}

/// Counts the wavefronts of an access: thread `t` moves `bytes` bytes at element offset
/// `access.at(t)`.
///
/// The model: a warp moves 128 bytes at a time, so 4-byte accesses take all 32 threads together,
/// 8-byte ones half a warp, 16-byte ones a quarter. Within such a group each bank delivers one
/// 4-byte word per wavefront; threads that read the same word share it. (CUDA C++ Programming
/// Guide, "Shared Memory"; the grouping of wide accesses was measured by many and is what
/// `ldmatrix` and 128-bit loads show in profiles.)
///
/// ```
/// use tilewright_layout::{Composed, Layout, Swizzle, analysis::wavefronts};
/// // Eight threads read the 16-byte vectors of a column of a 64 x 64 tile of 2-byte elements.
/// let column = Layout::parse("8:64").unwrap();
/// assert_eq!(wavefronts(&Composed::Plain(column), 2, 16).unwrap().count, 8);
/// let swizzled = Composed::new(Swizzle::new(3, 3, 3).unwrap(), 0, column);
/// assert_eq!(wavefronts(&swizzled, 2, 16).unwrap().count, 1);
/// ```
///
/// # Errors
/// [`LayoutError::Argument`] if `bytes` is not 1, 2, 4, 8 or 16, an offset is negative or not
/// aligned to `bytes`, or an element has no bytes.
pub const fn wavefronts(access: &Composed, element_bytes: i64, bytes: i64) -> Result<Wavefronts, LayoutError> {
    if !matches!(bytes, 1 | 2 | 4 | 8 | 16) {
        return Err(argument("the bytes a thread moves", bytes, "1, 2, 4, 8 or 16"));
    }
    if element_bytes < 1 || element_bytes > 16 {
        return Err(argument("the bytes of an element", element_bytes, "1 to 16"));
    }
    let group = if bytes > BANK_BYTES { WARP * BANK_BYTES / bytes } else { WARP };
    let mut out = Wavefronts { count: 0, ideal: 0 };
    let mut thread = 0;
    while thread < access.size() {
        let left = access.size() - thread;
        out.count +=
            tri!(group_wavefronts(access, thread, if left < group { left } else { group }, element_bytes, bytes));
        out.ideal += 1;
        thread += group;
    }
    Ok(out)
}

const fn group_wavefronts(
    access: &Composed,
    first: i64,
    threads: i64,
    element_bytes: i64,
    bytes: i64,
) -> Result<i64, LayoutError> {
    // The words read so far; a group reads at most one per bank and thread, 32 in all.
    let mut words = [0i64; BANKS];
    let mut count = 0;
    let mut loads = [0i64; BANKS];
    let mut most = 0;
    let mut thread = first;
    while thread < first + threads {
        let Some(address) = access.at(thread).checked_mul(element_bytes) else {
            return Err(argument("an offset", access.at(thread), "small enough for a byte address"));
        };
        if address < 0 || address % bytes != 0 {
            return Err(argument("a byte address", address, "a multiple of the bytes a thread moves, and at least 0"));
        }
        let mut word = address / BANK_BYTES;
        while word * BANK_BYTES < address + bytes {
            if !contains(&words, count, word) {
                words[count] = word;
                count += 1;
                let bank = (word % BANKS as i64) as usize;
                loads[bank] += 1;
                most = if loads[bank] > most { loads[bank] } else { most };
            }
            word += 1;
        }
        thread += 1;
    }
    Ok(most)
}

const fn contains(words: &[i64; BANKS], count: usize, word: i64) -> bool {
    let mut i = 0;
    while i < count {
        if words[i] == word {
            return true;
        }
        i += 1;
    }
    false
}

const fn argument(argument: &'static str, value: i64, bound: &'static str) -> LayoutError {
    LayoutError::Argument { operation: "wavefronts", argument, value, bound }
}
