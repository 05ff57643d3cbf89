//! Activations in the form in which their readers multiply them: as terms of the MMA's operand, in
//! the order of fragments. For a residual stream this is `x · weight` of the readers' norm,
//! together with the sums of squares of eight columns each.
//!
//! Every SM reads all activations of a level, so each operation that their writers do once saves
//! 132 readers the same work: multiply with the norm's weight, round, split in two parts, arrange a
//! warp's words together. The writer of a column writes its term. The factor of a row, one over the
//! root of its mean square, is multiplied into the sums of products afterwards.

use tilewright_codegen::build::{Global, Ptr, Shared, Val, Var};

use super::overflow::F16Overflow;
use super::packing::Packing;
use crate::norm::{add_squares, rms_factor};
use crate::quant::Code;
use crate::tile::{AccessMode, Array, Float};
use crate::warps::ConsumerWarps;
use crate::weights::{DEPTH, Strip, Terms, convert};

/// Rows of a block of terms: those that lanes bring together.
const ROWS: u32 = 8;
/// Elements of a block: eight rows of the 32 columns of a step.
const BLOCK: u32 = ROWS * DEPTH;

/// The storage format of split activations: 16 bits each, `[k / 32, parts, rows / 8, 8, 32]`. In
/// pairs of rows: row r and row r + 8 take turns, two columns each, so that 16 bytes are four words
/// of the MMA's A operand as it takes them: of each part `[2, 8, 4, 2, 2, 2]`, halves of a lane's
/// eight columns, rows, lanes, pairs of columns, r and r + 8, columns.
///
/// ```
/// use tilewright_kernels::weights::Strip;
/// use tilewright_kernels::gemv::activations::{Packing, ScaledForm};
/// use tilewright_kernels::tile::Float;
/// let strip = Strip::new(4096, 8, 16384)?;
/// let form = ScaledForm::of(strip, Packing::of(8, Float::F32), 8).expect("rows are whole steps");
/// // Two parts of bf16, and a sum of squares in f32 for eight columns.
/// assert_eq!(form.bytes(), [8 * 4096 * 2 * 2, 8 * 512 * 4]);
/// // Without a norm there are terms alone.
/// assert_eq!(form.without_norm().bytes(), [8 * 4096 * 2 * 2, 0]);
/// assert_eq!(ScaledForm::of(Strip::new(4100, 8, 16384)?, Packing::of(8, Float::F32), 8), None);
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScaledForm {
    terms: Terms,
    parts: u32,
    /// The type that holds the activations without loss.
    exact: Float,
    /// Whether they are of a norm.
    norm: bool,
    /// The codes that the terms are multiplied with, if weights are codes.
    code: Option<Code>,
    /// Whether rows are stored in pairs.
    pairs: bool,
    /// Whether columns lie as codes do that have an act-order, at places that a table has
    /// ([`Reordering::Scattered`](super::Reordering)).
    ordered: bool,
    /// Whether a step's columns lie as codes of groups of half a step do
    /// ([`columns`](super::columns)).
    halves: bool,
    rows: u32,
    k: u32,
}

impl ScaledForm {
    /// The form that a strip's products take, for a normalised stream of `rows` rows. `None` if
    /// rows are not whole steps of 32.
    pub fn of(strip: Strip, packing: Packing, rows: u32) -> Option<ScaledForm> {
        let exact = if packing.parts() == 1 { Float::Bf16 } else { Float::F32 };
        let packing = packing.meeting(strip);
        let code = strip.codes().map(|codes| codes.code);
        let terms = packing.terms();
        let parts = packing.parts();
        let halves = strip.is_halved();
        let k = strip.k();
        let form = ScaledForm { terms, parts, exact, norm: true, code, pairs: false, ordered: false, halves, rows, k };
        strip.k().is_multiple_of(DEPTH).then_some(form)
    }

    /// Drops the sums of squares: activations are multiplied without a norm.
    #[must_use]
    pub fn without_norm(self) -> ScaledForm {
        ScaledForm { norm: false, ..self }
    }

    /// Stores pairs of rows, for 9 to 16 rows that are multiplied together with weights of bf16,
    /// held in registers: others stay as they are.
    #[must_use]
    pub fn in_pairs(self, packing: Packing) -> ScaledForm {
        let all = packing.rows() == self.rows && self.groups() == 2;
        ScaledForm { pairs: all && self.code.is_none(), ..self }
    }

    /// Stores activations in the act-order (`g_idx`) of the codes that they meet.
    #[must_use]
    pub fn in_order(self) -> ScaledForm {
        // The table has the order of halves, too.
        ScaledForm { ordered: true, halves: false, ..self }
    }

    /// Whether they lie in an act-order.
    pub fn is_ordered(self) -> bool {
        self.ordered
    }

    /// Whether rows are stored in pairs.
    pub(in crate::gemv) fn has_pairs(self) -> bool {
        self.pairs
    }

    /// Bytes of the terms, and of the sums of squares.
    pub fn bytes(self) -> [u64; 2] {
        let blocks = self.k / DEPTH * self.parts * self.groups();
        let squares = if self.norm { self.rows * (self.k / Strip::ROWS) } else { 0 };
        [u64::from(blocks * BLOCK) * 2, u64::from(squares) * 4]
    }

    /// Columns of a row.
    pub fn k(self) -> u32 {
        self.k
    }

    /// Whether the activations are of a norm, and have sums of squares.
    pub fn has_norm(self) -> bool {
        self.norm
    }

    /// The type that holds the activations without loss.
    pub fn exact(self) -> Float {
        self.exact
    }

    /// The type of the terms, as memory has it.
    pub fn float(self) -> Float {
        match self.terms {
            Terms::Bf16 => Float::Bf16,
            Terms::F16 | Terms::TwoF16 => Float::F16,
        }
    }

    fn groups(self) -> u32 {
        self.rows.div_ceil(ROWS)
    }
}

/// Sums of squares of the rows, `[rows, warps]`; where the writers of activations left them, a
/// row's factor in place of its first.
pub(in crate::gemv) type Squares<'k> = Ptr<'k, Shared, f32>;

/// The terms of activations.
#[derive(Clone, Copy)]
pub struct Scaled<'k> {
    /// The storage format.
    pub form: ScaledForm,
    /// The terms, of [`ScaledForm::float`].
    pub terms: Array<'k>,
    /// The sums of squares of a norm, f32 `[rows, k / 8]`.
    pub squares: Option<Array<'k>>,
}

/// Sums of squares on their way: of each row of this warp its number, and what a lane has of it.
pub(in crate::gemv) type Loaded<'k> = Vec<(Val<'k, u32>, Vec<[Val<'k, f32>; 4]>)>;

impl<'k> Scaled<'k> {
    /// The activations from a column on, a multiple of 32; sums of squares stay those of whole
    /// rows.
    #[track_caller]
    pub fn from(self, column: Val<'k, u32>) -> Scaled<'k> {
        Scaled { terms: self.terms.from(self.step(column)), ..self }
    }

    /// The start of the step that contains a column.
    fn step(self, column: Val<'k, u32>) -> Val<'k, u32> {
        column / DEPTH * (self.form.parts * self.form.groups() * BLOCK)
    }

    fn place(self, part: Val<'k, u32>, row: Val<'k, u32>, column: Val<'k, u32>) -> Val<'k, u32> {
        let block = part * self.form.groups();
        let line = self.step(column) + row % ROWS * DEPTH;
        if self.form.pairs {
            let [eight, quad, word] = [column % DEPTH / 8 * 8, column % 8 / 4, column % 4 / 2];
            return line + (block + quad) * BLOCK + eight + word * 4 + row / ROWS * 2 + column % 2;
        }
        line + (block + row / ROWS) * BLOCK + column % DEPTH
    }

    /// Eight terms of a row from each of some columns on, multiples of eight, as words of two; all
    /// in flight together. In pairs of rows: of the first of a pair, columns multiples of four,
    /// four terms of each of its rows.
    pub(in crate::gemv) fn eights(
        self,
        part: Val<'k, u32>,
        row: Val<'k, u32>,
        columns: &[Val<'k, u32>],
    ) -> Vec<[Val<'k, u32>; 4]> {
        let places: Vec<_> = columns.iter().map(|&column| self.place(part, row, column)).collect();
        self.terms.eights(&places)
    }

    /// Loads the sums of squares of this warp's rows among `rows` from `first` on.
    pub(in crate::gemv) fn load_squares(
        self,
        consumers: ConsumerWarps<'k>,
        rows: u32,
        first: Val<'k, u32>,
    ) -> Loaded<'k> {
        let k = consumers.k;
        let fours = self.form.k / DEPTH;
        let Some(squares) = self.squares else { return Vec::new() };
        let load = |base: u32| {
            let row = k.warp() + base;
            let start = (first + row.min(rows - 1)) * (fours * 4);
            let four = |round: u32| {
                let at = k.lane() + round;
                let loaded = squares.load4(start + at.min(fours - 1) * 4);
                if round + 32 <= fours { loaded } else { loaded.map(|square| at.lt(fours).select(square, 0.0f32)) }
            };
            (row, (0..fours).step_by(32).map(four).collect())
        };
        (0..rows).step_by(consumers.warps as usize).map(load).collect()
    }

    /// Adds them up; the first number of each row of `[rows, warps]` is the row's factor, one over
    /// the root of its mean square.
    pub(in crate::gemv) fn store_factors(
        self,
        consumers: ConsumerWarps<'k>,
        rows: u32,
        eps: f32,
        loaded: Loaded<'k>,
        to: Squares<'k>,
    ) {
        for (row, fours) in loaded {
            let mine = fours.iter().flatten().fold(consumers.k.lit(0.0f32), |sum, &square| sum + square);
            let factor = rms_factor(mine.warp_reduce(|a, b| a + b), self.form.k, eps);
            consumers.k.when(consumers.k.lane().eq(0) & row.lt(rows), || to.at(row * consumers.warps).store(factor));
        }
    }

    /// The factor of an element at a place where it is multiplied with codes; `None` if weights are
    /// not codes.
    fn lift(self, place: Val<'k, u32>) -> Option<Val<'k, f32>> {
        let k = place.builder();
        let [even, odd] = convert::lift(self.form.code?, self.form.terms);
        Some(if even == odd { k.lit(even) } else { (place % 4).lt(2).select(k.lit(even), odd) })
    }
}

/// The place of a column where a step's halves are groups: the inverse of
/// [`columns`](super::columns).
fn place_of(column: Val<u32>) -> Val<u32> {
    let within = column % DEPTH;
    column - within + within % (DEPTH / 2) / 4 * 8 + within / (DEPTH / 2) * 4 + within % 4
}

/// The destination of split activations.
#[derive(Clone, Copy)]
pub struct ScaledOutput<'k> {
    /// The terms.
    pub to: Scaled<'k>,
    /// The weight of the readers' norm, `[k]`, if there is one.
    pub weight: Option<Array<'k>>,
    /// The place of every column, `[k]`, if terms are in an act-order.
    pub places: Option<Ptr<'k, Global, u32>>,
    /// The destination of reports of f16 overflow, if they are made.
    pub overflow: Option<F16Overflow<'k>>,
}

impl<'k> ScaledOutput<'k> {
    /// Stores two neighbouring elements of a row, from an even column on.
    fn store2(self, [row, column]: [Val<'k, u32>; 2], scaled: [Val<'k, f32>; 2]) {
        let ScaledOutput { to, places, overflow, .. } = self;
        if let Some(places) = places {
            let places: [Val<u32>; 2] = places.at(column).load_vec();
            return places.into_iter().zip(scaled).for_each(|(place, x)| self.store_at([row, place], x));
        }
        let k = row.builder();
        let ScaledForm { terms, parts, .. } = to.form;
        // Two terms that lie together have one factor.
        let lift = to.lift(column);
        let [a, b] = scaled.map(|x| lift.map_or(x, |lift| x * lift));
        if let Some(overflow) = overflow.filter(|_| terms != Terms::Bf16) {
            overflow.check(&[a, b]);
        }
        let column = if to.form.halves { place_of(column) } else { column };
        let store = |part: u32, pair| to.terms.store_run(to.place(k.lit(part), row, column), pair);
        store(0, [a, b]);
        if parts == 2 {
            store(1, terms.narrow(a, b).1);
        }
    }

    /// Stores an element of a row at a place of an act-order.
    fn store_at(self, [row, place]: [Val<'k, u32>; 2], x: Val<'k, f32>) {
        let (k, to, ScaledForm { terms, parts, .. }) = (row.builder(), self.to, self.to.form);
        let x = to.lift(place).map_or(x, |lift| x * lift);
        if let Some(overflow) = self.overflow.filter(|_| terms != Terms::Bf16) {
            overflow.check(&[x]);
        }
        // Weak accesses, since 16-bit accesses have no order: the thread that signals the task
        // releases them.
        let weak = to.terms.accessed(AccessMode::Weak);
        weak.store(to.place(k.lit(0), row, place), x);
        if parts == 2 {
            weak.store(to.place(k.lit(1), row, place), terms.narrow(x, x).1[0]);
        }
    }

    /// Asks for the place of a column, where terms lie in an act-order and there is such a column.
    pub(in crate::gemv) fn ask_place(self, column: Val<'k, u32>, inside: Val<'k, bool>) -> Option<Var<'k, u32>> {
        let k = column.builder();
        self.places.map(|places| {
            let place = k.var(0u32);
            k.when(inside, || place.set(places.at(column).load()));
            place
        })
    }

    /// Stores an element of a row, `x`, times the norm's weight, at its place where that was asked
    /// for; by whole warps, whose lanes have neighbouring columns: eight of a row from a multiple
    /// of eight on. `inside`: whether there is such an element; `x` is zero where there is none.
    pub(in crate::gemv) fn store_of_eight(
        self,
        [row, column]: [Val<'k, u32>; 2],
        x: Val<'k, f32>,
        weight: Option<Val<'k, f32>>,
        place: Option<Val<'k, u32>>,
        inside: Val<'k, bool>,
    ) {
        let k = x.builder();
        let scaled = weight.map_or(x, |weight| x * weight);
        let square =
            self.to.squares.map(|to| (to, [1u32, 2, 4].into_iter().fold(x * x, |sum, bits| sum + sum.shfl_bfly(bits))));
        match place {
            Some(place) => k.when(inside, || self.store_at([row, place], scaled)),
            None => {
                let next = scaled.shfl_down(1);
                k.when(inside & (column % 2).eq(0), || self.store2([row, column], [scaled, next]));
            }
        }
        if let Some((to, square)) = square {
            k.when(inside & (column % Strip::ROWS).eq(0), || self.store_square(to, [row, column], square));
        }
    }

    /// Stores four elements of a row, which `bring` gives, times their weights; by whole warps,
    /// whose lanes have neighbouring fours from a multiple of eight on. `inside`: whether there are
    /// such elements; nothing is brought where there are none.
    pub(crate) fn store_of_four(
        self,
        [row, column]: [Val<'k, u32>; 2],
        inside: Val<'k, bool>,
        bring: impl FnOnce() -> [Val<'k, f32>; 4],
    ) {
        let k = row.builder();
        let [x, weight]: [[Var<f32>; 4]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| k.var(0.0f32)));
        k.moving().when(inside, || {
            let weights = self.weight.map(|weight| weight.load4(column));
            let weights = weight.iter().zip(weights.into_iter().flatten());
            x.iter().zip(bring()).chain(weights).for_each(|(to, value)| to.set(value));
        });
        let x = x.map(Var::get);
        let weight = weight.map(Var::get);
        let square = self.to.squares.map(|to| {
            let four = add_squares(k.lit(0.0f32), x);
            (to, four + four.shfl_bfly(1))
        });
        k.when(inside, || {
            let times = |i: usize| if self.weight.is_some() { x[i] * weight[i] } else { x[i] };
            let scaled: [Val<f32>; 4] = std::array::from_fn(times);
            self.store2([row, column], [scaled[0], scaled[1]]);
            self.store2([row, column + 2], [scaled[2], scaled[3]]);
        });
        if let Some((to, square)) = square {
            k.when(inside & (column % Strip::ROWS).eq(0), || self.store_square(to, [row, column], square));
        }
    }

    fn store_square(self, to: Array<'k>, [row, column]: [Val<'k, u32>; 2], square: Val<'k, f32>) {
        to.store(row * (self.to.form.k / Strip::ROWS) + column / Strip::ROWS, square);
    }
}

/// The destination of activations that nothing is added to.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "it is copied while a kernel is recorded, never stored")]
pub enum ActivationOutput<'k> {
    /// Row by row.
    Rows(Array<'k>),
    /// Split activations, as their readers multiply them.
    Terms(ScaledOutput<'k>),
}

impl<'k> ActivationOutput<'k> {
    /// Stores two neighbouring elements of a row of `width`, from an even column on.
    #[track_caller]
    pub(crate) fn store2(self, [row, column]: [Val<'k, u32>; 2], width: u32, pair: [Val<'k, f32>; 2]) {
        match self {
            ActivationOutput::Rows(out) => out.store_run(row * width + column, pair),
            ActivationOutput::Terms(terms) => terms.store2([row, column], pair),
        }
    }

    /// Whether they are packets.
    pub(crate) fn is_packets(self) -> bool {
        match self {
            ActivationOutput::Rows(out) => matches!(out.access(), AccessMode::Packets(_)),
            ActivationOutput::Terms(_) => false,
        }
    }
}
