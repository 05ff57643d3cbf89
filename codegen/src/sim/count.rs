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
/// same bank take turns. The lanes ascend.
pub(crate) fn wavefronts(addresses: &[(usize, u32)], bytes: u32) -> (u32, u32) {
    let part = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut total = 0;
    let mut ideal = 0;
    let mut words: Vec<u32> = Vec::new();
    let mut rest = addresses;
    while let [(lane, first), ..] = rest {
        let lanes = rest.partition_point(|(other, _)| other / part == lane / part);
        let (here, later) = rest.split_at(lanes);
        rest = later;
        ideal += 1;
        // Mostly they lie in a row of the banks, from any word on: then no two words share a bank.
        let (low, high) = here.iter().fold((*first, *first), |(low, high), &(_, at)| (low.min(at), high.max(at)));
        if high.saturating_add(bytes).div_ceil(4) - low / 4 <= 32 {
            total += 1;
            continue;
        }
        words.clear();
        for &(_, address) in here {
            words.extend(address / 4..(address + bytes).div_ceil(4));
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u32; 32];
        for word in &words {
            banks[(word % 32) as usize] += 1;
        }
        total += banks.into_iter().max().unwrap_or(0);
    }
    (total, ideal)
}

/// Sectors of 32 bytes that an access of a warp to global memory touches. No lane's access crosses
/// one: its address is a multiple of its width.
pub(crate) fn sectors(addresses: &mut [u64]) -> u64 {
    addresses.iter_mut().for_each(|address| *address /= 32);
    if !addresses.is_sorted() {
        addresses.sort_unstable();
    }
    addresses.chunk_by(|a, b| a == b).count() as u64
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
        assert_eq!(pattern(8, |lane| lane / 2 * 8), (2, 2), "each word by two lanes");
        assert_eq!(pattern(4, |lane| 4 * (lane + 7) % 128), (1, 1), "turned");
        assert_eq!(pattern(4, |lane| 4 * (lane + lane / 31 * 32)), (1, 1), "a gap of a row of banks");
        assert_eq!(pattern(4, |lane| 4 * (lane + lane / 31 * 31)), (2, 1), "two words of a bank");
    }

    #[test]
    fn lanes_that_are_not_there_take_no_turn() {
        let lanes = [(3, 0), (20, 128), (21, 0)];
        assert_eq!(wavefronts(&lanes, 4), (2, 1));
        assert_eq!(wavefronts(&lanes, 8), (3, 2));
        assert_eq!(wavefronts(&[], 4), (0, 0));
    }
}
