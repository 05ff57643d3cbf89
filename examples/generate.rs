//! Loads a Hugging Face folder and continues a prompt.
//!
//! `cargo run --release --example generate -- [DIR] [PROMPT]`

use std::io::Write;
use std::path::PathBuf;

use tilewright::{Device, Engine, Request, Sampling};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tiny-llama");
    let dir = args.next().map_or_else(|| PathBuf::from(shipped), PathBuf::from);
    let prompt = args.next().unwrap_or_else(|| "In the beginning".into());

    let engine = Engine::load(&dir, Device::cpu())?;
    let request = Request::new(engine.prompt_ids(&prompt)?, 32);
    let (completions, speed) = engine.generate(&[request], Sampling::GREEDY, |_, _| ())?;
    println!("{prompt}{}", engine.tokenizer().decode(&completions[0].token_ids)?);
    writeln!(std::io::stderr(), "{:.0} tokens a second", speed.tokens_per_second())?;
    Ok(())
}
