//! Padded voxels: every element by its coordinates, zeros around, gaps untouched.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Outside, Promotion, TensorShape, TileSwizzle, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_layout::DType;
use tilewright_layout::typed::StaticLayout;

use crate::gallery::channels_first::{Voxels, channels_first};
use crate::stored;
use crate::tile::Float;
use crate::tile::box_extents;

pub(super) fn record_voxels(arch: Arch) -> Kernel {
    recorded::<Voxels<2, 4, 8, 4>>(arch)
}

pub(super) fn draw_voxels(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let boxes = [on_trial::<Voxels<2, 4, 8, 4>>, on_trial::<Voxels<1, 3, 5, 8>>, on_trial::<Voxels<2, 2, 2, 12>>];
    boxes[(seed % 3) as usize](arch, seed)
}

fn recorded<L: StaticLayout>(arch: Arch) -> Kernel {
    record("channels_first", arch, block(128), channels_first::<L>)
}

fn on_trial<L: StaticLayout>(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let size: [u32; 5] = core::array::from_fn(|mode| L::LAYOUT.extent(mode) as u32);
    let images = draw.between(1..=2);
    let pad = draw.between(0..=3);
    // Voxels of x along depth, height, width; its strides from the innermost out, multiples of 16
    // bytes.
    let inner = [0, 1, 2].map(|_| draw.between(1..=9));
    let channels = size[4];
    let mut strides = [1, channels + 4 * draw.between(0..=1), 0, 0, 0];
    for axis in 2..5 {
        strides[axis] = strides[axis - 1] * inner[4 - axis] + 4 * draw.between(0..=1);
    }
    let x = stored::numbers(draw, Float::F32, strides[4] * images, 1.0);
    // Extents of y (channel, depth, height, width); its strides.
    let outer = inner.map(|extent| extent + 2 * pad);
    let row = outer[2] + draw.between(0..=2);
    let plane = row * outer[1] + draw.between(0..=2);
    let channel = plane * outer[0] + draw.between(0..=2);
    let image = channel * channels + draw.between(0..=2);
    let mut y = vec![f64::NAN; (image * images) as usize];
    for n in 0..images {
        for (c, d) in (0..channels).flat_map(|c| (0..outer[0]).map(move |d| (c, d))) {
            for (h, w) in (0..outer[1]).flat_map(|h| (0..outer[2]).map(move |w| (h, w))) {
                let inside = [d, h, w].iter().zip(inner).all(|(&at, extent)| at >= pad && at < pad + extent);
                let at = || {
                    let voxel = (d - pad) * strides[3] + (h - pad) * strides[2] + (w - pad) * strides[1];
                    (n * strides[4] + voxel + c) as usize
                };
                let to = n * image + c * channel + d * plane + h * row + w;
                y[to as usize] = if inside { x[at()] } else { 0.0 };
            }
        }
    }
    let tiles = [0, 1, 2].map(|axis| outer[axis].div_ceil(size[axis + 1]));
    let note = format!("{images}×{channels}×{inner:?}, {pad} around");
    let blocks = images * tiles.iter().product::<u32>();
    let mut trial = Trial::new(verify(recorded::<L>(arch))?, blocks).note(note);
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, Bound { absolute: 0.0, relative: 0.0 });
    let shape = TensorShape {
        dtype: DType::F32,
        dims: [channels, inner[2], inner[1], inner[0], images].map(u64::from).to_vec(),
        strides: strides[1..].iter().map(|&stride| u64::from(stride) * 4).collect(),
        tile: box_extents::<f32, L>(),
        swizzle: TileSwizzle::None,
        outside: Outside::Zero,
        promotion: Promotion::None,
    };
    let extents = [images, outer[0], outer[1], outer[2]];
    let trial = extents.into_iter().chain([image, channel, plane, row, pad]).fold(trial, Trial::pass);
    Ok(trial.map(input, shape).pass(output))
}
