//! Architectures that kernels are generated for, what they have, and their limits, one row each.

use core::fmt;
use core::ops::RangeInclusive;

/// An architecture, as PTX's `.target` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// Ampere (A100).
    Sm80,
    /// Ada (L4, L40S, RTX 4090).
    Sm89,
    /// Hopper with its own instructions (H100, H200).
    Sm90a,
    /// Data-centre Blackwell with its own instructions (B200).
    Sm100a,
    /// Consumer Blackwell (RTX 5090).
    Sm120,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 5] = [Arch::Sm80, Arch::Sm89, Arch::Sm90a, Arch::Sm100a, Arch::Sm120];

    /// Name as PTX spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm80 => "sm_80",
            Arch::Sm89 => "sm_89",
            Arch::Sm90a => "sm_90a",
            Arch::Sm100a => "sm_100a",
            Arch::Sm120 => "sm_120",
        }
    }

    /// The architecture of that name.
    ///
    /// ```
    /// use tilewright_codegen::ir::Arch;
    /// assert_eq!(Arch::from_name("sm_90a"), Some(Arch::Sm90a));
    /// assert_eq!(Arch::from_name("sm_90"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Compute capability as one number: 80 for 8.0, 100 for 10.0.
    pub const fn capability(self) -> u32 {
        match self {
            Arch::Sm80 => 80,
            Arch::Sm89 => 89,
            Arch::Sm90a => 90,
            Arch::Sm100a => 100,
            Arch::Sm120 => 120,
        }
    }

    /// The PTX version that text for this architecture declares: the lowest that has every
    /// instruction of the IR, so that older drivers accept it.
    pub const fn ptx_version(self) -> &'static str {
        match self {
            Arch::Sm80 | Arch::Sm89 | Arch::Sm90a => "8.4",
            Arch::Sm100a => "8.6",
            Arch::Sm120 => "8.7",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The architecture that an instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Needs {
    /// 8.0 and later.
    Sm80,
    /// 8.9 and later.
    Sm89,
    /// 9.0 and later.
    Sm90,
    /// 9.0a alone: `wgmma`.
    Sm90a,
    /// The `a` variants of 9.0 and later: `setmaxnreg`.
    Sm90aUp,
}

impl Needs {
    /// Whether the architecture has it.
    ///
    /// ```
    /// use tilewright_codegen::ir::{Arch, Needs};
    /// assert!(Needs::Sm90.met_by(Arch::Sm120) && !Needs::Sm90a.met_by(Arch::Sm100a));
    /// ```
    pub const fn met_by(self, arch: Arch) -> bool {
        match self {
            Needs::Sm80 => true,
            Needs::Sm89 => arch.capability() >= 89,
            Needs::Sm90 => arch.capability() >= 90,
            Needs::Sm90a => matches!(arch, Arch::Sm90a),
            Needs::Sm90aUp => matches!(arch, Arch::Sm90a | Arch::Sm100a),
        }
    }

    /// The architectures that have the instruction, for an error's text.
    pub const fn noun(self) -> &'static str {
        match self {
            Needs::Sm80 => "sm_80 and later",
            Needs::Sm89 => "sm_89 and later",
            Needs::Sm90 => "sm_90 and later",
            Needs::Sm90a => "sm_90a only",
            Needs::Sm90aUp => "sm_90a and sm_100a",
        }
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])+ $Name:ident $noun:literal $unit:literal [$a:expr, $b:expr, $c:expr, $d:expr, $e:expr] by $step:literal;)+) => {
        /// A limit of the hardware: a range of legal numbers per architecture, and what they are
        /// multiples of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Limit { $($(#[$doc])+ $Name,)+ }

        impl Limit {
            /// Every limit.
            pub const ALL: &'static [Limit] = &[$(Limit::$Name),+];

            /// The limited quantity.
            pub const fn noun(self) -> &'static str {
                match self { $(Limit::$Name => $noun,)+ }
            }

            /// The unit of the numbers.
            pub const fn unit(self) -> &'static str {
                match self { $(Limit::$Name => $unit,)+ }
            }

            /// The divisor of legal numbers.
            pub const fn step(self) -> u32 {
                match self { $(Limit::$Name => $step,)+ }
            }

            /// The legal numbers on an architecture.
            pub const fn range(self, arch: Arch) -> RangeInclusive<u32> {
                match self { $(Limit::$Name => match arch {
                    Arch::Sm80 => $a,
                    Arch::Sm89 => $b,
                    Arch::Sm90a => $c,
                    Arch::Sm100a => $d,
                    Arch::Sm120 => $e,
                },)+ }
            }
        }
    };
}

// Sources: CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA, bar, setmaxnreg, cluster
// directives.
limits! {
    /// Shared memory that one block may use, dynamic, after the launcher raised the limit.
    SharedPerBlock "shared memory per block" "bytes" [0..=166_912, 0..=101_376, 0..=232_448, 0..=232_448, 0..=101_376] by 1;
    /// Shared memory that one block may declare statically; above it, shared memory is dynamic.
    StaticShared "static shared memory" "bytes" [0..=49_152, 0..=49_152, 0..=49_152, 0..=49_152, 0..=49_152] by 1;
    /// Threads of a block. The last warp is a partial one if they are not a multiple of 32.
    ThreadsPerBlock "threads per block" "threads" [1..=1024, 1..=1024, 1..=1024, 1..=1024, 1..=1024] by 1;
    /// Threads that meet at a named barrier.
    BarrierThreads "threads at a barrier" "threads" [32..=1024, 32..=1024, 32..=1024, 32..=1024, 32..=1024] by 32;
    /// Named barriers.
    BarrierId "barrier id" "" [0..=15, 0..=15, 0..=15, 0..=15, 0..=15] by 1;
    /// Registers per thread that `setmaxnreg` may ask for.
    MaxNReg "registers asked of setmaxnreg" "registers" [0..=0, 0..=0, 24..=256, 24..=256, 0..=0] by 8;
    /// 32-bit registers of a multiprocessor, which the blocks on it share.
    RegistersPerSm "registers per multiprocessor" "registers" [0..=65_536, 0..=65_536, 0..=65_536, 0..=65_536, 0..=65_536] by 1;
    /// Blocks of a cluster that every device grants.
    ClusterBlocks "blocks per cluster" "blocks" [1..=1, 1..=1, 1..=8, 1..=8, 1..=8] by 1;
    /// Parameters of one kernel.
    ParamBytes "kernel parameters" "bytes" [0..=4096, 0..=4096, 0..=4096, 0..=4096, 0..=4096] by 1;
}

impl Limit {
    /// Whether a number is legal on an architecture.
    ///
    /// ```
    /// use tilewright_codegen::ir::{Arch, Limit};
    /// assert!(Limit::MaxNReg.allows(Arch::Sm90a, 232) && !Limit::MaxNReg.allows(Arch::Sm90a, 230));
    /// ```
    pub fn allows(self, arch: Arch, number: u32) -> bool {
        self.range(arch).contains(&number) && number.is_multiple_of(self.step())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn the_limits_agree_with_the_devices_of_the_target_table() {
        for target in Target::names().filter_map(Target::named).filter(|t| t.name != "host") {
            let arch = Arch::from_name(&target.arch).expect("a device's architecture is listed");
            assert_eq!(
                *Limit::SharedPerBlock.range(arch).end() as usize,
                target.shared_bytes_per_block,
                "{}",
                target.name
            );
            assert_eq!(*Limit::RegistersPerSm.range(arch).end() as usize, target.registers_per_sm, "{}", target.name);
        }
    }

    #[test]
    fn every_limit_has_a_legal_number_at_both_ends() {
        for &limit in Limit::ALL {
            for arch in Arch::ALL {
                let range = limit.range(arch);
                assert!(limit.allows(arch, *range.start()) && limit.allows(arch, *range.end()), "{limit:?} on {arch}");
            }
        }
    }
}
