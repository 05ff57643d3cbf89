//! The settings of a graph's attention, products and exchanges between devices.

use std::str::FromStr;

use thiserror::Error;
use tilewright_kernels::gemv::hopper;

/// The all-reduce of devices that share a model. Every choice gives all devices equal bits.
///
/// ```
/// use tilewright_megakernel::vm::graph::Exchange;
/// assert_eq!("nccl".parse(), Ok(Exchange::Nccl));
/// assert_eq!("mpi".parse::<Exchange>().unwrap_err().to_string(), "`mpi` is not an exchange between devices; known are own, one-shot, two-shot and nccl");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exchange {
    /// By the library's kernels, after [barriers](super::GraphPlan::meet): in one shot between two
    /// devices and of few rows, else in two. NCCL is faster at no size that was measured.
    #[default]
    Own,
    /// By these: each device adds up all rows, reading the parts of all.
    OneShot,
    /// By these: each adds up a share of the rows, and stores what it makes of them on all.
    TwoShot,
    /// By NCCL, which is loaded when a machine is made.
    Nccl,
}

/// A name of no exchange.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is not an exchange between devices; known are own, one-shot, two-shot and nccl")]
pub struct NoExchange {
    found: String,
}

impl FromStr for Exchange {
    type Err = NoExchange;

    fn from_str(text: &str) -> Result<Exchange, NoExchange> {
        match text {
            "own" => Ok(Exchange::Own),
            "one-shot" => Ok(Exchange::OneShot),
            "two-shot" => Ok(Exchange::TwoShot),
            "nccl" => Ok(Exchange::Nccl),
            found => Err(NoExchange { found: found.into() }),
        }
    }
}

/// Settings of decode attention in a graph on sm_90a. Every setting is correct; tiles change the
/// order of sums.
///
/// ```
/// use tilewright_megakernel::vm::graph::GraphTuning;
/// assert_eq!(GraphTuning::of([128, 4], 64), GraphTuning { tile: 32, stages: 3, staying: 1, splits: 0 });
/// assert_eq!(GraphTuning::of([128, 4], 32), GraphTuning { tile: 16, stages: 2, staying: 2, splits: 0 });
/// assert_eq!(GraphTuning::of([64, 4], 64), GraphTuning { tile: 32, stages: 3, staying: 2, splits: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphTuning {
    /// Tokens of a tile, 16 or 32.
    pub tile: u32,
    /// Stages of a warp's keys and values, 2 to 4.
    pub stages: u32,
    /// Blocks that stay on a multiprocessor and go through rows and heads; 0: each has a share of
    /// one.
    pub staying: u32,
    /// Shares of a row's tokens, 1 to 8; 0: as the width has them.
    pub splits: u32,
}

impl GraphTuning {
    /// Blocks that are not to stay: each has a share of a row and head.
    pub const SHARES: GraphTuning = GraphTuning { tile: 32, stages: 2, staying: 0, splits: 0 };

    /// The choice for heads of `depth` dimensions in groups of `group` and a step of `rows` rows:
    /// what an H200 is fastest with at 1024 tokens, where shared memory has room for it.
    pub fn of([depth, group]: [u32; 2], rows: u32) -> GraphTuning {
        // Parts of more than eight rows take the room of a stage.
        match (depth, group) {
            (..=64, ..=8) => GraphTuning { tile: 32, stages: 3, staying: 2, splits: 0 },
            (65..=128, ..=8) if rows > 32 => GraphTuning { tile: 32, stages: 3, staying: 1, splits: 0 },
            _ => GraphTuning { tile: 16, stages: 2, staying: 2, splits: 0 },
        }
    }
}

/// Settings of a plan's attention, products and exchanges. The default chooses each by shape.
///
/// ```
/// use tilewright_megakernel::vm::graph::{Exchange, GraphOptions};
/// let options = GraphOptions { exchange: Exchange::Nccl, ..GraphOptions::default() };
/// assert!(options.attention.is_none() && options.products.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOptions<'p> {
    /// Settings of decode attention; by default those of [`GraphTuning::of`].
    pub attention: Option<GraphTuning>,
    /// Settings of products of packed weights, by the shape of these.
    pub products: &'p [ProductTuning],
    /// The all-reduce of devices that share a model.
    pub exchange: Exchange,
}

/// Selects the field of a setting.
type SettingOf = fn(&mut hopper::HopperTuning) -> &mut u32;

/// Settings of one product of packed weights in place of those that
/// [`choose`](tilewright_kernels::gemv::hopper::choose) has: what is not given stays.
///
/// ```
/// use tilewright_kernels::weights::Strip;
/// use tilewright_kernels::gemv::hopper;
/// use tilewright_megakernel::vm::graph::ProductTuning;
/// let chosen = hopper::choose(64, 4096, Strip::new(14336, 8, 16384)?, 132, 2);
/// let mut down = ProductTuning::of([4096, 14336]);
/// down.set("in_flight", 4).expect("a setting");
/// assert_eq!(down.applied(chosen), hopper::HopperTuning { in_flight: 4, ..chosen });
/// assert!(down.set("speed", 1).is_none());
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductTuning {
    /// Packed rows and k of its weights.
    pub shape: [u32; 2],
    settings: Vec<(SettingOf, u32)>,
}

impl ProductTuning {
    /// Tuning without settings, for the product of such weights.
    pub fn of(shape: [u32; 2]) -> ProductTuning {
        ProductTuning { shape, settings: Vec::new() }
    }

    /// Sets `strips`, `stage_tiles`, `stages`, `in_flight`, `multicast`, `splits` or `vectors`;
    /// none where there is no such setting.
    pub fn set(&mut self, name: &str, value: u32) -> Option<()> {
        let of: SettingOf = match name {
            "strips" => |tuning| &mut tuning.strips,
            "stage_tiles" => |tuning| &mut tuning.stage_tiles,
            "stages" => |tuning| &mut tuning.stages,
            "in_flight" => |tuning| &mut tuning.in_flight,
            "multicast" => |tuning| &mut tuning.multicast,
            "splits" => |tuning| &mut tuning.splits,
            "vectors" => |tuning| &mut tuning.vectors,
            _ => return None,
        };
        self.settings.push((of, value));
        Some(())
    }

    /// The tuning with these settings applied.
    pub fn applied(&self, mut tuning: hopper::HopperTuning) -> hopper::HopperTuning {
        for &(of, value) in &self.settings {
            *of(&mut tuning) = value;
        }
        tuning.warpgroups = tuning.strips.div_ceil(8);
        tuning
    }
}
