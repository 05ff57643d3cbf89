//! Text from a kernel, and what must hold of it.

use half::{bf16, f16};

use super::{Builder, Numeric, Scalar, Val};
use crate::ir::attr::Remark;
use crate::ir::{ControlOp, Operand};

/// A number that [`Builder::print`] takes.
pub trait Printed: Scalar {
    /// The value in 32 or 64 bits, as which it is printed.
    #[track_caller]
    fn widened(value: Val<'_, Self>) -> Operand;
}

macro_rules! printed {
    ($($T:ty => $As:ty),+ $(,)?) => { $(
        impl Printed for $T {
            #[track_caller]
            fn widened(value: Val<'_, $T>) -> Operand {
                const fn is_number<T: Numeric>() {}
                is_number::<$As>();
                value.cast::<$As>().op
            }
        }
    )+ };
}

printed! {
    u8 => u32, i8 => i32, u16 => u32, i16 => i32, u32 => u32, i32 => i32, u64 => u64, i64 => i64,
    f16 => f32, bf16 => f32, f32 => f32, f64 => f64,
}

impl Printed for bool {
    #[track_caller]
    fn widened(value: Val<'_, bool>) -> Operand {
        value.as_number::<u32>().op
    }
}

/// What fills the braces of [`Builder::print`]: a value, several in a tuple, or an array.
pub trait PrintValues<'k> {
    /// The values in order.
    #[track_caller]
    fn operands(self) -> Vec<Operand>;
}

impl PrintValues<'_> for () {
    fn operands(self) -> Vec<Operand> {
        Vec::new()
    }
}

impl<'k, T: Printed> PrintValues<'k> for Val<'k, T> {
    #[track_caller]
    fn operands(self) -> Vec<Operand> {
        vec![T::widened(self)]
    }
}

impl<'k, V: PrintValues<'k>, const N: usize> PrintValues<'k> for [V; N] {
    #[track_caller]
    fn operands(self) -> Vec<Operand> {
        self.into_iter().flat_map(V::operands).collect()
    }
}

macro_rules! tuples {
    ($($V:ident)+) => {
        impl<'k, $($V: PrintValues<'k>),+> PrintValues<'k> for ($($V,)+) {
            #[track_caller]
            #[allow(non_snake_case)]
            fn operands(self) -> Vec<Operand> {
                let ($($V,)+) = self;
                [$($V.operands()),+].concat()
            }
        }
    };
}

tuples!(A B);
tuples!(A B C);
tuples!(A B C D);

impl Builder {
    /// Prints a line, in which each `{}` is replaced by the next of `values`, after the block and
    /// the thread that prints it.
    ///
    /// The simulator prints when the launch ends, in the order of execution, which a seed repeats;
    /// [`Simulator::printed`](crate::device::sim::Simulator::printed) has the lines. A GPU prints by
    /// `vprintf` when the host waits for it, in any order. Both keep 1 MiB of a launch. Floats have
    /// nine significant digits, `f64` 17. As many values as braces, or `verify` refuses the kernel.
    ///
    /// ```
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::device::sim::{Options, Simulator};
    /// use tilewright_codegen::{ir::Arch, verify::verify};
    ///
    /// let kernel = record("halves", Arch::Sm80, block(32), |k| {
    ///     let half = k.tid().cast::<f32>() / 2.0;
    ///     k.when(k.tid().lt(2), || k.print("half of {} is {}", (k.tid(), half)));
    /// });
    /// let simulator = Simulator::new(Options::default());
    /// let device = simulator.device();
    /// device.load(&verify(kernel)?)?.launch(&device.stream()?, 1, &[])?;
    /// let first = "block (0, 0, 0), thread (0, 0, 0): half of 0 is 0";
    /// assert_eq!(simulator.printed(), [first, "block (0, 0, 0), thread (1, 0, 0): half of 1 is 0.5"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn print<'k>(&'k self, text: &str, values: impl PrintValues<'k>) {
        let values = values.operands();
        self.emit(ControlOp::Print { values, text: Remark(text.into()) });
    }

    /// Ends the launch with an error where the condition is false. The error names the text, this
    /// line of Rust, the block and the thread.
    ///
    /// On the simulator it is a fault. On a GPU the driver prints it, and the CUDA context is lost:
    /// for debugging, not for what a caller may do wrong.
    ///
    /// ```
    /// use tilewright_codegen::build::{block, record};
    /// use tilewright_codegen::device::sim;
    /// use tilewright_codegen::{ir::Arch, verify::verify};
    ///
    /// let kernel = record("bounded", Arch::Sm80, block(32), |k| {
    ///     k.assert(k.tid().lt(k.param::<u32>("n")), "the thread is below n");
    /// });
    /// let device = sim::open(0);
    /// let (kernel, stream) = (device.load(&verify(kernel)?)?, device.stream()?);
    /// kernel.launch(&stream, 1, &[32u32.into()])?;
    /// let error = kernel.launch(&stream, 1, &[7u32.into()]).unwrap_err().to_string();
    /// assert!(error.contains("the thread is below n") && error.contains("lane 7"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn assert(&self, condition: Val<'_, bool>, text: &str) {
        let cond = condition.op;
        self.emit(ControlOp::Assert { cond, text: Remark(text.into()) });
    }
}
