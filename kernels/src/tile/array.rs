//! Arrays in global memory whose dtype is chosen while recording.

use super::Float;
use half::{bf16, f16};
use tilewright_codegen::build::{Arg, Bf16x2, F16x2, Global, Load, Ptr, RegArray, Store, Val};
use tilewright_codegen::ir::attr::{LdOrder, Scope, StOrder};

/// A relaxed load that every block's stores come to.
pub(crate) const RELAXED: Load<'static> = Load::WEAK.order(LdOrder::Relaxed(Scope::Gpu));

/// An array of floating-point numbers in global memory; loads give f32, stores round to nearest even.
///
/// A *tagged* array carries its own arrival: beside every word of data (one f32, or two 16-bit elements) lies a word
/// that names the generation of the data, and both are stored and loaded as one. A reader that finds another generation
/// looks again. So what is written to it needs no release, and what is read from it no acquire: on a GPU whose memory is
/// busy, a release waits for a microsecond and more.
#[derive(Clone, Copy)]
pub struct Array<'k> {
    at: Ptr<'k, Global, u8>,
    float: Float,
    tag: Option<Val<'k, u32>>,
    strong: bool,
}

impl<'k> Array<'k> {
    /// The array that begins there, aligned to 16 bytes.
    pub fn new(at: Ptr<'k, Global, u8>, float: Float) -> Array<'k> {
        Array { at, float, tag: None, strong: false }
    }

    /// The same as a tagged array, of which this generation is read or written.
    pub fn tagged(self, tag: Val<'k, u32>) -> Array<'k> {
        Array { tag: Some(tag), ..self }
    }

    /// The same, for elements that other blocks write later with no release in between: accesses are relaxed atomics,
    /// and what orders them is that the later value depends on this one.
    pub fn strong(self) -> Array<'k> {
        Array { strong: true, ..self }
    }

    fn load_how(self) -> Load<'k> {
        if self.strong { RELAXED } else { Load::WEAK }
    }

    /// Whether it carries its own arrival.
    pub(crate) fn is_tagged(self) -> bool {
        self.tag.is_some()
    }

    /// Its type of storage.
    pub fn float(self) -> Float {
        self.float
    }

    /// Elements that are stored together: two of 16 bits where they share a tag, or a word that is a relaxed atomic.
    pub(crate) fn together(self) -> u32 {
        if self.tag.is_some() || self.strong { 4 / self.float.bytes() } else { 1 }
    }

    /// The array from that element on; of a tagged array an even one.
    #[track_caller]
    pub fn from(self, index: Val<'k, u32>) -> Array<'k> {
        let bytes = self.float.bytes() * if self.tag.is_some() { 2 } else { 1 };
        Array { at: self.at.at(index.mul_wide(bytes)), ..self }
    }

    /// One element.
    #[track_caller]
    pub fn load(self, index: Val<'k, u32>) -> Val<'k, f32> {
        if self.tag.is_some() {
            let word = self.poll(&[index / self.together()], 1)[0][0];
            return match self.float {
                Float::F32 => word.bits(),
                _ => self.of_word(word, index % 2),
            };
        }
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).load_as::<1>(self.load_how())[0],
            Float::F16 => self.at.cast::<f16>().at(index).load_as::<1>(self.load_how())[0].cast(),
            Float::Bf16 => self.at.cast::<bf16>().at(index).load_as::<1>(self.load_how())[0].cast(),
        }
    }

    /// Four consecutive elements from an index that is a multiple of four.
    #[track_caller]
    pub fn load4(self, index: Val<'k, u32>) -> [Val<'k, f32>; 4] {
        self.gather(&[index])[0]
    }

    /// Four consecutive elements from each of some indexes, all in flight together.
    #[track_caller]
    pub(crate) fn gather(self, indexes: &[Val<'k, u32>]) -> Vec<[Val<'k, f32>; 4]> {
        let words = 4 * self.float.bytes() / 4;
        let loaded: Vec<Vec<Val<u32>>> = if self.tag.is_some() {
            let firsts: Vec<_> = indexes.iter().map(|&index| index / self.together()).collect();
            self.poll(&firsts, words)
        } else {
            let at = |index: Val<'k, u32>| self.at.cast::<u16>().at(index * (self.float.bytes() / 2)).cast::<u32>();
            let load = |&index: &Val<'k, u32>| match words {
                4 => at(index).load_as::<4>(self.load_how()).to_vec(),
                _ => at(index).load_as::<2>(self.load_how()).to_vec(),
            };
            indexes.iter().map(load).collect()
        };
        loaded.into_iter().map(|words| self.four(&words)).collect()
    }

    /// Whether eight elements are words of the MMA's operand as they are.
    pub(crate) fn is_words(self) -> bool {
        self.float == Float::Bf16 && self.tag.is_none()
    }

    /// Eight consecutive elements from each of some indexes, multiples of eight, as words of two.
    #[track_caller]
    pub(crate) fn eights(self, indexes: &[Val<'k, u32>]) -> Vec<[Val<'k, u32>; 4]> {
        indexes.iter().map(|&index| self.words(index).load_as::<4>(self.load_how())).collect()
    }

    /// Words from some places on of a tagged array, once all are of the generation.
    fn poll(self, firsts: &[Val<'k, u32>], words: u32) -> Vec<Vec<Val<'k, u32>>> {
        let Some((tag, first)) = self.tag.zip(firsts.first()) else { return Vec::new() };
        let k = first.builder();
        let kept: Vec<RegArray<u32>> = firsts.iter().map(|_| k.regs_unset(words)).collect();
        k.loop_(|| {
            let mut here = k.lit(true);
            for (&first, kept) in firsts.iter().zip(&kept) {
                let at = self.at.cast::<u64>().at(first);
                let mut pairs: Vec<Val<u64>> = Vec::new();
                match words {
                    1 => pairs.extend(at.load_as::<1>(RELAXED)),
                    _ => (0..words / 2).for_each(|i| pairs.extend(at.at(2 * i).load_as::<2>(RELAXED))),
                }
                for (pair, i) in pairs.into_iter().zip(0..) {
                    let (word, found) = pair.split();
                    kept.set(i, word);
                    here = here & found.eq(tag);
                }
            }
            k.break_if(here);
        });
        kept.iter().map(|kept| (0..words).map(|i| kept.get(i)).collect()).collect()
    }

    /// The elements of four words of f32 or two words of 16-bit pairs.
    fn four(self, words: &[Val<'k, u32>]) -> [Val<'k, f32>; 4] {
        match self.float {
            Float::F32 => std::array::from_fn(|i| words[i].bits()),
            Float::F16 | Float::Bf16 => {
                let pairs = [words[0], words[1]].map(|word| [self.of_word(word, 0u32), self.of_word(word, 1u32)]);
                [pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]]
            }
        }
    }

    /// An element of a word of two.
    fn of_word(self, word: Val<'k, u32>, which: impl Arg<'k, u32>) -> Val<'k, f32> {
        let k = word.builder();
        let bits = word >> (which.val(k) * 16);
        match self.float {
            Float::F16 => (bits & 0xffff).cast::<u16>().bits::<f16>().cast(),
            _ => (bits << 16).bits(),
        }
    }

    /// The words from an even element of a 16-bit array on.
    #[track_caller]
    pub(crate) fn words(self, index: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        self.at.cast::<bf16>().at(index).cast()
    }

    /// Stores one element; of elements that share a tag the even one, with the next.
    #[track_caller]
    pub(crate) fn store_with(self, index: Val<'k, u32>, value: Val<'k, f32>, next: Val<'k, f32>) {
        if self.tag.is_none() && self.together() == 1 {
            return self.store(index, value);
        }
        let (k, word) = (value.builder(), self.word(value, next));
        let Some(tag) = self.tag else { return self.words(index).store_relaxed(word, Scope::Gpu) };
        let place = self.at.cast::<u64>().at(index / self.together());
        place.store_relaxed(k.join::<u64>(word, tag), Scope::Gpu);
    }

    fn word(self, value: Val<'k, f32>, next: Val<'k, f32>) -> Val<'k, u32> {
        match self.float {
            Float::F32 => value.bits(),
            Float::F16 => value.pair::<F16x2>(next).bits(),
            Float::Bf16 => value.pair::<Bf16x2>(next).bits(),
        }
    }

    /// Stores four consecutive elements of an array without tags, from an index that is a multiple of four, by one store.
    #[track_caller]
    pub fn store4(self, index: Val<'k, u32>, values: [Val<'k, f32>; 4]) {
        let [a, b, c, d] = values;
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).store_vec(values),
            Float::F16 => {
                let words = [a.pair::<F16x2>(b), c.pair::<F16x2>(d)].map(|pair| pair.bits::<u32>());
                self.at.cast::<f16>().at(index).cast::<u32>().store_vec(words);
            }
            Float::Bf16 => self.words(index).store_vec([narrow(a, b).0, narrow(c, d).0]),
        }
    }

    /// Stores four consecutive elements from an index that is a multiple of four, by one store where no reader asks for
    /// more.
    #[track_caller]
    pub(crate) fn store_four(self, index: Val<'k, u32>, values: [Val<'k, f32>; 4]) {
        if self.tag.is_none() && !self.strong {
            return self.store4(index, values);
        }
        for i in (0..4usize).step_by(self.together() as usize) {
            self.store_with(index + i as u32, values[i], values[3.min(i + 1)]);
        }
    }

    /// Stores two consecutive elements from an even index of an array that other blocks write later, by one store.
    #[track_caller]
    pub(crate) fn store_two(self, index: Val<'k, u32>, [a, b]: [Val<'k, f32>; 2]) {
        let relaxed = Store::WEAK.order(StOrder::Relaxed(Scope::Gpu));
        match (self.tag, self.float) {
            (_, Float::F16 | Float::Bf16) => self.strong().store_with(index, a, b),
            (None, Float::F32) => self.at.cast::<f32>().at(index).store_as([a, b], relaxed),
            (Some(tag), Float::F32) => {
                let words = [a, b].map(|value| a.builder().join::<u64>(value.bits(), tag));
                self.at.cast::<u64>().at(index).store_as(words, relaxed);
            }
        }
    }

    /// Stores one element of an array without tags.
    #[track_caller]
    pub fn store(self, index: Val<'k, u32>, value: Val<'k, f32>) {
        let how = if self.strong { Store::WEAK.order(StOrder::Relaxed(Scope::Gpu)) } else { Store::WEAK };
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).store_as([value], how),
            Float::F16 => self.at.cast::<f16>().at(index).store_as([value.cast::<f16>()], how),
            Float::Bf16 => self.at.cast::<bf16>().at(index).store_as([value.cast::<bf16>()], how),
        }
    }
}

/// The two bf16 numbers of a word, lower first: a bf16 is the upper half of an f32.
#[track_caller]
pub(crate) fn widen(pair: Val<'_, u32>) -> (Val<'_, f32>, Val<'_, f32>) {
    ((pair << 16).bits(), (pair & 0xffff_0000).bits())
}

/// Two numbers as a word of bf16, the first lower, and what the rounding left of them.
#[track_caller]
pub(crate) fn narrow<'k>(a: Val<'k, f32>, b: Val<'k, f32>) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
    let pair = a.pair::<Bf16x2>(b).bits::<u32>();
    let (high_a, high_b) = widen(pair);
    (pair, [a - high_a, b - high_b])
}
