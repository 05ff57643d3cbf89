//! Reports activations that overflow f16.
//!
//! Activations of 5 to 16 rows are multiplied with codes as f16, and all are with codes of `e4m3`
//! ([`Packing::meeting`](super::Packing::meeting)). An activation larger than any f16, or NaN,
//! would be an infinity, and so would every sum of its row. The code that converts it to f16
//! reports it.

use tilewright_codegen::build::{Builder, F16x2, Global, Ptr, Val, Var};
use tilewright_codegen::ir::attr::{AtomOrder, Scope};

/// The bits of the least f32 that no f16 is nearest to: half a step above 65504.
const LEAST: u32 = 65520.0f32.to_bits();

/// Reports f16 overflow of a task's activations.
#[derive(Clone, Copy)]
pub struct F16Overflow<'k> {
    /// The word that is set to `status` if it is 0.
    pub code: Ptr<'k, Global, u32>,
    /// The value written to `code`.
    pub status: u32,
    /// The word that receives the task.
    pub place: Ptr<'k, Global, u32>,
    /// The task.
    pub task: Val<'k, u32>,
}

impl<'k> F16Overflow<'k> {
    /// Checks numbers that are converted to f16.
    #[track_caller]
    pub(in crate::gemv) fn check(self, x: &[Val<'k, f32>]) {
        let most = x.iter().map(|&x| size(x)).reduce(|a, b| a.max(b));
        most.into_iter().for_each(|most| self.check_size(most));
    }

    /// Records whether the largest [`size`] overflows.
    #[track_caller]
    pub(in crate::gemv) fn check_size(self, most: Val<'k, u32>) {
        self.report(most.ge(LEAST));
    }

    /// Reports the overflow, if `is` is true.
    #[track_caller]
    pub(in crate::gemv) fn report(self, is: Val<'k, bool>) {
        let k = is.builder();
        k.when(is, || {
            let first = self.code.compare_swap(0u32, self.status, AtomOrder::Relaxed(Scope::Sys)).eq(0);
            k.when(first, || self.place.store(self.task));
        });
    }
}

/// Detects infinities and NaN in words of f16: adds zero times each word, which keeps the integer
/// pipe free.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct Infinite<'k>(Var<'k, u32>);

impl<'k> Infinite<'k> {
    /// A check that has seen no words yet.
    pub fn new(k: &'k Builder) -> Infinite<'k> {
        Infinite(k.var(0u32))
    }

    /// Checks two more numbers.
    #[track_caller]
    pub fn add(self, word: Val<'k, u32>) {
        let zero = word.builder().lit(0u32).bits::<F16x2>();
        self.0.set(word.bits::<F16x2>().fma(zero, self.0.get().bits::<F16x2>()).bits());
    }

    /// Whether there was one.
    #[track_caller]
    pub fn has(self) -> Val<'k, bool> {
        self.0.get().ne(0)
    }
}

/// The bits of a number without its sign: larger for larger numbers, and largest for NaN.
#[track_caller]
pub(in crate::gemv) fn size<'k>(x: Val<'k, f32>) -> Val<'k, u32> {
    x.bits::<u32>() & 0x7fff_ffffu32
}
