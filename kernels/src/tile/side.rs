//! The sides of a copy: what it reads from, and what it writes to.

use super::element::{Element, load_lanes, most_lanes, store_lanes};
use super::layout::TensorLayout;
use super::{Index, LayoutTensor, Mask};
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, Shared, SpaceOf, Val, Writable};
use tilewright_codegen::ir::Space;

/// A source of copies: a tensor in memory, or in registers.
pub trait CopyFrom<'k> {
    /// The scalars of its elements.
    type Scalar: Scalar;
    /// Scalars of an element.
    const LANES: u32;

    /// The recorder.
    fn recorder(&self) -> &'k Builder;

    /// The extents, elements; nothing of a mode whose extent is known at run time.
    fn shape(&self) -> Vec<Option<u32>>;

    /// Elements that one access moves along a mode, at most.
    fn widest(&self, mode: usize) -> u32;

    /// The mode whose neighbours are neighbours in memory.
    fn contiguous(&self) -> Option<usize>;

    /// The mask of a coordinate: whether there is an element.
    fn mask_at(&self, at: &[Index<'k>]) -> Mask<'k>;

    /// The lanes of `count` neighbours along a mode, from a coordinate on: those of one access.
    fn read(&self, at: &[Index<'k>], along: usize, count: u32) -> Vec<Val<'k, Self::Scalar>>;

    /// Reads elements in memory as 32-bit words.
    fn read_words(&self, at: &[Index<'k>], words: u32) -> Vec<Val<'k, u32>> {
        let _ = (at, words);
        Vec::new()
    }

    /// Whether it lies in memory, where lanes of 32-bit words can be read and written.
    fn is_memory(&self) -> bool {
        false
    }

    /// Whether it lies in global memory: neighbouring threads shall touch neighbouring elements of
    /// it.
    fn is_global(&self) -> bool {
        false
    }
}

/// A destination of copies.
pub trait CopyTo<'k>: CopyFrom<'k> {
    /// Writes neighbours along a mode, from a coordinate on, by one access.
    fn write(&self, at: &[Index<'k>], along: usize, lanes: &[Val<'k, Self::Scalar>]);

    /// Writes elements in memory from 32-bit words.
    fn write_words(&self, at: &[Index<'k>], words: &[Val<'k, u32>]) {
        let _ = (at, words);
    }
}

impl<'k, E: Element, L: TensorLayout<'k>, S: SpaceOf> CopyFrom<'k> for LayoutTensor<'k, E, L, S> {
    type Scalar = E::Scalar;
    const LANES: u32 = E::LANES;

    fn recorder(&self) -> &'k Builder {
        self.builder()
    }

    fn shape(&self) -> Vec<Option<u32>> {
        (0..self.map().modes()).map(|mode| self.map().extent_along(mode).known()).collect()
    }

    fn widest(&self, mode: usize) -> u32 {
        if E::LANES > 1 { 1 } else { self.map().widest(self.origin(), mode, E::Scalar::TY.bits()) }
    }

    fn contiguous(&self) -> Option<usize> {
        self.map().contiguous_mode()
    }

    #[track_caller]
    fn mask_at(&self, at: &[Index<'k>]) -> Mask<'k> {
        self.map().inside(self.builder(), at)
    }

    #[track_caller]
    fn read(&self, at: &[Index<'k>], _: usize, count: u32) -> Vec<Val<'k, E::Scalar>> {
        let place = self.locate(at);
        let lanes = count * E::LANES;
        let most = most_lanes(E::Scalar::TY.bits()).min(lanes);
        (0..lanes / most).flat_map(|i| load_lanes(place.at(i * most), most)).collect()
    }

    #[track_caller]
    fn read_words(&self, at: &[Index<'k>], words: u32) -> Vec<Val<'k, u32>> {
        load_lanes(self.locate(at).cast(), words)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn is_global(&self) -> bool {
        S::SPACE == Space::Global
    }
}

impl<'k, E: Element, L: TensorLayout<'k>, S: Writable> CopyTo<'k> for LayoutTensor<'k, E, L, S> {
    #[track_caller]
    fn write(&self, at: &[Index<'k>], _: usize, lanes: &[Val<'k, E::Scalar>]) {
        let place = self.locate(at);
        let most = most_lanes(E::Scalar::TY.bits()) as usize;
        (0..).step_by(most).zip(lanes.chunks(most)).for_each(|(i, lanes)| store_lanes(place.at(i as u32), lanes));
    }

    #[track_caller]
    fn write_words(&self, at: &[Index<'k>], words: &[Val<'k, u32>]) {
        store_lanes(self.locate(at).cast(), words);
    }
}

/// A source in global memory that asynchronous copies read.
pub trait AsyncFrom<'k>: CopyFrom<'k> {
    /// The address of the element at a coordinate.
    fn source(&self, at: &[Index<'k>]) -> Ptr<'k, Global, Self::Scalar>;
}

/// A target in shared memory that asynchronous copies write.
pub trait AsyncTo<'k>: CopyTo<'k> {
    /// The address of the element at a coordinate.
    fn target(&self, at: &[Index<'k>]) -> Ptr<'k, Shared, Self::Scalar>;
}

impl<'k, E: Element, L: TensorLayout<'k>> AsyncFrom<'k> for LayoutTensor<'k, E, L, Global> {
    #[track_caller]
    fn source(&self, at: &[Index<'k>]) -> Ptr<'k, Global, E::Scalar> {
        self.locate(at)
    }
}

impl<'k, E: Element, L: TensorLayout<'k>> AsyncTo<'k> for LayoutTensor<'k, E, L, Shared> {
    #[track_caller]
    fn target(&self, at: &[Index<'k>]) -> Ptr<'k, Shared, E::Scalar> {
        self.locate(at)
    }
}
