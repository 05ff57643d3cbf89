//! Products on a device: the launches of a plan, and every element of the result compared.

use std::sync::Arc;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, Name, TensorMap, sim};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::gemm::{self, Argument, Data, Drawn, GemmProblem, PlannedLaunch, Rounded};

/// Verified steps of a plan.
pub fn verified(steps: Vec<PlannedLaunch>) -> Vec<(Arc<Verified>, PlannedLaunch)> {
    let check =
        |step: &PlannedLaunch| Arc::new(verify(step.kernel.clone()).unwrap_or_else(|errors| panic!("{errors}")));
    steps.into_iter().map(|step| (check(&step), step)).collect()
}

/// Runs launches one after the other; the result's memory, poisoned before.
pub fn run<F: Drawn, D: Rounded>(
    device: &Device,
    problem: &GemmProblem,
    steps: &[(Arc<Verified>, PlannedLaunch)],
    data: &Data<F, D>,
) -> Result<Vec<D>, DeviceError> {
    Ok(run_custom(device, problem, steps, data, &[])?.0)
}

/// As [`run`], with the buffers that a custom epilogue declares; the result's memory, and theirs.
pub fn run_custom<F: Drawn, D: Rounded>(
    device: &Device,
    problem: &GemmProblem,
    steps: &[(Arc<Verified>, PlannedLaunch)],
    data: &Data<F, D>,
    own: &[Vec<f32>],
) -> Result<(Vec<D>, Vec<Vec<f32>>), DeviceError> {
    let stream = device.stream()?;
    let own = own.iter().map(|numbers| stream.buffer(numbers)).collect::<Result<Vec<_>, _>>()?;
    let a = stream.buffer(&data.a)?;
    let b = stream.buffer(&data.b)?;
    let bias = stream.buffer(&data.bias)?;
    let residual = stream.buffer(&data.residual)?;
    let scales = [stream.buffer(&data.scales[0])?, stream.buffer(&data.scales[1])?];
    let c: Buffer<D> = stream.buffer(&vec![D::ROUND(f64::NAN); problem.sizes()[2]])?;
    let partials: Buffer<f32> = stream.buffer(&vec![f32::NAN; 16 * (problem.m * problem.b_rows()) as usize])?;
    for (kernel, step) in steps {
        let mut maps: Vec<Option<TensorMap>> = Vec::new();
        for argument in &step.arguments {
            maps.push(match argument {
                Argument::Map(gemm::GemmBuffer::A, shape) => Some(device.tensor_map(&a, shape.clone())?),
                Argument::Map(gemm::GemmBuffer::B, shape) => Some(device.tensor_map(&b, shape.clone())?),
                Argument::Map(_, shape) => Some(device.tensor_map(&c, shape.clone())?),
                Argument::Pointer(_) | Argument::Number(_) => None,
            });
        }
        let pointer = |buffer: &gemm::GemmBuffer| -> Arg<'_> {
            match buffer {
                gemm::GemmBuffer::A => (&a).into(),
                gemm::GemmBuffer::B => (&b).into(),
                gemm::GemmBuffer::C => (&c).into(),
                gemm::GemmBuffer::AScale => (&scales[0]).into(),
                gemm::GemmBuffer::BScale => (&scales[1]).into(),
                gemm::GemmBuffer::Bias => (&bias).into(),
                gemm::GemmBuffer::Residual => (&residual).into(),
                gemm::GemmBuffer::Partials => (&partials).into(),
            }
        };
        let args = step.arguments.iter().zip(&maps).map(|(argument, map)| match (argument, map) {
            (Argument::Number(number), _) => (*number).into(),
            (Argument::Pointer(buffer), _) => pointer(buffer),
            (Argument::Map(..), Some(map)) => Arg::Map(map),
            (Argument::Map(..), None) => unreachable!("made above"),
        });
        let args: Vec<Arg<'_>> = args.chain(own.iter().filter(|_| step.custom).map(Into::into)).collect();
        device.load(&**kernel)?.launch(&stream, step.grid, &args)?;
    }
    Ok((stream.read(&c)?, own.iter().map(|own| stream.read(own)).collect::<Result<_, _>>()?))
}

/// The device that `TILEWRIGHT_DEVICE` names, or a simulator under this seed.
pub fn device(seed: u64) -> Device {
    let Ok(name) = std::env::var("TILEWRIGHT_DEVICE") else { return sim::open(seed) };
    let name: Name = name.parse().unwrap_or_else(|error| panic!("{error}"));
    name.open().unwrap_or_else(|error| panic!("{error}"))
}

/// Runs launches in the simulator, or on the device that `TILEWRIGHT_DEVICE` names, and compares
/// every element of the result, and what lies between its rows.
pub fn check<F: Drawn, D: Rounded>(problem: &GemmProblem, steps: Vec<PlannedLaunch>, seed: u64) {
    let data = Data::<F, D>::draw(problem, &mut Draw::new(seed));
    let found =
        run(&device(seed), problem, &verified(steps), &data).unwrap_or_else(|error| panic!("{problem:?}: {error}"));
    if let Err(what) = compare(problem, &data, &found) {
        panic!("{problem:?}: {what}");
    }
}

/// Compares the result with the expectation.
pub fn compare<F: Drawn, D: Rounded>(problem: &GemmProblem, data: &Data<F, D>, found: &[D]) -> Result<(), String> {
    let columns = problem.n as usize;
    let stride = problem.c_stride as usize;
    if let Some(exactly) = data.exactly(problem) {
        let differ = |i: &usize| exactly[*i] != found[i / columns * stride + i % columns];
        if let Some(i) = (0..exactly.len()).find(differ) {
            return Err(format!("element {i} is not {}", exactly[i].value()));
        }
    }
    for (i, (value, bound)) in data.expected(problem).into_iter().enumerate() {
        let row = i / columns;
        let column = i % columns;
        let it = found[row * stride + column].value();
        if (it - value).abs() > bound || it.is_nan() {
            return Err(format!("({row}, {column}) is {it}, not {value} within {bound}"));
        }
    }
    match found.iter().enumerate().find(|(i, v)| i % stride >= columns && !v.value().is_nan()) {
        Some((i, v)) => Err(format!("element {i}, between two rows, was written: {}", v.value())),
        None => Ok(()),
    }
}
