//! Sums of products in shared memory: the warps' shares of the outputs of a group of strips.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::pass::StripPass;
use crate::gemv::activations::{AOperand, Packing};
use crate::gemv::scratch::LinearScratch;
use crate::warps::{ConsumerWarps, sum_of_warps};
use crate::weights::Strip;

/// Sums in shared memory, f32 `[warps, strips, rows, 8]`: each warp's share of each output of a
/// group of strips.
#[derive(Clone, Copy)]
pub struct SharedSums<'k> {
    at: Ptr<'k, Shared, f32>,
    packing: Packing,
    strips: u32,
    warps: u32,
}

impl<'k> SharedSums<'k> {
    /// Sums of the products of those rows, for as many strips as fit into `bytes` bytes, 1 at least
    /// and 64 at most, an even number where it is more than 1.
    pub fn new(at: Ptr<'k, Shared, f32>, bytes: u32, packing: Packing, warps: u32) -> SharedSums<'k> {
        let strips = (bytes / LinearScratch::strip_bytes(packing.rows(), warps)).clamp(1, 64);
        // Strips may come in pairs.
        let strips = if strips > 1 { strips & !1 } else { 1 };
        SharedSums { at, packing, strips, warps }
    }

    /// How rows lie in the operand.
    pub(super) fn packing(self) -> Packing {
        self.packing
    }

    /// Strips of a group.
    pub fn strips(self) -> u32 {
        self.strips
    }

    /// Outputs of a number of strips.
    pub(super) fn outputs(self, strips: u32) -> u32 {
        strips * self.packing.rows() * Strip::ROWS
    }

    /// The sum of the warps' shares of output `(strip · rows + row) · 8 + feature`.
    #[track_caller]
    pub(in crate::gemv) fn total(self, output: Val<'k, u32>) -> Val<'k, f32> {
        sum_of_warps(self.at.at(output), self.warps, self.outputs(self.strips))
    }

    /// Adds this lane's part of a strip's products to what is there.
    pub(super) fn add(self, consumers: ConsumerWarps<'k>, slot: Val<'k, u32>, products: [Val<'k, f32>; 4]) {
        self.place(consumers, slot, products, |at, [a, b]| {
            let [x, y]: [Val<f32>; 2] = at.load_vec();
            at.store_vec([a + x, b + y]);
        });
    }

    /// Stores this lane's part of a strip's products with codes as the A operand.
    pub(super) fn store_features(self, consumers: ConsumerWarps<'k>, slot: Val<'k, u32>, products: [Val<'k, f32>; 4]) {
        let k = consumers.k;
        let rows = self.packing.rows();
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + k.lane() / 4);
        for (row, lane, value) in self.packing.rows_of_columns(k, products) {
            k.when((k.lane() % 4).eq(lane), || strip.at(row * Strip::ROWS).store(value));
        }
    }

    /// Stores this lane's part of the products of a strip and, where `second` says so, the next,
    /// with codes as the A operand: of eight rows from `first` on.
    pub(super) fn store_pair(
        self,
        consumers: ConsumerWarps<'k>,
        [slot, first]: [Val<'k, u32>; 2],
        products: [Val<'k, f32>; 4],
        second: bool,
    ) {
        let k = consumers.k;
        let rows = self.packing.rows();
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + k.lane() / 4);
        let [a, b, c, d] = products;
        for (next, sums) in [[a, b], [c, d]].into_iter().enumerate().take(1 + usize::from(second)) {
            let strip = strip.at(next as u32 * rows * Strip::ROWS);
            for (row, sum) in self.packing.rows_of_two(k, sums) {
                let row = first + row;
                k.when(row.lt(rows), || strip.at(row * Strip::ROWS).store(sum));
            }
        }
    }

    /// Lets `put` have the places of this lane's part of a strip's products, and what goes there.
    pub(super) fn place(
        self,
        consumers: ConsumerWarps<'k>,
        slot: Val<'k, u32>,
        products: [Val<'k, f32>; 4],
        put: impl Fn(Ptr<'k, Shared, f32>, [Val<'k, f32>; 2]),
    ) {
        let k = consumers.k;
        let rows = self.packing.rows();
        let group = k.lane() / 4;
        let feature = k.lane() % 4 * 2;
        let strip = self.at.at((k.warp() * self.strips + slot) * (rows * Strip::ROWS) + feature);
        let (first, second) = self.packing.totals(products);
        k.when(group.lt(rows), || put(strip.at(group * 8), first));
        if let Some(second) = second {
            k.when((group + 8).lt(rows), || put(strip.at(group * 8 + 64), second));
        }
    }
}

/// One output of a group.
pub(in crate::gemv) struct OutputCell<'k> {
    /// Which of its thread's outputs of a group.
    pub number: usize,
    /// Strip of the group.
    pub strip: Val<'k, u32>,
    /// Row of the tile.
    pub row: Val<'k, u32>,
    /// Feature of the strip.
    pub feature: Val<'k, u32>,
    /// Whether there is such an output.
    pub inside: Val<'k, bool>,
    /// Place among the group's outputs, were every strip a single one.
    pub place: Val<'k, u32>,
}

impl<'k> StripPass<'k> {
    /// The sums of a group of strips. Activations in registers leave their shared memory to them,
    /// up to four outputs of a thread: the ring is not read while outputs are finished, so few
    /// large groups are better than many small ones.
    pub(super) fn sums(self, packing: Packing) -> SharedSums<'k> {
        let StripPass { consumers, scratch, strip, rows, a_operand, reserved, .. } = self;
        let each = LinearScratch::strip_bytes(rows, consumers.warps);
        let plain = |bytes: u32| SharedSums::new(scratch.sums, bytes, packing, consumers.warps);
        match a_operand {
            AOperand::Reloaded { group } => plain(group * each),
            AOperand::Registers | AOperand::Phases { .. } if self.spreads => {
                let used = a_operand.operand_bytes(strip, packing).next_multiple_of(8) + reserved;
                let used = used.min(scratch.operand_bytes);
                let most = consumers.threads() * 4 / (rows * Strip::ROWS);
                let strips = ((scratch.operand_bytes - used + scratch.sums_bytes) / each).min(most) & !1;
                if strips * each <= scratch.sums_bytes {
                    return plain(scratch.sums_bytes);
                }
                SharedSums::new(scratch.operand.at(used / 2).cast(), strips * each, packing, consumers.warps)
            }
            AOperand::Shared | AOperand::Registers | AOperand::Phases { .. } => plain(scratch.sums_bytes),
        }
    }
}
