//! The kernel that writes rows as 8-bit floats with a scale for each 128 elements: the activations
//! of products by blocks.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::attr::Fp8;
use tilewright_codegen::ir::{Arch, Kernel};

use crate::pdl::trigger_and_wait;
use crate::tile::{Float, Modes, StoredTensor};

/// Elements of a block.
pub const BLOCK: u32 = 128;
/// The largest number of e4m3.
const LARGEST: f32 = 448.0;
/// The least of a block's largest numbers: one of zeros has a scale above 0.
const LEAST: f32 = 1e-4;
/// Warps of a thread block, each of which has a block of a row.
const WARPS: u32 = 8;
/// Elements of a lane.
const EACH: u32 = BLOCK / 32;

/// The grid of [`quantize_rows`] for a number of blocks: a warp for each.
pub fn quantize_grid(blocks: u32) -> u32 {
    blocks.div_ceil(WARPS)
}

/// The kernel `quantize_rows`: for each block of 128 elements of a row, `scale = max(|x|) / 448` and
/// `codes = x / scale` as e4m3, from sm_89 on. A block of numbers below 10⁻⁴ has the scale
/// 10⁻⁴ / 448.
///
/// Parameters: `blocks` (`rows · ⌈width / 128⌉`), `x` (`[rows, width]`), `codes` (bytes, the same
/// extents) and `scales` (f32, `[rows, ⌈width / 128⌉]`). The grid is [`quantize_grid`]; `width` is a
/// multiple of 4. Buffers are aligned to 16 bytes.
///
/// ```
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::quant::quantize_rows;
/// use tilewright_kernels::tile::Float;
/// assert_eq!(quantize_rows(Arch::Sm90a, 2048, Float::Bf16).name, "quantize_rows");
/// ```
pub fn quantize_rows(arch: Arch, width: u32, x: Float) -> Kernel {
    let of_row = width.div_ceil(BLOCK);
    record("quantize_rows", arch, block(32 * WARPS), |k| {
        trigger_and_wait(k);
        let blocks = k.param::<u32>("blocks");
        let numbers = k.global::<u8>("x");
        let codes = k.global::<u8>("codes");
        let scales = k.global::<f32>("scales");
        let number = k.block_id() * WARPS + k.warp();
        k.when(number.lt(blocks), || {
            let [row, column] = [number / of_row, number % of_row * BLOCK + k.lane() * EACH];
            let rows = Modes::row_major([(1 << 31).into(), width.into()], width).vectors(EACH);
            let run = StoredTensor::new(numbers, x, rows).inside().slice::<1>([Some(row.into()), None]);
            let run = run.vectorize::<0, { EACH as usize }>();
            let values = k.regs(EACH, 0.0f32);
            // A row's last block may have fewer elements.
            k.when(column.lt(width), || {
                (0..).zip(run.load([(column / EACH).into()])).for_each(|(i, value)| values.set(i, value));
            });
            let values: Vec<_> = (0..EACH).map(|i| values.get(i)).collect();
            let largest = values.iter().fold(k.lit(LEAST), |largest, value| largest.max(value.abs()));
            let scale = largest.warp_reduce(|a, b| a.max(b)).div_rn(LARGEST);
            let code = |i: usize| values[i].div_rn(scale);
            let pairs = [0, 2].map(|i| code(i).pair_fp8(code(i + 1), Fp8::E4M3));
            k.when(column.lt(width), || {
                codes.at(row.mul_wide(width)).at(column).cast::<u16>().store_vec(pairs);
            });
            k.when(k.lane().eq(0), || scales.at(number).store(scale));
        });
    })
}
