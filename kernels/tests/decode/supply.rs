//! Weights without a ring: the team copies each stage itself.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Shared, Var};
use tilewright_kernels::decode::{Scratch, Team, Unit, Weights};

/// The stages of units that lie one behind the other.
pub struct Supply<'k> {
    team: Team<'k>,
    from: Ptr<'k, Global, u32>,
    stage: Ptr<'k, Shared, u32>,
    words: u32,
    next: Var<'k, u32>,
}

impl<'k> Supply<'k> {
    /// Units from there on.
    pub fn new(team: Team<'k>, unit: Unit, from: Ptr<'k, Global, u32>) -> Supply<'k> {
        let words = unit.stage_bytes() / 4;
        Supply { team, from, stage: team.k.shared("stage", words), words, next: team.k.var(0u32) }
    }
}

impl<'k> Weights<'k> for Supply<'k> {
    fn stage(&self, read: &dyn Fn(Ptr<'k, Shared, u32>)) {
        let from = self.from.at(self.next.get() * self.words);
        self.team.sync();
        self.team.each(self.words, |at| self.stage.at(at).store(from.at(at).load()));
        self.team.sync();
        read(self.stage);
        self.next.set(self.next.get() + 1);
    }
}

/// The team's shared memory for so many rows of the operand's bytes, with sums for `units` units.
pub fn scratch(team: Team<'_>, operand_bytes: u32, rows: u32, units: u32) -> Scratch<'_> {
    let (k, sums_bytes) = (team.k, units * team.warps * rows * Unit::ROWS * 4);
    Scratch {
        operand: k.shared("operand", operand_bytes / 2),
        squares: k.shared("squares", 16 * team.warps),
        sums: k.shared("sums", sums_bytes / 4),
        sums_bytes,
        best: k.shared("best", 16),
        loaded: None,
    }
}

/// The rows `[n, k]` as units of eight, in the order of `order`: which rows each has.
pub fn pack(unit: Unit, weight: &[bf16], order: &[[Option<usize>; 8]]) -> Vec<bf16> {
    let row = |row: usize| &weight[row * unit.k() as usize..][..unit.k() as usize];
    let units = order.iter().flat_map(|rows| {
        let mut place = vec![bf16::ZERO; unit.bytes() as usize / 2];
        unit.pack(&rows.map(|at| at.map(row)), &mut place);
        place
    });
    units.collect()
}
