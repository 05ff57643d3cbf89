//! Layouts whose extents and strides may be known while the kernel runs.

use super::layout::TensorLayout;
use super::{Index, Mask};
use tilewright_codegen::build::{Builder, Ptr, Scalar, SpaceOf, Val};
use tilewright_codegen::ir::Ty;

/// A layout of `R` modes, each with an extent and a stride that are constants or values of the
/// kernel, in any mixture.
///
/// Its tiles may run over the edge: extents of a tile are constants, and
/// [`mask`](super::LayoutTensor::mask) says what is inside. Offsets in global memory are 64 bits
/// wide, so that a tensor may be as large as memory.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::tile::{Index, LayoutTensor, Modes};
/// # record("sample", Arch::Sm80, block(128), |k| {
/// // Rows of 64 elements, as many as the caller says, so far apart as the caller says.
/// let rows = k.param::<u32>("rows");
/// let stride = k.param::<u32>("stride");
/// let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([rows.into(), 64.into()], stride));
/// let tile = x.clipped_tile([16, 64], [k.block_id().into(), 0.into()]);
/// let at = [Index::thread(k) / 8, Index::thread(k) % 8];
/// let value = tile.load(at); // zero where there is no such row
/// tile.store(at, value * 2.0); // nothing where there is no such row
/// # });
/// ```
#[derive(Clone, Copy)]
pub struct Modes<'k, const R: usize> {
    modes: [Mode<'k>; R],
    /// Elements that base, strides and edges of the contiguous mode are multiples of.
    whole: u32,
    /// An additional mask of all elements: that of the modes that were sliced away.
    guard: Option<Val<'k, bool>>,
}

/// A mode of a view: coordinate `c` is coordinate `start + c·step` of the underlying tensor.
#[derive(Clone, Copy)]
struct Mode<'k> {
    extent: Index<'k>,
    stride: Index<'k>,
    start: Index<'k>,
    step: u32,
    /// The end of the tensor, if the view may run over it.
    bound: Option<Index<'k>>,
}

impl<'k> Mode<'k> {
    /// The coordinate in the tensor.
    #[track_caller]
    fn coordinate(&self, at: Index<'k>) -> Index<'k> {
        self.start + at * self.step
    }

    fn is_contiguous(&self) -> bool {
        self.stride.known() == Some(1)
    }
}

impl<'k, const R: usize> Modes<'k, R> {
    /// The layout of these extents and strides.
    pub fn new(extents: [Index<'k>; R], strides: [Index<'k>; R]) -> Modes<'k, R> {
        let mode = |i: usize| {
            let extent = extents[i];
            let stride = strides[i];
            Mode { extent, stride, start: 0.into(), step: 1, bound: Some(extent) }
        };
        Modes { modes: core::array::from_fn(mode), whole: 1, guard: None }
    }

    /// Asserts an alignment: the base, every stride but the contiguous mode's and the contiguous
    /// mode's extent are multiples of `whole` elements. A vector of that many is then aligned, and
    /// inside or outside as a whole.
    #[must_use]
    pub fn vectors(self, whole: u32) -> Modes<'k, R> {
        Modes { whole, ..self }
    }

    /// The extents.
    pub fn extents(&self) -> [Index<'k>; R] {
        self.modes.map(|mode| mode.extent)
    }

    /// Splits a mode at the last multiple of `lanes` in the tensor.
    #[track_caller]
    pub(super) fn cut(self, k: &'k Builder, mode: usize, lanes: u32) -> [Modes<'k, R>; 2] {
        let edged = self.edged(k, mode);
        let of = edged.modes[mode];
        let round = |index: Index<'k>| match index.known() {
            Some(known) => (known & !(lanes - 1)).into(),
            None => Index::with_bits(index.get(k) & !(lanes - 1), !(lanes - 1)),
        };
        let end = of.bound.unwrap_or(of.extent);
        let last = round(end);
        // A view beyond the end has no rest.
        let start = match (of.start.known(), last.known()) {
            (Some(0), _) => last,
            (Some(start), Some(last)) => start.max(last).into(),
            _ => Index::any(of.start.get(k).max(last.get(k))),
        };
        let whole = Mode { extent: round(of.extent), bound: Some(last), ..of };
        let rest = Mode { start, extent: lanes.into(), bound: Some(end), ..of };
        [whole, rest].map(|part| {
            let modes = core::array::from_fn(|i| if i == mode { part } else { edged.modes[i] });
            Modes { modes, whole: lanes, ..edged }
        })
    }

    /// Drops the edges.
    pub(super) fn unbounded(&self) -> Modes<'k, R> {
        Modes { modes: self.modes.map(|mode| Mode { bound: None, ..mode }), guard: None, ..*self }
    }

    /// The modes in another order.
    pub(super) fn permuted(&self, order: [usize; R]) -> Modes<'k, R> {
        Modes { modes: order.map(|mode| self.modes[mode]), ..*self }
    }

    /// `extent` indices of a mode from one on, masked by what is there.
    #[track_caller]
    pub(super) fn part(mut self, mode: usize, start: Index<'k>, extent: Index<'k>) -> Modes<'k, R> {
        let of = &mut self.modes[mode];
        of.start = of.coordinate(start);
        of.extent = extent;
        self
    }

    /// The edge of a mode moved to an index of the view, where that comes first.
    #[track_caller]
    pub(super) fn ended(mut self, k: &'k Builder, mode: usize, end: Index<'k>) -> Modes<'k, R> {
        let of = &mut self.modes[mode];
        if of.is_contiguous() {
            self.whole = self.whole.min(end.multiple());
        }
        let end = of.coordinate(end);
        of.bound = Some(match (of.bound, end.known()) {
            (None, _) => end,
            (Some(bound), Some(end)) if bound.known().is_some_and(|bound| bound <= end) => bound,
            (Some(bound), _) => Index::any(bound.get(k).min(end.get(k))),
        });
        self
    }

    /// Marks the edge of a mode where the view ends, for parts that may extend over it.
    #[track_caller]
    pub(super) fn edged(self, k: &'k Builder, mode: usize) -> Modes<'k, R> {
        let of = self.modes[mode];
        if of.start.known() == Some(0) && of.step == 1 && of.bound.is_some_and(|bound| bound.is_same(of.extent)) {
            return self;
        }
        self.ended(k, mode, of.extent)
    }

    /// Whether parts of `size` indices fill a mode: then none runs over the view's end.
    pub(super) fn divides(&self, mode: usize, size: u32) -> bool {
        self.modes[mode].extent.known().is_some_and(|extent| extent.is_multiple_of(size))
    }

    /// Tile `tile` of `size` indices of a mode; at the edge it runs over it.
    #[track_caller]
    pub(super) fn tiled(mut self, k: &'k Builder, mode: usize, size: u32, tile: Index<'k>) -> Modes<'k, R> {
        if !self.divides(mode, size) {
            self = self.edged(k, mode);
        } else if self.modes[mode].covers() {
            self.modes[mode].bound = None;
        }
        let of = &mut self.modes[mode];
        of.start = of.coordinate(tile * size);
        of.extent = size.into();
        self
    }

    /// Selects every `step`-th index of a mode from `start` on.
    #[track_caller]
    pub(super) fn dealt(mut self, k: &'k Builder, mode: usize, start: Index<'k>, step: u32) -> Modes<'k, R> {
        if !self.divides(mode, step) {
            self = self.edged(k, mode);
        } else if self.modes[mode].covers() {
            self.modes[mode].bound = None;
        }
        let of = &mut self.modes[mode];
        of.start = of.coordinate(start);
        of.step *= step;
        of.extent = match of.extent.known() {
            Some(extent) => extent.div_ceil(step).into(),
            None => Index::any((of.extent.get(k) + (step - 1)) / step),
        };
        self
    }

    /// Vectors of `lanes` elements along a mode.
    #[track_caller]
    pub(super) fn vectorized(mut self, mode: usize, lanes: u32) -> Modes<'k, R> {
        let of = &mut self.modes[mode];
        of.step *= lanes;
        of.extent = of.extent / lanes;
        self
    }

    /// The modes that stay open at a coordinate, and where their first element is.
    #[track_caller]
    pub(super) fn sliced<const Q: usize, S: SpaceOf, T: Scalar>(
        &self,
        base: Ptr<'k, S, T>,
        at: [Option<Index<'k>>; R],
    ) -> (Modes<'k, Q>, Ptr<'k, S, T>) {
        let k = base.builder();
        let mut open = self.modes.iter().zip(&at).filter(|(_, at)| at.is_none()).map(|(mode, _)| *mode);
        let nothing = Mode { extent: 1.into(), stride: 0.into(), start: 0.into(), step: 1, bound: None };
        let modes = core::array::from_fn(|_| open.next().unwrap_or(nothing));
        let fixed = self.modes.iter().zip(&at).filter_map(|(mode, at)| at.map(|at| (mode, mode.coordinate(at))));
        let mut mask = self.guard.map_or(Mask::always(k), Mask::of);
        let mut spots = Vec::new();
        for (mode, spot) in fixed {
            if let Some(bound) = mode.bound {
                mask = mask.and(Mask::of(spot.get(k).lt(bound.get(k))));
            }
            spots.push((spot, mode.stride));
        }
        (Modes { modes, whole: self.whole, guard: mask.condition() }, displace(base, &spots))
    }
}

impl Mode<'_> {
    /// Whether the view is the whole tensor along this mode, so that tiles that divide it are
    /// inside.
    fn covers(&self) -> bool {
        self.bound.is_none_or(|bound| {
            let end = self.start + self.extent * self.step;
            matches!((end.known(), bound.known()), (Some(end), Some(bound)) if end <= bound)
        })
    }
}

impl<'k> Modes<'k, 1> {
    /// A run of `extent` contiguous elements.
    pub fn contiguous_run(extent: impl Into<Index<'k>>) -> Modes<'k, 1> {
        Modes::new([extent.into()], [1.into()])
    }
}

impl<'k> Modes<'k, 2> {
    /// A matrix whose columns are contiguous within a row; rows are `stride` elements apart.
    pub fn row_major(extents: [Index<'k>; 2], stride: impl Into<Index<'k>>) -> Modes<'k, 2> {
        Modes::new(extents, [stride.into(), 1.into()])
    }

    /// A matrix whose rows are contiguous within a column; columns are `stride` elements apart.
    pub fn col_major(extents: [Index<'k>; 2], stride: impl Into<Index<'k>>) -> Modes<'k, 2> {
        Modes::new(extents, [1.into(), stride.into()])
    }
}

impl<'k, const R: usize> TensorLayout<'k> for Modes<'k, R> {
    const RANK: Option<usize> = Some(R);

    fn modes(&self) -> usize {
        R
    }

    fn extent_along(&self, mode: usize) -> Index<'k> {
        self.modes.get(mode).map_or(1.into(), |mode| mode.extent)
    }

    fn bound_along(&self, _: usize) -> Option<u32> {
        None
    }

    fn begin<S: SpaceOf, T: Scalar>(&self, _: Ptr<'k, S, T>) -> Index<'k> {
        Index::ZERO
    }

    #[track_caller]
    fn locate<S: SpaceOf, T: Scalar>(&self, base: Ptr<'k, S, T>, _: Index<'k>, at: &[Index<'k>]) -> Ptr<'k, S, T> {
        let spots: Vec<_> = self.modes.iter().zip(at).map(|(mode, &at)| (mode.coordinate(at), mode.stride)).collect();
        displace(base, &spots)
    }

    fn may_end(&self) -> bool {
        self.guard.is_some() || self.modes.iter().any(|mode| mode.bound.is_some())
    }

    fn guard(&self, k: &'k Builder) -> Mask<'k> {
        self.guard.map_or(Mask::always(k), Mask::of)
    }

    #[track_caller]
    fn before_end(&self, k: &'k Builder, mode: usize, at: Index<'k>) -> Mask<'k> {
        match self.modes.get(mode).and_then(|mode| Some((mode, mode.bound?))) {
            None => Mask::always(k),
            Some((mode, bound)) => Mask::of(mode.coordinate(at).get(k).lt(bound.get(k))),
        }
    }

    #[track_caller]
    fn begun(&self, origin: Index<'k>, at: &[Index<'k>], _: &[&[Index<'k>]]) -> Option<(Self, Index<'k>)> {
        let mut begun = *self;
        for (mode, &at) in begun.modes.iter_mut().zip(at) {
            mode.start = mode.coordinate(at);
        }
        Some((begun, origin))
    }

    /// Lines are found once each, and neighbours in one are constants of its address.
    #[track_caller]
    fn locate_all<S: SpaceOf, T: Scalar>(
        &self,
        base: Ptr<'k, S, T>,
        _: Index<'k>,
        at: &[&[Index<'k>]],
    ) -> Vec<Ptr<'k, S, T>> {
        let starts: Vec<_> = self.modes.iter().map(|mode| (mode.start.variable(), mode.stride)).collect();
        let start = displace(base, &starts);
        let mut lines = Vec::<(Vec<u32>, Ptr<'k, S, T>)>::new();
        let mut place = |at: &&[Index<'k>]| {
            let steps = || {
                self.modes.iter().zip(*at).map(|(mode, &at)| (mode.start.constant() + at.constant() * mode.step, mode))
            };
            let across: Vec<_> = steps().filter(|(_, mode)| !mode.is_contiguous()).collect();
            let key: Vec<u32> = across.iter().map(|(step, _)| *step).collect();
            let known = lines.iter().find(|(line, _)| *line == key).map(|(_, line)| *line);
            let line = known.unwrap_or_else(|| {
                let spots: Vec<_> = across.iter().map(|&(step, mode)| (Index::from(step), mode.stride)).collect();
                let line = displace(start, &spots);
                lines.push((key, line));
                line
            });
            steps().filter(|(_, mode)| mode.is_contiguous()).fold(line, |line, (step, _)| line.at(step))
        };
        at.iter().map(&mut place).collect()
    }

    fn widest(&self, _: Index<'k>, mode: usize, bits: u32) -> u32 {
        let Some(along) = self.modes.get(mode).filter(|of| of.is_contiguous() && of.step == 1) else { return 1 };
        // A vector lies inside or outside as a whole where it begins at a multiple of its length.
        let extent = along.extent.known().map_or(self.whole, |extent| Index::from(extent).multiple());
        let most = (128 / bits).min(self.whole).min(extent).min(along.start.multiple());
        1 << most.ilog2()
    }

    fn contiguous_mode(&self) -> Option<usize> {
        self.modes.iter().position(Mode::is_contiguous)
    }

    fn text(&self) -> String {
        let number = |index: Index<'k>| index.known().map_or_else(|| "_".into(), |known| known.to_string());
        let list = |of: fn(&Mode<'k>) -> Index<'k>| {
            self.modes.iter().map(|mode| number(of(mode))).collect::<Vec<_>>().join(",")
        };
        format!("({}):({})", list(|mode| mode.extent), list(|mode| mode.stride))
    }
}

/// The pointer moved on by coordinates times strides: what is known at run time first, contiguous
/// modes last, then constants. Offsets are 64 bits wide where addresses are.
#[track_caller]
fn displace<'k, S: SpaceOf, T: Scalar>(base: Ptr<'k, S, T>, spots: &[(Index<'k>, Index<'k>)]) -> Ptr<'k, S, T> {
    let k = base.builder();
    let wide = S::SPACE.address() == Ty::U64;
    let by_lines = || spots.iter().filter(|(_, stride)| stride.known() != Some(1));
    let along = || spots.iter().filter(|(_, stride)| stride.known() == Some(1));
    let mut pointer = base;
    for (spot, stride) in by_lines() {
        let Some(value) = spot.value() else { continue };
        let bytes = stride.known().and_then(|stride| stride.checked_mul(T::TY.bytes()));
        pointer = match bytes {
            Some(bytes) if wide => pointer.at_byte(value.mul_wide(bytes)),
            _ if wide => pointer.at(value.mul_wide(stride.get(k))),
            _ => pointer.at(value * stride.get(k)),
        };
    }
    for value in along().filter_map(|(spot, _)| spot.value()) {
        pointer = pointer.at(value);
    }
    for (spot, stride) in by_lines().filter(|(spot, _)| spot.constant() > 0) {
        let constant = spot.constant();
        pointer = match stride.known().map(|stride| u64::from(stride) * u64::from(constant)) {
            Some(offset) if offset * u64::from(T::TY.bytes()) < 1 << 30 => pointer.at(offset as u32),
            _ if wide => pointer.at(k.lit(constant).mul_wide(stride.get(k))),
            _ => pointer.at(k.lit(constant) * stride.get(k)),
        };
    }
    along().fold(pointer, |pointer, (spot, _)| pointer.at(spot.constant()))
}
