//! The assembler's report of the attention kernels: no spills, no serialised `wgmma`, as the page
//! records.

use tilewright_codegen::assemble::{Ptxas, Table};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::tanh;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright_kernels::attention::{
    AttentionMask, CustomMask, CustomProducts, MergeRows, ScaledProducts, ScoreVariant, TileVisibility,
};
use tilewright_kernels::kv::{CpAsync, Staged, Tma};

/// Neither a soft cap nor a window.
const PLAIN: ScoreVariant = ScoreVariant::NONE;

fn kernels() -> Vec<Kernel> {
    let mut all = Vec::new();
    for (depth, group) in [(64, 4), (96, 1), (128, 4), (128, 16), (256, 8)] {
        let decode =
            Decode { depth, value_depth: None, group, layout: Layout::Dense, tile: 16, scores: PLAIN, lse: false };
        all.push(decode.record::<Tma<3>>(Arch::Sm90a));
        if depth < 256 {
            all.push(Decode { tile: 32, ..decode }.record::<Tma<2>>(Arch::Sm90a));
            all.push(Decode { tile: 32, ..decode }.record_staying::<Tma<2>>(Arch::Sm90a));
            all.push(decode.record::<CpAsync<2>>(Arch::Sm80));
        }
    }
    let dense =
        Decode { depth: 128, value_depth: None, group: 4, layout: Layout::Dense, tile: 16, scores: PLAIN, lse: false };
    all.push(
        Decode { layout: Layout::Paged { page_tokens: 16, swizzled: false }, ..dense }.record::<Tma<3>>(Arch::Sm90a),
    );
    all.push(dense.record::<Staged<1, true>>(Arch::Sm80));
    let wide = Decode { depth: 192, value_depth: Some(128), ..dense };
    all.extend([wide.record::<Tma<2>>(Arch::Sm90a), wide.record::<CpAsync<2>>(Arch::Sm80)]);
    for depth in [64, 96, 128, 256] {
        for causal in [false, true] {
            let queries = QueryLayout::HeadMajor;
            let kv = Kv::HeadMajor;
            let prefill =
                Prefill { depth, value_depth: None, group: 1, causal, queries, kv, scores: PLAIN, lse: false };
            all.push(prefill.record_hopper());
        }
    }
    let paged = Kv::Paged { page_tokens: 16, swizzled: false };
    let queries = QueryLayout::Ragged;
    let ragged = Prefill {
        depth: 128,
        value_depth: None,
        group: 4,
        causal: true,
        queries,
        kv: paged,
        scores: PLAIN,
        lse: false,
    };
    all.push(ragged.record_hopper());
    for queries in [QueryLayout::HeadMajor, QueryLayout::Ragged] {
        let wide = Prefill { depth: 192, value_depth: Some(128), group: 1, queries, kv: Kv::HeadMajor, ..ragged };
        all.extend([false, true].map(|causal| Prefill { causal, ..wide }.record_hopper()));
        all.push(wide.record::<CpAsync<2>>(Arch::Sm80));
    }
    for depth in [64, 96, 128] {
        all.push(Prefill { depth, ..ragged }.record::<CpAsync<2>>(Arch::Sm80));
    }
    // Pools of the megakernel.
    let pool = Prefill { kv: Kv::Paged { page_tokens: 64, swizzled: true }, ..ragged };
    for depth in [32, 64, 128] {
        all.push(Prefill { depth, ..pool }.record_hopper());
        all.push(Prefill { depth, ..pool }.record::<CpAsync<2>>(Arch::Sm80));
    }
    all.extend(modified(dense, pool));
    // With the log-sum-exp of rows, as the ops of the facade have it.
    let scores = ScoreVariant { soft_cap: true, window: true, sinks: true };
    for depth in [64, 128, 256] {
        let decode = Decode { depth, value_depth: None, group: 4, lse: true, scores, ..dense };
        all.push(decode.record::<CpAsync<3>>(Arch::Sm80));
        for scores in [PLAIN, scores] {
            let prefill = Prefill { depth, lse: true, scores, ..ragged };
            all.push(prefill.record_hopper());
            if depth < 256 {
                all.push(prefill.record::<CpAsync<2>>(Arch::Sm80));
            }
        }
    }
    all.extend(of_ones_own(dense, Prefill { group: 1, ..ragged }));
    all.extend([Arch::Sm80, Arch::Sm90a].map(|arch| MergeRows { depth: 128, lse: true }.record(arch)));
    all
}

/// Kernels with score modifiers: the heads of Gemma 2, and windows alone as Mistral has them.
fn modified(decode: Decode, prefill: Prefill) -> Vec<Kernel> {
    let both = ScoreVariant { soft_cap: true, window: true, sinks: false };
    let window = ScoreVariant { window: true, ..PLAIN };
    let mut all = Vec::new();
    let sinks = ScoreVariant { sinks: true, ..window };
    for (depth, scores) in [(128, window), (128, both), (256, both), (64, sinks)] {
        let layout = Layout::Paged { page_tokens: 64, swizzled: true };
        let decode = Decode { depth, value_depth: None, group: 2, scores, layout, ..decode };
        all.push(decode.record::<Tma<3>>(Arch::Sm90a));
        all.push(Decode { tile: 32, ..decode }.record_staying::<Tma<2>>(Arch::Sm90a));
        all.push(Prefill { depth, group: 2, scores, ..prefill }.record_hopper());
        if depth < 256 {
            all.push(decode.record::<CpAsync<2>>(Arch::Sm80));
            all.push(Prefill { depth, group: 2, scores, ..prefill }.record::<CpAsync<2>>(Arch::Sm80));
        }
    }
    all
}

/// A soft cap as a score function, and a window as a mask.
fn of_ones_own(decode: Decode, prefill: Prefill) -> Vec<Kernel> {
    let cap = CustomProducts(&|k, scale| {
        let cap = k.param::<f32>("cap");
        let rate = scale / cap;
        ScaledProducts { factor: cap, function: Box::new(move |_, product| tanh(product * rate)) }
    });
    let window = CustomMask(&|k| {
        let width = k.param::<u32>("width");
        AttentionMask {
            tile: Box::new(move |at| TileVisibility {
                any: (at.last_token + width).gt(at.first_query),
                all: (at.first_token + width).gt(at.last_query),
            }),
            sees: Box::new(move |at| (at.token + width).gt(at.query)),
        }
    });
    let mut all = vec![decode.mask(window).record::<Tma<3>>(Arch::Sm90a)];
    for depth in [64, 128, 256] {
        let prefill = Prefill { depth, ..prefill };
        all.push(prefill.mask(window).record_hopper());
        all.push(prefill.products(cap).mask(window).record_hopper());
        if depth < 256 {
            all.push(prefill.products(cap).mask(window).record::<CpAsync<2>>(Arch::Sm80));
        }
    }
    all
}

#[test]
fn no_spills() {
    let Some(ptxas) = Ptxas::find().expect("the assembler runs") else { return };
    let mut table = Table::new("Attention", &ptxas).sampled(Sample::one_of(3));
    for kernel in kernels() {
        if !table.takes_next() {
            continue;
        }
        let name = kernel.name.clone();
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        table.add(&kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ptxas/attention.md");
    table.check(page.as_ref()).unwrap_or_else(|error| panic!("{error}"));
}
