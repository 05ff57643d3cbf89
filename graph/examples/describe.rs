//! Prints the graph of a `config.json`:
//! `cargo run -p tilewright-graph --example describe -- models/tiny-qwen3/config.json`.

use std::error::Error;

use tilewright_graph::models;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of a config.json")?;
    let config = serde_json::from_slice(&std::fs::read(path)?)?;
    print!("{}", models::graph(&config)?);
    Ok(())
}
