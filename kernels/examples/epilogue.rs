//! A product with bias and GELU twice: with the shipped epilogue, and with a closure that does the
//! same. Both give the same bits; on a GPU their times are compared.
//!
//! ```sh
//! cargo run --release -p tilewright-kernels --features testing --example epilogue -- cuda:0
//! ```
//!
//! Without an argument a small product runs on the simulator.

use std::time::Duration;

use half::bf16;
use tilewright_codegen::device::{self, Arg, Buffer, DeviceError, Event, Kernel, Stream, TensorMap, sim};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{CustomEpilogue, Epilogue, ResultFunctions};
use tilewright_kernels::gemm::{Argument, CustomProblem, GemmBuffer, GemmDevice, GemmProblem, PlannedLaunch, plan};

/// Rows, columns and contraction on a GPU: a prompt's MLP of Llama 3.1 8B, and one of many rows.
const SHAPES: [[u32; 3]; 3] = [[4096, 14336, 4096], [4096, 4096, 4096], [512, 14336, 4096]];
/// Turns of both kernels, and launches of a turn.
const TURNS: usize = 15;
const LAUNCHES: usize = 10;

/// Bias and GELU, as a closure.
const CUSTOM: CustomEpilogue<'static> = CustomEpilogue(&|k, _| {
    let bias = k.global::<bf16>("bias");
    Box::new(move |at, sum| Activation::GeluTanh.apply(sum + bias.at(at.column).load().cast::<f32>()))
});

/// The buffers of a product.
struct Buffers {
    a: Buffer<bf16>,
    b: Buffer<bf16>,
    bias: Buffer<bf16>,
    c: Buffer<bf16>,
    partials: Buffer<f32>,
}

/// The launches of a product, ready to be repeated.
struct Prepared {
    steps: Vec<(Kernel, PlannedLaunch, Vec<Option<TensorMap>>)>,
}

impl Prepared {
    fn new(
        device: &device::Device,
        problem: impl Into<CustomProblem<'static>>,
        buffers: &Buffers,
    ) -> Result<Prepared, Box<dyn std::error::Error>> {
        let properties = device.properties();
        let arch = properties.arch().ok_or("no kernels for this GPU")?;
        let target = GemmDevice { arch, multiprocessors: properties.sms, aligned: 256, partials: true };
        let mut steps = Vec::new();
        for step in plan::<bf16, bf16>(problem, target)? {
            let map = |argument: &Argument| match argument {
                Argument::Map(GemmBuffer::A, shape) => device.tensor_map(&buffers.a, shape.clone()).map(Some),
                Argument::Map(GemmBuffer::B, shape) => device.tensor_map(&buffers.b, shape.clone()).map(Some),
                Argument::Map(_, shape) => device.tensor_map(&buffers.c, shape.clone()).map(Some),
                Argument::Pointer(_) | Argument::Number(_) => Ok(None),
            };
            let maps = step.arguments.iter().map(map).collect::<Result<Vec<_>, _>>()?;
            steps.push((device.load(&verify(step.kernel.clone())?)?, step, maps));
        }
        Ok(Prepared { steps })
    }

    fn launch(&self, stream: &Stream, buffers: &Buffers) -> Result<(), DeviceError> {
        for (kernel, step, maps) in &self.steps {
            let mut arguments: Vec<Arg<'_>> = Vec::new();
            for (argument, map) in step.arguments.iter().zip(maps) {
                arguments.extend(match argument {
                    Argument::Map(..) => map.as_ref().map(Arg::Map),
                    Argument::Number(number) => Some((*number).into()),
                    Argument::Pointer(GemmBuffer::A) => Some((&buffers.a).into()),
                    Argument::Pointer(GemmBuffer::B) => Some((&buffers.b).into()),
                    Argument::Pointer(GemmBuffer::Bias) => Some((&buffers.bias).into()),
                    Argument::Pointer(GemmBuffer::Partials) => Some((&buffers.partials).into()),
                    Argument::Pointer(_) => Some((&buffers.c).into()),
                });
            }
            if step.custom {
                arguments.push((&buffers.bias).into());
            }
            kernel.launch(stream, step.grid, &arguments)?;
        }
        Ok(())
    }

    /// The time of a launch, and the result.
    fn time(&self, stream: &Stream, buffers: &Buffers) -> Result<(Duration, Vec<bf16>), DeviceError> {
        let begin: Event = stream.record()?;
        (0..LAUNCHES).try_for_each(|_| self.launch(stream, buffers))?;
        let end = stream.record()?;
        end.wait()?;
        Ok((end.since(&begin)? / LAUNCHES as u32, stream.read(&buffers.c)?))
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1);
    let device = match &name {
        Some(name) => device::open(name)?,
        None => sim::open(0),
    };
    println!("{}", device.properties().name);
    let shapes = if name.is_some() { &SHAPES[..] } else { &[[130, 136, 64]] };
    let stream = device.stream()?;
    for &[m, n, k] in shapes {
        let mut draw = Draw::new(1);
        let mut drawn = |len: u32| stream.buffer(&draw.floats(len as usize, bf16::from_f64));
        let results = m as usize * n as usize;
        let buffers = Buffers {
            a: drawn(m * k)?,
            b: drawn(n * k)?,
            bias: drawn(n)?,
            c: stream.buffer(&vec![bf16::NAN; results])?,
            partials: device.buffer(8 * results)?,
        };
        let functions = ResultFunctions { activation: Some(Activation::GeluTanh), ..ResultFunctions::default() };
        let problem = GemmProblem::new(m, n, k);
        let shipped = problem.epilogue(Epilogue { bias: true, functions, ..Epilogue::default() });
        let both =
            [Prepared::new(&device, shipped, &buffers)?, Prepared::new(&device, problem.custom(CUSTOM), &buffers)?];
        let turns = if name.is_some() { TURNS } else { 1 };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..turns {
            let [one, other] = [0, 1].map(|which| both[which].time(&stream, &buffers));
            let [(one, expected), (other, found)] = [one?, other?];
            let same = expected.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "both epilogues give the same bits");
            times[0].push(one);
            times[1].push(other);
        }
        let [shipped, custom] = times.map(|mut times| median(&mut times));
        let ratio = shipped.as_secs_f64() / custom.as_secs_f64();
        println!("{m} x {n} x {k}: shipped {shipped:?}, closure {custom:?}, {ratio:.3}");
    }
    Ok(())
}
