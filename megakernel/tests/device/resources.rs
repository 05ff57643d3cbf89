//! What the assembler makes of the kernel for models that it is meant for: nothing warns and nothing spills.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};

#[test]
fn kernels_of_known_models_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The megakernel", &ptxas);
    let target = Target::named("h100").unwrap();
    for (model, rows, sampling) in [
        ("llama-3.2-1b", 1, false),
        ("llama-3.2-1b", 1, true),
        ("llama-3.2-1b", 4, false),
        ("llama-3.2-1b", 8, false),
        ("llama-3.2-1b", 16, false),
        ("llama-3.1-8b", 1, false),
        ("llama-3.1-8b", 4, false),
        ("llama-3.1-8b", 8, false),
        ("llama-3.1-8b", 16, false),
    ] {
        let spec = ModelSpec::named(model).unwrap();
        let options = LowerOptions { rows, sampling, kv: DType::BF16, ..LowerOptions::for_context(4096) };
        let options = LowerOptions { activation: DType::BF16, ..options }.splits_for_gpu(&spec, target.sms);
        let placed = schedule(lower(&spec, &|_| DType::BF16, target.clone(), &options).unwrap(), 4096).unwrap();
        let plan = Plan::new(&placed, DeviceOptions::default()).unwrap();
        let name = format!("{model}, rows {rows}{}", if sampling { ", choices at random" } else { "" });
        table.add_as(name, &verify(record(&plan)).unwrap()).unwrap_or_else(|error| panic!("{error}"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/megakernel.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
