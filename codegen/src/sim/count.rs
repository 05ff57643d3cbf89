//! Counters: what a kernel did, by instruction.

use super::Left;
use crate::ir::{Src, StmtId};
use std::collections::BTreeMap;

/// The counters of one instruction in a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Times that a warp executed it.
    pub warps: u64,
    /// Lanes that executed it.
    pub lanes: u64,
    /// Wavefronts of shared memory beyond those that its width needs: bank conflicts.
    pub conflicts: u64,
    /// Sectors of 32 bytes of global memory that its warps touched.
    pub sectors: u64,
}

/// The counters of a launch.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub(crate) sites: Vec<SiteCounts>,
    /// Steps of warps, jumps and joins included: the machine's time.
    pub steps: u64,
    /// The fate of the other devices after one was [lost](super::Loss).
    pub left: Option<Left>,
    pub(crate) named: Vec<NamedInst>,
}

/// An instruction by statement, text, line and family.
#[derive(Clone, Debug)]
pub(crate) struct NamedInst {
    pub stmt: StmtId,
    pub text: String,
    pub src: Src,
    pub class: Option<&'static str>,
}

impl Counters {
    pub(crate) fn new(sites: usize) -> Counters {
        Counters { sites: vec![SiteCounts::default(); sites], ..Counters::default() }
    }

    /// Instructions executed by single lanes.
    pub fn lane_instructions(&self) -> u64 {
        self.sites.iter().map(|site| site.lanes).sum()
    }

    /// Extra wavefronts of shared memory of the whole launch.
    pub fn conflicts(&self) -> u64 {
        self.sites.iter().map(|site| site.conflicts).sum()
    }

    /// Sectors of global memory of the whole launch.
    pub fn sectors(&self) -> u64 {
        self.sites.iter().map(|site| site.sectors).sum()
    }

    /// Lane instructions by family of instructions, in alphabetical order.
    pub fn by_class(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (counts, named) in self.sites.iter().zip(&self.named) {
            if let Some(class) = named.class {
                *sums.entry(class).or_insert(0) += counts.lanes;
            }
        }
        sums
    }

    /// Iterates over the instructions: number, text, line, counters.
    pub fn each(&self) -> impl Iterator<Item = (StmtId, &str, Src, &SiteCounts)> {
        self.sites.iter().zip(&self.named).map(|(counts, named)| (named.stmt, named.text.as_str(), named.src, counts))
    }
}

/// Wavefronts of one access of a warp to shared memory, and how many its width needs at best.
///
/// 32 banks of 4 bytes. Lanes are served in parts of a warp that move 128 bytes: all lanes for up
/// to 4 bytes each, half warps for 8, quarter warps for 16. Within a part, different words of the
/// same bank take turns.
pub(crate) fn wavefronts(addresses: &[(usize, u32)], bytes: u32) -> (u32, u32) {
    let part = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut total = 0;
    let mut ideal = 0;
    let mut words: Vec<u32> = Vec::with_capacity(32);
    for first in (0..32).step_by(part) {
        words.clear();
        for &(_, address) in addresses.iter().filter(|(lane, _)| (first..first + part).contains(lane)) {
            words.extend(address / 4..(address + bytes).div_ceil(4));
        }
        if words.is_empty() {
            continue;
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u32; 32];
        for word in &words {
            banks[(word % 32) as usize] += 1;
        }
        total += banks.into_iter().max().unwrap_or(0);
        ideal += 1;
    }
    (total, ideal)
}

/// Sectors of 32 bytes that an access of a warp to global memory touches.
pub(crate) fn sectors(addresses: &mut Vec<u64>, bytes: u32) -> u64 {
    for address in addresses.iter_mut() {
        *address /= 32;
    }
    // No access crosses a sector: its address is a multiple of its width.
    let _ = bytes;
    addresses.sort_unstable();
    addresses.dedup();
    addresses.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(bytes: u32, address: impl Fn(u32) -> u32) -> (u32, u32) {
        let lanes: Vec<_> = (0..32).map(|lane| (lane as usize, address(lane))).collect();
        wavefronts(&lanes, bytes)
    }

    #[test]
    fn conflicts_are_counted_by_bank() {
        assert_eq!(pattern(4, |lane| lane * 4), (1, 1));
        assert_eq!(pattern(4, |_| 64), (1, 1), "a broadcast");
        assert_eq!(pattern(4, |lane| lane * 128), (32, 1), "a column of 32 floats");
        assert_eq!(pattern(4, |lane| lane * 132), (1, 1), "padded");
        assert_eq!(pattern(16, |lane| lane * 16), (4, 4));
        assert_eq!(pattern(16, |lane| lane * 128), (32, 4));
        assert_eq!(pattern(2, |lane| lane * 2), (1, 1));
    }
}
