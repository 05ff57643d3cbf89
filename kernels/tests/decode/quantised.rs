//! Quantised matrices for trials, and how they lie in strips.

use half::{bf16, f16};
use tilewright_codegen::trial::Draw;
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{CodePacker, Codes, Strip};

/// The codes that are numbers.
fn known(code: Code) -> Vec<u8> {
    (0..code.count()).map(|bits| bits as u8).filter(|&bits| !code.value(bits).is_nan()).collect()
}

/// Codes of rows, packed.
fn packed(code: Code, k: usize, codes: &[u8]) -> Vec<u8> {
    let row = |row: &[u8]| match code.bits() {
        4 => row.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)).collect::<Vec<_>>(),
        _ => row.to_vec(),
    };
    codes.chunks(k).flat_map(row).collect()
}

/// A random matrix of a form. `whole`: its scales are 1.
pub fn quantised(draw: &mut Draw, [n, k]: [usize; 2], form: Codes, whole: bool) -> QuantMatrix {
    let code = form.code;
    let group = form.group.map_or(k, |group| group as usize);
    let group = if form.blocks { 16 } else { group };
    let known = known(code);
    let groups = n * k.div_ceil(group);
    let codes: Vec<u8> = (0..n * k).map(|_| known[draw.between(0..=known.len() as u32 - 1) as usize]).collect();
    // Products of strip size, whatever the code's range.
    let most = f64::from(code.range().1 - f32::from(code.middle()));
    let tensor = draw.unit().abs() as f32 / 64.0 + 0.01;
    let scale = |draw: &mut Draw| match form.scale {
        _ if whole => 1.0,
        _ if form.blocks => Code::E4m3.value(draw.between(0..=0x60) as u8) * tensor,
        Float::F32 => (draw.unit().abs() / most) as f32,
        Float::F16 => f16::from_f64(draw.unit().abs() / most).to_f32(),
        Float::Bf16 => bf16::from_f64(draw.unit().abs() / most).to_f32(),
    };
    let scales = (0..groups).map(|_| scale(draw)).collect();
    let (low, high) = code.range();
    let zero = |draw: &mut Draw| low as i16 + draw.between(0..=(high - low) as u32) as i16;
    let zeros = match form.zeros {
        true => Zeros::Each((0..groups).map(|_| zero(draw)).collect()),
        false => Zeros::Same(code.middle()),
    };
    let codes = packed(code, k, &codes);
    let parts = QuantParts { n, k, code, group, codes, scales, zeros, order: None };
    let matrix = QuantMatrix::new(parts).expect("sound");
    if form.blocks { matrix.with_tensor_scale(tensor) } else { matrix }
}

/// Every code in every column: row r has code r, and its zero is another for each row.
pub fn every_code(form: Codes, [n, k]: [usize; 2]) -> QuantMatrix {
    let code = form.code;
    let known = known(form.code);
    let codes: Vec<u8> = (0..n * k).map(|at| known[(at / k) % known.len()]).collect();
    let group = form.group.map_or(k, |group| group as usize);
    let groups = k.div_ceil(group);
    let (low, high) = code.range();
    let zero = |row: usize| low as i16 + ((row * 7 + 3) % ((high - low) as usize + 1)) as i16;
    let zeros = match form.zeros {
        true => Zeros::Each((0..n * groups).map(|at| zero(at / groups)).collect()),
        false => Zeros::Same(code.middle()),
    };
    let codes = packed(code, k, &codes);
    let scales = vec![1.0 + f32::EPSILON * 8192.0; n * groups];
    QuantMatrix::new(QuantParts { n, k, code, group, codes, scales, zeros, order: None }).expect("sound")
}

/// Every `e2m1` with every `e4m3` as the scale of a block: row r has code r, block b the scale of
/// bits b, from 0 on again after the last number.
pub fn every_block(k: usize) -> QuantMatrix {
    let code = Code::E2m1;
    let group = 16;
    let tensor = 0.8125;
    let codes: Vec<u8> = (0..16 * k).map(|at| (at / k) as u8).collect();
    let codes = packed(code, k, &codes);
    let blocks = k.div_ceil(group);
    let scales = (0..16 * blocks).map(|at| Code::E4m3.value((at % blocks % 127) as u8) * tensor).collect();
    let parts = QuantParts { n: 16, k, code, group, codes, scales, zeros: Zeros::Same(0), order: None };
    QuantMatrix::new(parts).expect("sound").with_tensor_scale(tensor)
}

/// The rows as strips of eight, in the order of `order`, which says what rows each has; as words of
/// 16 bits.
pub fn pack_codes(strip: Strip, matrix: &QuantMatrix, order: &[[Option<usize>; 8]]) -> Vec<bf16> {
    let packer = CodePacker::new(strip).expect("a strip of codes");
    let mut bytes = vec![0xa5u8; order.len() * strip.bytes() as usize];
    for (rows, memory) in order.iter().zip(bytes.chunks_exact_mut(strip.bytes() as usize)) {
        packer.pack(&rows.map(|row| row.map(|row| (matrix, row))), memory);
    }
    bytes.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect()
}
