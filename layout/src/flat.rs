//! Modes without nesting: the working form of the operators.

use crate::{Layout, LayoutError, MAX_LEAVES};

/// The leaves of a layout, in order. Operators that flatten work on this and build the nesting
/// last.
#[derive(Clone, Copy)]
pub(crate) struct Flat {
    pub(crate) shape: [i64; MAX_LEAVES],
    pub(crate) stride: [i64; MAX_LEAVES],
    pub(crate) len: usize,
}

impl Flat {
    pub(crate) const EMPTY: Flat = Flat { shape: [0; MAX_LEAVES], stride: [0; MAX_LEAVES], len: 0 };

    pub(crate) const fn of(layout: &Layout) -> Flat {
        Flat { shape: layout.shape, stride: layout.stride, len: layout.profile.leaves() }
    }

    pub(crate) const fn push(&mut self, extent: i64, stride: i64) -> Result<(), LayoutError> {
        if self.len == MAX_LEAVES {
            return Err(LayoutError::Capacity { what: "integers", limit: MAX_LEAVES });
        }
        self.shape[self.len] = extent;
        self.stride[self.len] = stride;
        self.len += 1;
        Ok(())
    }

    /// Drops modes of extent 1 and merges neighbours that step on from each other.
    ///
    /// The result has at least one mode; a layout of one element becomes `1:0`.
    pub(crate) const fn coalesce(&self) -> Flat {
        merge(&self.shape, &self.stride, self.len, false)
    }

    /// Coalesces a layout, as [`Flat::coalesce`] does.
    pub(crate) const fn coalesced(layout: &Layout) -> Flat {
        merge(&layout.shape, &layout.stride, layout.profile.leaves(), false)
    }

    /// Coalesces as [`Flat::coalesced`] does, but a last mode of extent 1 keeps its stride: the
    /// values beyond the domain stay too.
    pub(crate) const fn coalesce_beyond(layout: &Layout) -> Flat {
        merge(&layout.shape, &layout.stride, layout.profile.leaves(), true)
    }

    const fn reverse(&mut self) {
        let mut low = 0;
        let mut high = self.len;
        while low + 1 < high {
            high -= 1;
            let extent = self.shape[low];
            let stride = self.stride[low];
            self.shape[low] = self.shape[high];
            self.stride[low] = self.stride[high];
            self.shape[high] = extent;
            self.stride[high] = stride;
            low += 1;
        }
    }

    /// Drops modes of stride 0, then coalesces.
    pub(crate) const fn filter(&self) -> Flat {
        let mut kept = Flat::EMPTY;
        let mut i = 0;
        while i < self.len {
            if self.stride[i] != 0 && self.shape[i] != 1 {
                kept.shape[kept.len] = self.shape[i];
                kept.stride[kept.len] = self.stride[i];
                kept.len += 1;
            }
            i += 1;
        }
        kept.coalesce()
    }

    /// Orders the modes by stride, smallest first; equal strides keep their order.
    pub(crate) const fn sort_by_stride(&mut self) {
        let mut i = 1;
        while i < self.len {
            let mut j = i;
            while j > 0 && self.stride[j] < self.stride[j - 1] {
                let extent = self.shape[j];
                let stride = self.stride[j];
                self.shape[j] = self.shape[j - 1];
                self.stride[j] = self.stride[j - 1];
                self.shape[j - 1] = extent;
                self.stride[j - 1] = stride;
                j -= 1;
            }
            i += 1;
        }
    }

    /// Appends the modes to `out`: one integer, or a tuple of several.
    pub(crate) const fn push_to(&self, out: &mut Layout) -> Result<(), LayoutError> {
        if self.len != 1 {
            tri!(out.profile.push_tuple(self.len));
        }
        let mut i = 0;
        while i < self.len {
            tri!(out.push_leaf(self.shape[i], self.stride[i]));
            i += 1;
        }
        Ok(())
    }

    /// The modes as a layout: an integer, or a tuple of several.
    pub(crate) const fn layout(&self) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(self.push_to(&mut out));
        out.checked()
    }
}

/// The extent of two neighbours as one mode, if the second steps on from the first. The result of
/// an operation may exceed 63 bits; the modes then stay separate, and the layout is refused.
const fn merged(extent: i64, stride: i64, next_extent: i64, next_stride: i64) -> Option<i64> {
    match extent.checked_mul(stride) {
        Some(reach) if reach == next_stride => next_extent.checked_mul(extent),
        _ => None,
    }
}

const fn merge(shape: &[i64; MAX_LEAVES], stride: &[i64; MAX_LEAVES], len: usize, beyond: bool) -> Flat {
    let mut out = Flat::EMPTY;
    out.len = 1;
    if len == 0 {
        out.shape[0] = 1;
        return out;
    }
    // Built from the back: `out.len - 1` is the front of what is done so far.
    let last = len - 1;
    out.shape[0] = if beyond && shape[last] == 1 { 2 } else { shape[last] };
    out.stride[0] = stride[last];
    let mut i = last;
    while i > 0 {
        i -= 1;
        let extent = shape[i];
        let stride = stride[i];
        let front = out.len - 1;
        if extent == 1 {
            continue;
        } else if out.shape[front] == 1 {
            out.shape[front] = extent;
            out.stride[front] = stride;
        } else if let Some(merged) = merged(extent, stride, out.shape[front], out.stride[front]) {
            out.shape[front] = merged;
            out.stride[front] = stride;
        } else {
            out.shape[out.len] = extent;
            out.stride[out.len] = stride;
            out.len += 1;
        }
    }
    if out.len == 1 && out.shape[0] == 1 {
        out.stride[0] = 0;
    }
    out.reverse();
    out
}
