//! A trial on a device.

use super::case::{BufferId, Trial, TrialArg, TrialBuffer};
use super::element::TrialElement;
use super::expect::Compared;
use crate::device::{Arg, Buffer, Device, DeviceError, Kernel, Stream, TensorMap, takes};
use std::fmt;
use std::time::Duration;

/// The outcome of a trial that the device could run: every output compared with its expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialOutcome {
    /// The kernel's name.
    pub kernel: String,
    /// A note on the particulars of the case.
    pub note: String,
    /// The outputs, and the inputs that must not have changed, in the order of the trial.
    pub compared: Vec<Compared>,
    /// Time of the launch, by the device's events.
    pub time: Duration,
}

impl TrialOutcome {
    /// Whether every element is right.
    pub fn is_right(&self) -> bool {
        self.compared.iter().all(|output| output.first.is_none())
    }

    /// The first output that is wrong.
    pub fn first_wrong(&self) -> Option<&Compared> {
        self.compared.iter().find(|output| output.first.is_some())
    }

    /// Largest difference of any element from its expected value.
    pub fn max_error(&self) -> f64 {
        self.compared.iter().map(|output| output.max_error).fold(0.0, f64::max)
    }
}

impl fmt::Display for TrialOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        if !self.note.is_empty() {
            write!(f, " ({})", self.note)?;
        }
        match self.first_wrong() {
            Some(wrong) => write!(f, ": {wrong}"),
            None => write!(f, ": right, max error {:.1e}", self.max_error()),
        }
    }
}

/// The buffers of a trial after its launch, and the time that it took.
#[derive(Clone, Debug)]
pub struct Launched {
    stream: Stream,
    buffers: Vec<Buffer<u8>>,
    time: Duration,
}

impl Launched {
    /// Time of the launch, by the device's events. A first launch on a GPU also warms up.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// The contents of a buffer of the trial.
    ///
    /// # Errors
    /// [`DeviceError::Range`] for a buffer of another trial; for elements of another size, the
    /// error of [`Buffer::cast`]; on the simulator, [`DeviceError::Unwritten`] where the kernel
    /// left bytes unwritten.
    pub fn read<T: TrialElement>(&self, buffer: BufferId) -> Result<Vec<T>, DeviceError> {
        self.stream.read(&of(&self.buffers, buffer)?.cast::<T>()?)
    }
}

/// The fill byte of buffers that the kernel has to write: a NaN for floats, an unlikely number for
/// integers.
const fn poison(floating: bool) -> u8 {
    if floating { 0xff } else { 0xa5 }
}

impl Trial {
    /// Runs the trial once.
    ///
    /// # Errors
    /// When the device refuses the kernel, an argument or the launch, or fails; on the simulator,
    /// also [`DeviceError::Fault`]. Wrong numbers are not an error; the [`TrialOutcome`] has them.
    pub fn run(&self, device: &Device) -> Result<TrialOutcome, DeviceError> {
        self.run_loaded(&device.load(&*self.kernel)?, &device.stream()?)
    }

    /// Checks that each buffer is passed, first of all for the parameter of its name.
    fn check_names(&self) -> Result<(), DeviceError> {
        let kernel = self.kernel.kernel();
        for (at, memory) in self.buffers.iter().enumerate() {
            let first = self.args.iter().position(|arg| match arg {
                TrialArg::Pointer(buffer, _) | TrialArg::Map(buffer, _) => buffer.0 == at,
                TrialArg::Scalar(_) | TrialArg::Bytes(_) => false,
            });
            let passed = first.and_then(|index| Some((index, kernel.params.get(index)?.name.clone())));
            if passed.as_ref().is_none_or(|(_, name)| *name != memory.name) {
                let kernel = kernel.name.clone();
                let buffer = memory.name.clone();
                return Err(DeviceError::BufferName { kernel, buffer, passed });
            }
            let param = first.and_then(|index| Some((index, kernel.params.get(index)?)));
            if let (Some((index, param)), Some(found)) = (param, memory.after.float)
                && param.elements.iter().all(|ty| ty.is_float())
                && !takes(&param.elements, found)
            {
                let kernel = kernel.name.clone();
                let name = param.name.clone();
                let expected = param.elements.clone();
                return Err(DeviceError::ArgElement { kernel, index, name, expected, found });
            }
        }
        Ok(())
    }

    /// Runs the trial once by its kernel as it was loaded before, for many runs of one kernel.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn run_loaded(&self, kernel: &Kernel, stream: &Stream) -> Result<TrialOutcome, DeviceError> {
        let Launched { buffers, time, .. } = self.launch_loaded(kernel, stream)?;
        let judged = self.buffers.iter().zip(&buffers).filter(|(memory, _)| memory.after.is_judged());
        let compared = judged.map(|(memory, buffer)| compare(stream, memory, buffer)).collect::<Result<_, _>>()?;
        Ok(TrialOutcome { kernel: self.kernel.kernel().name.clone(), note: self.note.clone(), compared, time })
    }

    /// Uploads the inputs, launches once, and waits: a launch in one call, whose results are read
    /// instead of compared. Outputs without an expectation are [`scratch`](Trial::scratch).
    ///
    /// ```
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::{device, ir::Arch, trial::Trial, verify::verify};
    ///
    /// let kernel = verify(record("double", Arch::Sm80, block(4), |k| {
    ///     let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.tid()));
    ///     y.store(x.load() * 2.0);
    /// }))?;
    /// let mut launcher = Trial::new(kernel, 1);
    /// let x = launcher.input("x", &[1.0f32, 2.0, 3.0, 4.0]);
    /// let y = launcher.scratch::<f32>("y", 4);
    /// let launched = launcher.pass(x).pass(y).launch(&device::open("sim")?)?; // or "cuda:0"
    /// assert_eq!(launched.read::<f32>(y)?, [2.0, 4.0, 6.0, 8.0]);
    /// println!("{:?}", launched.time());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn launch(&self, device: &Device) -> Result<Launched, DeviceError> {
        self.launch_loaded(&device.load(&*self.kernel)?, &device.stream()?)
    }

    fn launch_loaded(&self, kernel: &Kernel, stream: &Stream) -> Result<Launched, DeviceError> {
        self.check_names()?;
        let device = stream.device();
        let buffers = self.buffers.iter().map(|memory| place(stream, memory)).collect::<Result<Vec<_>, _>>()?;
        let placed = self.args.iter().map(|arg| on_device(device, &buffers, arg)).collect::<Result<Vec<_>, _>>()?;
        let args: Vec<Arg<'_>> = placed.iter().map(Placed::argument).collect();
        let start = stream.record()?;
        kernel.launch(stream, self.grid, &args)?;
        let time = stream.record()?.since(&start)?;
        Ok(Launched { stream: stream.clone(), buffers, time })
    }
}

fn place(stream: &Stream, memory: &TrialBuffer) -> Result<Buffer<u8>, DeviceError> {
    match &memory.before {
        Some(bytes) => stream.buffer(bytes),
        None => {
            let buffer = stream.device().buffer(memory.after.len * memory.after.size)?;
            stream.poison(&buffer, poison(memory.after.floating))?;
            Ok(buffer)
        }
    }
}

fn of(buffers: &[Buffer<u8>], BufferId(index): BufferId) -> Result<&Buffer<u8>, DeviceError> {
    buffers.get(index).ok_or(DeviceError::Range { start: index, end: index + 1, len: buffers.len() })
}

/// An argument on a device; it owns what a launch's argument borrows.
enum Placed<'a> {
    Plain(Arg<'a>),
    Map(TensorMap),
}

impl Placed<'_> {
    fn argument(&self) -> Arg<'_> {
        match self {
            Placed::Plain(arg) => arg.clone(),
            Placed::Map(map) => Arg::Map(map),
        }
    }
}

fn on_device<'a>(device: &Device, buffers: &[Buffer<u8>], arg: &'a TrialArg) -> Result<Placed<'a>, DeviceError> {
    Ok(match arg {
        TrialArg::Scalar(value) => Placed::Plain(Arg::Scalar(*value)),
        TrialArg::Bytes(bytes) => Placed::Plain(Arg::Bytes(bytes)),
        TrialArg::Pointer(buffer, bytes) => {
            let buffer = of(buffers, *buffer)?;
            Placed::Plain((&buffer.slice(*bytes as usize..buffer.len())?).into())
        }
        TrialArg::Map(buffer, shape) => Placed::Map(device.tensor_map(of(buffers, *buffer)?, shape.clone())?),
    })
}

fn compare(stream: &Stream, memory: &TrialBuffer, buffer: &Buffer<u8>) -> Result<Compared, DeviceError> {
    match stream.read(buffer) {
        Ok(found) => Ok(memory.after.judge(&memory.name, &found)),
        Err(DeviceError::Unwritten { offset, .. }) => Ok(memory.after.unwritten(&memory.name, offset as usize)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{block, record};
    use crate::device::sim;
    use crate::ir::Arch;
    use crate::verify::verify;
    use std::sync::Arc;

    #[test]
    fn a_launch_gives_its_buffers_and_refuses_others() {
        let kernel = record("first", Arch::Sm80, block(4), |k| {
            let [x, y] = ["x", "y"].map(|name| k.global::<u16>(name).at(k.tid()));
            k.when(k.tid().lt(3), || y.store(x.load() + 1));
        });
        let kernel = Arc::new(verify(kernel).unwrap());
        let launcher = |elements: usize| {
            let mut trial = Trial::new(kernel.clone(), 1);
            let [x, y] = [trial.input("x", &[7u16; 5]), trial.scratch::<u16>("y", elements)];
            (trial.pass(x).pass(y), [x, y])
        };
        let (trial, [x, y]) = launcher(3);
        let launched = trial.launch(&sim::open(0)).unwrap();
        assert_eq!(launched.read::<u16>(y).unwrap(), [8; 3]);
        assert_eq!(launched.read::<u16>(x).unwrap(), [7; 5]);
        assert!(matches!(launched.read::<u32>(x), Err(DeviceError::Length { .. })));
        assert!(matches!(launched.read::<u16>(BufferId(2)), Err(DeviceError::Range { .. })));
        let (trial, [_, y]) = launcher(4);
        let unwritten = trial.launch(&sim::open(0)).unwrap().read::<u16>(y);
        assert!(matches!(unwritten, Err(DeviceError::Unwritten { offset: 6, .. })), "{unwritten:?}");
    }
}
