//! Strips of codes: what the packer writes, by the layout's inverse and by a decoder that knows the
//! format's text alone.

use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::trial::Draw;
use tilewright_kernels::naive;
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{CodePacker, Codes, Strip, StripError};

/// A random matrix: codes that are numbers, zeros in the range, scales of a type.
fn matrix(draw: &mut Draw, [n, k, group]: [usize; 3], code: Code, zeros: bool, scale: Float) -> QuantMatrix {
    let row = k.div_ceil(8 / code.bits());
    let codes = (0..n * row).map(|_| draw.between(0..=0xff) as u8 & 0xf7).collect();
    let groups = n * k.div_ceil(group);
    let scale = |value: f64| match scale {
        Float::F32 => value as f32,
        Float::F16 => f16::from_f64(value).to_f32(),
        Float::Bf16 => bf16::from_f64(value).to_f32(),
    };
    let scales = (0..groups).map(|_| scale(draw.unit().abs())).collect();
    let (low, high) = code.range();
    let zero = |draw: &mut Draw| low as i16 + draw.between(0..=(high - low) as u32) as i16;
    let zeros = match zeros && code.is_integer() {
        true => Zeros::Each((0..groups).map(|_| zero(draw)).collect()),
        false => Zeros::Same(code.middle()),
    };
    QuantMatrix::new(QuantParts { n, k, code, group, codes, scales, zeros, order: None }).expect("sound")
}

/// A random matrix of blocks: codes, an `e4m3` for each sixteen, and the tensor's scale.
fn blocks(draw: &mut Draw, [n, k]: [usize; 2]) -> QuantMatrix {
    let tensor = draw.unit().abs() as f32 + 0.1;
    let codes = (0..n * k.div_ceil(2)).map(|_| draw.between(0..=0xff) as u8).collect();
    let scales = (0..n * k.div_ceil(16)).map(|_| Code::E4m3.value(draw.between(0..=0x7e) as u8) * tensor).collect();
    let code = Code::E2m1;
    let zeros = Zeros::Same(0);
    let parts = QuantParts { n, k, code, group: 16, codes, scales, zeros, order: None };
    QuantMatrix::new(parts).expect("sound").with_tensor_scale(tensor)
}

/// The weight (row, k) of a stage, decoded from its bytes as the page describes: lane, step, pair,
/// half.
fn decoded(strip: Strip, codes: Codes, memory: &[u8], row: usize, k: usize) -> f64 {
    let bits = codes.code.bits();
    let depth = if bits == 4 { 128 } else { 64 };
    let tile = k / depth;
    let within = k % depth;
    let step = within / 32;
    let (quarter, element) = match codes.group {
        // Four of the first half of the step, then four of the second.
        Some(group) if group % 32 > 0 => (within % 16 / 4, within % 4 + within % 32 / 16 * 4),
        Some(_) | None => (within % 32 / 8, within % 8),
    };
    let lane = 4 * row + quarter;
    let start = tile * 512 + lane * 16;
    let code = if bits == 4 {
        let nibble = match codes.code {
            Code::E2m1 => element % 2 * 2 + element / 2 % 2 * 4 + element / 4,
            _ => element % 2 * 4 + element / 2,
        };
        memory[start + step * 4 + nibble / 2] >> (4 * (nibble % 2)) & 15
    } else if codes.code == Code::E4m3 {
        memory[start + step * 8 + element]
    } else {
        memory[start + step * 8 + element / 4 * 4 + element % 2 * 2 + element % 4 / 2]
    };
    let tiles = memory_of_tiles(strip);
    let blocks = if codes.blocks { tiles / 512 * 64 } else { 0 };
    let all = tiles + blocks;
    // Eight bytes of a row: of the first half of each step, then of the second.
    let of_block = |codes: Codes| match codes.blocks {
        true => f64::from(Code::E4m3.value(memory[tiles + tile * 64 + row * 8 + within % 32 / 16 * 4 + step])),
        false => 1.0,
    };
    let group = k / strip.span() as usize * 8 + row;
    let wide = codes.scale.bytes() as usize;
    let at = |start: usize, wide: usize| &memory[start + group * wide..][..wide];
    let scale = match codes.scale {
        Float::F32 => f32::from_le_bytes(at(all, 4).try_into().expect("4 bytes")),
        Float::F16 => f16::from_le_bytes(at(all, 2).try_into().expect("2 bytes")).to_f32(),
        Float::Bf16 => bf16::from_le_bytes(at(all, 2).try_into().expect("2 bytes")).to_f32(),
    };
    let zeros = all + strip.stage_k() as usize / strip.span() as usize * 8 * wide;
    let zero = || bf16::from_le_bytes(at(zeros, 2).try_into().expect("2 bytes")).to_f64();
    let value = match codes.code {
        Code::U4 | Code::U8 if codes.zeros => f64::from(code) - zero(),
        Code::U4 => f64::from(code) - 8.0,
        Code::U8 => f64::from(code) - 128.0,
        code_of => f64::from(code_of.value(code)) * of_block(codes),
    };
    value * f64::from(scale)
}

fn memory_of_tiles(strip: Strip) -> usize {
    (strip.stage_tiles() * 512) as usize
}

const CODES: [Code; 6] = [Code::U4, Code::I4, Code::U8, Code::I8, Code::E4m3, Code::E2m1];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn stages_hold_the_matrix(
        k in 1usize..900, warps in 1u32..5, most in 1u32..4, which in 0usize..6, group in 0usize..7, zeros: bool,
        scale in 0usize..3, missing in 0usize..9, seed: u64,
    ) {
        let code = CODES[which];
        let scale = [Float::F32, Float::F16, Float::Bf16][scale];
        let group = [k, 32, 64, 96, 128, 16, 48][group];
        // Halves of a step are groups in whole steps.
        let k = if group % 32 > 0 && group < k { k.next_multiple_of(32) } else { k };
        let group = if group > k { k } else { group };
        let matrix = matrix(&mut Draw::new(seed), [8, k, group], code, zeros, scale);
        let codes = Codes::of(&matrix).expect("a device has it");
        let strip = Strip::of_codes(k as u32, warps, most * warps * 512, codes).expect("a strip");
        prop_assert!(codes.holds(&matrix) && strip.padded_k() as usize >= k);
        prop_assert!(strip.stage_layout().is_bijective());
        let packer = CodePacker::new(strip).expect("codes");
        let expected: Vec<f64> = naive::dequantize(&matrix);
        let rows = std::array::from_fn(|row| (row != missing).then_some((&matrix, row)));
        let mut memory = vec![0xa5; strip.stage_bytes() as usize];
        for stage in 0..strip.stages() {
            packer.pack_stage(stage, &rows, &mut memory);
            let unpacked = packer.unpack(&memory);
            let first = (stage * strip.stage_k()) as usize;
            for row in 0..8 {
                for at in 0..strip.stage_k() as usize {
                    let value = decoded(strip, codes, &memory, row, at);
                    let inside = first + at < k && row != missing;
                    let wanted = if inside { expected[row * k + first + at] } else { 0.0 };
                    prop_assert_eq!(if inside { value } else { value * 0.0 }, wanted, "row {}, k {}", row, first + at);
                    let flip = match code { Code::I4 => 8, Code::I8 => 128, _ => 0 };
                    let stored = if inside { matrix.bits(row, first + at) ^ flip } else { 0 };
                    prop_assert_eq!(unpacked[row][at], stored);
                }
            }
        }
    }

    /// Blocks have their `e4m3` after the tiles; what is decoded is the matrix but for the rounding
    /// of two scales to one.
    #[test]
    fn stages_hold_blocks(k in 17usize..900, warps in 1u32..5, most in 1u32..4, missing in 0usize..9, seed: u64) {
        let matrix = blocks(&mut Draw::new(seed), [8, k]);
        let codes = Codes::of(&matrix).expect("a device has it");
        prop_assert_eq!(codes, Codes::of_blocks());
        let strip = Strip::of_codes(k as u32, warps, most * warps * 512, codes).expect("a strip");
        let packer = CodePacker::new(strip).expect("codes");
        let expected: Vec<f64> = naive::dequantize(&matrix);
        let rows = std::array::from_fn(|row| (row != missing).then_some((&matrix, row)));
        let mut memory = vec![0xa5; strip.stage_bytes() as usize];
        for stage in 0..strip.stages() {
            packer.pack_stage(stage, &rows, &mut memory);
            for row in 0..8 {
                for (at, column) in strip.columns(stage).enumerate() {
                    let wanted = if row == missing { 0.0 } else { expected[row * k + column] };
                    let found = decoded(strip, codes, &memory, row, at);
                    prop_assert!((found - wanted).abs() <= wanted.abs() * 2f64.powi(-23), "row {} k {}", row, column);
                }
            }
        }
        // Beside others' groups both scales are one, as of any groups of sixteen.
        let fine = Codes::new(Code::E2m1, Some(32), false, Float::Bf16).expect("a form");
        let joined = codes.join(fine).expect("of one code");
        prop_assert_eq!((joined.blocks, joined.group, joined.scale), (false, Some(16), Float::F32));
        prop_assert!(joined.holds(&matrix) && codes.holds(&matrix) && !fine.holds(&matrix));
    }

    /// Neighbouring forms of a stream: both matrices are held, and factors are the finer ones.
    #[test]
    fn joined_forms_hold_both(a in 1usize..8, b in 1usize..8, zeros: [bool; 2]) {
        let form = |group: usize, zeros| Codes::new(Code::U4, Some(32 * group), zeros, Float::Bf16).expect("a form");
        let joined = form(a, zeros[0]).join(form(b, zeros[1])).expect("of one code");
        let group = joined.group.expect("groups") as usize;
        prop_assert!(a * 32 % group == 0 && b * 32 % group == 0);
        prop_assert_eq!(joined.zeros, zeros[0] || zeros[1]);
        let other = Codes::new(Code::U8, None, false, Float::Bf16).expect("a form");
        prop_assert_eq!(joined.join(other), None);
    }
}

#[test]
fn what_a_device_has_no_form_for_is_named() {
    let mut draw = Draw::new(1);
    let mut parts = matrix(&mut draw, [8, 64, 16], Code::I8, false, Float::F32).parts().clone();
    let of =
        |parts: &QuantParts| Codes::of(&QuantMatrix::new(parts.clone()).expect("sound")).map_err(|e| e.to_string());
    assert!(of(&parts).is_ok());
    let odd = matrix(&mut draw, [8, 64, 24], Code::I8, false, Float::F32).parts().clone();
    assert_eq!(of(&odd), Err("has groups of 24, no multiple of 16".into()));
    let codes = Codes::new(Code::E2m1, Some(16), false, Float::F32).expect("a form");
    assert_eq!(Strip::of_codes(48, 1, 512, codes), Err(StripError::Halves { k: 48, group: 16 }));
    // Codes with an order of their own lie place by place.
    (parts.group, parts.scales) = (64, parts.scales.iter().step_by(4).copied().collect());
    let plain = of(&parts);
    parts.order = Some((0..64).rev().collect());
    assert!(plain.is_ok() && of(&parts) == plain);
}

#[test]
fn stages_are_cut_for_little_padding_and_many_bytes() {
    let cut = |k: u32, code: Code| {
        let codes = Codes::new(code, Some(128), false, Float::Bf16).expect("a form");
        let strip = Strip::of_codes(k, 8, 16384, codes).expect("a strip");
        (strip.stages(), strip.stage_bytes(), strip.padded_k())
    };
    assert_eq!(cut(2048, Code::U4), (1, 8192 + 256, 2048));
    assert_eq!(cut(4096, Code::U4), (1, 16384 + 512, 4096));
    assert_eq!(cut(8192, Code::U4), (2, 16384 + 512, 8192));
    // 14 rounds of 8 tiles: five stages of three have one of padding; four of four have two, seven
    // of two are small.
    assert_eq!(cut(14336, Code::U4), (5, 12288 + 384, 15360));
    assert_eq!(cut(14336, Code::U8), (7, 16384 + 256, 14336));
}
