//! The checks that every kind of device must pass: one list, run on a GPU by `device_smoke` and on
//! the simulator by the tests of devices.

mod kernels;

use std::error::Error;
use std::time::{Duration, Instant};
use tilewright_codegen::device::{Arg, Device, DeviceError, Kernel, Stream, TensorShape, TileSwizzle, Work};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;

/// The result of a check: figures, or the failure.
pub type Said = Result<String, Box<dyn Error>>;

/// A check and its name.
pub type Check = (&'static str, fn(&Device) -> Said);

/// Fails a check with a text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+).into());
        }
    };
}

/// The checks.
pub const CHECKS: [Check; 12] = [
    ("target", target),
    ("launch and copies", launch),
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
];

/// A size for a GPU, or a smaller one for a device whose every thread is simulated.
fn size(device: &Device, gpu: u32, simulated: u32) -> u32 {
    if device.properties().driver > 0 { gpu } else { simulated }
}

/// Microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A stream, a kernel, its arguments, and whether what it wrote is right.
pub type Operands = (Stream, Kernel, Vec<Arg<'static>>, Box<dyn Fn() -> Said>);

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
pub fn operands(device: &Device, len: u32) -> Result<Operands, Box<dyn Error>> {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::saxpy()?)?;
    let (x, y): (Vec<f32>, Vec<f32>) = (0..len).map(|i| ((i % 1000) as f32, (i % 7) as f32)).unzip();
    let x = stream.buffer(&x)?;
    let y = stream.buffer(&y)?;
    let args = vec![len.into(), 2f32.into(), (&x).into(), (&y).into()];
    let read = stream.clone();
    let right = move || -> Said {
        let wrong = read.read(&y)?.iter().enumerate().find_map(|(i, &y)| {
            let expected = 2.0 * (i % 1000) as f32 + (i % 7) as f32;
            (y != expected).then(|| format!("element {i} is {y}, not {expected}"))
        });
        wrong.map_or(Ok(format!("{len} elements")), |text| Err(text.into()))
    };
    Ok((stream, kernel, args, Box::new(right)))
}

fn launch(device: &Device) -> Said {
    let len = size(device, 1_000_003, 10_003);
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

fn graph(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::saxpy()?)?;
    let x = stream.buffer(&[1f32; 1024])?;
    let y = device.buffer::<f32>(1024)?;
    let z = device.buffer::<f32>(1024)?;
    let add = kernel.work(4, &[1024u32.into(), 1f32.into(), (&x).into(), (&y).into()])?;
    let repeats = size(device, 100, 5);
    let mut work = vec![Work::fill(&y, 0)];
    work.extend(std::iter::repeat_n(add, repeats as usize));
    work.push(Work::copy(&y, &z)?);
    let graph = device.graph(&work)?;
    drop(y);
    let rounds = size(device, 50, 1);
    let time = |submit: &dyn Fn() -> Result<(), DeviceError>| -> Result<(Duration, Duration), DeviceError> {
        submit()?;
        let start = stream.record()?;
        let host = Instant::now();
        for _ in 0..rounds {
            submit()?;
        }
        let queued = host.elapsed();
        Ok((stream.record()?.since(&start)? / (rounds * repeats), queued / (rounds * repeats)))
    };
    let (as_graph, queued_graph) = time(&|| graph.launch(&stream))?;
    ensure!(
        stream.read(&z)?.iter().all(|&z| z == repeats as f32),
        "{repeats} launches gave {:?}",
        &stream.read(&z)?[..4]
    );
    let (singly, queued_singly) = time(&|| work.iter().try_for_each(|work| stream.submit(work)))?;
    Ok(format!(
        "a launch takes {:.2} us (host {:.2}) in a graph of {repeats}, {:.2} us (host {:.2}) alone",
        micros(as_graph),
        micros(queued_graph),
        micros(singly),
        micros(queued_singly)
    ))
}

fn cooperative(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::gather()?)?;
    let blocks = u32::try_from(kernel.resident_blocks())?;
    let counter = stream.buffer(&[0u32])?;
    let slots = device.buffer::<u32>(blocks as usize)?;
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
    let kernel = device.load(&kernels::reverse()?)?;
    let out = device.buffer::<u32>(kernels::REVERSED as usize)?;
    kernel.launch(&stream, 1, &[(&out).into()])?;
    let right = stream.read(&out)?.into_iter().eq((0..kernels::REVERSED).rev());
    ensure!(right, "the numbers are not reversed");
    ensure!(kernel.facts().blocks_per_sm == 1, "{} blocks per SM", kernel.facts().blocks_per_sm);
    Ok("reversed".into())
}

fn cluster(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::ring()?)?;
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
    let len = size(device, 1 << 24, 1 << 10);
    let first = device.stream()?;
    let second = device.stream()?;
    let kernel = device.load(&kernels::saxpy()?)?;
    let x = first.buffer(&vec![1f32; len as usize])?;
    let y = first.buffer(&vec![0f32; len as usize])?;
    let z = device.buffer::<f32>(len as usize)?;
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
    let len = size(device, 64 << 20, 64 << 10) as usize;
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

/// Checks mapped words: kernels see the host's stores, and the host sees their responses, from
/// launch to launch.
fn mapped(device: &Device) -> Said {
    let stream = device.stream()?;
    let kernel = device.load(&kernels::answer()?)?;
    let words = device.mapped::<u64>(3)?;
    for round in 1..=3 {
        words.store(0, 70 + round)?;
        kernel.launch(&stream, 1, &[(&words).into()])?;
        stream.wait()?;
        let answer = words.load(1)?;
        let count = words.load(2)?;
        ensure!((answer, count) == (70 + round, round), "round {round}: the kernel answers {answer}, {count}");
    }
    Ok("told and answered three times".into())
}

fn tensor_map(device: &Device) -> Said {
    const ROWS: usize = 256;
    const COLUMNS: usize = 128;
    let stream = device.stream()?;
    let kernel = device.load(&kernels::tile()?)?;
    let matrix: Vec<u16> = (0..(ROWS * COLUMNS) as u32).map(|i| (i + 1) as u16).collect();
    let source = stream.buffer(&matrix)?;
    let out = device.buffer::<u32>(64 * 32)?;
    for swizzle in [TileSwizzle::None, TileSwizzle::Bytes128] {
        let shape = TensorShape::row_major(DType::U16, [ROWS as u64, COLUMNS as u64], [64, 64]).swizzle(swizzle);
        let map = device.tensor_map(&source, shape)?;
        for (x, y) in [(64usize, 32usize), (0, 224), (96, 0)] {
            let args = [(&map).into(), (&out).into(), (x as i32).into(), (y as i32).into()];
            kernel.launch(&stream, 1, &args)?;
            let words = stream.read(&out)?;
            let seen: &[u16] = bytemuck::cast_slice(&words);
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
        let buffer = device.buffer::<u8>(size(device, 256 << 20, 1 << 20) as usize)?;
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
