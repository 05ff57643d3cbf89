//! The assembler's report of the kernel with quantised weights: no warnings, and no spills but a
//! few words in kernels of sixteen rows.

use std::path::Path;

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::target::Target;
use tilewright_codegen::verify::verify;
use tilewright_kernels::quant::Code;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::program::{Program, Quantised};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Plan, record};

/// The linear layers of the decoder in a form, the head as it is.
fn quantised(program: Program, spec: &ModelSpec, form: Quantised) -> Program {
    let tensors = spec.model().unwrap().tensors();
    let columns = |name: &str| tensors.iter().find(|tensor| tensor.name == name).and_then(|t| t.shape.last().copied());
    program.with_forms(&|name| Some((form, columns(name).filter(|_| name.ends_with("_proj.weight"))?)))
}

#[test]
fn kernels_of_quantised_models_assemble_to_what_the_page_says() {
    let Some(ptxas) = Ptxas::find().expect("it runs where it is") else { return };
    let mut table = Table::new("The megakernel, weights quantised", &ptxas).sampled(Sample::one_of(6));
    let form = |code, group, zeros, scale| Quantised { code, group, zeros, scale, ordered: false };
    let w4a16 = form(Code::U4, Some(128), false, DType::BF16);
    let awq = form(Code::U4, Some(128), true, DType::F16);
    let fine = form(Code::U4, Some(32), false, DType::F16);
    let w8a16 = form(Code::U8, Some(128), false, DType::BF16);
    let fp8 = form(Code::E4m3, None, false, DType::BF16);
    let blocks = form(Code::E4m3, Some(128), false, DType::F32);
    let ordered = Quantised { ordered: true, ..w4a16 };
    let mxfp4 = form(Code::E2m1, Some(32), false, DType::BF16);
    let nvfp4 = form(Code::E2m1, Some(16), false, DType::F8E4M3);
    let halves = form(Code::E2m1, Some(16), false, DType::F32);
    let ships = DeviceOptions::default();
    let uneven = form(Code::U4, Some(96), false, DType::BF16);
    for (model, target, rows, note, form) in [
        ("llama-3.2-1b", "h100", 1, "u4 by 128", w4a16),
        ("llama-3.2-1b", "a100", 1, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 1, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 2, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 4, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 8, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 16, "u4 by 128", w4a16),
        ("llama-3.1-8b", "h100", 1, "u4 by 128 with zeros", awq),
        ("llama-3.2-1b", "h100", 16, "u4 by 128 with zeros", awq),
        ("llama-3.1-8b", "h100", 1, "u4 by 32", fine),
        ("llama-3.1-8b", "h100", 1, "u8 by 128", w8a16),
        ("llama-3.1-8b", "h100", 1, "e4m3 by rows", fp8),
        ("llama-3.1-8b", "h100", 8, "e4m3 by rows", fp8),
        ("llama-3.1-8b", "h100", 1, "e4m3 by 128", blocks),
        ("llama-3.1-8b", "h100", 1, "u4 by 128 with an act-order", ordered),
        ("llama-3.1-8b", "h100", 4, "u4 by 128 with an act-order", ordered),
        ("llama-3.1-8b", "h100", 8, "u4 by 128 with an act-order", ordered),
        ("llama-3.1-8b", "h100", 16, "u4 by 128 with an act-order", ordered),
        ("llama-3.1-8b", "h100", 1, "e2m1 by 32", mxfp4),
        ("llama-3.1-8b", "h100", 8, "e2m1 by 32", mxfp4),
        ("llama-3.1-8b", "h100", 16, "e2m1 by 32", mxfp4),
        ("llama-3.1-8b", "h100", 1, "e2m1 by 16", halves),
        ("llama-3.2-1b", "a100", 1, "e2m1 by 16", halves),
        ("llama-3.1-8b", "h100", 16, "e2m1 by 16", halves),
        ("llama-3.1-8b", "h100", 1, "e2m1 in blocks of 16", nvfp4),
        ("llama-3.2-1b", "a100", 1, "e2m1 in blocks of 16", nvfp4),
        ("llama-3.1-8b", "h100", 4, "e2m1 in blocks of 16", nvfp4),
        ("llama-3.1-8b", "h100", 8, "e2m1 in blocks of 16", nvfp4),
        ("llama-3.1-8b", "h100", 16, "e2m1 in blocks of 16", nvfp4),
        ("llama-3.1-8b", "h100", 1, "u4 by 128, 2 devices", w4a16),
        ("llama-3.1-8b", "h100", 4, "u4 by 128, 2 devices", w4a16),
        ("llama-3.1-8b", "h100", 8, "u4 by 128, 4 devices", w4a16),
        ("llama-3.1-8b", "h100", 16, "u4 by 128, 4 devices", w4a16),
        ("llama-3.1-8b", "h100", 1, "u4 by 96, cut to 32 by 4 devices", uneven),
        ("llama-3.1-8b", "h100", 1, "e4m3 by rows, 4 devices", fp8),
    ] {
        if !table.takes_next() {
            continue;
        }
        let spec = ModelSpec::named(model).unwrap();
        let target = Target::named(target).unwrap();
        let devices = [2, 4].into_iter().find(|n| note.ends_with(&format!("{n} devices"))).unwrap_or(1);
        let lowering = LowerOptions { rows, devices, kv: DType::BF16, ..LowerOptions::for_context(4096) };
        let lowering = LowerOptions { activation: DType::BF16, ..lowering }.splits_for_gpu(spec.kv_heads, target.sms);
        let arch = target.arch.clone();
        let program = lower(&spec, &|_| DType::BF16, target, &lowering).unwrap();
        let program = quantised(program, &spec, form).with_cut_sums(&ships).unwrap();
        let plan = Plan::new(&schedule(program, 4096).unwrap(), ships).unwrap();
        let name = format!("{model}, {note}, {arch}, rows {rows}");
        let kernel = verify(record(&plan)).unwrap();
        // Two strips at a time meet the activations of sixteen rows, which take half of the
        // registers. What is spilled is of the whole kernel: a word of predicates and an address,
        // stored and loaded a few times a task; of an act-order and of `e2m1` it is more.
        let more = form.ordered || form.code == Code::E2m1;
        let most = (rows > 8).then_some(if more { 256 } else { 64 });
        let added = match most {
            Some(most) => table.add_spilling(&name, &kernel, most),
            None => table.add_as(name, &kernel),
        };
        added.unwrap_or_else(|error| panic!("{error}"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ptxas/quantised.md");
    table.check(&page).unwrap_or_else(|error| panic!("{error}"));
}
