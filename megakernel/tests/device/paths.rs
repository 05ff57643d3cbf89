//! The way that activations of known models take to the warps, by rows; plans need no device.

use std::fmt::Write;

use tilewright_codegen::target::Target;
use tilewright_kernels::gemv::activations::AOperand;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::device::{DeviceOptions, Opcode, Plan};
use tilewright_megakernel::vm::device::{InputCode, LinearTile, PartTile, QkvTile, TileCode};

fn line(opcode: &Opcode) -> Option<String> {
    let linear = opcode.get::<LinearTile>().map(|linear| linear.tile);
    let linear = linear.or_else(|| opcode.get::<PartTile>().map(|part| part.tile));
    let TileCode { input, product } = linear.or_else(|| opcode.get::<QkvTile>().map(|qkv| qkv.tile))?;
    let input = match input {
        InputCode::Plain { .. } => "plain",
        InputCode::RmsNorm { .. } => "norm",
        InputCode::Ordered { .. } => "ordered",
        InputCode::Scaled { .. } => "terms",
    };
    let a_operand = match product.a_operand {
        AOperand::Shared => "copied",
        AOperand::Registers => "held",
        AOperand::Phases { .. } => "by phases",
        AOperand::Reloaded { .. } => "streamed",
    };
    Some(format!("{input} {} {a_operand}", product.strip.k()))
}

#[test]
fn every_batch_of_known_models_is_planned() {
    let target = Target::named("h100").unwrap();
    let mut table = String::new();
    for model in ["llama-3.2-1b", "llama-3.1-8b"] {
        let spec = ModelSpec::named(model).unwrap();
        for rows in [1, 2, 4, 8, 16] {
            let options = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(4096) };
            let options = LowerOptions { activation: DType::BF16, ..options }.splits_for_gpu(spec.kv_heads, target.sms);
            let program = lower(&spec, &|_| DType::BF16, target.clone(), &options).unwrap();
            let ships = DeviceOptions::default();
            let placed = schedule(program.with_cut_sums(&ships).unwrap(), 4096).unwrap();
            let plan = Plan::new(&placed, ships).unwrap();
            let mut lines: Vec<String> = plan.opcodes.iter().filter_map(line).collect();
            let packets = plan.opcodes.iter().any(|opcode| opcode.get::<QkvTile>().is_some_and(QkvTile::is_packets));
            lines.extend(packets.then(|| "the newest token as packets".to_owned()));
            lines.sort();
            lines.dedup();
            writeln!(table, "{model}, rows {rows}: {} stages; {}", plan.options.thresholds.stages, lines.join(", "))
                .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
