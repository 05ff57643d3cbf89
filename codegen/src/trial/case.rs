//! A trial as a value.

use super::element::TrialElement;
use super::expect::Expected;
use crate::device::{Arg, Grid, TensorShape};
use crate::ir::Const;
use crate::verify::Verified;
use half::{bf16, f16};
use std::sync::Arc;

/// A test case of a kernel: the kernel, its grid, its inputs and the expected outputs. It runs on
/// every device.
///
/// Declare the buffers with [`input`](Trial::input), [`output`](Trial::output),
/// [`changed`](Trial::changed) and [`scratch`](Trial::scratch). Pass them and the numbers in the
/// order of the kernel's parameters with [`pass`](Trial::pass), and [`run`](Trial::run) the trial.
/// A buffer has the name of the parameter that it is first passed for; a name or an element type
/// that does not match is an error.
///
/// Running uploads the inputs, poisons what the kernel has to write, launches, reads back and
/// compares. Inputs must be unchanged afterwards. On the simulator, any fault of the kernel is an
/// error too.
///
/// ```
/// use tilewright_codegen::build::{Builder, block, record};
/// use tilewright_codegen::device::sim;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::trial::{Bound, Expected, Trial};
/// use tilewright_codegen::verify::verify;
///
/// fn scale(k: &Builder) {
///     let n = k.param::<u32>("n");
///     let x = k.global::<f32>("x");
///     let y = k.global::<f32>("y");
///     let i = k.block_id() * 128 + k.tid();
///     k.when(i.lt(n), || y.at(i).store(x.at(i).load() / 3.0));
/// }
///
/// let kernel = verify(record("scale", Arch::Sm90a, block(128), scale))?;
/// let inputs: Vec<f32> = (0..200).map(|i| i as f32).collect();
/// let expected: Vec<f64> = inputs.iter().map(|&x| f64::from(x) / 3.0).collect();
///
/// let mut trial = Trial::new(kernel, 2).note("n 200");
/// let x = trial.input("x", &inputs);
/// let y = trial.output("y", Expected::near::<f32>(&expected, Bound { absolute: 0.0, relative: 1e-7 }));
/// let trial = trial.pass(200u32).pass(x).pass(y);
///
/// for seed in 0..10 {
///     let outcome = trial.run(&sim::open(seed))?;
///     assert!(outcome.is_right(), "{outcome}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    pub(super) kernel: Arc<Verified>,
    pub(super) grid: Grid,
    pub(super) note: String,
    pub(super) buffers: Vec<TrialBuffer>,
    pub(super) args: Vec<TrialArg>,
}

/// A buffer of a trial.
#[derive(Clone, Debug)]
pub(super) struct TrialBuffer {
    pub name: String,
    /// The contents before the launch; `None` if the kernel has to write it first.
    pub before: Option<Vec<u8>>,
    /// The expected contents after the launch; an input must be unchanged.
    pub after: Expected,
}

/// A buffer of a trial, as an argument names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(pub(super) usize);

/// An argument of a trial's launch. Numbers and buffers convert by `into()`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TrialArg {
    /// A scalar.
    Scalar(Const),
    /// A structure by value.
    Bytes(Vec<u8>),
    /// A buffer's address plus a number of bytes.
    Pointer(BufferId, u64),
    /// A tensor map over a buffer.
    Map(BufferId, TensorShape),
}

impl From<BufferId> for TrialArg {
    fn from(buffer: BufferId) -> TrialArg {
        TrialArg::Pointer(buffer, 0)
    }
}

macro_rules! scalars {
    ($($T:ty),+) => {$(
        impl From<$T> for TrialArg {
            fn from(value: $T) -> TrialArg {
                TrialArg::Scalar(scalar(value))
            }
        }
    )+};
}
scalars!(u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64);

fn scalar<'a>(value: impl Into<Arg<'a>>) -> Const {
    match value.into() {
        Arg::Scalar(value) => value,
        _ => unreachable!("numbers are scalars"),
    }
}

impl Trial {
    /// A launch of a kernel on a grid, without buffers or arguments yet.
    pub fn new(kernel: impl Into<Arc<Verified>>, grid: impl Into<Grid>) -> Trial {
        Trial { kernel: kernel.into(), grid: grid.into(), note: String::new(), buffers: vec![], args: vec![] }
    }

    /// Replaces the kernel by another one with equal parameters, such as a mutant.
    #[must_use]
    pub fn with_kernel(self, kernel: impl Into<Arc<Verified>>) -> Trial {
        Trial { kernel: kernel.into(), ..self }
    }

    /// Sets the note on the particulars of this case, for reports: its sizes.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Trial {
        Trial { note: note.into(), ..self }
    }

    /// A buffer that the kernel reads. It must hold the same after the launch.
    pub fn input<T: TrialElement>(&mut self, name: &str, elements: &[T]) -> BufferId {
        self.changed(name, elements, Expected::exact(elements))
    }

    /// A buffer that the kernel writes, poisoned before the launch.
    pub fn output(&mut self, name: &str, expected: Expected) -> BufferId {
        self.add(name, None, expected)
    }

    /// A buffer that the kernel reads and changes.
    ///
    /// # Panics
    /// Where there are not as many elements as expected ones: a mistake in the trial.
    pub fn changed<T: TrialElement>(&mut self, name: &str, before: &[T], expected: Expected) -> BufferId {
        assert_eq!(size_of_val(before), expected.len * expected.size, "`{name}` before and after");
        self.add(name, Some(bytemuck::cast_slice(before).to_vec()), expected)
    }

    /// Scratch memory of `len` elements, poisoned before the launch and not compared after it.
    pub fn scratch<T: TrialElement>(&mut self, name: &str, len: usize) -> BufferId {
        self.add(name, None, Expected::anything::<T>(len))
    }

    fn add(&mut self, name: &str, before: Option<Vec<u8>>, after: Expected) -> BufferId {
        self.buffers.push(TrialBuffer { name: name.into(), before, after });
        BufferId(self.buffers.len() - 1)
    }

    /// The next argument.
    #[must_use]
    pub fn pass(mut self, argument: impl Into<TrialArg>) -> Trial {
        self.args.push(argument.into());
        self
    }

    /// The next argument: a tensor map over a buffer.
    #[must_use]
    pub fn map(self, buffer: BufferId, shape: TensorShape) -> Trial {
        self.pass(TrialArg::Map(buffer, shape))
    }

    /// The kernel.
    pub fn kernel(&self) -> &Verified {
        &self.kernel
    }

    /// Blocks by axis.
    pub fn grid(&self) -> [u32; 3] {
        self.grid.0
    }

    /// A note on the particulars of the trial.
    pub fn particulars(&self) -> &str {
        &self.note
    }
}
