//! Lowers the decode step of a known model for a GPU, validates it, and prints how its bytes are
//! spread over the SMs.
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
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.into());
    let model = next("llama-3.2-1b");
    let target = next("h100");
    let rows = next("1").parse()?;
    let spec = ModelSpec::named(&model).ok_or_else(|| format!("`{model}` is not a known model; try llama-3.2-1b"))?;
    let target = Target::named(&target).ok_or_else(|| format!("`{target}` is not a known GPU; try h100"))?;

    let options = LowerOptions { rows, ..LowerOptions::for_context(CONTEXT) };
    let program = lower(&spec, &|_| DType::BF16, target, &options)?;
    // Scheduling validates the program first.
    let placed = schedule(program, CONTEXT)?;
    println!("{}", Balance::of(&placed, CONTEXT));
    Ok(())
}
