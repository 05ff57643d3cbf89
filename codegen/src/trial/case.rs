//! A trial as a value.

use super::element::Element;
use super::expect::Expected;
use crate::device::{Arg, Grid, TensorShape};
use crate::ir::Const;
use crate::verify::Verified;
use half::{bf16, f16};
use std::sync::Arc;

/// A kernel, what it is given, and what must come out. Elements, sizes and shapes are in it; nothing of a device is.
#[derive(Clone, Debug)]
pub struct Trial {
    pub(super) kernel: Arc<Verified>,
    pub(super) grid: Grid,
    pub(super) note: String,
    pub(super) buffers: Vec<Memory>,
    pub(super) args: Vec<Pass>,
}

/// A buffer of a trial.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub name: String,
    /// What it holds before the launch; `None` for what the kernel has to write first.
    pub before: Option<Vec<u8>>,
    /// What it must hold after the launch; an input must hold what it held.
    pub after: Expected,
}

/// A buffer of a trial, as an argument names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(pub(super) usize);

/// An argument of a trial's launch. Numbers and buffers convert by `into()`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Pass {
    /// A scalar.
    Scalar(Const),
    /// A structure by value.
    Bytes(Vec<u8>),
    /// A buffer's address, and so many bytes more.
    Pointer(BufferId, u64),
    /// A tensor map over a buffer.
    Map(BufferId, TensorShape),
}

impl From<BufferId> for Pass {
    fn from(buffer: BufferId) -> Pass {
        Pass::Pointer(buffer, 0)
    }
}

macro_rules! scalars {
    ($($T:ty),+) => {$(
        impl From<$T> for Pass {
            fn from(value: $T) -> Pass {
                Pass::Scalar(scalar(value))
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

    /// The same case for another kernel with the same parameters: a mutant.
    #[must_use]
    pub fn with_kernel(self, kernel: impl Into<Arc<Verified>>) -> Trial {
        Trial { kernel: kernel.into(), ..self }
    }

    /// Says what is particular about this case, for reports: its sizes.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Trial {
        Trial { note: note.into(), ..self }
    }

    /// A buffer that the kernel reads. It must hold the same after the launch.
    pub fn input<T: Element>(&mut self, name: &str, elements: &[T]) -> BufferId {
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
    pub fn changed<T: Element>(&mut self, name: &str, before: &[T], expected: Expected) -> BufferId {
        assert_eq!(size_of_val(before), expected.len * expected.size, "`{name}` before and after");
        self.add(name, Some(bytemuck::cast_slice(before).to_vec()), expected)
    }

    /// Memory of so many elements that the kernel works in, poisoned before the launch and not looked at after it.
    pub fn scratch<T: Element>(&mut self, name: &str, len: usize) -> BufferId {
        self.add(name, None, Expected::anything::<T>(len))
    }

    fn add(&mut self, name: &str, before: Option<Vec<u8>>, after: Expected) -> BufferId {
        self.buffers.push(Memory { name: name.into(), before, after });
        BufferId(self.buffers.len() - 1)
    }

    /// The next argument.
    #[must_use]
    pub fn pass(mut self, argument: impl Into<Pass>) -> Trial {
        self.args.push(argument.into());
        self
    }

    /// The next argument: a tensor map over a buffer.
    #[must_use]
    pub fn map(self, buffer: BufferId, shape: TensorShape) -> Trial {
        self.pass(Pass::Map(buffer, shape))
    }

    /// The kernel.
    pub fn kernel(&self) -> &Verified {
        &self.kernel
    }

    /// Blocks by axis.
    pub fn grid(&self) -> [u32; 3] {
        self.grid.0
    }

    /// What is particular about it.
    pub fn particulars(&self) -> &str {
        &self.note
    }
}
