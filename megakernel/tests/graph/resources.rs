//! The launches of known models: how many, and what the assembler makes of their kernels.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::validate::Checked;
use tilewright_megakernel::vm::graph::GraphPlan;

/// Widths of chunks.
const WIDTHS: [usize; 3] = [32, 128, 512];

fn plan(model: &str, rows: usize) -> GraphPlan {
    let spec = ModelSpec::named(model).unwrap();
    let target = Target { sms: 1, ..Target::named("h100").unwrap() };
    let options = LowerOptions { rows, pages: Some(64), kv: DType::BF16, ..LowerOptions::for_context(4096) };
    let checked = Checked::new(lower(&spec, &|_| DType::BF16, target, &options).unwrap()).unwrap();
    GraphPlan::new(&checked, Arch::Sm90a, 132).unwrap()
}

/// Eight launches a layer where no contraction is split, the embedding and the last norm; kernels do not count layers.
#[test]
fn launches_of_known_models() {
    for (model, layers) in [("llama-3.2-1b", 16), ("llama-3.1-8b", 32)] {
        for rows in WIDTHS {
            let plan = plan(model, rows);
            let bytes: u64 = plan.scratch.iter().map(|(_, bytes)| bytes).sum();
            let logits = plan.logits.as_ref().expect("a model has logits");
            let (launches, kernels) = (plan.launches.len(), plan.kernels.len());
            let products = [logits.of_row.len(), logits.of_all.len()];
            println!(
                "{model}, {rows} rows: {launches} launches of {kernels} kernels, {bytes} bytes; logits {products:?}"
            );
            let least = 8 * layers + 2;
            // Four products a layer, each with a reduction at most.
            assert!((least..=least + 4 * layers).contains(&launches), "{launches}");
            assert!(kernels <= 16, "{kernels}");
            // q, k and v are one matrix, gate and up another; o, down, the table and an output of its own.
            assert_eq!(plan.matrices.len(), 4 * layers + 1 + usize::from(model.ends_with("8b")));
        }
    }
}

#[test]
fn kernels_of_known_models_do_not_spill() {
    let Some(ptxas) = Ptxas::find().expect("the assembler runs") else { return };
    let mut table = Table::new("Graphs of launches", &ptxas);
    let mut seen = Vec::new();
    for model in ["llama-3.2-1b", "llama-3.1-8b"] {
        for rows in WIDTHS {
            for kernel in plan(model, rows).kernels {
                if !seen.contains(&kernel) {
                    let name = format!("{model}, {rows} rows: {}", kernel.name);
                    let verified = verify(kernel.clone()).unwrap();
                    table.add_as(name.clone(), &verified).unwrap_or_else(|error| panic!("{name}: {error}"));
                    seen.push(kernel);
                }
            }
        }
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/graph.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
