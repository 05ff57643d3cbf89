//! A side on the host: for each coordinate of a view the element of memory, listed. It knows no
//! algebra of layouts.

use super::{CopySide, LayoutKind};
use tilewright_layout::Layout;

/// The element of memory at each coordinate, the first mode fastest; nothing where there is none.
#[derive(Clone, Debug)]
pub struct Dense {
    extents: Vec<u32>,
    elements: Vec<Option<u32>>,
}

impl Dense {
    /// A tensor of these extents and strides.
    pub fn new(extents: &[u32], strides: &[u32]) -> Dense {
        let whole = Dense { extents: extents.to_vec(), elements: Vec::new() };
        let offset = |at: Vec<u32>| Some(at.iter().zip(strides).map(|(at, stride)| at * stride).sum());
        Dense { elements: whole.coordinates().map(offset).collect(), ..whole }
    }

    /// The elements, the first mode fastest.
    pub fn elements(&self) -> &[Option<u32>] {
        &self.elements
    }

    fn coordinates(&self) -> impl Iterator<Item = Vec<u32>> {
        let extents = self.extents.clone();
        (0..extents.iter().product::<u32>()).map(move |mut rest| {
            let digit = |&extent: &u32| {
                let at = rest % extent;
                rest /= extent;
                at
            };
            extents.iter().map(digit).collect()
        })
    }

    fn get(&self, at: &[u32]) -> Option<u32> {
        let inside = at.iter().zip(&self.extents).all(|(at, extent)| at < extent);
        let flat = at.iter().zip(&self.extents).rev().fold(0, |sum, (at, extent)| sum * extent + at);
        if inside { self.elements[flat as usize] } else { None }
    }

    /// A view of other extents, whose element at a coordinate is the one here at `of` it.
    fn view(&self, extents: Vec<u32>, of: impl Fn(Vec<u32>) -> Vec<u32>) -> Dense {
        let view = Dense { extents, elements: Vec::new() };
        Dense { elements: view.coordinates().map(|at| self.get(&of(at))).collect(), ..view }
    }

    /// The modes in another order.
    #[must_use]
    pub fn permute(&self, order: &[usize]) -> Dense {
        self.view(order.iter().map(|&mode| self.extents[mode]).collect(), |at| {
            let mut from = at.clone();
            order.iter().zip(at).for_each(|(&mode, at)| from[mode] = at);
            from
        })
    }

    /// The elements at an index of a mode.
    #[must_use]
    pub fn slice(&self, mode: usize, index: u32) -> Dense {
        let mut extents = self.extents.clone();
        extents.remove(mode);
        self.view(extents, |mut at| {
            at.insert(mode, index);
            at
        })
    }

    /// A range of indices of each mode: a first one and a count.
    #[must_use]
    pub fn window(&self, first: &[u32], extents: &[u32]) -> Dense {
        self.view(extents.to_vec(), |at| at.iter().zip(first).map(|(at, first)| at + first).collect())
    }
}

impl CopySide {
    /// The elements of memory of a tile; `typed` is the layout of memory where that is a type.
    pub fn tile(&self, typed: &Layout, tile: [u32; 2], place: [u32; 2]) -> Dense {
        let first = [0, 1].map(|i| tile[i] * place[i]);
        if self.kind == LayoutKind::Typed {
            let numbers = |of: &[i64]| of.iter().map(|&number| number as u32).collect::<Vec<_>>();
            let whole = Dense::new(&numbers(typed.extents()), &numbers(typed.strides()));
            return whole.permute(&[1, 0]).window(&first, &tile);
        }
        let (mode, parts, part) = self.split;
        let matrix = Dense::new(&self.extents, &self.strides).permute(&self.order).slice(self.slice.0, self.slice.1);
        let mut extents = matrix.extents.clone();
        extents[mode] = extents[mode].div_ceil(parts).next_multiple_of(self.multiple);
        let mut start = [0, 0];
        start[mode] = extents[mode] * part;
        let tile_of = matrix.window(&start, &extents).window(&first, &tile);
        if !self.composed || self.kind == LayoutKind::Told {
            return tile_of;
        }
        // Even columns first.
        let half = tile[1] / 2;
        tile_of.view(tile.to_vec(), |at| vec![at[0], if at[1] < half { 2 * at[1] } else { 2 * (at[1] - half) + 1 }])
    }
}
