//! A case: one small kernel for an instruction, in all its types.
//!
//! Convention: inputs are the global parameters before `out`, one element a thread; results go to
//! `out`.

use tilewright_codegen::build::{Builder, Global, IntoVal, Ptr, Scalar, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel, LaunchBounds};

/// A kernel with its launch.
pub struct Case {
    pub name: &'static str,
    pub launch: LaunchBounds,
    /// The first target in order of age that has it.
    pub since: Arch,
    /// The last, where a later one lacks it.
    pub until: Arch,
    pub build: fn(&Builder),
}

impl Case {
    /// A case of one warp on every target.
    pub fn new(name: &'static str, build: fn(&Builder)) -> Case {
        Case { name, launch: block(32), since: Arch::Sm80, until: Arch::Sm120, build }
    }

    /// Restricts the case to an architecture and later ones.
    pub fn since(self, since: Arch) -> Case {
        Case { since, ..self }
    }

    /// Restricts the case to an architecture and earlier ones.
    pub fn until(self, until: Arch) -> Case {
        Case { until, ..self }
    }

    /// Replaces the launch.
    pub fn launch(self, launch: LaunchBounds) -> Case {
        Case { launch, ..self }
    }

    /// Whether the target has it.
    pub fn on(&self, arch: Arch) -> bool {
        self.since <= arch && arch <= self.until
    }

    pub fn record(&self, arch: Arch) -> Kernel {
        record(self.name, arch, self.launch.clone(), self.build)
    }
}

/// This thread's element of a parameter.
pub fn mine<'k, T: Scalar>(k: &'k Builder, name: &str) -> Val<'k, T> {
    k.global::<T>(name).at(k.tid()).load()
}

/// This thread's place in the output of that name.
pub fn out<'k, T: Scalar>(k: &'k Builder, name: &str) -> Ptr<'k, Global, T> {
    k.global::<T>(name).at(k.tid())
}

/// `out = f(x)`.
pub fn unary<'k, T: Scalar, U: Scalar>(k: &'k Builder, name: &str, f: impl FnOnce(Val<'k, T>) -> Val<'k, U>) {
    let x = mine::<T>(k, &format!("x_{name}"));
    out::<U>(k, &format!("out_{name}")).store(f(x));
}

/// `out = f(x, y)`.
pub fn binary<'k, T: Scalar, U: Scalar>(
    k: &'k Builder,
    name: &str,
    f: impl FnOnce(Val<'k, T>, Val<'k, T>) -> Val<'k, U>,
) {
    let x = mine::<T>(k, &format!("x_{name}"));
    let y = mine::<T>(k, &format!("y_{name}"));
    out::<U>(k, &format!("out_{name}")).store(f(x, y));
}

/// Keeps a predicate: `out = p ? 1 : 0`.
pub fn keep<'k>(k: &'k Builder, name: &str, p: impl IntoVal<'k, bool>) {
    let one: Val<'k, u32> = p.val(k).select(1u32, 0u32);
    out::<u32>(k, name).store(one);
}
