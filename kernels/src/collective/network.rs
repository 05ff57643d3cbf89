//! Bitonic sorting networks whose comparisons all point up: an item that is missing at the end
//! behaves as one that sorts last, so that any number of items sorts.

/// One step of a network: a thread compares its item with that of the thread whose number differs
/// in the bits of `xor`. The thread without the bit `upper` keeps the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub xor: u32,
    pub upper: u32,
}

/// The network for `count` items.
pub(super) fn steps(count: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut size = 2;
    while size < 2 * count {
        // The first step mirrors the upper half, the others merge halves.
        steps.push(Step { xor: size - 1, upper: size / 2 });
        let mut half = size / 4;
        while half > 0 {
            steps.push(Step { xor: half, upper: half });
            half /= 2;
        }
        size *= 2;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_ones_sort() {
        for count in 1..=12u32 {
            // By the 0-1 principle, a network that sorts zeros and ones sorts everything.
            for bits in 0..1u32 << count {
                let mut items: Vec<u32> = (0..count).map(|at| bits >> at & 1).collect();
                for Step { xor, upper } in steps(count) {
                    for at in (0..count).filter(|at| at & upper == 0 && at ^ xor < count) {
                        let (low, high) = (at as usize, (at ^ xor) as usize);
                        if items[high] < items[low] {
                            items.swap(low, high);
                        }
                    }
                }
                assert!(items.is_sorted(), "{count} items, {bits:b}: {items:?}");
            }
        }
    }
}
