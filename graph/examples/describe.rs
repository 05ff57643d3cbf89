//! Prints the graph of a `config.json`, then what the passes make of it, and draws it:
//! `cargo run -p tilewright-graph --example describe -- models/tiny-qwen3/config.json graph.svg`.

use std::error::Error;

use tilewright_graph::passes::{fuse, normalise};
use tilewright_graph::{models, picture::Svg};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("give the path of a config.json, and of an image to write")?;
    let graph = models::graph(&serde_json::from_slice(&std::fs::read(path)?)?)?;
    let fused = fuse(&normalise(&graph)?)?;
    print!("{graph}\nnormalised and fused:\n{fused}");
    if let Some(image) = args.next() {
        std::fs::write(image, Svg(&fused).to_string())?;
    }
    Ok(())
}
