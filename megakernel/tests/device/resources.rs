//! The assembler's report of the kernel for the models that it is meant for: no warnings, and no
//! spills but a few words in one kernel.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};
use tilewright_megakernel::vm::resident::StageOrder;

#[test]
fn kernels_of_known_models_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The megakernel", &ptxas).sampled(Sample::one_of(4));
    let target = Target::named("h100").unwrap();
    let ships = DeviceOptions::default();
    let none = DeviceOptions { prefetch_stages: 0, ..ships };
    let in_order = DeviceOptions { stage_order: StageOrder::InOrder, ..ships };
    let five = DeviceOptions { prefetch_stages: 5, ..ships };
    let masks = DeviceOptions { masks: true, ..ships };
    let not_beside = ships.with_thresholds(|limits| limits.registers_beside_prefetch = 0);
    for (model, rows, note, options) in [
        ("llama-3.2-1b", 1, "", ships),
        ("llama-3.2-1b", 1, ", choices at random", ships),
        ("llama-3.2-1b", 1, ", choices at random, masks", masks),
        ("llama-3.2-1b", 1, ", none held", none),
        ("llama-3.2-1b", 1, ", 5 held", five),
        ("llama-3.2-1b", 1, ", in order", in_order),
        ("llama-3.2-1b", 2, "", ships),
        ("llama-3.2-1b", 4, "", ships),
        ("llama-3.2-1b", 8, "", ships),
        ("llama-3.2-1b", 16, "", ships),
        ("llama-3.2-1b", 8, ", none held beside activations", not_beside),
        ("llama-3.1-8b", 1, "", ships),
        ("llama-3.1-8b", 4, "", ships),
        ("llama-3.1-8b", 8, "", ships),
        ("llama-3.1-8b", 8, ", choices at random, masks", masks),
        ("llama-3.1-8b", 16, "", ships),
        ("llama-3.1-8b", 16, ", in order", in_order),
        ("llama-3.2-1b", 1, ", 2 devices", ships),
        ("llama-3.1-8b", 1, ", 2 devices", ships),
        ("llama-3.1-70b", 1, ", 4 devices", ships),
        ("llama-3.1-70b", 4, ", 4 devices", ships),
        ("llama-3.1-70b", 8, ", 4 devices", ships),
        ("llama-3.1-70b", 16, ", 4 devices", ships),
    ] {
        if !table.takes_next() {
            continue;
        }
        let spec = ModelSpec::named(model).unwrap();
        let sampling = note.contains("random");
        let devices = [2, 4].into_iter().find(|n| note == format!(", {n} devices")).unwrap_or(1);
        let lowering = LowerOptions { rows, sampling, devices, kv: DType::BF16, ..LowerOptions::for_context(4096) };
        let lowering = LowerOptions { activation: DType::BF16, ..lowering }.splits_for_gpu(spec.kv_heads, target.sms);
        let program = lower(&spec, &|_| DType::BF16, target.clone(), &lowering).unwrap();
        let placed = schedule(program.with_cut_sums(&options).unwrap(), 4096).unwrap();
        let plan = Plan::new(&placed, options).unwrap();
        let name = format!("{model}, rows {rows}{note}");
        let kernel = verify(record(&plan)).unwrap();
        // Rows of 8192 are held in 128 registers, and a word or two is stored and loaded around
        // what a block does between two tasks.
        let added = match (model, rows) {
            ("llama-3.1-70b", 4) => table.add_spilling(&name, &kernel, 64),
            _ => table.add_as(name, &kernel),
        };
        added.unwrap_or_else(|error| panic!("{error}"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/megakernel.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
