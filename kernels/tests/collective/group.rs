//! What the laws share: groups, numbers, operators, and one run of a collective.

use std::fmt::Debug;

use proptest::test_runner::TestCaseError;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::device::{self, Device, sim};
use tilewright_codegen::ir::{Arch, Kernel, LaunchBounds};
use tilewright_codegen::trial::{Bound, Draw, Expected, Trial, TrialElement, TrialOutcome};
use tilewright_codegen::verify::verify;
use tilewright_kernels::collective::{Ranked, Shuffled};

/// Who takes part: logical warps of that many lanes, or the block.
#[derive(Clone, Copy, Debug)]
pub enum Group {
    Warp(u32),
    Block,
}

impl Group {
    /// Every group, by a number.
    pub fn any(number: u32) -> Group {
        match number % 8 {
            bit @ 0..6 => Group::Warp(1 << bit),
            _ => Group::Block,
        }
    }

    /// Its size in a block of that number of threads.
    pub fn size(self, threads: u32) -> u32 {
        match self {
            Group::Warp(lanes) => lanes,
            Group::Block => threads,
        }
    }
}

/// The same expression for either group.
macro_rules! on {
    ($group:expr, $k:expr, |$g:ident| $body:expr) => {
        match $group {
            $crate::group::Group::Warp(lanes) => {
                let $g = tilewright_kernels::collective::Warp::logical($k, lanes);
                $body
            }
            $crate::group::Group::Block => {
                let $g = tilewright_kernels::collective::Block::new($k);
                $body
            }
        }
    };
}
pub(crate) use on;

/// An associative and commutative operator, on a device and on the host.
pub type Operator<T> = (for<'k> fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>, fn(T, T) -> T);

/// A type that the laws are tried on.
pub trait Number: TrialElement + Shuffled + Ranked + Debug {
    const OPERATORS: &'static [Operator<Self>];

    /// A number of few, so that there are ties; `special` ones too on request.
    fn draw(draw: &mut Draw, special: bool) -> Self;
}

impl Number for f32 {
    const OPERATORS: &'static [Operator<f32>] =
        &[(|a, b| a + b, |a, b| a + b), (|a, b| a.max(b), f32::max), (|a, b| a.min(b), f32::min)];

    fn draw(draw: &mut Draw, special: bool) -> f32 {
        match draw.between(0..=31) {
            0 if special => f32::NAN,
            1 if special => f32::INFINITY,
            2 if special => f32::NEG_INFINITY,
            3 => -0.0,
            _ => draw.between(0..=32) as f32 - 16.0,
        }
    }
}

impl Number for u32 {
    const OPERATORS: &'static [Operator<u32>] = &[
        (|a, b| a + b, u32::wrapping_add),
        (|a, b| a * b, u32::wrapping_mul),
        (|a, b| a ^ b, |a, b| a ^ b),
        (|a, b| a.max(b), u32::max),
    ];

    fn draw(draw: &mut Draw, special: bool) -> u32 {
        if special { draw.bits() as u32 } else { draw.between(0..=20) }
    }
}

impl Number for i32 {
    const OPERATORS: &'static [Operator<i32>] =
        &[(|a, b| a + b, i32::wrapping_add), (|a, b| a.min(b), i32::min), (|a, b| a & b, |a, b| a & b)];

    fn draw(draw: &mut Draw, special: bool) -> i32 {
        if special { draw.bits() as i32 } else { draw.between(0..=20) as i32 - 10 }
    }
}

/// The device that `TILEWRIGHT_DEVICE` names, or a simulator under this seed.
pub fn device(seed: u64) -> Device {
    let Ok(name) = std::env::var("TILEWRIGHT_DEVICE") else { return sim::open(seed) };
    device::open(&name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Inputs of a case: one number and one flag a thread, and how many threads of a group have one.
#[derive(Debug)]
pub struct Case<T> {
    pub group: Group,
    pub warps: u32,
    pub numbers: Vec<T>,
    pub flags: Vec<u32>,
    pub valid: u32,
    pub seed: u64,
}

impl<T: Number> Case<T> {
    pub fn new(group: Group, warps: u32, seed: u64) -> Case<T> {
        let mut draw = Draw::new(seed);
        let threads = warps * 32;
        let special = draw.between(0..=1) == 1;
        let numbers = (0..threads).map(|_| T::draw(&mut draw, special)).collect();
        let flags = (0..threads).map(|_| u32::from(draw.between(0..=5) == 0)).collect();
        let valid = draw.between(1..=group.size(threads));
        Case { group, warps, numbers, flags, valid, seed }
    }

    /// The numbers and flags of each group.
    pub fn groups(&self) -> impl Iterator<Item = (&[T], &[u32])> {
        let size = self.group.size(self.warps * 32) as usize;
        self.numbers.chunks(size).zip(self.flags.chunks(size))
    }

    /// Runs a collective of a thread's number, flag and the count of valid ones, and compares what
    /// every thread gets with what `expected` gives for each group.
    pub fn check<U: TrialElement + tilewright_codegen::build::Scalar>(
        &self,
        collective: impl for<'k> Fn(&'k Builder, Inputs<'k, T>) -> Val<'k, U>,
        expected: impl Fn(&[T], &[u32]) -> Vec<U>,
    ) -> Result<(), TestCaseError> {
        let expected: Vec<U> = self.groups().flat_map(|(numbers, flags)| expected(numbers, flags)).collect();
        let trial = self.trial(self.kernel(collective), &expected);
        let outcome = trial.run(&device(self.seed)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        right(&outcome)
    }

    pub fn kernel<U: tilewright_codegen::build::Scalar>(
        &self,
        collective: impl for<'k> Fn(&'k Builder, Inputs<'k, T>) -> Val<'k, U>,
    ) -> Kernel {
        record("collective", Arch::Sm90a, self.launch(), |k| {
            let at = k.tid();
            let inputs = Inputs {
                number: k.global::<T>("numbers").at(at).load(),
                flag: k.global::<u32>("flags").at(at).load(),
                valid: k.param::<u32>("valid"),
            };
            k.global::<U>("out").at(at).store(collective(k, inputs));
        })
    }

    fn launch(&self) -> LaunchBounds {
        block(self.warps * 32)
    }

    pub fn trial<U: TrialElement>(&self, kernel: Kernel, expected: &[U]) -> Trial {
        let expected: Vec<f64> = expected.iter().map(|value| value.value()).collect();
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        let note = format!("{:?}, {} warps, {} valid, seed {}", self.group, self.warps, self.valid, self.seed);
        let mut trial = Trial::new(kernel, 1).note(note);
        let numbers = trial.input("numbers", &self.numbers);
        let flags = trial.input("flags", &self.flags);
        let out = trial.output("out", Expected::near::<U>(&expected, Bound { absolute: 0.0, relative: 0.0 }));
        trial.pass(numbers).pass(flags).pass(self.valid).pass(out)
    }
}

/// What a thread has.
#[derive(Clone, Copy)]
pub struct Inputs<'k, T> {
    pub number: Val<'k, T>,
    pub flag: Val<'k, u32>,
    pub valid: Val<'k, u32>,
}

/// Whether all numbers are right, as a property.
pub fn right(outcome: &TrialOutcome) -> Result<(), TestCaseError> {
    if outcome.is_right() { Ok(()) } else { Err(TestCaseError::fail(outcome.to_string())) }
}

/// A thread's number in its group.
pub fn place<'k>(k: &'k Builder, group: Group) -> Val<'k, u32> {
    k.tid() % group.size(k.threads()).next_power_of_two()
}

/// The least bits that a rank has on the host: NaN as −∞, −0 as 0.
pub fn order<T: TrialElement>(value: T) -> f64 {
    let value = value.value();
    if value.is_nan() { f64::NEG_INFINITY } else { value + 0.0 }
}
