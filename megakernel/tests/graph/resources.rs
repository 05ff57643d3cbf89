//! The launches of known models: how many, and what the assembler makes of their kernels.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::verify::verify;
use tilewright_graph::models::Llama;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, StepPlan};
use tilewright_megakernel::program::{Buffer, BufferKind, Program, Quantised};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan};
use tilewright_megakernel::vm::graph::{GraphPlan, GraphTarget, Scratch};
use tilewright_megakernel::vm::resident::{Packed, StageOrder};

use super::lab::{planned_with, program_with};

/// An H100.
const H100: GraphTarget = GraphTarget { arch: Arch::Sm90a, multiprocessors: 132 };
/// Widths of chunks.
const WIDTHS: [usize; 3] = [32, 128, 512];

fn options(rows: usize) -> LowerOptions {
    LowerOptions { rows, pages: Some(64), kv: DType::BF16, ..LowerOptions::for_context(4096) }
}

/// The program by which an H100 decodes one row.
fn decoding(model: &str) -> Program {
    program_with(&Llama::named(model).unwrap(), 132, &options(1))
}

fn planned(model: &str, rows: usize) -> StepPlan {
    planned_with(&Llama::named(model).unwrap(), &options(rows))
}

fn plan(model: &str, rows: usize) -> GraphPlan {
    GraphPlan::new(&planned(model, rows), H100).unwrap()
}

/// The plan beside a decode machine whose weights lie in order.
fn beside(model: &str, rows: usize) -> GraphPlan {
    let decode = schedule(decoding(model), 1024).unwrap();
    let options = DeviceOptions { stage_order: StageOrder::InOrder, ..DeviceOptions::default() };
    let packed = Packed::new(&decode, &Plan::new(&decode, options).unwrap().streams);
    GraphPlan::beside(&planned(model, rows), H100, Some(&packed)).unwrap()
}

/// The plan with layers' weights as 4-bit codes, with or without zero points.
fn beside_codes(model: &str, rows: usize, zeros: bool) -> GraphPlan {
    let scale = if zeros { DType::F16 } else { DType::BF16 };
    let form = Quantised { code: Code::U4, group: Some(128), zeros, scale, ordered: false };
    let store = |buffers: &mut [Buffer]| {
        let is_layer = |buffer: &&mut Buffer| buffer.kind == BufferKind::Weight && buffer.name.contains("_proj");
        buffers.iter_mut().filter(is_layer).for_each(|buffer| buffer.quantised = Some(form));
    };
    let mut decode = decoding(model);
    store(&mut decode.buffers);
    let decode = schedule(decode, 1024).unwrap();
    let options = DeviceOptions { stage_order: StageOrder::InOrder, ..DeviceOptions::default() };
    let packed = Packed::new(&decode, &Plan::new(&decode, options).unwrap().streams);
    let mut step = planned(model, rows);
    store(step.buffers_mut());
    GraphPlan::beside(&step, H100, Some(&packed)).unwrap()
}

/// Beside packed codes all products of any number of rows read these: nothing is widened, and codes
/// lie on the device once. Of many rows norms and rotations are launches of their own, and no
/// product is cut along k.
#[test]
fn graphs_of_codes_have_no_weights_of_their_own() {
    for (model, layers) in [("llama-3.2-1b", 16), ("llama-3.1-8b", 32)] {
        for (rows, launches, matrices) in [(64, 6, 0), (512, 9, 1)] {
            let plan = beside_codes(model, rows, false);
            assert_eq!((plan.codes.len(), plan.matrices.len()), (0, matrices), "{model}, {rows} rows");
            assert_eq!(plan.launches.len(), launches * layers + 2, "{model}, {rows} rows");
            assert!(plan.kernels.iter().all(|kernel| kernel.name != "widen"));
        }
    }
}

/// Beside packed weights every product of 64 rows is one launch, and nothing lies row by row; wider
/// graphs have the table of embeddings there.
#[test]
fn graphs_of_few_rows_have_no_weights_of_their_own() {
    for (model, layers) in [("llama-3.2-1b", 16), ("llama-3.1-8b", 32)] {
        let narrow = beside(model, 64);
        // Four products a layer, in which norms begin and end, and heads are rotated; attention is
        // two launches, one for rows that are alone and one for all others; the embedding, and the
        // last norm.
        assert_eq!((narrow.launches.len(), narrow.matrices.len()), (6 * layers + 2, 0));
        let logits = narrow.logits.as_ref().expect("a model has logits");
        assert_eq!([logits.of_row.len(), logits.of_all.len()], [1, 1]);
        // Rows that are named lie below each other first; a product, which leaves the best of its
        // tiles, and the best of these.
        let choice = narrow.choice.as_ref().expect("a choice of tokens");
        assert_eq!([choice.launches.len(), choice.fed.len()], [3, 3]);
        assert!(narrow.scratch.iter().all(|(scratch, _)| *scratch != Scratch::WantedLogits));
        assert_eq!(beside(model, 512).matrices.len(), 4 * layers + 1);
        // Where stages are interleaved, nothing of it is of use.
        let decode = schedule(decoding(model), 1024).unwrap();
        let packed = Packed::new(&decode, &Plan::new(&decode, DeviceOptions::default()).unwrap().streams);
        let interleaved = GraphPlan::beside(&planned(model, 64), H100, Some(&packed)).unwrap();
        assert_eq!(interleaved.matrices, plan(model, 64).matrices);
    }
}

/// Eight launches a layer where no contraction is split, the embedding and the last norm; kernels
/// do not count layers.
#[test]
fn launches_of_known_models() {
    for (model, layers) in [("llama-3.2-1b", 16), ("llama-3.1-8b", 32)] {
        for rows in WIDTHS {
            let plan = plan(model, rows);
            let bytes: u64 = plan.scratch.iter().map(|(_, bytes)| bytes).sum();
            let logits = plan.logits.as_ref().expect("a model has logits");
            let launches = plan.launches.len();
            let kernels = plan.kernels.len();
            let products = [logits.of_row.len(), logits.of_all.len()];
            println!(
                "{model}, {rows} rows: {launches} launches of {kernels} kernels, {bytes} bytes; logits {products:?}"
            );
            let least = 8 * layers + 2;
            // Four products a layer, each with a reduction at most.
            assert!((least..=least + 4 * layers).contains(&launches), "{launches}");
            assert!(kernels <= 16, "{kernels}");
            // q, k and v are one matrix, gate and up another; o, down, the table and an output of
            // its own.
            assert_eq!(plan.matrices.len(), 4 * layers + 1 + usize::from(model.ends_with("8b")));
        }
    }
}

/// Into how many shares a row's tokens are cut follows from the width and the heads, on every
/// device.
#[test]
fn shares_of_a_row_are_those_of_its_width() {
    let stats = |model: &str, rows: usize, multiprocessors: u32| {
        let plan = GraphPlan::new(&planned(model, rows), GraphTarget { multiprocessors, ..H100 }).unwrap();
        plan.scratch.into_iter().find_map(|(scratch, bytes)| (scratch == Scratch::SplitStats).then_some(bytes))
    };
    // Rows that may be alone, and shares of each.
    for (rows, alone, shares) in [(17, 17, 1), (32, 32, 1), (64, 64, 1), (128, 64, 4)] {
        for multiprocessors in [16, 132] {
            let found = stats("llama-3.1-8b", rows, multiprocessors);
            assert_eq!(found, Some(alone * 32 * shares * 8), "{rows} rows, {multiprocessors} multiprocessors");
        }
    }
}

#[test]
fn kernels_of_known_models_do_not_spill() {
    let Some(ptxas) = Ptxas::find().expect("the assembler runs") else { return };
    let mut table = Table::new("Graphs of launches", &ptxas).sampled(Sample::one_of(4));
    let mut seen = Vec::new();
    for model in ["llama-3.2-1b", "llama-3.1-8b"] {
        let plans = WIDTHS.iter().map(|&rows| plan(model, rows)).chain([32, 64].map(|rows| beside(model, rows)));
        let of_codes = [false, true].into_iter().flat_map(|zeros| [32, 64, 512].map(|rows| (rows, zeros)));
        let plans = plans.chain(of_codes.map(|(rows, zeros)| beside_codes(model, rows, zeros)));
        for plan in plans {
            let rows = plan.rows;
            for kernel in plan.kernels {
                if !seen.contains(&kernel) {
                    // Tiles have one name whatever is done after the sums.
                    let alike = seen.iter().filter(|known: &&Kernel| known.name == kernel.name).count();
                    let which = if alike > 0 { format!(", epilogue {}", alike + 1) } else { String::new() };
                    let name = format!("{model}, {rows} rows: {}{which}", kernel.name);
                    if table.takes_next() {
                        let verified = verify(kernel.clone()).unwrap();
                        table.add_as(name.clone(), &verified).unwrap_or_else(|error| panic!("{name}: {error}"));
                    }
                    seen.push(kernel);
                }
            }
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/graph.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
