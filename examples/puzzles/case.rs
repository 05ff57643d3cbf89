//! A puzzle and its check: random inputs, and the output that a plain loop expects.

use tilewright::codegen::build::{Builder, record};
use tilewright::codegen::device::{Device, Grid, TensorShape};
use tilewright::codegen::ir::{Arch, LaunchBounds};
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial, TrialArg, TrialElement};
use tilewright::codegen::verify::{VerifyErrors, verify};

/// A puzzle: its name, and the check of its kernel on random inputs.
#[derive(Clone, Copy)]
pub struct Puzzle {
    /// The name of its device function.
    pub name: &'static str,
    /// Draws inputs, and states what the kernel has to write.
    pub check: fn(&mut Draw) -> Result<Case, VerifyErrors>,
}

impl Puzzle {
    /// Runs the kernel on inputs of a seed. An error says what is wrong.
    pub fn run(&self, device: &Device, seed: u64) -> Result<(), String> {
        let case = (self.check)(&mut Draw::new(seed)).map_err(|errors| errors.to_string())?;
        let outcome = case.trial.run(device).map_err(|error| error.to_string())?;
        if outcome.is_right() { Ok(()) } else { Err(outcome.to_string()) }
    }
}

/// A kernel with its arguments, in the order of its parameters.
pub struct Case {
    trial: Trial,
}

impl Case {
    /// A launch of a device function as a kernel of that name.
    pub fn new(
        name: &str,
        launch: LaunchBounds,
        grid: impl Into<Grid>,
        device: fn(&Builder),
    ) -> Result<Case, VerifyErrors> {
        Ok(Case { trial: Trial::new(verify(record(name, Arch::Sm90a, launch, device))?, grid) })
    }

    /// The next argument: a number.
    pub fn number(self, number: impl Into<TrialArg>) -> Case {
        Case { trial: self.trial.pass(number) }
    }

    /// The next argument: an array that the kernel reads.
    pub fn input<T: TrialElement>(mut self, name: &str, numbers: &[T]) -> Case {
        let buffer = self.trial.input(name, numbers);
        self.number(buffer)
    }

    /// The next argument: an array that the kernel has to write.
    pub fn output<T: TrialElement>(mut self, name: &str, expected: &[T]) -> Case {
        let buffer = self.trial.output(name, Expected::exact(expected));
        self.number(buffer)
    }

    /// The next argument: an array that the kernel has to write, up to rounding.
    pub fn near(mut self, name: &str, expected: &[f64]) -> Case {
        let bound = Bound { absolute: 1e-5, relative: 1e-5 };
        let buffer = self.trial.output(name, Expected::near::<f32>(expected, bound));
        self.number(buffer)
    }

    /// The next argument: an array that the kernel changes.
    pub fn changed<T: TrialElement>(mut self, name: &str, before: &[T], expected: &[T]) -> Case {
        let buffer = self.trial.changed(name, before, Expected::exact(expected));
        self.number(buffer)
    }

    /// The next argument: a tensor map over an array that the kernel reads.
    pub fn map<T: TrialElement>(mut self, name: &str, numbers: &[T], shape: TensorShape) -> Case {
        let buffer = self.trial.input(name, numbers);
        Case { trial: self.trial.map(buffer, shape) }
    }
}

/// Draws `count` whole numbers from -`most` to `most`: sums of few are exact in f32.
pub fn whole(draw: &mut Draw, count: u32, most: u32) -> Vec<f32> {
    draw.integers(count as usize, most, |number| number as f32)
}

/// Draws `count` numbers from -1 to 1.
pub fn fractions(draw: &mut Draw, count: u32) -> Vec<f32> {
    draw.floats(count as usize, |number| number as f32)
}
