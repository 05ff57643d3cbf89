//! A performance engineer: the decode step of a known model as a program, proven, and how its bytes lie over the SMs.
//!
//! `cargo run --release --example balance -- [MODEL] [TARGET] [ROWS]`

use tilewright::codegen::target::Target;
use tilewright::layout::DType;
use tilewright::megakernel::lower::{LowerOptions, lower};
use tilewright::megakernel::model::ModelSpec;
use tilewright::megakernel::schedule::{Balance, schedule};

const CONTEXT: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |other: &str| args.next().unwrap_or_else(|| other.into());
    let (model, target, rows) = (next("llama-3.2-1b"), next("h100"), next("1").parse()?);
    let spec = ModelSpec::named(&model).ok_or("no model of that name is known")?;
    let target = Target::named(&target).ok_or("no target of that name is known")?;

    let options = LowerOptions { rows, ..LowerOptions::for_context(CONTEXT) };
    let program = lower(&spec, &|_| DType::BF16, target, &options)?;
    // The schedule holds what the validator proved.
    let placed = schedule(program, CONTEXT)?;
    println!("{}", Balance::of(&placed, CONTEXT));
    Ok(())
}
