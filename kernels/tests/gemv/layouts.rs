//! Laws of the layouts: the weights' has an inverse, and both operands of an instruction agree on
//! every slot.

use half::bf16;
use proptest::prelude::*;
use tilewright_kernels::gemv::{GemvPlan, GemvTuning};
use tilewright_kernels::weights::{Octets, Strip, WeightTile, pack};
use tilewright_layout::Layout;
use tilewright_layout::fragment::{FragmentA, FragmentB, atoms};
use tilewright_layout::typed::StaticLayout;

/// Strips as the standalone kernel cuts them, and as the megakernel does.
fn strips(k: u32, warps: u32, stage_tiles: u32) -> [Strip; 2] {
    let plan = GemvPlan::new(1, k, 1, GemvTuning { warps, stage_tiles, ..GemvTuning::h100(1) }).expect("a plan");
    [plan.strip, Strip::new(k, warps, stage_tiles * warps * 512).expect("a strip")]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_weights_lie_where_the_layout_says(n in 1u32..40, k in 1u32..700, warps in 1u32..9, stage_tiles in 1u32..33) {
        for strip in strips(k, warps, stage_tiles) {
            prop_assert!(strip.padded_k() >= k && strip.stage_tiles() <= stage_tiles * warps);
            let layout = strip.layout(n.div_ceil(8));
            prop_assert!(layout.is_bijective(), "no two weights share a place, and there is no gap");
            prop_assert_eq!(layout.extent(0), i64::from(n.next_multiple_of(8)));
            prop_assert_eq!(layout.extent(1), i64::from(strip.padded_k()));

            let w: Vec<bf16> = (0..n * k).map(|i| bf16::from_bits(i as u16 | 1)).collect();
            let packed = pack(&w, strip);
            prop_assert_eq!(packed.len() as i64, layout.size());
            // The definition: the inverse of the layout sends a place to the number of its element,
            // rows fastest.
            let inverse = layout.right_inverse();
            for (place, &value) in packed.iter().enumerate() {
                let number = inverse.at(place as i64);
                let row = number % layout.extent(0);
                let column = number / layout.extent(0);
                let inside = row < i64::from(n) && column < i64::from(k);
                let expected = if inside { w[(row * i64::from(k) + column) as usize] } else { bf16::ZERO };
                prop_assert_eq!(value, expected);
            }
        }
    }

    #[test]
    fn a_missing_row_is_zeros(k in 1u32..300, warps in 1u32..9, missing in 0usize..8) {
        let strip = Strip::new(k, warps, 512 * warps).expect("a strip");
        let row: Vec<bf16> = (0..k).map(|i| bf16::from_bits(i as u16 | 1)).collect();
        let mut packed = vec![bf16::ONE; strip.bytes() as usize / 2];
        strip.packer().pack(&core::array::from_fn(|at| (at != missing).then_some(&row[..])), &mut packed);
        let layout = strip.layout(1);
        for at in 0..8 * strip.padded_k() as usize {
            let row_at = at % 8;
            let column = at / 8;
            let expected = if row_at == missing || column >= k as usize { bf16::ZERO } else { row[column] };
            prop_assert_eq!(packed[layout.at(at as i64) as usize], expected);
        }
    }
}

/// The k of a tile that the kernel puts into register `register`, half `half` of a lane, in step
/// `step`: eight elements from 8·octet on, four to each step, pairs in order.
fn tile_k(lane: i64, step: i64, register: i64, half: i64) -> i64 {
    let octet = Octets::LAYOUT.right_inverse().at(lane) / 8;
    8 * octet + 4 * step + 2 * register + half
}

#[test]
fn every_slot_of_the_contraction_meets_its_partner() {
    type Atom = atoms::SM80_16x8x16_F32BF16BF16F32_TN;
    let (a, b): (Layout, Layout) = (FragmentA::<Atom>::LAYOUT, FragmentB::<Atom>::LAYOUT);
    for step in 0..2 {
        // Slot of the instruction's contraction to k, by both operands.
        let mut by_b = [None; 16];
        let mut by_a = [None; 16];
        for lane in 0..32 {
            for register in 0..2 {
                for half in 0..2 {
                    let k = tile_k(lane, step, register, half);
                    let row = Octets::LAYOUT.right_inverse().at(lane) % 8;
                    // B has n + 8·slot; its registers are the two pairs.
                    let at = b.at(lane + 32 * (half + 2 * register));
                    assert_eq!(at % 8, row, "lane {lane} holds weights of its row");
                    assert!(by_b[(at / 8) as usize].replace(k).is_none_or(|before| before == k));
                    // A has m + 16·slot; registers 0 and 2 are vectors 0 to 7, 1 and 3 the vectors
                    // 8 further.
                    for high in 0..2 {
                        let at = a.at(lane + 32 * (half + 2 * high + 4 * register));
                        assert_eq!(at % 16, row + 8 * high, "lane {lane} holds activations of its vectors");
                        assert!(by_a[(at / 16) as usize].replace(k).is_none_or(|before| before == k));
                    }
                }
            }
        }
        assert_eq!(by_a, by_b);
        let mut all: Vec<i64> = by_b.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 16);
    }
    assert_eq!(WeightTile::LAYOUT.size(), 256);
}
