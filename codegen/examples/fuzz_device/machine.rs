//! A kernel on the device and on the simulator, and the smallest that still differs.

use crate::kit::batch::{Batch, Difference, param_bytes};
use crate::kit::matrix::Case;
use crate::kit::shrink::shrink;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tilewright_codegen::device::{Arg, Device, DeviceError};
use tilewright_codegen::ptx;

/// The time limit for reducing a group; the smallest case found until then is reported.
const PATIENCE: Duration = Duration::from_secs(60);

/// The seed of the simulator's interleaving; a device `sim` has others.
const SEED: u64 = 7;

/// The time limit of a kernel: all of them take milliseconds.
const LONGEST: Duration = Duration::from_secs(10);

/// The results of a batch by the device. A kernel that does not end is an error, and its memory is
/// kept: freeing it would wait.
pub fn run(device: &Device, batch: &Batch) -> Result<Vec<u64>, String> {
    launched(device, batch).map_err(|error| error.to_string())?.ok_or_else(|| "the kernel does not end".into())
}

/// The results, unless the kernel does not end.
fn launched(device: &Device, batch: &Batch) -> Result<Option<Vec<u64>>, DeviceError> {
    let kernel = device.load(&batch.kernel)?;
    let stream = device.stream()?;
    let input = stream.buffer(&batch.input)?;
    let output = device.buffer::<u64>(batch.output_words())?;
    let scratch = device.buffer::<u8>(batch.scratch_bytes())?;
    stream.fill(&output, 0)?;
    stream.fill(&scratch, 0)?;
    let bytes = param_bytes();
    let args = [Arg::from(&input), Arg::from(&output), Arg::from(&scratch), Arg::Bytes(&bytes)];
    kernel.launch(&stream, batch.programs() as u32, &args)?;
    let start = Instant::now();
    while !stream.done()? {
        if start.elapsed() > LONGEST {
            std::mem::forget((kernel, stream, input, output, scratch));
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    stream.read(&output).map(Some)
}

/// The results of a multiply by the device.
pub fn multiply(device: &Device, case: &Case) -> Result<Vec<u32>, DeviceError> {
    let kernel = device.load(&case.kernel)?;
    let stream = device.stream()?;
    let [a, b, c] = [&case.a, &case.b, &case.c].map(|words| stream.buffer(words));
    let a = a?;
    let b = b?;
    let c = c?;
    let d = device.buffer::<u32>(case.c.len())?;
    stream.fill(&d, 0)?;
    // Bytes pass for every type of element.
    let [a, b, c, bytes] = [&a, &b, &c, &d].map(|words| words.cast::<u8>());
    let a = a?;
    let b = b?;
    let c = c?;
    let bytes = bytes?;
    kernel.launch(&stream, case.blocks(), &[&a, &b, &c, &bytes].map(Arg::from))?;
    stream.read(&d)
}

/// The differences of a batch, and the milliseconds that the simulator and the device took.
pub fn differences(device: &Device, batch: &Batch) -> Result<(Vec<Difference>, [u128; 2]), String> {
    let start = Instant::now();
    let expected = batch.simulate(SEED)?;
    let simulated = start.elapsed();
    let found = run(device, batch)?;
    let both = start.elapsed();
    let times = [simulated.as_millis(), (both - simulated).as_millis()];
    Ok((batch.differences(&expected, &found), times))
}

/// The smallest program that still differs: its differences, text and PTX.
pub fn smallest(device: &Device, batch: Batch, first: &Difference) -> String {
    // The same result; of one within a bound also on the same operands, which are before it.
    let same = |other: &Difference| {
        (other.program, other.slot) == (first.program, first.slot)
            && (!other.label.contains("approx") || other.before == first.before)
    };
    let start = Instant::now();
    let mut differs = |batch: &Batch| match start.elapsed() < PATIENCE {
        true => ControlFlow::Continue(differences(device, batch).is_ok_and(|(all, _)| all.iter().any(same))),
        false => ControlFlow::Break(()),
    };
    let small = shrink(batch, &mut differs);
    let found = differences(device, &small).map(|(all, _)| all);
    format!("{found:#?}\n{}\n{}", small.kernel.kernel(), ptx::emit(&small.kernel))
}
