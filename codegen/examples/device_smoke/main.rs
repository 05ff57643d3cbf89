//! Tries everything that devices offer on a GPU: `device_smoke [ORDINAL]`. Prints a table; exits
//! with 1 if anything is wrong, with 2 if there is no GPU. It needs the NVIDIA driver, compute
//! capability 9.0, and nothing else.

#[macro_use]
mod both;
mod kernels;

use both::{Check, Said, micros, operands};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tilewright_codegen::device::{Device, DeviceError, cuda};

fn main() -> ExitCode {
    let device = match cuda::open(ordinal()) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{:#?}\n", device.properties());
    let alone: [Check; 7] = [
        ("opened twice is one device", opened_twice),
        ("bandwidth by events", events),
        ("compile error", compile_error),
        ("signature that is wrong", wrong_signature),
        ("compile, reload, share", compile_times),
        ("words while a kernel runs", beating),
        // The last: nothing works after it.
        ("lost to a trap", lost),
    ];
    let checks = [&both::CHECKS[..], &alone].concat();
    let mut failed = 0;
    for &(name, check) in &checks {
        failed += u32::from(!report(name, &device, check));
    }
    println!("\n{} of {} passed", checks.len() as u32 - failed, checks.len());
    ExitCode::from(u8::from(failed > 0))
}

/// The device that was asked for, the first if none was. What is no number is no device.
fn ordinal() -> u32 {
    std::env::args().nth(1).map_or(0, |text| text.parse().unwrap_or(u32::MAX))
}

fn report(name: &str, device: &Device, check: fn(&Device) -> Said) -> bool {
    let start = Instant::now();
    let said = check(device);
    let (verdict, text) = match &said {
        Ok(text) => ("pass", text.clone()),
        Err(error) => ("FAIL", error.to_string()),
    };
    println!(
        "{verdict}  {name:28} {:7.1} ms  {}",
        start.elapsed().as_secs_f64() * 1e3,
        text.replace('\n', "\n      | ")
    );
    said.is_ok()
}

fn opened_twice(device: &Device) -> Said {
    let again = cuda::open(ordinal())?;
    let stream = device.stream()?;
    let buffer = again.stream()?.buffer(&[1u32, 2, 3])?;
    ensure!(stream.read(&buffer)? == [1, 2, 3], "the second sees other memory");
    let absent = cuda::open(cuda::count()?);
    ensure!(matches!(absent, Err(DeviceError::NoDevice { .. })), "a device that is not there: {absent:?}");
    Ok(format!("{} in all", cuda::count()?))
}

fn events(device: &Device) -> Said {
    let len = 1u32 << 26;
    let (stream, kernel, args, right) = operands(device, len)?;
    kernel.launch(&stream, len / 256, &args)?;
    right()?;
    let work = kernel.work(len / 256, &args)?;
    let start = stream.record()?;
    for _ in 0..10 {
        stream.submit(&work)?;
    }
    let time = stream.record()?.since(&start)? / 10;
    ensure!(time > Duration::from_micros(10), "{time:?} for 768 MiB");
    Ok(format!("{:.1} us, {:.0} GB/s", micros(time), f64::from(len) * 12.0 / time.as_secs_f64() / 1e9))
}

fn compile_error(device: &Device) -> Said {
    match device.load(&kernels::saxpy_misspelt()) {
        Err(error @ DeviceError::Jit { .. }) => {
            let text = error.to_string();
            ensure!(text.contains("mul.wild") || text.contains("line"), "no place in: {text}");
            Ok(text)
        }
        other => Err(format!("expected a compile error: {other:?}").into()),
    }
}

fn wrong_signature(device: &Device) -> Said {
    match device.load(&kernels::saxpy_mistold()) {
        Err(error @ DeviceError::Layout { .. }) => Ok(error.to_string()),
        other => Err(format!("expected an error: {other:?}").into()),
    }
}

/// New text, the same text again while it is loaded, and again when it has been unloaded.
fn compile_times(device: &Device) -> Said {
    let nonce = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let mut lines = Vec::new();
    for length in [1, 1000, 20_000] {
        let source = kernels::chain(length, nonce + u128::from(length));
        let (cold, shared) = {
            let cold = device.load(&source)?;
            let shared = device.load(&source)?;
            (cold.facts().clone(), shared.facts().clone())
        };
        ensure!(!cold.cached && shared.cached, "new: cached {}, shared: cached {}", cold.cached, shared.cached);
        let again = device.load(&source)?.facts().clone();
        ensure!(!again.cached, "still loaded after it was dropped");
        let time = |facts: &tilewright_codegen::device::Facts| facts.load_time.as_secs_f64() * 1e3;
        lines.push(format!(
            "chain of {length}: new {:.2} ms, loaded {:.3} ms, by the driver's cache {:.2} ms; log {:?} then {:?}",
            time(&cold),
            time(&shared),
            time(&again),
            cold.log.trim(),
            again.log.trim(),
        ));
    }
    Ok(lines.join("\n"))
}

fn beating(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::beat())?;
    let words = device.mapped::<u64>(3)?;
    kernel.launch(&stream, 1, &[(&words).into()])?;
    let start = Instant::now();
    while words.load(1)? < 1000 && start.elapsed() < Duration::from_secs(5) {
        std::hint::spin_loop();
    }
    let beats = words.load(1)?;
    let running = !stream.done()?;
    let told = Instant::now();
    words.store(0, 77)?;
    stream.wait()?;
    let answered = told.elapsed();
    ensure!(beats >= 1000 && running, "{beats} beats seen, running: {running}");
    ensure!(words.load(2)? == 77, "the kernel saw {}", words.load(2)?);
    Ok(format!("{beats} beats seen while it ran; ended {:.1} us after it was told", micros(answered)))
}

/// A trap takes the device away from the process for good. What a kernel wrote to mapped words
/// before stays readable.
fn lost(device: &Device) -> Said {
    let stream = device.stream()?;
    let buffer = stream.buffer(&[1u32])?;
    let words = device.mapped::<u64>(1)?;
    device.load(&kernels::trap())?.launch(&stream, 1, &[(&words).into()])?;
    let error = stream.wait().err().ok_or("a trap went unnoticed")?;
    ensure!(matches!(error, DeviceError::Lost { .. }), "a trap is not a lost device: {error}");
    let after = stream.read(&buffer);
    ensure!(matches!(after, Err(DeviceError::Lost { .. })), "reads after a trap: {after:?}");
    ensure!(words.load(0)? == 42, "the mapped word is {}", words.load(0)?);
    Ok(error.to_string())
}
