//! The values of a pass as registers: recorded row by row, when something asks for them.

use std::collections::HashMap;
use std::f32::consts::LN_2;
use std::ops::Range;

use tilewright_codegen::build::{Builder, Val};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{
    Binary, Elementwise, InnerAxis, Norm, Num, ProductOp, REFUSED, Rearrange, Reduce, Reduction, RowOp, Source, Taps,
    Unary,
};

use super::lanes::{LaneRow, PackedBf16, widen};
use super::linear::LinearValue;
use super::numbers::{cmp, exp, finish, join, squared};
use super::product::{self, Ahead, BlockOperands, Fetch, WeightColumn, WeightFragments};
use super::recipe::PassRecipe;
use super::spread::VECTOR;

/// A row of a block: the distance back from the block that is computed, and the row of its `[d0,
/// _]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockRow {
    /// Blocks before.
    pub back: u32,
    /// The row.
    pub row: u32,
}

impl BlockRow {
    /// A row of the block itself.
    pub const fn row(row: u32) -> BlockRow {
        BlockRow { back: 0, row }
    }
}

/// Sources of values that no op computes.
pub(super) trait Sources<'k> {
    /// A lane's part of a row of a source.
    fn load(&self, source: Source, at: BlockRow) -> LaneRow<'k>;

    /// Fetches some runs of eight of a lane's part of a row as they are loaded, before they are
    /// computed with.
    fn fetch(&self, source: Source, at: BlockRow, runs: Range<u32>) -> Option<Vec<PackedBf16<'k>>>;

    /// A lane's part of a row of the queries, which may differ from lane to lane; where a row of
    /// the batch has some.
    fn query(&self, row: Val<'k, u32>) -> Option<LaneRow<'k>>;

    /// A lane's part of a learned query, made of all rows of the queries; where a row of the batch
    /// has some.
    fn learned_query(&self, id: ValueId, queries: &[LaneRow<'k>]) -> LaneRow<'k>;

    /// Whether there is a block at that distance back.
    fn exists(&self, back: u32) -> Val<'k, bool>;
}

/// The result of an op across the blocks of a row, element by element: rows of the value.
#[derive(Clone)]
pub(super) enum Gathered<'k> {
    /// The value itself.
    Value(Vec<LaneRow<'k>>),
    /// The largest scaled element, and the sum of what a softmax divides by.
    Softmax(Vec<LaneRow<'k>>, Vec<LaneRow<'k>>),
    /// The norm.
    Norm(Vec<LaneRow<'k>>),
}

/// The values of a block, or of what blocks have in common.
pub(super) struct BlockValues<'k, 'r> {
    k: &'k Builder,
    recipe: &'r PassRecipe,
    /// The lane's place in its group.
    lane: Val<'k, u32>,
    sources: &'r dyn Sources<'k>,
    known: HashMap<(ValueId, BlockRow), LaneRow<'k>>,
    /// Values that are still being loaded.
    fetched: HashMap<(ValueId, BlockRow), Vec<PackedBf16<'k>>>,
    gathered: HashMap<ValueId, Gathered<'k>>,
    /// The weights of values that tensor cores compute.
    weights: HashMap<ValueId, WeightFragments<'k>>,
}

impl<'k, 'r> BlockValues<'k, 'r> {
    pub fn new(k: &'k Builder, recipe: &'r PassRecipe, lane: Val<'k, u32>, sources: &'r dyn Sources<'k>) -> Self {
        let known = HashMap::new();
        let fetched = HashMap::new();
        BlockValues { k, recipe, lane, sources, known, fetched, gathered: HashMap::new(), weights: HashMap::new() }
    }

    /// The values of a block, in an inner scope: values of all blocks are not computed again.
    pub fn of_block<'s>(&self, sources: &'s dyn Sources<'k>) -> BlockValues<'k, 's>
    where
        'r: 's,
    {
        let BlockValues { k, recipe, lane, .. } = *self;
        let known = self.known.clone();
        let gathered = self.gathered.clone();
        let weights = self.weights.clone();
        BlockValues { k, recipe, lane, sources, known, fetched: HashMap::new(), gathered, weights }
    }

    /// Computes what blocks have in common, as far as it is known what blocks gave together.
    pub fn know_row(&mut self) {
        let recipe = self.recipe;
        for linear in recipe.linear() {
            if self.is_ready(linear.weights) && !self.weights.contains_key(&linear.id) {
                let weights = self.weight_fragments(linear);
                self.weights.insert(linear.id, weights);
            }
        }
        for id in recipe.graph().ids().filter(|&id| !recipe.is_of_row(id)) {
            for operand in recipe.graph().operands(id) {
                if recipe.is_of_row(operand) && self.is_ready(operand) {
                    self.all(operand);
                }
            }
        }
    }

    /// Whether every op across blocks that a value needs has seen them.
    fn is_ready(&self, id: ValueId) -> bool {
        if self.recipe.gathers(id) {
            self.gathered.contains_key(&id)
        } else {
            self.recipe.graph().operands(id).into_iter().all(|operand| self.is_ready(operand))
        }
    }

    /// Loads what is read of the block, so that loads of several blocks are in flight together.
    pub fn load_block(&mut self) {
        let recipe = self.recipe;
        for id in recipe.of_block(&|id| self.weights.contains_key(&id)) {
            let Op::Load { from: source } = *recipe.graph().op(id) else { continue };
            let runs = 0..recipe.spread.held(recipe.extents(id)[1]) / VECTOR;
            for at in (0..recipe.extents(id)[0] as u32).map(BlockRow::row) {
                match self.sources.fetch(source, at, runs.clone()) {
                    Some(words) => drop(self.fetched.insert((id, at), words)),
                    None => drop(self.row(id, at)),
                }
            }
        }
    }

    /// The weights of a value that tensor cores compute, as their operands.
    fn weight_fragments(&mut self, linear: &LinearValue) -> WeightFragments<'k> {
        let column = WeightColumn::of_lane(self.k);
        let of_atom = |atom: Range<u32>| {
            self.weighed_in_lane(linear, column.weight(&atom)).unwrap_or_else(|| {
                let rows: Vec<LaneRow<'k>> = atom.map(|row| self.weighed(linear, row)).collect();
                column.select(&rows)
            })
        };
        let atoms: Vec<LaneRow<'k>> = product::weights_of_atoms(linear).map(of_atom).collect();
        column.fragments(linear, &atoms)
    }

    /// A row of the weights of products.
    fn weighed(&mut self, linear: &LinearValue, row: u32) -> LaneRow<'k> {
        let weights = self.broadcast(linear.weights, BlockRow::row(row));
        self.masked(linear, weights)
    }

    /// A product whose row may differ from lane to lane, where weights are the queries.
    fn weighed_in_lane(&self, linear: &LinearValue, row: Val<'k, u32>) -> Option<LaneRow<'k>> {
        let is_query = matches!(*self.recipe.graph().op(linear.weights), Op::Load { from: Source::Query });
        let weights = if is_query { self.sources.query(row)? } else { return None };
        Some(self.masked(linear, weights))
    }

    fn masked(&self, linear: &LinearValue, weights: LaneRow<'k>) -> LaneRow<'k> {
        let constant = |row: LaneRow<'k>, mask: &ValueId| -> LaneRow<'k> {
            let Op::Elementwise { function: op, .. } = *self.recipe.graph().op(*mask) else { return row };
            let of = |(e, x): (usize, Val<'k, f32>)| x * self.element(op, &[], [0, e as u32], true);
            row.into_iter().enumerate().map(of).collect()
        };
        linear.masks.iter().fold(weights, constant)
    }

    /// Computes the values of some blocks that tensor cores compute: as many as the groups have
    /// rounds. Where they are on their way, `next` are the blocks of the next round.
    pub fn multiply(blocks: &mut [Self], ahead: Option<&Ahead<'k>>, next: Fetch<'_, 'k>) {
        let [first, ..] = &*blocks else { return };
        let k = first.k;
        let recipe = first.recipe;
        for linear in recipe.linear() {
            let Some(weights) = blocks[0].weights.get(&linear.id).cloned() else { continue };
            let fetch = |round: usize, field: ValueId, runs: Range<u32>| blocks[round].words(field, runs);
            let operands = match ahead {
                Some(ahead) => BlockOperands::Ahead(ahead, next),
                None => BlockOperands::Loaded(&fetch),
            };
            let sums = product::sums(k, linear, &weights, recipe.spread, blocks.len(), &operands);
            for (block, sums) in blocks.iter_mut().zip(sums) {
                block.know(linear, sums);
            }
        }
    }

    /// Runs of eight elements of a field `[1, D]` of the block, as they are loaded.
    pub fn words(&self, field: ValueId, runs: Range<u32>) -> Vec<PackedBf16<'k>> {
        let Op::Load { from: source } = *self.recipe.graph().op(field) else { return Vec::new() };
        self.sources.fetch(source, BlockRow::row(0), runs).unwrap_or_default()
    }

    /// Whether some of the block's values are computed by tensor cores.
    pub fn multiplies(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Records a value of the block that tensor cores computed.
    fn know(&mut self, linear: &LinearValue, sums: LaneRow<'k>) {
        let reduce = if linear.is_mean { Reduce::Mean } else { Reduce::Sum };
        let sums: LaneRow<'k> = sums.into_iter().map(|x| finish(reduce, self.recipe.spread.dim, x)).collect();
        match linear.is_row {
            true => drop(self.known.insert((linear.id, BlockRow::row(0)), sums)),
            false => self.known.extend((0..).zip(sums).map(|(row, x)| ((linear.id, BlockRow::row(row)), vec![x]))),
        }
    }

    /// Records the result of an op across the blocks of a row.
    pub fn gather(&mut self, id: ValueId, gathered: Gathered<'k>) {
        self.gathered.insert(id, gathered);
    }

    /// Every row of a value.
    pub fn all(&mut self, id: ValueId) -> Vec<LaneRow<'k>> {
        (0..self.recipe.extents(id)[0] as u32).map(|row| self.row(id, BlockRow::row(row))).collect()
    }

    /// A row of a value.
    pub fn row(&mut self, id: ValueId, at: BlockRow) -> LaneRow<'k> {
        let at = if self.recipe.is_of_row(id) { BlockRow::row(at.row) } else { at };
        if let Some(row) = self.known.get(&(id, at)) {
            return row.clone();
        }
        let row = self.compute(id, at);
        self.known.insert((id, at), row.clone());
        row
    }

    fn compute(&mut self, id: ValueId, at: BlockRow) -> LaneRow<'k> {
        let recipe = self.recipe;
        let operands = recipe.graph().operands(id);
        let of = |which: usize| operands[which];
        match recipe.graph().op(id) {
            Op::Fill { number, .. } => {
                vec![self.number(*number); recipe.spread.held(recipe.extents(id)[1]) as usize]
            }
            Op::Load { from: source } => match self.fetched.remove(&(id, at)) {
                Some(words) => words.into_iter().flat_map(widen).collect(),
                None => self.sources.load(*source, at),
            },
            Op::Store { .. } | Op::Select { .. } => self.row(of(0), at),
            Op::Elementwise { function: op, .. } => {
                let rows: Vec<LaneRow<'k>> = operands.iter().map(|&x| self.broadcast(x, at)).collect();
                let held = recipe.spread.held(recipe.extents(id)[1]);
                (0..held).map(|e| self.element(*op, &rows, [at.row, e], recipe.deals(id))).collect()
            }
            Op::Reduce { reduction: op, .. } => self.reduce(*op, of(0), at),
            Op::Product { product: op, .. } => self.product(*op, id, at),
            Op::Rearrange { to: op, .. } => self.rearrange(*op, id, of(0), at),
            Op::OverBlocks { over, .. } => self.across(over, id, of(0), at),
            // Refused by the recipe.
            _ => LaneRow::new(),
        }
    }

    /// A row of an operand whose extents may be 1 where the result's are not.
    fn broadcast(&mut self, id: ValueId, at: BlockRow) -> LaneRow<'k> {
        let row = if self.recipe.extents(id)[0] == 1 { 0 } else { at.row };
        self.row(id, BlockRow { row, ..at })
    }

    fn number(&self, Num(number): Num) -> Val<'k, f32> {
        self.k.lit(number as f32)
    }

    /// Element `e` of what a lane holds of a row, which may be dealt.
    fn element(&self, op: Elementwise, rows: &[LaneRow<'k>], [row, e]: [u32; 2], dealt: bool) -> Val<'k, f32> {
        let x = |which: usize| rows[which][if rows[which].len() == 1 { 0 } else { e as usize }];
        match op {
            Elementwise::Unary(unary) => self.unary(unary, x(0)),
            Elementwise::Binary(binary) => self.binary(binary, x(0), x(1)),
            Elementwise::MaskSlice { axis: InnerAxis::D0, start, end, inside, outside } => {
                self.number(if (start..end).contains(&row) { inside } else { outside })
            }
            Elementwise::MaskSlice { axis: InnerAxis::D1, start, end, inside, outside } => {
                if !dealt {
                    return self.number(if (start..end).contains(&e) { inside } else { outside });
                }
                let column = self.recipe.spread.first(self.lane, e / VECTOR) + e % VECTOR;
                let is_inside = column.ge(start) & column.lt(end);
                is_inside.select(self.number(inside), self.number(outside))
            }
        }
    }

    fn unary(&self, op: Unary, x: Val<'k, f32>) -> Val<'k, f32> {
        let logistic = |a: Num, b: Num| (exp(x * self.number(b) + self.number(a)) + 1.0).recip();
        match op {
            Unary::Copy => x,
            Unary::Relu(a, b) => x.ge(self.number(a)).select(x, self.number(b)),
            Unary::Sigmoid(a, b) => logistic(a, b),
            Unary::Silu(a, b) => x * logistic(a, b),
            Unary::Affine(a, b) => x * self.number(b) + self.number(a),
            Unary::Abs => x.abs(),
            Unary::Log => x.lg2() * LN_2,
            Unary::Exp => exp(x),
        }
    }

    fn binary(&self, op: Binary, x: Val<'k, f32>, y: Val<'k, f32>) -> Val<'k, f32> {
        let scaled = |Num(by): Num, x: Val<'k, f32>| if by == 1.0 { x } else { x * by as f32 };
        match op {
            Binary::Maximum => x.max(y),
            Binary::Minimum => x.min(y),
            Binary::Multiply => x * y,
            Binary::Add(a, b) => scaled(a, x) + scaled(b, y),
            Binary::Where(comparison) => x.compare(cmp(comparison), y).select(0.0f32, REFUSED as f32),
        }
    }

    fn reduce(&mut self, Reduction { reduce, axis, every }: Reduction, x: ValueId, at: BlockRow) -> LaneRow<'k> {
        let extents = self.recipe.extents(x);
        let count = every.map_or(extents[axis.index()], |every| every as usize) as u32;
        match axis {
            InnerAxis::D0 => {
                let rows = (0..count).map(|n| BlockRow { row: at.row * count + n, ..at });
                let mut all: Option<LaneRow<'k>> = None;
                for at in rows.collect::<Vec<_>>() {
                    let row: LaneRow<'k> = self.row(x, at).into_iter().map(|x| squared(reduce, x)).collect();
                    all = Some(match all {
                        None => row,
                        Some(all) => all.into_iter().zip(row).map(|(a, b)| join(reduce, a, b)).collect(),
                    });
                }
                all.unwrap_or_default().into_iter().map(|x| finish(reduce, count, x)).collect()
            }
            InnerAxis::D1 => {
                let row = self.row(x, at);
                let dealt = self.recipe.deals(x);
                let runs = if dealt { row.len() } else { count as usize };
                let of_run = |run: &[Val<'k, f32>]| {
                    let terms = run.iter().map(|&x| squared(reduce, x));
                    let mine = terms.reduce(|a, b| join(reduce, a, b)).unwrap_or_else(|| self.k.lit(0.0f32));
                    let all = match dealt {
                        true => self.recipe.spread.combine(mine, |a, b| join(reduce, a, b)),
                        false => mine,
                    };
                    finish(reduce, count, all)
                };
                row.chunks(runs).map(of_run).collect()
            }
        }
    }

    /// The inner product of two rows.
    fn dot(&self, x: &[Val<'k, f32>], y: &[Val<'k, f32>], dealt: bool) -> Val<'k, f32> {
        let mut pairs = x.iter().zip(y);
        let first = pairs.next().map(|(&x, &y)| x * y).unwrap_or_else(|| self.k.lit(0.0f32));
        let mine = pairs.fold(first, |sum, (&x, &y)| x.fma(y, sum));
        if dealt { self.recipe.spread.combine(mine, |a, b| a + b) } else { mine }
    }

    fn product(&mut self, op: ProductOp, id: ValueId, at: BlockRow) -> LaneRow<'k> {
        let [x, y, ..] = self.recipe.graph().operands(id)[..] else { return LaneRow::new() };
        let dealt = self.recipe.deals(x);
        match op {
            ProductOp::Gemv | ProductOp::Gemm => {
                let y = self.row(y, at);
                let rows = if op == ProductOp::Gemv { 1 } else { self.recipe.extents(x)[0] as u32 };
                (0..rows)
                    .map(|row| self.row(x, BlockRow { row, ..at }))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(|x| self.dot(x, &y, dealt))
                    .collect()
            }
            ProductOp::Kron([d0, d1]) => {
                let of_y = self.recipe.extents(y)[0] as u32;
                let (x, y) = match d0 {
                    true => (
                        self.row(x, BlockRow { row: at.row / of_y, ..at }),
                        self.row(y, BlockRow { row: at.row % of_y, ..at }),
                    ),
                    false => (self.broadcast(x, at), self.broadcast(y, at)),
                };
                if d1 {
                    return x.iter().flat_map(|&x| y.iter().map(move |&y| x * y)).collect();
                }
                let element = |row: &LaneRow<'k>, e: usize| row[if row.len() == 1 { 0 } else { e }];
                (0..x.len().max(y.len())).map(|e| element(&x, e) * element(&y, e)).collect()
            }
            ProductOp::LearnedQuery(_) => {
                let queries = self.all(x);
                self.sources.learned_query(id, &queries)
            }
        }
    }

    fn rearrange(&mut self, op: Rearrange, id: ValueId, x: ValueId, at: BlockRow) -> LaneRow<'k> {
        let [rows, columns] = self.recipe.extents(x);
        match op {
            Rearrange::Transpose => {
                (0..rows as u32).map(|row| self.row(x, BlockRow { row, ..at })[at.row as usize]).collect()
            }
            Rearrange::Reshape(_) if self.recipe.deals(id) => self.row(x, at),
            Rearrange::Reshape(_) => {
                let width = self.recipe.extents(id)[1];
                let element = |index: usize| (BlockRow { row: (index / columns) as u32, ..at }, index % columns);
                let elements: Vec<_> = (0..width).map(|e| element(at.row as usize * width + e)).collect();
                elements.into_iter().map(|(at, column)| self.row(x, at)[column]).collect()
            }
        }
    }

    fn across(&mut self, op: &RowOp, id: ValueId, x: ValueId, at: BlockRow) -> LaneRow<'k> {
        if let RowOp::Conv1d(taps) = op {
            return self.convolve(taps, id, x, at);
        }
        let row = at.row as usize;
        match self.gathered.get(&id).cloned() {
            Some(Gathered::Value(rows)) => rows[row].clone(),
            Some(Gathered::Softmax(largest, sums)) => {
                let scale = self.recipe.scale(id);
                let term = |(x, largest): (Val<'k, f32>, &Val<'k, f32>)| exp(x * scale - *largest);
                let terms: LaneRow<'k> = self.row(x, at).into_iter().zip(&largest[row]).map(term).collect();
                terms.into_iter().zip(&sums[row]).map(|(term, &sum)| term.div_rn(sum)).collect()
            }
            Some(Gathered::Norm(norms)) => {
                let over = |(x, &norm): (Val<'k, f32>, &Val<'k, f32>)| norm.eq(0.0).select(0.0f32, x.div_rn(norm));
                self.row(x, at).into_iter().zip(&norms[row]).map(over).collect()
            }
            // Asked for in the order of the graph.
            None => LaneRow::new(),
        }
    }

    fn convolve(&mut self, taps: &Taps, id: ValueId, x: ValueId, at: BlockRow) -> LaneRow<'k> {
        let mut sum: Option<LaneRow<'k>> = None;
        let dealt = self.recipe.deals(id) && taps.inner()[1] > 1;
        for back in 0..taps.len() as u32 {
            let row = self.row(x, BlockRow { back: at.back + back, ..at });
            let exists = self.sources.exists(at.back + back);
            let term = |(e, x): (usize, Val<'k, f32>)| {
                let weight = match dealt {
                    false => self.k.lit(taps.at(back as usize, at.row as usize, e) as f32),
                    true => self.dealt_tap(taps, back, at.row, e as u32),
                };
                exists.select(x * weight, 0.0f32)
            };
            let terms: LaneRow<'k> = row.into_iter().enumerate().map(term).collect();
            sum = Some(match sum {
                None => terms,
                Some(sum) => sum.into_iter().zip(terms).map(|(a, b)| a + b).collect(),
            });
        }
        sum.unwrap_or_default()
    }

    /// The weight of an element that lies in other columns in other lanes.
    fn dealt_tap(&self, taps: &Taps, back: u32, row: u32, e: u32) -> Val<'k, f32> {
        let spread = self.recipe.spread;
        let of_lane = |lane: u32| {
            let column = (lane + e / VECTOR * spread.lanes) * VECTOR + e % VECTOR;
            taps.at(back as usize, row as usize, column as usize) as f32
        };
        let first = self.k.lit(of_lane(0));
        (1..spread.lanes).fold(first, |weight, lane| self.lane.eq(lane).select(of_lane(lane), weight))
    }

    /// The terms that a block contributes to an op across blocks: its operand, as it is summed.
    pub fn terms(&mut self, id: ValueId, largest: Option<&[LaneRow<'k>]>) -> Vec<LaneRow<'k>> {
        let op = self.recipe.graph().op(id);
        let rows = self.all(self.recipe.graph().operands(id)[0]);
        let scale = self.recipe.scale(id);
        let of_row = |(at, row): (usize, LaneRow<'k>)| {
            let of = |(e, x): (usize, Val<'k, f32>)| match (op, largest) {
                (Op::OverBlocks { over: RowOp::Softmax(_), .. }, None) => x * scale,
                (Op::OverBlocks { over: RowOp::Softmax(_), .. }, Some(largest)) => exp(x * scale - largest[at][e]),
                (Op::OverBlocks { over: RowOp::Normalize(Norm::L1), .. }, _) => x.abs(),
                (Op::OverBlocks { over: RowOp::Normalize(Norm::L2) | RowOp::Reduce(Reduce::L2Norm), .. }, _) => x * x,
                _ => x,
            };
            row.into_iter().enumerate().map(of).collect()
        };
        rows.into_iter().enumerate().map(of_row).collect()
    }
}
