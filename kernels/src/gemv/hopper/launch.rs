//! The standalone kernel.

use crate::gemv::CustomGemvEpilogue;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::attr::ClusterArriveOrder;
use tilewright_codegen::ir::{Arch, Kernel};

use super::PlanError;
use super::WeightRows;
use super::codes::CodeStage;
use super::device::{HopperInputs, WeightMaps};
use super::exchange::Exchange;
use super::finish::HopperResults;
use super::tiles::{ActivationRing, HopperPlan};
use crate::activation::Activation;
use crate::gemm::{Argument, GemmBuffer, PlannedLaunch};
use crate::gemv::hopper::share::BlockShare;
use crate::ring::{Ring, start};

/// `y[m, n] = Σ_k x[m, k] · w[n, k]` with an epilogue, by `wgmma`.
///
/// Parameters: tensor maps of w as [`pack`](crate::weights::pack) orders it, of codes a second for
/// their factors, and of x\[batch, [`HopperPlan::x_pitch`]\], y\[batch, n\], then bias\[n\] and
/// residual\[batch, n\] if the epilogue has them. The other parameters of
/// [`GemvEpilogue`](crate::gemv::GemvEpilogue) follow, and at the end those of a custom epilogue:
///
/// | where | parameters |
/// |---|---|
/// | sums are scaled | `squares` (f32 `[k / 32, batch]`), `eps` |
/// | results begin a norm | its weight, `x ⊙ g` (bf16 `[batch, n]`), `squares` (f32 `[n / 32, batch]`) |
/// | the largest is kept | none; y is u64 `[batch, tiles]`, keys as [`best_rows`](crate::sample::best_rows) reads them |
/// | heads are appended | `turns` (cosines and sines, f32 `[positions, dim / 2, 2]`), `position` (i32), `page_table` (i32 `[batch, width]`), `width`, `pages` of a pool, keys, values; each with its scale after it where pools have codes. y are the queries |
///
/// Weights are fetched, and positions and page tables read, before the grids before this one have
/// ended; nothing else is touched until then. Of [`WeightRows`] that are not in order y has as many
/// columns as there are results, the bias as many numbers as there are rows. [`step`] gives the
/// grid and the maps.
pub fn gemv<'f>(arch: Arch, plan: &HopperPlan, finish: impl Into<CustomGemvEpilogue<'f>>) -> Kernel {
    let CustomGemvEpilogue { epilogue: finish, custom } = finish.into();
    let tuning = plan.tuning;
    let warps = plan.tuning.warpgroups * 4;
    let results = match plan.results {
        WeightRows::InOrder(_) => "",
        WeightRows::Gated(_) => "_gated",
        WeightRows::Groups { .. } => "_heads",
    };
    let functions = finish.epilogue.functions;
    let activation =
        functions.activation.filter(|&activation| !(finish.epilogue.gated && activation == Activation::Silu));
    let activation = activation.map_or(String::new(), |activation| format!("_{}", activation.name()));
    let best = if finish.best { "_best" } else { "" };
    let capped = if functions.soft_cap.is_some() { "_capped" } else { "" };
    let codes = plan.strip.codes().map_or(String::new(), |codes| format!("_{}", codes.code.name()));
    let name =
        format!("gemv_wgmma_b{}_n{}_k{}{codes}{results}{activation}{capped}{best}", plan.batch, plan.n, plan.strip.k());
    let launch = block(plan.threads()).cluster(tuning.cluster()).min_blocks(tuning.per_sm);
    record(&name, arch, launch, |k| {
        let w_map = k.tensor_map("w");
        let maps = WeightMaps { weights: w_map, factors: CodeStage::of(plan).map(|_| k.tensor_map("factors")) };
        let x_map = k.tensor_map("x");
        let results = HopperResults::parameters(k, plan, finish, custom);
        if let Err(error) = finish.check(plan) {
            return k.refuse(&error);
        }
        if custom.is_some() && (finish.heads.is_some() || finish.best) {
            let what = "the number of custom steps where heads are appended or the largest result is kept";
            return k.refuse(&PlanError::Setting { what, found: 1, wanted: "0" });
        }
        k.when(k.tid().eq(32 * warps), || {
            w_map.prefetch_map();
            x_map.prefetch_map();
        });
        let block = BlockShare::new(k, plan);
        let weights = block.weights(32 * warps, maps);
        let vectors = Ring::bulk::<ActivationRing>(k, (plan.x_stage(),), plan.x_ring());
        let exchange = (tuning.splits > 1).then(|| Exchange::new(k, plan));
        let (weights, vectors) = start(k, (weights, vectors));
        k.grid_launch();
        let room = plan.room(k, weights.memory().0);
        let (mut fill_weights, weights) = weights.split();
        let (mut fill_vectors, vectors) = vectors.split();
        let mut inputs = HopperInputs { weights, vectors: vectors.deferred() };
        let arrive = |order| exchange.iter().for_each(|exchange| exchange.arrive(k, order));
        let meet = || exchange.iter().for_each(|exchange| exchange.meet(k));
        let mut multiply = || {
            arrive(ClusterArriveOrder::Release);
            block.multiply(&mut inputs, room, exchange, &results);
        };
        let fetch_weights = || {
            arrive(ClusterArriveOrder::Relaxed);
            k.moving().when(k.lane().eq(0), || block.fetch_weights(&mut fill_weights, maps));
            meet();
        };
        let fetch_vectors = || {
            arrive(ClusterArriveOrder::Relaxed);
            // Everything that earlier grids wrote comes in here, or after it.
            k.grid_wait();
            k.moving().when(k.lane().eq(0), || block.fetch_vectors(&mut fill_vectors, x_map));
            meet();
        };
        let fetch: [(u32, Box<dyn FnOnce()>); 2] =
            [(warps + 1, Box::new(fetch_weights)), (warps + 2, Box::new(fetch_vectors))];
        match plan.dealt() {
            None => {
                k.moving().roles([(warps, Box::new(multiply) as Box<dyn FnOnce()>)].into_iter().chain(fetch).collect())
            }
            Some([few, many]) => {
                let idle = || {
                    arrive(ClusterArriveOrder::Relaxed);
                    meet();
                };
                let rest = || {
                    k.registers_down(few);
                    k.moving()
                        .roles(fetch.into_iter().chain([(warps + 4, Box::new(idle) as Box<dyn FnOnce()>)]).collect());
                };
                let first = || {
                    k.registers_up(many);
                    multiply();
                };
                k.moving().if_else(k.warp().lt(warps), first, rest);
            }
        }
        if tuning.cluster() > 1 {
            // No block exits while another may still send to it, wait for it, or receive what it
            // staged: an arriving block has all that is sent to it, and nothing that was stored is
            // waited for.
            k.cluster_arrive(ClusterArriveOrder::Relaxed);
            k.cluster_wait();
        }
    })
}

/// The launch of the kernel on a number of multiprocessors: weights are [`GemmBuffer::A`],
/// activations [`GemmBuffer::B`], results [`GemmBuffer::C`]. Arguments end before those that
/// [`gemv`] has in addition to bias and residual.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::gemv::{Epilogue, hopper};
/// use tilewright_kernels::weights::Strip;
/// let strip = Strip::new(4096, 8, 16384)?;
/// let tuning = hopper::choose(64, 14336, strip, 132, 8);
/// let plan = hopper::HopperPlan::new(64, 14336, strip, tuning)?;
/// let step = hopper::step(Arch::Sm90a, &plan, Epilogue::default(), 132);
/// assert_eq!((step.kernel.name.as_str(), step.grid), ("gemv_wgmma_b64_n14336_k4096", 128));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn step<'f>(
    arch: Arch,
    plan: &HopperPlan,
    finish: impl Into<CustomGemvEpilogue<'f>>,
    multiprocessors: u32,
) -> PlannedLaunch {
    let finish = finish.into();
    let epilogue = finish.epilogue.epilogue;
    let factors = CodeStage::of(plan).map(|codes| (GemmBuffer::A, codes.factors_map(plan)));
    let maps =
        [(GemmBuffer::A, plan.weights_map())].into_iter().chain(factors).chain([(GemmBuffer::B, plan.vectors_map())]);
    let mut arguments: Vec<Argument> = maps.map(|(buffer, shape)| Argument::Map(buffer, shape)).collect();
    arguments.push(Argument::Pointer(GemmBuffer::C));
    arguments.extend(epilogue.bias.then_some(Argument::Pointer(GemmBuffer::Bias)));
    arguments.extend(epilogue.residual.then_some(Argument::Pointer(GemmBuffer::Residual)));
    let custom = finish.custom.is_some();
    PlannedLaunch { kernel: gemv(arch, plan, finish), grid: plan.blocks(multiprocessors), arguments, custom }
}
