//! Steps of 9 to 16 rows on a device: whether a graph of launches is faster than the decode
//! machine.

use tilewright_megakernel::model::ModelSizes;

use crate::engine::limits::MOST_ROWS;

/// Rows up to which the decode machine is the faster one whatever the model: it streams weights at
/// the speed of the memory.
pub(super) const STREAMED: usize = 8;

/// Microseconds of a gigabyte of weights, bf16, as an H200 takes them: by the decode machine in
/// steps of 9 to 16 rows, whose terms come from shared memory for every product; by a graph of 32
/// rows.
const MACHINE: f64 = 346.0;
const GRAPH: f64 = 228.0;
/// Microseconds of a graph's launch in addition to the time of its bytes, and launches of a layer
/// and of a step.
const LAUNCH: f64 = 4.5;
const LAUNCHES: [usize; 2] = [5, 5];

/// Whether a graph is predicted to run a step of that many rows of a bf16 model faster. Keys and
/// values cost both the same.
pub(super) fn is_faster(spec: &ModelSizes, rows: usize) -> bool {
    let gigabytes = (spec.layers * spec.layer_reads(rows) + spec.vocab * spec.hidden) as f64 * 2e-9;
    let launches = LAUNCHES[0] * spec.layers + LAUNCHES[1];
    rows > STREAMED && rows <= MOST_ROWS && gigabytes * (MACHINE - GRAPH) > launches as f64 * LAUNCH
}

#[cfg(test)]
mod tests {
    use tilewright_megakernel::model::ModelSpec;

    use super::*;

    fn faster(model: &str, rows: usize) -> bool {
        is_faster(&ModelSpec::named(model).expect("a model"), rows)
    }

    /// An 8B model takes 5.0 ms by a graph and 5.7 ms by the decode machine; a 1B model would take
    /// 1.1 ms by a graph, and takes 0.97 ms by the machine.
    #[test]
    fn large_models_of_more_than_eight_rows_run_as_graphs() {
        assert_eq!([1, 8, 9, 16, 17].map(|rows| faster("llama-3.1-8b", rows)), [false, false, true, true, false]);
        assert_eq!([8, 9, 16].map(|rows| faster("llama-3.2-1b", rows)), [false; 3]);
        assert!(!faster("llama-3.1-70b", 8) && faster("llama-3.1-70b", 12));
    }

    /// More layers of the same shape change nothing but the launches of a step, fewer bytes of a
    /// layer do.
    #[test]
    fn the_bytes_of_a_launch_decide() {
        let spec = ModelSpec::named("llama-3.1-8b").expect("a model");
        for layers in [1, 8, 80] {
            assert!(is_faster(&ModelSizes { layers, ..*spec }, 16));
        }
        let narrow = ModelSizes { hidden: 1024, intermediate: 2048, heads: 8, kv_heads: 2, vocab: 32_000, ..*spec };
        assert!(!is_faster(&narrow, 16));
    }
}
