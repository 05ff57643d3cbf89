//! Learned queries on a simulated device.

use tilewright_flow::prelude::*;
use tilewright_flow::program::Phase;
use tilewright_flow::trace;

use super::device::{Both, CUT, Cut};

/// Blocks by the mean of their keys, scored by a query that the heads of a group make together.
struct Learned {
    /// Names of flows are unique.
    name: String,
    rank: u32,
    /// Whether scores are products, or distances.
    products: bool,
}

/// The fields of a block, and both weights.
#[derive(Clone, Copy, Debug)]
struct Fields {
    mean: Field,
    w_q: FlowParameter,
    w_k: FlowParameter,
}

impl Flow for Learned {
    type Fields = Fields;
    type State = ();

    fn name(&self) -> &str {
        &self.name
    }
    fn fields(&self, declare: &mut Declare) -> Fields {
        let weights = [Dim::GROUP.times(Dim::HEAD_DIM), Dim::of(self.rank)];
        Fields {
            mean: declare.field("mean", [Dim::ONE, Dim::HEAD_DIM]),
            w_q: declare.parameter("w_q", weights),
            w_k: declare.parameter("w_k", weights),
        }
    }
    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Fields) {
        block.store(fields.mean, block.keys().mean(D0));
    }
    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Fields, (): ()) -> Done<'t> {
        let w_q = step.parameter(fields.w_q);
        let w_k = step.parameter(fields.w_k);
        let query = step.query().learned_query(w_q, w_k, Scale::inverse_root(Dim::HEAD_DIM));
        let mean = step.field(fields.mean).load();
        step.select(if self.products { query.gemv(mean) } else { (query + mean).abs().sum(D1) * -1.0 })
    }
}

/// Ranks below, at and beyond a warp's lanes; queries in one lane and in several; scores as
/// products, whose blocks come through the ring, and not.
#[test]
fn learned_queries_agree_with_the_reference() {
    let cases = [
        (3, true, Cut { head_dim: 64, seed: 101, ..CUT }),
        (32, false, Cut { group: 4, head_dim: 32, seed: 102, ..CUT }),
        (40, true, Cut { group: 5, head_dim: 128, rows: 1, seed: 103, ..CUT }),
        (5, false, Cut { group: 1, head_dim: 24, rows: 3, seed: 104, ..CUT }),
    ];
    for (rank, products, cut) in cases {
        let flow = trace(&Learned { name: format!("learned-{rank}"), rank, products }).expect("a flow without errors");
        let mut both = Both::new(flow, Phase::Decode, cut);
        for position in [223, 319] {
            both.check(&[position, 160, 200][..cut.rows]);
        }
    }
}
