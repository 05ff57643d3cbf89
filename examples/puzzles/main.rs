//! Small kernels to learn by, from the first map to a cluster.
//!
//! `cargo run --example puzzles -- [DEVICE] [NAME]` checks all puzzles, or one, on the simulator or
//! on `cuda:0`. To solve a puzzle by yourself, read its statement, delete the body of its function,
//! and write it anew until the check passes.

mod asynchronous;
mod blocks;
mod case;
mod clusters;
mod list;
mod maps;
mod products;
mod rows;
mod shared;
mod warps;

use tilewright::codegen::device;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let device = device::open(&args.next().unwrap_or_else(|| "sim".into()))?;
    let name = args.next();
    let chosen = list::all().into_iter().filter(|puzzle| name.as_ref().is_none_or(|name| name == puzzle.name));
    let mut wrong = 0;
    for puzzle in chosen {
        let verdict = puzzle.run(&device, 0);
        wrong += usize::from(verdict.is_err());
        println!("{:<20} {}", puzzle.name, verdict.map_or_else(|error| error, |()| "right".into()));
    }
    if wrong > 0 { Err(format!("{wrong} puzzles are wrong").into()) } else { Ok(()) }
}
