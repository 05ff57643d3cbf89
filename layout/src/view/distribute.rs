//! A view divided among threads.

use crate::typed::{Lowered, StaticLayout, checked, plain, static_layout};
use crate::view::fixed::assert_layout;
use crate::view::{Space, TensorView, ViewError};
use crate::{Layout, LayoutError, Message, Tiler};

static_layout! {
    /// The part of `L` that one thread of `Threads` holds: every n-th row and column.
    ///
    /// ```
    /// use tilewright_layout::{typed::{RowMajor, StaticLayout}, view::FragmentOf};
    /// // 2x4 threads on an 8x8 matrix: each has a 4x2 fragment.
    /// assert_eq!(FragmentOf::<RowMajor<8, 8>, RowMajor<2, 4>>::LAYOUT.to_string(), "(4,2):(16,4)");
    /// ```
    FragmentOf [L: StaticLayout, Threads: StaticLayout] [L, Threads] (L, Threads) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = shared(&L::LAYOUT, &plain::<Threads>("thread layout"), 1);
    }

    /// The starts of the threads' fragments: the elements of the first tile of `L`, in the shape of
    /// `Threads`.
    ///
    /// ```
    /// use tilewright_layout::{typed::{RowMajor, StaticLayout}, view::ThreadsOf};
    /// assert_eq!(ThreadsOf::<RowMajor<8, 8>, RowMajor<2, 4>>::LAYOUT.to_string(), "(2,4):(8,1)");
    /// ```
    ThreadsOf [L: StaticLayout, Threads: StaticLayout] [L, Threads] (L, Threads) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = shared(&L::LAYOUT, &plain::<Threads>("thread layout"), 0);
    }
}

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// The elements of thread `thread`: `Threads` sends a place in a tile of its shape to the
    /// thread that owns it, and the tile is repeated over the view.
    ///
    /// A thread layout that gives two places to one thread, leaves a thread out, or does not divide
    /// the view does not compile.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..64).collect();
    /// let tensor = TensorView::<u32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    /// let mine = tensor.distribute::<RowMajor<4, 4>>(5).unwrap();
    /// assert_eq!(mine.iter().copied().collect::<Vec<_>>(), [9, 41, 13, 45]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchThread`].
    pub fn distribute<Threads: StaticLayout>(
        &self,
        thread: usize,
    ) -> Result<TensorView<'a, T, FragmentOf<L, Threads>, S>, ViewError> {
        const { assert_layout::<ThreadsOf<L, Threads>>() };
        let count = Lowered::<Threads>::SIZE;
        if thread >= count {
            return Err(ViewError::NoSuchThread { thread, count });
        }
        let place = place_of(&Threads::LAYOUT, thread)?;
        Ok(self.part(FragmentOf::default(), Lowered::<ThreadsOf<L, Threads>>::flat(place)))
    }
}

/// The flat coordinate that a compact layout sends to `thread`.
pub(super) fn place_of(threads: &Layout, thread: usize) -> Result<usize, LayoutError> {
    let coordinate = threads.coordinate_of_offset(thread as i64)?;
    Ok(threads.shape().index_of(&coordinate)? as usize)
}

/// The index along one mode of the place that a compact layout sends to `thread`.
pub(super) fn place_along(threads: &Layout, mode: usize, thread: usize) -> Result<usize, LayoutError> {
    let coordinate = threads.coordinate_of_offset(thread as i64)?;
    Ok(threads.mode(mode)?.shape().index_of(&coordinate.mode(mode)?)? as usize)
}

/// Whether a layout sends its coordinates one to one to `0..size`.
pub(super) const fn is_numbering(threads: &Layout) -> bool {
    match threads.complement(threads.size()) {
        Ok(rest) => rest.size() == 1 && threads.cosize() == threads.size(),
        Err(_) => false,
    }
}

/// The text of an error for a mode that the threads do not divide.
const ALONG: [&str; 4] =
    ["distribute along mode 0", "distribute along mode 1", "distribute along mode 2", "distribute along mode 3"];

/// A layout as tiles of the threads' shape: mode 0 runs over the threads, mode 1 over what each of
/// them holds.
pub(super) const fn divide_among(layout: &Layout, threads: &Layout) -> Result<Layout, LayoutError> {
    let mut modes = [Tiler::KEEP; crate::MAX_LEAVES];
    let mut i = 0;
    while i < threads.rank() && i < crate::MAX_LEAVES {
        modes[i] = Tiler::extent(threads.extent(i));
        i += 1;
    }
    let tiler = tri!(Tiler::by_mode(modes.split_at(i).0));
    if threads.rank() != layout.rank() {
        return Err(LayoutError::Rank { operation: "distribute", given: threads.rank(), expected: layout.rank() });
    }
    let mut mode = 0;
    while mode < layout.rank() {
        let value = layout.extent(mode);
        let divisor = threads.extent(mode);
        if value % divisor != 0 {
            let operation = if mode < ALONG.len() { ALONG[mode] } else { "distribute" };
            return Err(LayoutError::Indivisible { operation, value, divisor });
        }
        mode += 1;
    }
    if !layout.divides_evenly(&tiler) {
        let value = layout.size();
        let divisor = threads.size();
        return Err(LayoutError::Indivisible { operation: "distribute of a nested mode", value, divisor });
    }
    layout.zipped_divide(&tiler)
}

const fn shared(layout: &Layout, threads: &Layout, side: usize) -> Layout {
    if !is_numbering(threads) {
        let message = Message::new().text("distribute of ").layout(layout).text(" among ").layout(threads);
        let message = message.text(": the thread layout does not number its places 0 to ").number(threads.size() - 1);
        panic!("{}", message.text("; use a compact layout").as_str())
    }
    let divided = checked("distribute", &[*layout, *threads], divide_among(layout, threads));
    checked("mode", &[divided], divided.mode(side))
}
