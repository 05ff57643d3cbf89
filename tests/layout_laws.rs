//! Random layout expressions against the laws of the algebra, by brute force.
//!
//! Expressions are evaluated as text, as `tilewright layout eval` does. Every offset of every
//! result is enumerated, by the arithmetic of this file and not by the library's.
//! `TILEWRIGHT_LONG=1` tries 100,000 expressions instead of a sample.

use std::collections::{BTreeMap, BTreeSet};

use tilewright::algebra::{ExpressionRefusal, LayoutValue, evaluate};
use tilewright_layout::Layout;

const SEED: u64 = 40;

/// A random number generator (SplitMix64): a seed and a number of the expression name a case.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn range(&mut self, from: i64, to: i64) -> i64 {
        from + (self.next() % (to - from) as u64) as i64
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.range(0, items.len() as i64) as usize]
    }

    fn odds(&mut self, one_in: i64) -> bool {
        self.range(0, one_in) == 0
    }

    fn order(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            order.swap(i, self.range(0, i as i64 + 1) as usize);
        }
        order
    }

    /// Extents with many common divisors, so that operations meet both outcomes; at most 512
    /// coordinates.
    fn extents(&mut self, most: i64) -> Vec<i64> {
        let mut size = 1;
        let count = self.range(1, most + 1);
        (0..count)
            .map(|_| {
                let extent = self.pick(&[1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 8, 9, 12]);
                let extent = if size * extent > 512 { 1 } else { extent };
                size *= extent;
                extent
            })
            .collect()
    }

    /// Strides that fill memory in a random order of the modes, each mode followed by `room`
    /// elements at most.
    fn filling(&mut self, extents: &[i64], room: i64) -> Vec<i64> {
        let mut strides = vec![0; extents.len()];
        let mut span = 1;
        for mode in self.order(extents.len()) {
            strides[mode] = span;
            span = span * extents[mode] + if room > 0 { self.range(0, room + 1) } else { 0 };
        }
        strides
    }

    fn strides(&mut self, extents: &[i64]) -> Vec<i64> {
        match self.range(0, 10) {
            0..=3 => self.filling(extents, 0),
            4 => {
                let factor = self.range(2, 5);
                self.filling(extents, 0).into_iter().map(|stride| stride * factor).collect()
            }
            5 | 6 => self.filling(extents, 4),
            7 => extents.iter().map(|_| self.range(0, 20)).collect(),
            8 => extents.iter().map(|_| 1 << self.range(0, 6)).collect(),
            _ => extents.iter().map(|_| self.range(-12, 20)).collect(),
        }
    }

    /// The numbers as an integer, a tuple, or a tuple of integers and tuples; by the same choices
    /// for the same `nesting`.
    fn nested(values: &[i64], nesting: u64) -> String {
        let join = |values: &[i64]| values.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        match (values.len(), nesting % 4) {
            (1, 0..=2) => join(values),
            (len, 1) if len > 2 => format!("(({}),{})", join(&values[..2]), join(&values[2..])),
            (len, 2) if len > 2 => format!("({},({}))", values[0], join(&values[1..])),
            (len, 3) if len > 3 => format!("(({}),({}))", join(&values[..2]), join(&values[2..])),
            _ => format!("({})", join(values)),
        }
    }

    fn written(&mut self, extents: &[i64], strides: &[i64]) -> String {
        let nesting = self.next();
        format!("{}:{}", Random::nested(extents, nesting), Random::nested(strides, nesting))
    }

    /// A layout, or an expression of one.
    fn expression(&mut self) -> String {
        let extents = self.extents(4);
        let strides = self.strides(&extents);
        let layout = self.written(&extents, &strides);
        match self.range(0, 12) {
            0 => format!("coalesce({layout})"),
            1 => format!("flatten({layout})"),
            2 => format!("filter({layout})"),
            3 => format!("right_inverse({layout})"),
            4 => format!("make_layout_like({layout})"),
            _ => layout,
        }
    }

    fn layout(&mut self) -> (String, Layout) {
        loop {
            let text = self.expression();
            if let Ok(LayoutValue::Layout(layout)) = evaluate(&text)
                && layout.size() <= 512
            {
                return (text, *layout);
            }
        }
    }

    /// A layout whose strides fill memory in some order.
    fn compact(&mut self) -> (String, Layout) {
        let extents = self.extents(4);
        let strides = self.filling(&extents, 0);
        let text = self.written(&extents, &strides);
        let layout = Layout::parse(&text).unwrap();
        (text, layout)
    }

    /// A layout whose modes are integers.
    fn flat(&mut self) -> (String, Layout) {
        let extents = self.extents(3);
        let strides = self.strides(&extents);
        let text = format!("{}:{}", tuple(&extents), tuple(&strides));
        let layout = Layout::parse(&text).unwrap();
        (text, layout)
    }
}

fn tuple(values: &[i64]) -> String {
    format!("({})", values.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
}

/// Every extent with its stride, in reading order.
fn leaves(layout: &Layout) -> Vec<(i64, i64)> {
    layout.extents().iter().copied().zip(layout.strides().iter().copied()).collect()
}

/// The offsets of every index: the first mode fastest.
fn offsets_of(leaves: &[(i64, i64)]) -> Vec<i64> {
    leaves.iter().fold(vec![0], |inner, (extent, stride)| {
        (0..*extent).flat_map(|step| inner.iter().map(move |offset| offset + step * stride)).collect()
    })
}

fn offsets(layout: &Layout) -> Vec<i64> {
    offsets_of(&leaves(layout))
}

/// The offset of an index, along the last mode beyond the size.
fn at(layout: &Layout, index: i64) -> i64 {
    let leaves = leaves(layout);
    let mut rest = index;
    let mut offset = 0;
    for (i, (extent, stride)) in leaves.iter().enumerate() {
        let last = i + 1 == leaves.len();
        offset += if last { rest } else { rest % extent } * stride;
        rest /= extent;
    }
    offset
}

fn set(offsets: &[i64]) -> BTreeSet<i64> {
    offsets.iter().copied().collect()
}

fn sorted(mut offsets: Vec<i64>) -> Vec<i64> {
    offsets.sort_unstable();
    offsets
}

fn distinct(offsets: &[i64]) -> bool {
    set(offsets).len() == offsets.len()
}

fn injective(layout: &Layout) -> bool {
    distinct(&offsets(layout))
}

fn bijective(layout: &Layout) -> bool {
    sorted(offsets(layout)) == (0..layout.size()).collect::<Vec<_>>()
}

/// The modes that move: neither stride 0 nor one element.
fn moving(layout: &Layout) -> Vec<(i64, i64)> {
    leaves(layout).into_iter().filter(|(extent, stride)| *extent > 1 && *stride != 0).collect()
}

fn ascends(layout: &Layout) -> bool {
    moving(layout).iter().all(|(_, stride)| *stride > 0)
}

/// Whether each stride is a multiple of what the smaller ones span.
fn nests(layout: &Layout) -> bool {
    let mut modes = moving(layout);
    modes.sort_by_key(|(_, stride)| *stride);
    let mut span = 1;
    ascends(layout)
        && modes.into_iter().all(|(extent, stride)| {
            let fits = stride % span == 0;
            span = stride * extent;
            fits
        })
}

fn modes(layout: &Layout) -> Vec<Layout> {
    (0..layout.rank()).map(|mode| layout.mode(mode).unwrap()).collect()
}

/// The outcome of a law: `true` if the expression has a value, `false` if it is refused.
type Found = Result<bool, String>;

/// An evaluation of expressions: the command line's, or one with a planted bug.
struct Evaluator(fn(&str) -> Result<LayoutValue, ExpressionRefusal>);

impl Evaluator {
    fn value(&self, text: &str) -> Result<Option<LayoutValue>, String> {
        match (self.0)(text) {
            Ok(value) => Ok(Some(value)),
            Err(refusal) => {
                let line = refusal.to_string();
                let one = !line.is_empty() && !line.contains('\n');
                if one { Ok(None) } else { Err(format!("{text}: a refusal in {} lines", line.lines().count())) }
            }
        }
    }

    fn layout(&self, text: &str) -> Result<Option<Layout>, String> {
        match self.value(text)? {
            Some(LayoutValue::Layout(layout)) => Ok(Some(*layout)),
            Some(other) => Err(format!("{text} = {other} is not a layout")),
            None => Ok(None),
        }
    }

    /// The layout of an expression that must have one.
    fn total(&self, text: &str) -> Result<Layout, String> {
        self.layout(text)?.ok_or_else(|| format!("{text} is refused without need"))
    }
}

/// Fails with the expression unless `holds`.
fn must(holds: bool, text: &str, law: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{text}: broken: {law}")) }
}

/// A family of expressions: draws one, evaluates it and holds the result to the law.
type Law = fn(&mut Random, &Evaluator) -> Found;

const LAWS: &[(&str, Law)] = &[
    ("coalesce", coalesce),
    ("filter", filter),
    ("complement", complement),
    ("composition", composition),
    ("composition of one element", composition_of_one),
    ("composition by mode", composition_by_mode),
    ("divide", divide),
    ("divide by mode", divide_by_mode),
    ("evenly_divides", evenly_divides),
    ("product", product),
    ("product with room", product_with_room),
    ("blocked and raked product", blocked_product),
    ("tile_to_shape", tile_to_shape),
    ("right_inverse", right_inverse),
    ("left_inverse", left_inverse),
    ("nullspace", nullspace),
    ("max_common_layout", max_common),
    ("upcast", upcast),
    ("downcast", downcast),
    ("slice", slice),
    ("coordinates", coordinates),
    ("coordinates of offsets", coordinates_of_offsets),
    ("make_layout", make_layout),
    ("make_layout_like", make_layout_like),
    ("modes", rearranged_modes),
    ("expand_modes_alike", expand_modes_alike),
    ("shapes", shapes),
    ("swizzle", swizzle),
    ("swizzle inverses", swizzle_inverses),
];

fn coalesce(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let text = format!("coalesce({a})");
    let found = evaluator.total(&text)?;
    must(offsets(&found) == offsets(&layout), &text, "the function stays")?;
    let short = leaves(&found);
    let apart = short.windows(2).all(|pair| pair[0].0 > 1 && pair[1].0 > 1 && pair[0].0 * pair[0].1 != pair[1].1);
    must(apart, &text, "no neighbours merge")?;
    if !layout.is_leaf() && layout.rank() > 0 {
        let text = format!("coalesce({a}, {})", tuple(&vec![1; layout.rank()]));
        let found = evaluator.total(&text)?;
        must(found.rank() == layout.rank(), &text, "the modes stay")?;
        for (found, mode) in modes(&found).iter().zip(modes(&layout)) {
            must(offsets(found) == offsets(&mode), &text, "the function of each mode stays")?;
        }
    }
    Ok(true)
}

fn filter(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    for name in ["filter", "filter_zeros"] {
        let text = format!("{name}({a})");
        let found = evaluator.total(&text)?;
        must(set(&offsets(&found)) == set(&offsets(&layout)), &text, "the offsets stay")?;
        must(offsets(&found).len() == offsets_of(&moving(&layout)).len(), &text, "modes of stride 0 count once")?;
    }
    Ok(true)
}

fn complement(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let bound = random.range(1, 300);
    let text = format!("complement({a}, {bound})");
    let Some(rest) = evaluator.layout(&text)? else {
        let refused = !ascends(&layout) || !distinct(&offsets_of(&moving(&layout))) || !nests(&layout);
        return must(refused, &text, "refused without need").map(|()| false);
    };
    let starts = offsets(&rest);
    must(starts.windows(2).all(|pair| pair[0] < pair[1]), &text, "the starts ascend")?;
    let tile = offsets_of(&moving(&layout));
    let sums: Vec<i64> = starts.iter().flat_map(|start| tile.iter().map(move |offset| start + offset)).collect();
    must(distinct(&sums), &text, "no two copies share an offset")?;
    if nests(&layout) {
        let sums = set(&sums);
        must((0..bound).all(|offset| sums.contains(&offset)), &text, "copies fill the bound")?;
    }
    Ok(true)
}

/// Whether `found` is `left` after `right` wherever `right` stays inside.
fn composed(found: &Layout, left: &Layout, right: &Layout) -> bool {
    found.size() == right.size()
        && offsets(right)
            .into_iter()
            .zip(offsets(found))
            .all(|(inner, offset)| !ascends(right) || !(0..left.size()).contains(&inner) || at(left, inner) == offset)
}

fn composition(random: &mut Random, evaluator: &Evaluator) -> Found {
    let ((a, left), (b, right)) = (random.layout(), random.layout());
    let text = format!("{a} o {b}");
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    must(composed(&found, &left, &right), &text, "(A o B)(i) == A(B(i))")?;
    must(found.rank() == right.rank() || right.is_leaf(), &text, "the modes of B stay")?;
    Ok(true)
}

/// A mode of one element takes no step, so no stride of one is a reason to refuse.
fn composition_of_one(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, left) = random.compact();
    let extent = left.extents()[0];
    let stride = random.range(-50, 50);
    let text = format!("{a} o ({extent},1):(1,{stride})");
    let found = evaluator.total(&text)?;
    must(offsets(&found) == (0..extent).map(|i| at(&left, i)).collect::<Vec<_>>(), &text, "(A o B)(i) == A(B(i))")?;
    let text = format!("upcast((4,1):(1,{stride}), 4)");
    must(offsets(&evaluator.total(&text)?) == [0], &text, "one large element")?;
    Ok(true)
}

fn composition_by_mode(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.flat();
    let extents: Vec<i64> = (0..layout.rank()).map(|_| random.range(1, 7)).collect();
    let text = format!("composition({a}, {})", tuple(&extents));
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    for ((found, mode), extent) in modes(&found).iter().zip(modes(&layout)).zip(&extents) {
        must(found.size() == *extent, &text, "each mode has its tile's extent")?;
        must((0..*extent).all(|i| at(found, i) == at(&mode, i)), &text, "the first elements of each mode")?;
    }
    Ok(true)
}

fn divide(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let (t, tile) = if random.odds(3) {
        let extent = random.range(1, 9);
        (extent.to_string(), Layout::leaf(extent, 1).unwrap())
    } else {
        random.layout()
    };
    let text = format!("logical_divide({a}, {t})");
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    let inside = offsets(&tile).into_iter().all(|offset| (0..layout.size()).contains(&offset));
    if inside {
        must(composed(&found.mode(0).unwrap(), &layout, &tile), &text, "mode 0 is L o T")?;
        must(set(&offsets(&layout)).is_subset(&set(&offsets(&found))), &text, "no offset is missed")?;
        if found.size() == layout.size() {
            must(sorted(offsets(&found)) == sorted(offsets(&layout)), &text, "each element once")?;
        }
    }
    for name in ["zipped_divide", "tiled_divide", "flat_divide"] {
        let text = format!("{name}({a}, {t})");
        if let Some(other) = evaluator.layout(&text)? {
            must(offsets(&other) == offsets(&found), &text, "the function of logical_divide")?;
        }
    }
    Ok(true)
}

fn divide_by_mode(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.flat();
    let tile: Vec<i64> = modes(&layout)
        .iter()
        .map(|mode| {
            let divisors: Vec<i64> = (1..=mode.size()).filter(|n| mode.size() % n == 0).collect();
            if random.odds(4) { random.range(1, 9) } else { random.pick(&divisors) }
        })
        .collect();
    let text = format!("zipped_divide({a}, {})", tuple(&tile));
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    let even = modes(&layout).iter().zip(&tile).all(|(mode, extent)| mode.size() % extent == 0);
    if even {
        must(sorted(offsets(&found)) == sorted(offsets(&layout)), &text, "each element once")?;
    } else {
        must(set(&offsets(&layout)).is_subset(&set(&offsets(&found))), &text, "no offset is missed")?;
    }
    let inside = offsets(&found.mode(0).unwrap());
    let corner: Vec<(i64, i64)> = tile.iter().zip(modes(&layout)).map(|(e, mode)| (*e, mode.strides()[0])).collect();
    must(inside == offsets_of(&corner), &text, "mode 0 is the first tile")?;
    Ok(true)
}

fn evenly_divides(random: &mut Random, evaluator: &Evaluator) -> Found {
    let extents = random.extents(3);
    let tile: Vec<i64> = extents.iter().map(|_| random.range(1, 9)).collect();
    let text = format!("evenly_divides({}, {})", tuple(&extents), tuple(&tile));
    let even = extents.iter().zip(&tile).all(|(extent, tile)| extent % tile == 0);
    must(evaluator.value(&text)? == Some(LayoutValue::Bool(even)), &text, "every extent is a multiple of its tile's")?;
    Ok(true)
}

/// Whether a product may repeat offsets: block or copies do by themselves.
fn may_repeat(block: &Layout, copies: &Layout) -> bool {
    !distinct(&offsets_of(&moving(block))) || !distinct(&offsets_of(&moving(copies)))
}

/// A product of layouts holds each sum of a block's and a copy's offset once.
fn holds_product(found: &Layout, block: &Layout, copies: &Layout, text: &str) -> Result<(), String> {
    must(found.size() == block.size() * copies.size(), text, "one block for each copy")?;
    if !may_repeat(block, copies) {
        let single = set(&offsets(block)).len() * set(&offsets(copies)).len();
        must(set(&offsets(found)).len() == single, text, "no offset is repeated where block and copies repeat none")?;
    }
    Ok(())
}

fn product_of(evaluator: &Evaluator, (b, block): (String, Layout), (c, copies): (String, Layout)) -> Found {
    let text = format!("logical_product({b}, {c})");
    let Some(found) = evaluator.layout(&text)? else {
        let needless = bijective(&block) && ascends(&copies);
        return must(!needless, &text, "refused without need").map(|()| false);
    };
    must(offsets(&found.mode(0).unwrap()) == offsets(&block), &text, "mode 0 is the block")?;
    must(found.mode(1).unwrap().size() == copies.size(), &text, "mode 1 has the size of the copies")?;
    holds_product(&found, &block, &copies, &text)?;
    for name in ["zipped_product", "tiled_product", "flat_product"] {
        let text = format!("{name}({b}, {c})");
        let other = evaluator.total(&text)?;
        must(offsets(&other) == offsets(&found), &text, "the function of logical_product")?;
    }
    Ok(true)
}

fn product(random: &mut Random, evaluator: &Evaluator) -> Found {
    let block = random.layout();
    let copies = random.layout();
    product_of(evaluator, block, copies)
}

/// Blocks whose strides leave some room, which a few copies fit into.
fn product_with_room(random: &mut Random, evaluator: &Evaluator) -> Found {
    let extents = random.extents(3);
    let strides: Vec<i64> = random.filling(&extents, 7);
    let block = random.written(&extents, &strides);
    let copies = random.compact();
    let layout = Layout::parse(&block).unwrap();
    product_of(evaluator, (block, layout), copies)
}

fn blocked_product(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (mut b, mut block) = random.flat();
    if random.odds(2) {
        (b, block) = random.compact();
    }
    let (c, copies) = if random.odds(2) { random.flat() } else { random.compact() };
    let mut found = false;
    for (name, first, second) in [("blocked_product", &block, &copies), ("raked_product", &copies, &block)] {
        let text = format!("{name}({b}, {c})");
        let Some(product) = evaluator.layout(&text)? else { continue };
        found = true;
        holds_product(&product, &block, &copies, &text)?;
        let plain = evaluator.layout(&format!("logical_product({b}, {c})"))?;
        if let Some(plain) = plain {
            must(sorted(offsets(&product)) == sorted(offsets(&plain)), &text, "the offsets of logical_product")?;
        }
        if product.rank() == first.rank().max(second.rank()) && first.rank() == second.rank() && !first.is_leaf() {
            for (mode, (inner, outer)) in modes(&product).iter().zip(modes(first).iter().zip(modes(second))) {
                must(mode.size() == inner.size() * outer.size(), &text, "each mode has both")?;
                if name == "blocked_product" {
                    must(
                        offsets(mode)[..inner.size() as usize] == offsets(inner),
                        &text,
                        "a mode begins with the block's",
                    )?;
                }
            }
        }
    }
    Ok(found)
}

fn tile_to_shape(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (b, block) = random.flat();
    let mut size = block.size();
    let shape: Vec<i64> = modes(&block)
        .iter()
        .map(|mode| {
            let count = random.pick(&[1, 1, 2, 3, 4]);
            let count = if size * count > 2048 { 1 } else { count };
            size *= count;
            mode.size() * count
        })
        .collect();
    let order = match random.range(0, 3) {
        0 => String::new(),
        1 => ", LayoutRight".into(),
        _ => format!(", {}", tuple(&random.order(shape.len()).into_iter().map(|i| i as i64).collect::<Vec<_>>())),
    };
    let text = format!("tile_to_shape({b}, {}{order})", tuple(&shape));
    let Some(found) = evaluator.layout(&text)? else {
        return must(!bijective(&block), &text, "refused without need").map(|()| false);
    };
    for (mode, (extent, part)) in modes(&found).iter().zip(shape.iter().zip(modes(&block))) {
        must(mode.size() == *extent, &text, "the shape is filled")?;
        must(offsets(mode)[..part.size() as usize] == offsets(&part), &text, "each mode begins with the block's")?;
    }
    let single = distinct(&offsets_of(&moving(&block)));
    let copies = found.size() / block.size();
    let expected = set(&offsets(&block)).len() as i64 * copies;
    must(!single || set(&offsets(&found)).len() as i64 == expected, &text, "no offset is repeated")?;
    Ok(true)
}

fn right_inverse(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let text = format!("right_inverse({a})");
    let found = evaluator.total(&text)?;
    let all = offsets(&layout);
    for (offset, index) in offsets(&found).into_iter().enumerate() {
        must(all.get(index as usize) == Some(&(offset as i64)), &text, "L(R(o)) == o")?;
    }
    must(!bijective(&layout) || found.size() == layout.size(), &text, "a bijection has a whole inverse")?;
    Ok(true)
}

fn left_inverse(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let text = format!("left_inverse({a})");
    let Some(found) = evaluator.layout(&text)? else {
        return must(!nests(&layout) || !injective(&layout), &text, "refused without need").map(|()| false);
    };
    for (index, offset) in offsets(&layout).into_iter().enumerate() {
        let back = at(&found, offset);
        must(at(&layout, back) == offset, &text, "L(R(L(i))) == L(i)")?;
        must(!injective(&layout) || back == index as i64, &text, "R(L(i)) == i")?;
    }
    Ok(true)
}

fn nullspace(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let text = format!("nullspace({a})");
    let found = evaluator.total(&text)?;
    let null = offsets(&found);
    must(null.iter().all(|index| at(&layout, *index) == 0), &text, "L(N(i)) == 0")?;
    must(distinct(&null), &text, "each coordinate once")?;
    if distinct(&offsets_of(&moving(&layout))) {
        let zeros = offsets(&layout).into_iter().filter(|offset| *offset == 0).count();
        must(null.len() == zeros, &text, "every coordinate of offset 0")?;
    }
    Ok(true)
}

fn max_common(random: &mut Random, evaluator: &Evaluator) -> Found {
    let ((a, left), (b, right)) = (random.layout(), random.layout());
    let text = format!("max_common_layout({a}, {b})");
    let found = evaluator.total(&text)?;
    let both = offsets(&found);
    for (offset, index) in both.iter().enumerate() {
        let offset = offset as i64;
        let inside = *index < right.size();
        must(inside && at(&left, *index) == offset && at(&right, *index) == offset, &text, "A(V(i)) == B(V(i)) == i")?;
    }
    let size = evaluator.value(&format!("max_common_vector({a}, {b})"))?;
    must(size == Some(LayoutValue::Int(found.size())), &text, "max_common_vector is its size")?;
    if both.len() == 1 {
        // Where a second element were shared, the result would have it.
        let second = offsets(&right).into_iter().position(|offset| offset == 1).map(|index| index as i64);
        let shared = second.is_some_and(|index| at(&left, index) == 1) && moving(&right).iter().any(|(_, d)| *d == 1);
        must(!shared || moving(&right).len() > 1, &text, "the first shared elements are found")?;
    }
    Ok(true)
}

fn upcast(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let factor = random.pick(&[1, 2, 3, 4, 8]);
    let text = format!("upcast({a}, {factor})");
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    if nests(&layout) {
        let large = offsets(&layout).into_iter().map(|offset| offset / factor).collect();
        must(set(&offsets(&found)) == large, &text, "the large elements that hold an element of L")?;
    }
    Ok(true)
}

fn downcast(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.compact();
    let factor = random.pick(&[1, 2, 3, 4]);
    let text = format!("downcast({a}, {factor})");
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    must(found.size() == layout.size() * factor, &text, "each element is split")?;
    let small = offsets(&layout).into_iter().flat_map(|offset| offset * factor..(offset + 1) * factor).collect();
    must(set(&offsets(&found)) == small, &text, "the parts of every element")?;
    let text = format!("upcast({text}, {factor})");
    must(offsets(&evaluator.total(&text)?) == offsets(&layout), &text, "upcast undoes downcast")?;
    Ok(true)
}

fn slice(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let parts = modes(&layout);
    let fixed: Vec<Option<i64>> =
        parts.iter().map(|mode| if random.odds(2) { Some(random.range(0, mode.size())) } else { None }).collect();
    let words: Vec<String> = fixed.iter().map(|c| c.map_or("_".into(), |c| c.to_string())).collect();
    let coordinate = if layout.is_leaf() { words[0].clone() } else { format!("({})", words.join(",")) };
    let text = format!("slice_and_offset({coordinate}, {a})");
    let Some(LayoutValue::List(found)) = evaluator.value(&text)? else { return Err(format!("{text} is not a pair")) };
    let (LayoutValue::Layout(slice), LayoutValue::Int(start)) = (&found[0], &found[1]) else {
        return Err(format!("{text} is not a layout and an offset"));
    };
    let expected = parts.iter().zip(&fixed).fold(vec![0], |inner, (mode, fixed)| {
        let steps = fixed.map_or_else(|| offsets(mode), |c| vec![at(mode, c)]);
        steps.into_iter().flat_map(|step| inner.iter().map(move |offset| offset + step)).collect::<Vec<_>>()
    });
    must(offsets(slice).iter().map(|offset| offset + start).collect::<Vec<_>>() == expected, &text, "the open modes")?;
    Ok(true)
}

fn coordinates(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let index = random.range(0, layout.size());
    let shape = layout.shape();
    let text = format!("crd2idx(idx2crd({index}, {shape}), {a})");
    must(evaluator.value(&text)? == Some(LayoutValue::Int(at(&layout, index))), &text, "the offset of the index")?;
    let text = format!("crd2idx(idx2crd({index}, {shape}), {shape})");
    must(evaluator.value(&text)? == Some(LayoutValue::Int(index)), &text, "a coordinate counts back to its index")?;
    let text = format!("index({a})");
    let all = LayoutValue::List(offsets(&layout).into_iter().map(LayoutValue::Int).collect());
    must(evaluator.value(&text)? == Some(all), &text, "every offset in turn")?;
    Ok(true)
}

/// An offset that a coordinate has gives such a coordinate; another is refused.
fn coordinates_of_offsets(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let reached = offsets(&layout);
    let offset = if random.odds(2) { random.pick(&reached) } else { random.range(-30, 60) };
    let standing = leaves(&layout).iter().any(|(extent, stride)| *extent > 1 && *stride == 0);
    let mut found = false;
    for text in [
        format!("crd2idx(get_hier_coord({a}, {offset}), {a})"),
        format!("crd2idx(get_flat_coord({a}, {offset}), {a})"),
        format!("crd2idx(get_1d_coord({a}, {offset}), {a})"),
        format!("crd2idx(idx2crd({offset}, {}, {}), {a})", layout.shape(), layout.stride()),
    ] {
        let known = reached.contains(&offset) && !standing;
        match evaluator.value(&text)? {
            Some(back) => {
                must(back == LayoutValue::Int(offset), &text, "the coordinate has the offset")?;
                must(known, &text, "an offset that is not reached is refused")?;
                found = true;
            }
            None => must(!known, &text, "refused without need")?,
        }
    }
    Ok(found)
}

fn make_layout(random: &mut Random, evaluator: &Evaluator) -> Found {
    let extents = random.extents(4);
    let shape = Random::nested(&extents, random.next());
    let size: i64 = extents.iter().product();
    let text = format!("make_layout({shape})");
    must(offsets(&evaluator.total(&text)?) == (0..size).collect::<Vec<_>>(), &text, "the first mode fastest")?;
    let order: Vec<i64> = random.order(extents.len()).into_iter().map(|i| i as i64).collect();
    for text in [
        format!("make_layout({shape}, LayoutRight)"),
        format!("make_ordered_layout({}, {})", tuple(&extents), tuple(&order)),
    ] {
        must(bijective(&evaluator.total(&text)?), &text, "every offset once")?;
    }
    let text = format!("make_ordered_layout({}, {})", tuple(&extents), tuple(&order));
    let found = evaluator.total(&text)?;
    for (mode, (extent, stride)) in leaves(&found).into_iter().enumerate().filter(|(_, (extent, _))| *extent > 1) {
        let before = |other: &(usize, &i64)| order[other.0] < order[mode];
        let step: i64 = extents.iter().enumerate().filter(before).map(|(_, extent)| extent).product();
        must(stride == step && extent == extents[mode], &text, "a stride is the product of the faster extents")?;
    }
    Ok(true)
}

fn make_layout_like(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let text = format!("make_layout_like({a})");
    let Some(found) = evaluator.layout(&text)? else { return Ok(false) };
    must(found.extents() == layout.extents(), &text, "the shape stays")?;
    let strides: Vec<i64> = moving(&layout).iter().map(|(_, stride)| *stride).collect();
    if !distinct(&strides) {
        return Ok(true);
    }
    let packed = offsets_of(&moving(&found));
    must(sorted(packed.clone()) == (0..packed.len() as i64).collect::<Vec<_>>(), &text, "packed")?;
    if ascends(&layout) {
        for (one, other) in leaves(&layout).iter().zip(leaves(&found)).flat_map(|a| {
            leaves(&layout).into_iter().zip(leaves(&found)).map(move |b| ((*a.0, a.1), b)).collect::<Vec<_>>()
        }) {
            let moves = |pair: &((i64, i64), (i64, i64))| pair.0.0 > 1 && pair.0.1 != 0;
            let ordered = one.0.1 >= other.0.1 || one.1.1 < other.1.1;
            must(!moves(&one) || !moves(&other) || ordered, &text, "the order of the strides stays")?;
        }
    }
    Ok(true)
}

fn rearranged_modes(random: &mut Random, evaluator: &Evaluator) -> Found {
    let ((a, layout), (b, other)) = (random.layout(), random.layout());
    let text = format!("flatten({a})");
    must(offsets(&evaluator.total(&text)?) == offsets(&layout), &text, "the function stays")?;
    let rank = layout.rank();
    let parts: Vec<Vec<(i64, i64)>> = modes(&layout).iter().map(leaves).collect();
    let joined = |picked: &[Vec<(i64, i64)>]| offsets_of(&picked.concat());
    if rank == 0 || layout.is_leaf() {
        return Ok(true);
    }
    let order = random.order(rank);
    let numbers = tuple(&order.iter().map(|i| *i as i64).collect::<Vec<_>>());
    let selected: Vec<_> = order.iter().map(|mode| parts[*mode].clone()).collect();
    let begin = random.range(0, rank as i64) as usize;
    let end = random.range(begin as i64 + 1, rank as i64 + 1) as usize;
    let mut replaced = parts.clone();
    replaced[begin] = leaves(&other);
    for (text, expected) in [
        (format!("append({a}, {b})"), joined(&[parts.concat(), leaves(&other)])),
        (format!("prepend({a}, {b})"), joined(&[leaves(&other), parts.concat()])),
        (format!("replace({a}, {begin}, {b})"), joined(&replaced)),
        (format!("select({a}, {numbers})"), joined(&selected)),
        (format!("take({a}, {begin}, {end})"), joined(&parts[begin..end])),
        (format!("get({a}, {begin})"), joined(&parts[begin..=begin])),
        (format!("group_modes({a}, {begin}, {end})"), offsets(&layout)),
    ] {
        must(offsets(&evaluator.total(&text)?) == expected, &text, "the modes named, each as it was")?;
    }
    Ok(true)
}

fn expand_modes_alike(random: &mut Random, evaluator: &Evaluator) -> Found {
    let (a, layout) = random.layout();
    let (b, other) = if random.odds(3) {
        random.layout()
    } else {
        let size = layout.size();
        let stride = random.range(-5, 9);
        (format!("{size}:{stride}"), Layout::leaf(size, stride).unwrap())
    };
    let text = format!("expand_modes_alike({a}, {b})");
    let Some(found) = evaluator.value(&text)? else { return Ok(false) };
    let LayoutValue::List(found) = found else { return Err(format!("{text} is not a pair")) };
    let (LayoutValue::Layout(one), LayoutValue::Layout(two)) = (&found[0], &found[1]) else {
        return Err(format!("{text} is not a pair of layouts"));
    };
    must(one.shape() == two.shape(), &text, "one shape for both")?;
    must(offsets(one) == offsets(&layout) && offsets(two) == offsets(&other), &text, "both functions stay")?;
    Ok(true)
}

fn shapes(random: &mut Random, evaluator: &Evaluator) -> Found {
    let extents = random.extents(4);
    let size = extents.iter().product::<i64>();
    let divisor = random.range(1, 13);
    let text = format!("shape_div({}, {divisor})", tuple(&extents));
    let found = evaluator.value(&text)?;
    if let Some(LayoutValue::List(items)) = &found {
        let rest: i64 = items.iter().map(|item| item.int().unwrap_or(0)).product();
        must(size % divisor != 0 || rest * divisor == size, &text, "the quotient's size")?;
    }
    let nested = Random::nested(&extents, random.next());
    let text = format!("compatible({size}, {nested})");
    must(evaluator.value(&text)? == Some(LayoutValue::Bool(true)), &text, "a size is compatible with its shape")?;
    let text = format!("compatible({}, {nested})", size + 1);
    must(evaluator.value(&text)? == Some(LayoutValue::Bool(false)), &text, "another size is not")?;
    Ok(found.is_some())
}

fn swizzled(bits: i64, base: i64, shift: i64, offset: i64) -> i64 {
    let source = ((1 << bits) - 1) << (base + shift.max(0));
    let moved = if shift >= 0 { (offset & source) >> shift } else { (offset & source) << -shift };
    offset ^ moved
}

fn swizzle(random: &mut Random, evaluator: &Evaluator) -> Found {
    let bits = random.range(0, 4);
    let base = random.range(0, 4);
    let shift = (bits + random.range(0, 3)).max(1);
    let mixed = |offset: i64| swizzled(bits, base, shift, offset);
    let (a, layout) = random.compact();
    let start = random.range(0, 40);
    let text = format!("swizzle_layout(S<{bits},{base},{shift}>, {start}, {a})");
    let expected: Vec<i64> = offsets(&layout).into_iter().map(|offset| mixed(start + offset)).collect();
    let listed = |values: &[i64]| LayoutValue::List(values.iter().copied().map(LayoutValue::Int).collect());
    must(evaluator.value(&text)? == Some(listed(&expected)), &text, "the swizzle of every offset")?;
    let (b, right) = random.layout();
    let text = format!("(S<{bits},{base},{shift}> o {start} o {a}) o {b}");
    // A tuple of one is not a layout before `o`; the operation is named.
    let call = format!("swizzle_layout_composition(S<{bits},{base},{shift}>, {start}, {a}, {b})");
    let found = evaluator.value(&call)?;
    if let Some(found) = &found {
        for (index, inner) in offsets(&right).into_iter().enumerate() {
            let offset = match found {
                LayoutValue::Layout(layout) => at(layout, index as i64),
                LayoutValue::Swizzled(swizzled) => swizzled.at(index as i64),
                other => return Err(format!("{text} = {other} is not a layout")),
            };
            let inside = ascends(&right) && (0..layout.size()).contains(&inner);
            must(!inside || offset == expected[inner as usize], &call, "(S o A o B)(i) == S(A(B(i)))")?;
        }
    }
    let text = format!("layout_swizzle_composition({a}, S<{bits},{base},{shift}>)");
    if let Some(found) = evaluator.value(&text)? {
        for index in (0..layout.size()).filter(|index| mixed(*index) < layout.size()) {
            let offset = match &found {
                LayoutValue::Layout(layout) => at(layout, index),
                LayoutValue::Swizzled(swizzled) => swizzled.at(index),
                other => return Err(format!("{text} = {other} is not a layout")),
            };
            must(offset == at(&layout, mixed(index)), &text, "(A o S)(i) == A(S(i))")?;
        }
    }
    Ok(found.is_some())
}

fn swizzle_inverses(random: &mut Random, evaluator: &Evaluator) -> Found {
    let bits = random.range(0, 4);
    let base = random.range(0, 3);
    let shift = bits.max(1) + random.range(0, 2);
    let (a, layout) = random.compact();
    let all: Vec<i64> = offsets(&layout).into_iter().map(|offset| swizzled(bits, base, shift, offset)).collect();
    let mut found = false;
    for name in ["swizzle_right_inverse", "swizzle_left_inverse"] {
        let text = format!("{name}(S<{bits},{base},{shift}>, 0, {a})");
        let Some(inverse) = evaluator.value(&text)? else { continue };
        found = true;
        let size = match &inverse {
            LayoutValue::Layout(layout) => layout.size(),
            LayoutValue::Swizzled(swizzled) => swizzled.size(),
            other => return Err(format!("{text} = {other} is not a layout")),
        };
        let back = |offset: i64| match &inverse {
            LayoutValue::Layout(layout) => at(layout, offset),
            LayoutValue::Swizzled(swizzled) => swizzled.at(offset),
            _ => -1,
        };
        if name == "swizzle_right_inverse" {
            let holds = (0..size).all(|offset| all.get(back(offset) as usize) == Some(&offset));
            must(holds, &text, "L(R(o)) == o")?;
        } else {
            let holds = all.iter().enumerate().all(|(index, offset)| back(*offset) == index as i64);
            must(holds, &text, "R(L(i)) == i")?;
        }
    }
    Ok(found)
}

/// The numbers of expressions of each law that had a value, and that were refused.
type Tally = BTreeMap<&'static str, [u64; 2]>;

/// Tries `count` random expressions.
///
/// # Errors
/// The first expression that breaks each law, one a line.
fn run(evaluator: &Evaluator, seed: u64, count: u64) -> Result<Tally, String> {
    let mut tally = Tally::new();
    let mut broken = BTreeMap::new();
    for case in 0..count {
        let (name, law) = LAWS[(case % LAWS.len() as u64) as usize];
        let mut random = Random(seed.wrapping_mul(0x0100_0000_01b3) ^ case);
        match law(&mut random, evaluator) {
            Ok(found) => tally.entry(name).or_default()[usize::from(!found)] += 1,
            Err(how) => drop(broken.entry(name).or_insert(format!("seed {seed}, case {case}: {how}"))),
        }
    }
    if broken.is_empty() { Ok(tally) } else { Err(broken.into_values().collect::<Vec<_>>().join("\n")) }
}

#[test]
fn random_expressions_keep_the_laws() {
    let long = std::env::var("TILEWRIGHT_LONG").is_ok_and(|value| value == "1");
    let count = if long { 100_000 } else { 3_000 };
    let start = std::time::Instant::now();
    let tally = run(&Evaluator(evaluate), SEED, count).unwrap_or_else(|broken| panic!("{broken}"));
    println!("{count} expressions, seed {SEED}, {:.1} s: {tally:?}", start.elapsed().as_secs_f64());
    assert_eq!(tally.len(), LAWS.len());
    for (name, [accepted, refused]) in tally {
        assert!(accepted * 8 >= accepted + refused, "{name}: {accepted} values for {refused} refusals test little");
    }
}

/// Products whose copies keep their own strides, which leave no room for the block.
fn products_that_repeat(text: &str) -> Result<LayoutValue, ExpressionRefusal> {
    let found = evaluate(text);
    let call = text.strip_prefix("logical_product(").and_then(|call| call.strip_suffix(')'));
    let Some((block, copies)) = call.and_then(|call| call.split_once("), ").or_else(|| call.split_once(", "))) else {
        return found;
    };
    match (evaluate(block).or_else(|_| evaluate(&format!("{block})"))), evaluate(copies)) {
        (Ok(LayoutValue::Layout(block)), Ok(LayoutValue::Layout(copies))) => {
            Ok(Layout::tuple(&[*block, *copies])?.into())
        }
        _ => found,
    }
}

/// Coordinates by dividing the offset by each stride, whatever lies between.
fn coordinates_by_division(text: &str) -> Result<LayoutValue, ExpressionRefusal> {
    let call = text.strip_prefix("crd2idx(get_1d_coord(").and_then(|call| call.rsplit_once("), "));
    let parts = call.and_then(|(call, layout)| {
        Some((call.rsplit_once(", ")?.1.parse::<i64>().ok()?, Layout::parse(layout.strip_suffix(')')?).ok()?))
    });
    let Some((offset, layout)) = parts else { return evaluate(text) };
    let steps =
        leaves(&layout).into_iter().map(|(extent, stride)| offset.checked_div(stride).unwrap_or(0) % extent * stride);
    Ok(LayoutValue::Int(steps.sum()))
}

#[test]
fn planted_bugs_break_a_law() {
    let broken = run(&Evaluator(products_that_repeat), SEED, 3_000).expect_err("products repeat offsets");
    assert!(broken.contains("no offset is repeated"), "{broken}");
    let broken = run(&Evaluator(coordinates_by_division), SEED, 3_000).expect_err("coordinates have other offsets");
    assert!(broken.contains("the coordinate has the offset") || broken.contains("is refused"), "{broken}");
}
