//! Runs the program of a page that the environment variable `GUIDE_PROGRAM` names, or the command
//! line of tilewright.
//!
//! `GUIDE_PROGRAM=8-gpu cargo run -p tilewright-guide -- cuda:0`

use std::process::{ExitCode, Termination};

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The exit code of a program by its `main`.
fn end_of<T: Termination>(main: fn() -> T) -> ExitCode {
    main().report()
}

fn main() -> ExitCode {
    let wanted = std::env::var("GUIDE_PROGRAM").unwrap_or_default();
    if wanted == "tilewright" {
        return tilewright::cli::main();
    }
    match PROGRAMS.iter().find(|(name, _)| *name == wanted) {
        Some((_, run)) => run(),
        None => {
            let names: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
            eprintln!("GUIDE_PROGRAM must be tilewright or one of {}, got {wanted:?}", names.join(", "));
            ExitCode::from(2)
        }
    }
}
