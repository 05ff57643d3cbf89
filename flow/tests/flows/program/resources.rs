//! The assembler's report of kernels with flows, for the models that they are meant for: no
//! warnings and no spills.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_flow::algorithms;
use tilewright_flow::memory::Budget;
use tilewright_flow::program::{FlowSettings, Lowered, Phase};
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower_indexed};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};

#[test]
fn kernels_with_flows_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The megakernel with a flow", &ptxas);
    let target = Target::named("h100").expect("a target");
    for (model, rows, flow) in [
        ("llama-3.2-1b", 1, "quest"),
        ("llama-3.1-8b", 1, "block-sparse"),
        ("llama-3.1-8b", 1, "gqa-block-sparse"),
        ("llama-3.1-8b", 8, "quest"),
    ] {
        let spec = ModelSpec::named(model).expect("a model");
        let budget = Budget::new(64, 0.0, 1, 1).expect("a budget");
        let traced = algorithms::named(flow).expect("a flow").trace().expect("a flow without errors");
        let settings = FlowSettings::new(traced, 16, budget).expect("a flow");
        let mut indexer = Lowered::new(&settings, Phase::Decode, rows);
        let lowering = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(32768) };
        let lowering = LowerOptions { activation: DType::BF16, ..lowering }.splits_for_gpu(spec.kv_heads, target.sms);
        let program = lower_indexed(&spec, &|_| DType::BF16, target.clone(), &lowering, Some(&mut indexer));
        let placed = schedule(program.expect("a model that lowers"), 4096).expect("a valid program");
        let plan = Plan::new(&placed, DeviceOptions::default()).expect("a plan");
        let stages = plan.options.thresholds.stages;
        let name = format!("{model}, rows {rows}, {flow}: {stages} stages");
        table.add_as(name, &verify(record(&plan)).expect("a kernel")).unwrap_or_else(|error| panic!("{error}"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/flows.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
