//! Functions of lanes.

use crate::ir::{Operand, ValueId};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// The values of all lanes.
pub(crate) type LaneValues = [u64; LANES];

/// A function of up to three values, for a whole warp.
pub(crate) type Alu = fn(&LaneValues, &LaneValues, &LaneValues, &mut LaneValues);

/// A pure instruction, ready to run: what it writes, what it reads, the function.
pub(crate) struct Pure {
    pub dest: ValueId,
    pub reads: [Option<Operand>; 3],
    pub run: Alu,
}

/// `d = f(a, b, c)`.
pub(super) fn pure(dest: ValueId, reads: [Option<Operand>; 3], run: Option<Alu>) -> Option<Pure> {
    run.map(|run| Pure { dest, reads, run })
}

/// A function of lanes `a`, `b`, `c` as a function of rows.
macro_rules! lanes {
    (|$a:ident, $b:ident, $c:ident| $body:expr) => {{
        #[allow(unused_variables, clippy::unnecessary_cast, reason = "not every function has three operands")]
        fn run(
            x: &$crate::sim::number::LaneValues,
            y: &$crate::sim::number::LaneValues,
            z: &$crate::sim::number::LaneValues,
            out: &mut $crate::sim::number::LaneValues,
        ) {
            for lane in 0..$crate::sim::number::LANES {
                let ($a, $b, $c): (u64, u64, u64) = (x[lane], y[lane], z[lane]);
                out[lane] = $body as u64;
            }
        }
        run as $crate::sim::number::Alu
    }};
}
pub(super) use lanes;
