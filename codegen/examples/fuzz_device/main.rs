//! Random programs on the simulator and on a GPU, compared bit for bit.
//!
//! * `fuzz_device [PROGRAMS] [RUN] [DEVICE]` compares each row alone, matrix multiplies, and that
//!   number of programs; a group of programs with a difference is reduced to the smallest kernel
//!   that still differs. Exits with 1 if anything differs.
//! * `fuzz_device group FROM TO [RUN] [DEVICE]` does that with one group: programs FROM to TO of a
//!   run as one kernel.
//! * `fuzz_device ptx FROM TO [RUN]` prints the PTX of that kernel, without a device.
//! * `fuzz_device errors [DEVICE]` prints the largest error of approximate rows over all numbers;
//!   exits with 1 if one is beyond its bound.
//! * `fuzz_device corpus DIR [DEVICE]` records the corpus of `tests/fuzz`.
//!
//! `DEVICE` is `cuda:0` where none is named, and needs compute capability 9.0; exits with 2 where
//! there is none. With `sim` the simulator is compared with itself under another seed.
//!
//! | file | what it holds |
//! |---|---|
//! | `errors` | the largest errors of approximate rows |
//! | `machine` | a kernel on the device and on the simulator, and the smallest that differs |
//! | `work` | what there is to compare, in pieces of one kernel |
//! | `pool` | processes that share the pieces: the driver compiles one kernel at a time in each |
//! | `tally` | what all of them found |

mod errors;
#[path = "../../tests/fuzz/kit/mod.rs"]
mod kit;
mod machine;
mod pool;
mod tally;
mod work;

use kit::corpus::{write_multiplies, write_programs};
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;
use tilewright_codegen::device::{Device, Name};
use tilewright_codegen::ptx;
use work::Piece;

fn main() -> ExitCode {
    match asked() {
        Ok(code) => code,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

/// The argument at a position, or what stands for it.
fn argument<T: std::str::FromStr>(at: usize, other: T) -> Result<T, String> {
    match std::env::args().nth(at) {
        None => Ok(other),
        Some(text) => text.parse().map_err(|_| format!("`{text}`: see the head of this program for its arguments")),
    }
}

fn asked() -> Result<ExitCode, String> {
    let cuda = Name::Cuda { ordinal: 0 };
    let open = |name: Name| name.open().map_err(|error| error.to_string());
    match std::env::args().nth(1).as_deref() {
        Some("ptx") => {
            let batch = Piece::group(argument(2, 0)?, argument(3, 1)?, argument(4, 1)?).batch()?;
            println!("{}", ptx::emit(&batch.kernel));
            Ok(ExitCode::SUCCESS)
        }
        Some("corpus") => {
            let dir: std::path::PathBuf = argument(2, ".".into())?;
            corpus(&open(argument(3, cuda)?)?, &dir)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("errors") => {
            let within = errors::measure(&open(argument(2, cuda)?)?)?;
            Ok(ExitCode::from(u8::from(!within)))
        }
        Some("group") => {
            let device = open(argument(5, cuda)?)?;
            let piece = Piece::group(argument(2, 0)?, argument(3, 1)?, argument(4, 1)?);
            let mut tally = Tally::default();
            piece.compare(&device, true, &mut |line| tally.line(&line));
            tally.print();
            Ok(ExitCode::from(u8::from(tally.wrong())))
        }
        Some(pool::WORKER) => {
            let run = argument(2, 1)?;
            let programs = argument(3, 0)?;
            pool::work(&open(argument(4, cuda)?)?, &work::pieces(run, programs));
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            let programs = argument(1, 20_000)?;
            let run = argument(2, 1)?;
            let name = argument(3, cuda)?;
            println!("{}", open(name)?.properties().name);
            let started = Instant::now();
            let tally = pool::share(run, programs, name)?;
            tally.print();
            println!("{:.1} s", started.elapsed().as_secs_f64());
            Ok(ExitCode::from(u8::from(tally.wrong())))
        }
    }
}

/// Writes the corpus: programs and multiplies with this device's results.
fn corpus(device: &Device, dir: &std::path::Path) -> Result<(), String> {
    let name = device.properties().name.clone();
    let programs = write_programs(&name, &mut |batch| machine::run(device, batch))?;
    let multiplies = write_multiplies(&mut |case| machine::multiply(device, case).map_err(|error| error.to_string()))?;
    for (file, text) in [("programs.txt", programs), ("multiplies.txt", multiplies)] {
        let path = dir.join(file);
        let part = dir.join(format!("{file}.part"));
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    Ok(())
}
