//! The `tilewright` command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tilewright::cli::main()
}
