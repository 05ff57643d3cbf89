//! Tries everything that devices offer on a GPU: `device_smoke [ORDINAL]`. Prints a table; exits with 1 if anything is
//! wrong, with 2 if there is no GPU. It needs the NVIDIA driver, compute capability 9.0, and nothing else.

mod kernels;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tilewright_codegen::device::{Arg, Device, DeviceError, Kernel, Stream, TensorShape, TileSwizzle, Work, cuda};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;

/// What a check says: figures, or what is wrong.
type Said = Result<String, Box<dyn Error>>;

/// A check and its name.
type Check = (&'static str, fn(&Device) -> Said);

/// Fails a check with a text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+).into());
        }
    };
}

fn main() -> ExitCode {
    let device = match cuda::open(ordinal()) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{:#?}\n", device.properties());
    let checks: [Check; 18] = [
        ("opened twice is one device", opened_twice),
        ("target", target),
        ("launch and copies", launch),
        ("bandwidth by events", events),
        ("compile error", compile_error),
        ("signature that is wrong", wrong_signature),
        ("compile, reload, share", compile_times),
        ("graph", graph),
        ("cooperative", cooperative),
        ("200 KiB of shared memory", dynamic_shared),
        ("cluster", cluster),
        ("streams ordered by an event", streams),
        ("pinned copies", pinned),
        ("mapped words", mapped),
        ("tensor map", tensor_map),
        ("out of memory", out_of_memory),
        ("nothing leaks", leaks),
        // The last: nothing works after it.
        ("lost to a trap", lost),
    ];
    let mut failed = 0;
    for (name, check) in checks {
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

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
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

fn target(device: &Device) -> Said {
    let arch = device.properties().arch().ok_or("no architecture")?;
    let says = |name: &str| match Target::named(name).map(|target| device.properties().check(&target)) {
        Some(Ok(())) => format!("{name}: runs"),
        Some(Err(error)) => error.to_string(),
        None => format!("no target {name}"),
    };
    Ok(format!("{arch}; {}; {}", says("h100"), says("b200")))
}

/// A kernel, and operands of a size.
fn operands(device: &Device, len: u32) -> Result<(Stream, Kernel, Vec<Arg<'static>>, impl Fn() -> Said), DeviceError> {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::saxpy())?;
    let (x, y): (Vec<f32>, Vec<f32>) = (0..len).map(|i| ((i % 1000) as f32, (i % 7) as f32)).unzip();
    let (x, y) = (stream.buffer(&x)?, stream.buffer(&y)?);
    let args = vec![len.into(), 2f32.into(), (&x).into(), (&y).into()];
    let read = stream.clone();
    let right = move || -> Said {
        let wrong = read.read(&y)?.iter().enumerate().find_map(|(i, &y)| {
            let expected = 2.0 * (i % 1000) as f32 + (i % 7) as f32;
            (y != expected).then(|| format!("element {i} is {y}, not {expected}"))
        });
        wrong.map_or(Ok(format!("{len} elements")), |text| Err(text.into()))
    };
    Ok((stream, kernel, args, right))
}

fn launch(device: &Device) -> Said {
    let len = 1_000_003u32;
    let (stream, kernel, args, right) = operands(device, len)?;
    kernel.launch(&stream, len.div_ceil(256), &args)?;
    let said = right()?;
    let bytes = device.buffer::<u8>(4099)?;
    stream.fill(&bytes, 0xa5)?;
    let part = bytes.slice(1..4099)?;
    stream.copy(&part, &stream.buffer(&[0u8; 4098])?)?;
    stream.fill(&part, 7)?;
    let back = stream.read(&bytes)?;
    ensure!(back[0] == 0xa5 && back[1..].iter().all(|&b| b == 7), "fill: {:?}", &back[..4]);
    let empty = device.buffer::<u32>(0)?;
    stream.fill(&empty, 1)?;
    ensure!(stream.read(&empty)?.is_empty(), "an empty buffer has elements");
    let facts = kernel.facts();
    Ok(format!("{said}, {} registers, {} blocks per SM", facts.registers, facts.blocks_per_sm))
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
            let (cold, shared) = (device.load(&source)?, device.load(&source)?);
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

fn graph(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::saxpy())?;
    let x = stream.buffer(&[1f32; 1024])?;
    let (y, z) = (device.buffer::<f32>(1024)?, device.buffer::<f32>(1024)?);
    let add = kernel.work(4, &[1024u32.into(), 1f32.into(), (&x).into(), (&y).into()])?;
    let mut work = vec![Work::fill(&y, 0)];
    work.extend(std::iter::repeat_n(add.clone(), 100));
    work.push(Work::copy(&y, &z)?);
    let graph = device.graph(&work)?;
    drop(y);
    let rounds = 50;
    let time = |submit: &dyn Fn() -> Result<(), DeviceError>| -> Result<(Duration, Duration), DeviceError> {
        submit()?;
        let (start, host) = (stream.record()?, Instant::now());
        for _ in 0..rounds {
            submit()?;
        }
        let queued = host.elapsed();
        Ok((stream.record()?.since(&start)? / (rounds * 100), queued / (rounds * 100)))
    };
    let (as_graph, queued_graph) = time(&|| graph.launch(&stream))?;
    ensure!(stream.read(&z)?.iter().all(|&z| z == 100.0), "100 launches gave {:?}", &stream.read(&z)?[..4]);
    let (singly, queued_singly) = time(&|| work.iter().try_for_each(|work| stream.submit(work)))?;
    Ok(format!(
        "a launch takes {:.2} us (host {:.2}) in a graph of 100, {:.2} us (host {:.2}) alone",
        micros(as_graph),
        micros(queued_graph),
        micros(singly),
        micros(queued_singly)
    ))
}

fn cooperative(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::gather())?;
    let blocks = u32::try_from(kernel.resident_blocks())?;
    let (counter, slots) = (stream.buffer(&[0u32])?, device.buffer::<u32>(blocks as usize)?);
    let sums = device.buffer::<u32>(blocks as usize)?;
    let args = [(&counter).into(), (&slots).into(), (&sums).into()];
    let refused = kernel.launch(&stream, blocks + 1, &args);
    ensure!(matches!(refused, Err(DeviceError::Occupancy { .. })), "one block too many: {refused:?}");
    kernel.launch(&stream, blocks, &args)?;
    let expected = blocks * (blocks + 1) / 2;
    let sums = stream.read(&sums)?;
    ensure!(sums.iter().all(|&sum| sum == expected), "sums are {:?}, not {expected}", &sums[..4]);
    Ok(format!("{blocks} blocks meet"))
}

fn dynamic_shared(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::reverse())?;
    let out = device.buffer::<u32>(kernels::REVERSED as usize)?;
    kernel.launch(&stream, 1, &[(&out).into()])?;
    let right = stream.read(&out)?.into_iter().eq((0..kernels::REVERSED).rev());
    ensure!(right, "the numbers are not reversed");
    ensure!(kernel.facts().blocks_per_sm == 1, "{} blocks per SM", kernel.facts().blocks_per_sm);
    Ok("reversed".into())
}

fn cluster(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::ring())?;
    let blocks = 64u32;
    let out = device.buffer::<u32>(blocks as usize)?;
    kernel.launch(&stream, blocks, &[(&out).into()])?;
    let seen = stream.read(&out)?;
    let size = kernels::RING;
    let expected = (0..blocks).map(|block| block / size * size + (block + size - 1) % size);
    ensure!(seen.iter().copied().eq(expected), "neighbours are {:?}", &seen[..8]);
    let refused = kernel.launch(&stream, 6, &[(&out).into()]);
    ensure!(matches!(refused, Err(DeviceError::Grid { .. })), "a broken cluster: {refused:?}");
    Ok(format!("{} blocks resident", kernel.resident_blocks()))
}

fn streams(device: &Device) -> Said {
    let len = 1u32 << 24;
    let (first, second) = (device.stream()?, device.stream()?);
    let kernel = device.load(&kernels::saxpy())?;
    let x = first.buffer(&vec![1f32; len as usize])?;
    let (y, z) = (first.buffer(&vec![0f32; len as usize])?, device.buffer::<f32>(len as usize)?);
    let args = [len.into(), 1f32.into(), (&x).into(), (&y).into()];
    for _ in 0..20 {
        kernel.launch(&first, len / 256, &args)?;
    }
    let done = first.record()?;
    let early = done.done()?;
    second.wait_for(&done)?;
    second.copy(&y, &z)?;
    let z = second.read(&z)?;
    ensure!(z.iter().all(|&z| z == 20.0), "the second stream saw {}", z[z.len() - 1]);
    ensure!(done.done()? && first.done()?, "not done after it was waited for");
    Ok(format!("first stream done when the second was told to wait: {early}"))
}

fn pinned(device: &Device) -> Said {
    let stream = device.stream()?;
    let len = 64usize << 20;
    let mut host = device.pinned::<u32>(len)?;
    host.iter_mut().zip(0u32..).for_each(|(slot, i)| *slot = i.wrapping_mul(2_654_435_761));
    let buffer = device.buffer::<u32>(len)?;
    let start = stream.record()?;
    let queued = Instant::now();
    let pending = stream.upload_pinned(host, &buffer)?;
    let queued = queued.elapsed();
    let up = stream.record()?.since(&start)?;
    let mut host = pending.wait()?;
    host.fill(0);
    let start = stream.record()?;
    let pending = stream.download_pinned(&buffer, host)?;
    let down = stream.record()?.since(&start)?;
    let host = pending.wait()?;
    let right = host.iter().zip(0u32..).all(|(&slot, i)| slot == i.wrapping_mul(2_654_435_761));
    ensure!(right, "the numbers came back changed");
    drop(stream.upload_pinned(host, &buffer)?);
    let rate = |time: Duration| len as f64 * 4.0 / time.as_secs_f64() / 1e9;
    Ok(format!("up {:.1} GB/s, down {:.1} GB/s, queued in {:.1} us", rate(up), rate(down), micros(queued)))
}

fn mapped(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::beat())?;
    let words = device.mapped::<u64>(3)?;
    kernel.launch(&stream, 1, &[(&words).into()])?;
    let start = Instant::now();
    while words.load(1)? < 1000 && start.elapsed() < Duration::from_secs(5) {
        std::hint::spin_loop();
    }
    let (beats, running) = (words.load(1)?, !stream.done()?);
    let told = Instant::now();
    words.store(0, 77)?;
    stream.wait()?;
    let answered = told.elapsed();
    ensure!(beats >= 1000 && running, "{beats} beats seen, running: {running}");
    ensure!(words.load(2)? == 77, "the kernel saw {}", words.load(2)?);
    Ok(format!("{beats} beats seen while it ran; ended {:.1} us after it was told", micros(answered)))
}

fn tensor_map(device: &Device) -> Said {
    const ROWS: usize = 256;
    const COLUMNS: usize = 128;
    let stream = device.stream()?;
    let kernel = device.load(&kernels::tile())?;
    let matrix: Vec<u16> = (0..(ROWS * COLUMNS) as u32).map(|i| (i + 1) as u16).collect();
    let source = stream.buffer(&matrix)?;
    let out = device.buffer::<u16>(64 * 64)?;
    for swizzle in [TileSwizzle::None, TileSwizzle::Bytes128] {
        let shape = TensorShape::row_major(DType::U16, [ROWS as u64, COLUMNS as u64], [64, 64]).swizzle(swizzle);
        let map = device.tensor_map(&source, shape)?;
        for (x, y) in [(64usize, 32usize), (0, 224), (96, 0)] {
            let args = [(&map).into(), (&out).into(), (x as i32).into(), (y as i32).into()];
            kernel.launch(&stream, 1, &args)?;
            let seen = stream.read(&out)?;
            for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
                let inside = y + row < ROWS && x + column < COLUMNS;
                let expected = if inside { matrix[(y + row) * COLUMNS + x + column] } else { 0 };
                // The 16-byte chunk of a 128-byte row is exchanged by the row's number modulo 8.
                let exchange = if swizzle == TileSwizzle::None { 0 } else { row % 8 };
                let found = seen[row * 64 + ((column / 8) ^ exchange) * 8 + column % 8];
                ensure!(found == expected, "{swizzle:?} at ({x}, {y}): [{row}, {column}] is {found}, not {expected}");
            }
        }
    }
    Ok("plain and swizzled, inside and over the edge".into())
}

fn out_of_memory(device: &Device) -> Said {
    let free = device.free_bytes()?;
    match device.buffer::<u8>(free as usize * 2) {
        Err(error @ DeviceError::OutOfMemory { .. }) => Ok(error.to_string()),
        other => Err(format!("{other:?} of {free} free").into()),
    }
}

fn leaks(device: &Device) -> Said {
    let round = || -> Result<u64, DeviceError> {
        let stream = device.stream()?;
        let buffer = device.buffer::<u8>(256 << 20)?;
        stream.fill(&buffer, 1)?;
        let graph = device.graph(&[Work::fill(&buffer, 2)])?;
        graph.launch(&stream)?;
        stream.record()?.wait()?;
        drop((buffer, graph, device.pinned::<u8>(1 << 20)?, device.mapped::<u32>(1 << 18)?));
        device.free_bytes()
    };
    let first = round()?;
    for _ in 0..20 {
        round()?;
    }
    let last = round()?;
    ensure!(last + (1 << 20) > first, "{first} bytes were free, and {last} are");
    Ok(format!("{last} bytes free"))
}

/// A trap takes the device away from the process for good. What a kernel wrote to mapped words before stays readable.
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
