//! Arrays in global memory whose dtype is chosen while recording, and which other blocks may write
//! while they are read.

use super::Float;
use half::{bf16, f16};
use tilewright_codegen::build::{Bf16x2, F16x2, Global, IntoVal, Load, Ptr, RegArray, Scalar, Shared, Store, Val};
use tilewright_codegen::ir::attr::{LdOrder, Scope, StOrder};

/// The way in which elements are loaded and stored: weak, relaxed atomic, or as LL words.
#[derive(Clone, Copy)]
pub enum AccessMode<'k> {
    /// Weak accesses: something else orders them.
    Weak,
    /// By relaxed atomics: other blocks write them later with no release in between, and what
    /// orders them is that the later value depends on this one.
    Relaxed,
    /// LL words of this generation, as NCCL's LL protocol: data and flag in one 64-bit store.
    ///
    /// Next to every word of data (one f32, or two 16-bit elements) is a word with its generation;
    /// both are stored and loaded as one. A reader polls until it finds its generation. Writes
    /// therefore need no release, and reads no acquire: on a GPU whose memory is busy, a release
    /// takes a microsecond or more.
    Packets(Val<'k, u32>),
}

impl<'k> AccessMode<'k> {
    /// The loads and stores of words that are not flagged words; among flagged words they are
    /// relaxed.
    pub(crate) fn how(self) -> (Load<'k>, Store<'k>) {
        self.within(Scope::Gpu)
    }

    /// The load and store instructions for accesses by threads within `scope`.
    fn within(self, scope: Scope) -> (Load<'k>, Store<'k>) {
        match self {
            AccessMode::Weak => (Load::WEAK, Store::WEAK),
            AccessMode::Relaxed | AccessMode::Packets(_) => {
                (Load::WEAK.order(LdOrder::Relaxed(scope)), Store::WEAK.order(StOrder::Relaxed(scope)))
            }
        }
    }
}

/// An array of floating-point numbers in global memory; loads give f32, stores round to nearest
/// even.
#[derive(Clone, Copy)]
pub struct Array<'k> {
    at: Ptr<'k, Global, u8>,
    float: Float,
    access: AccessMode<'k>,
    scope: Scope,
    left: Option<Ptr<'k, Shared, u32>>,
}

impl<'k> Array<'k> {
    /// The array that begins there, aligned to 16 bytes.
    pub fn new(at: Ptr<'k, Global, u8>, float: Float) -> Array<'k> {
        Array { at, float, access: AccessMode::Weak, scope: Scope::Gpu, left: None }
    }

    /// Sets how the words are accessed.
    pub fn accessed(self, access: AccessMode<'k>) -> Array<'k> {
        Array { access, ..self }
    }

    /// Widens the scope to the system: other devices access the words too.
    pub fn across_devices(self) -> Array<'k> {
        Array { scope: Scope::Sys, ..self }
    }

    /// Sets the abort flag of polling: once that word is not 0, a poll returns without its packets
    /// and the numbers are arbitrary. Where there is no such word, a reader waits for packets as
    /// long as it takes.
    pub fn unless(self, left: Option<Ptr<'k, Shared, u32>>) -> Array<'k> {
        Array { left, ..self }
    }

    fn how(self) -> (Load<'k>, Store<'k>) {
        self.access.within(self.scope)
    }

    /// The access.
    pub fn access(self) -> AccessMode<'k> {
        self.access
    }

    /// The type of its elements.
    pub fn float(self) -> Float {
        self.float
    }

    /// Elements of a word.
    fn per_word(self) -> u32 {
        4 / self.float.bytes()
    }

    /// Elements that are stored together: those of a packet, or of a word that is a relaxed atomic.
    pub(crate) fn together(self) -> u32 {
        if matches!(self.access, AccessMode::Weak) { 1 } else { self.per_word() }
    }

    /// The array from that element on; of packets an even one.
    #[track_caller]
    pub fn from(self, index: Val<'k, u32>) -> Array<'k> {
        let words = if matches!(self.access, AccessMode::Packets(_)) { 2 } else { 1 };
        Array { at: self.at.at(index.mul_wide(self.float.bytes() * words)), ..self }
    }

    /// Loads one element.
    #[track_caller]
    pub fn load(self, index: Val<'k, u32>) -> Val<'k, f32> {
        if let AccessMode::Packets(generation) = self.access {
            let word = self.poll(generation, &[self.packet(index)], 1)[0][0];
            return self.element(word, index % self.per_word());
        }
        match self.float {
            Float::F32 => self.load_one(index),
            Float::F16 => self.load_one::<f16>(index).cast(),
            Float::Bf16 => self.load_one::<bf16>(index).cast(),
        }
    }

    #[track_caller]
    fn load_one<T: Scalar>(self, index: Val<'k, u32>) -> Val<'k, T> {
        self.at.cast::<T>().at(index).load_as::<1>(self.how().0)[0]
    }

    /// Four consecutive elements from an index that is a multiple of four.
    #[track_caller]
    pub fn load4(self, index: Val<'k, u32>) -> [Val<'k, f32>; 4] {
        self.gather(&[index])[0]
    }

    /// `N` consecutive elements, 1, 2, 4 or 8, from an index that is a multiple of `N`: by loads of
    /// 16 bytes at most.
    #[track_caller]
    pub(crate) fn load_run<const N: usize>(self, index: Val<'k, u32>) -> [Val<'k, f32>; N] {
        if N == 1 { [self.load(index); N] } else { self.gather(&[index])[0] }
    }

    /// `N` consecutive elements, 2, 4 or 8, from each of some indexes that are multiples of `N`,
    /// all in flight together.
    #[track_caller]
    pub(crate) fn gather<const N: usize>(self, indexes: &[Val<'k, u32>]) -> Vec<[Val<'k, f32>; N]> {
        self.asked(indexes)()
    }

    /// Gathers in two parts: loads are issued here, and words become numbers where the returned
    /// function is called, so that nothing in between waits for these words.
    #[track_caller]
    pub(crate) fn asked<const N: usize>(
        self,
        indexes: &[Val<'k, u32>],
    ) -> impl FnOnce() -> Vec<[Val<'k, f32>; N]> + use<'k, N> {
        let words = N as u32 / self.per_word();
        let how = self.how().0;
        let loaded: Vec<Vec<Val<u32>>> = match self.access {
            AccessMode::Packets(generation) => {
                let firsts: Vec<_> = indexes.iter().map(|&index| self.packet(index)).collect();
                self.poll(generation, &firsts, words)
            }
            AccessMode::Weak | AccessMode::Relaxed => {
                let load = |&index: &Val<'k, u32>| match words {
                    8 => [0, 4].map(|at| self.words(index).at(at).load_as::<4>(how)).concat(),
                    4 => self.words(index).load_as::<4>(how).to_vec(),
                    2 => self.words(index).load_as::<2>(how).to_vec(),
                    _ => self.words(index).load_as::<1>(how).to_vec(),
                };
                indexes.iter().map(load).collect()
            }
        };
        move || loaded.iter().map(|words| self.elements(words)).collect()
    }

    /// Loads an element from each of some indexes, all in flight together: by words, since atomics
    /// have no 16-bit form.
    #[track_caller]
    pub(crate) fn each(self, indexes: &[Val<'k, u32>]) -> Vec<Val<'k, f32>> {
        let of_word = self.per_word();
        let how = self.how().0;
        let words: Vec<Val<u32>> = match self.access {
            AccessMode::Packets(generation) => {
                let places: Vec<_> = indexes.iter().map(|&index| self.packet(index)).collect();
                self.poll(generation, &places, 1).iter().map(|words| words[0]).collect()
            }
            AccessMode::Weak | AccessMode::Relaxed => {
                let word = |&index: &Val<'k, u32>| self.at.cast::<u32>().at(index / of_word).load_as::<1>(how)[0];
                indexes.iter().map(word).collect()
            }
        };
        words.into_iter().zip(indexes).map(|(word, &index)| self.element(word, index % of_word)).collect()
    }

    /// Whether eight elements are words of the MMA's operand as they are.
    pub(crate) fn is_words(self) -> bool {
        self.float == Float::Bf16 && !matches!(self.access, AccessMode::Packets(_))
    }

    /// Eight consecutive elements from each of some indexes, multiples of eight, as words of two.
    #[track_caller]
    pub(crate) fn eights(self, indexes: &[Val<'k, u32>]) -> Vec<[Val<'k, u32>; 4]> {
        indexes.iter().map(|&index| self.words(index).load_as::<4>(self.how().0)).collect()
    }

    /// The packet that has an element.
    fn packet(self, index: Val<'k, u32>) -> Ptr<'k, Global, u64> {
        self.at.cast::<u64>().at(index / self.per_word())
    }

    /// Four consecutive elements from each of some indexes of arrays of one type, accessed in one
    /// way, all in flight together: for each index those of every array.
    #[track_caller]
    pub(crate) fn load4_of_each(arrays: &[Array<'k>], indexes: &[Val<'k, u32>]) -> Vec<Vec<[Val<'k, f32>; 4]>> {
        let places = indexes.iter().flat_map(|&index| arrays.iter().map(move |&array| (array, index)));
        let fours: Vec<[Val<'k, f32>; 4]> = match arrays.first().map(|first| (first, first.access)) {
            Some((first, AccessMode::Packets(generation))) => {
                let packets: Vec<_> = places.map(|(array, index)| array.packet(index)).collect();
                let words = first.poll(generation, &packets, 4 / first.per_word());
                words.iter().map(|words| first.elements(words)).collect()
            }
            _ => places.map(|(array, index)| array.load4(index)).collect(),
        };
        fours.chunks(arrays.len().max(1)).map(<[_]>::to_vec).collect()
    }

    /// Four words from each of some places of arrays of packets of one generation, all in flight
    /// together: four elements of f32, eight of 16 bits; by whole warps. They are asked for, then
    /// comes `meanwhile`, once; then they are waited for where they are `needed`.
    #[track_caller]
    pub(crate) fn packets(
        from: &[(Array<'k>, Val<'k, u32>)],
        needed: Val<'k, bool>,
        meanwhile: impl FnOnce(),
    ) -> Vec<[Val<'k, u32>; 4]> {
        let Some((first, AccessMode::Packets(generation))) = from.first().map(|(first, _)| (first, first.access))
        else {
            meanwhile();
            return Vec::new();
        };
        let places: Vec<_> = from.iter().map(|(array, index)| array.packet(*index)).collect();
        let k = needed.builder();
        let asked = needed.builder().var(false);
        let words = first.poll_until(generation, &places, 4, |here| {
            k.moving().when(!asked.get(), || {
                asked.set(true);
                meanwhile();
            });
            // The warp goes on together, whatever it does meanwhile.
            (first.or_left(here()) | !needed).all()
        });
        words.into_iter().map(|words| std::array::from_fn(|i| words[i])).collect()
    }

    /// The first `N` elements of some words.
    fn elements<const N: usize>(self, words: &[Val<'k, u32>]) -> [Val<'k, f32>; N] {
        let element =
            |i: u32| self.element(words[(i / self.per_word()) as usize], words[0].builder().lit(i % self.per_word()));
        std::array::from_fn(|i| element(i as u32))
    }

    /// Words from some places on of packets, once all are of the generation.
    fn poll(self, generation: Val<'k, u32>, firsts: &[Ptr<'k, Global, u64>], words: u32) -> Vec<Vec<Val<'k, u32>>> {
        self.poll_until(generation, firsts, words, |here| self.or_left(here()))
    }

    /// Whether to look no longer, where packets are here or not.
    fn or_left(self, here: Val<'k, bool>) -> Val<'k, bool> {
        self.left.map_or(here, |left| here | left.load_relaxed(Scope::Cta).ne(0))
    }

    /// Words from some places on of packets. Once they are asked for comes `until`, which may look
    /// whether all are of the generation, and says whether not to ask again.
    fn poll_until(
        self,
        generation: Val<'k, u32>,
        firsts: &[Ptr<'k, Global, u64>],
        words: u32,
        until: impl FnOnce(&dyn Fn() -> Val<'k, bool>) -> Val<'k, bool>,
    ) -> Vec<Vec<Val<'k, u32>>> {
        let k = generation.builder();
        let how = self.how().0;
        let kept: Vec<RegArray<u32>> = firsts.iter().map(|_| k.regs_unset(words)).collect();
        k.moving().loop_(|| {
            let mut tags = Vec::new();
            for (&at, kept) in firsts.iter().zip(&kept) {
                let mut packets: Vec<Val<u64>> = Vec::new();
                match words {
                    1 => packets.extend(at.load_as::<1>(how)),
                    _ => (0..words / 2).for_each(|i| packets.extend(at.at(2 * i).load_as::<2>(how))),
                }
                for (packet, i) in packets.into_iter().zip(0..) {
                    let (word, found) = packet.split();
                    kept.set(i, word);
                    tags.push(found);
                }
            }
            k.break_if(until(&|| tags.iter().fold(k.lit(true), |here, found| here & found.eq(generation))));
        });
        kept.iter().map(|kept| (0..words).map(|i| kept.get(i)).collect()).collect()
    }

    /// An element of a word.
    fn element(self, word: Val<'k, u32>, which: impl IntoVal<'k, u32>) -> Val<'k, f32> {
        let shifted = |which: Val<'k, u32>| word >> (which * 16);
        match self.float {
            Float::F32 => word.bits(),
            Float::F16 => (shifted(which.val(word.builder())) & 0xffff).cast::<u16>().bits::<f16>().cast(),
            Float::Bf16 => (shifted(which.val(word.builder())) << 16).bits(),
        }
    }

    /// The words from an element on, where a word begins.
    #[track_caller]
    pub(crate) fn words(self, index: Val<'k, u32>) -> Ptr<'k, Global, u32> {
        match self.float {
            Float::F32 => self.at.cast().at(index),
            Float::F16 | Float::Bf16 => self.at.cast::<bf16>().at(index).cast(),
        }
    }

    /// Stores one element of an array without packets.
    #[track_caller]
    pub fn store(self, index: Val<'k, u32>, value: Val<'k, f32>) {
        let how = self.how().1;
        match self.float {
            Float::F32 => self.at.cast::<f32>().at(index).store_as([value], how),
            Float::F16 => self.at.cast::<f16>().at(index).store_as([value.cast::<f16>()], how),
            Float::Bf16 => self.at.cast::<bf16>().at(index).store_as([value.cast::<bf16>()], how),
        }
    }

    /// Stores `N` consecutive elements, 1, 2 or 4, weakly 8 too, from an index that is a multiple
    /// of `N`: whole words of what readers ask for. Weak stores of four are one, others two.
    #[track_caller]
    pub(crate) fn store_run<const N: usize>(self, index: Val<'k, u32>, values: [Val<'k, f32>; N]) {
        if N == 4 && !matches!(self.access, AccessMode::Weak) {
            for first in [0, 2] {
                self.store_run(index + first as u32, [values[first], values[first + 1]]);
            }
            return;
        }
        let words = || values.chunks(self.per_word() as usize).map(|values| self.word(values)).collect::<Vec<_>>();
        match self.access {
            AccessMode::Packets(generation) => {
                let packets: Vec<_> = words().iter().map(|word| word.builder().join(*word, generation)).collect();
                store_words(self.at.cast::<u64>().at(index / self.per_word()), &packets, self.how().1);
            }
            _ if N == 1 => self.store(index, values[0]),
            _ => store_words(self.words(index), &words(), self.how().1),
        }
    }

    /// A word's elements, packed.
    fn word(self, values: &[Val<'k, f32>]) -> Val<'k, u32> {
        let value = values[0];
        let next = values[values.len() - 1];
        match self.float {
            Float::F32 => value.bits(),
            Float::F16 => value.pair::<F16x2>(next).bits(),
            Float::Bf16 => value.pair::<Bf16x2>(next).bits(),
        }
    }
}

/// Most devices that share a model.
pub const MAX_DEVICES: usize = 8;

/// The destination of a result: an array, or one on each of several devices.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::tile::{Array, Copies, Float};
/// record("copies", Arch::Sm90a, block(32), |k| {
///     let [one, other] = ["one", "other"].map(|name| Array::new(k.global::<u8>(name), Float::F32));
///     assert_eq!(Copies::from_iter([one]).each().count(), 1);
///     let copies: Copies = [one, other.across_devices()].into_iter().collect();
///     copies.each().for_each(|out| out.store(k.tid(), k.lit(1.0f32)));
/// });
/// ```
#[derive(Clone, Copy)]
pub struct Copies<'k>([Option<Array<'k>>; MAX_DEVICES]);

impl<'k> Copies<'k> {
    /// Iterates over the arrays.
    pub fn each(self) -> impl Iterator<Item = Array<'k>> {
        self.0.into_iter().flatten()
    }

    /// The copies from an element on.
    #[track_caller]
    pub fn from(self, index: Val<'k, u32>) -> Copies<'k> {
        Copies(self.0.map(|array| array.map(|array| array.from(index))))
    }

    /// Elements that are stored together ([`Array`] by `Array`).
    pub(crate) fn together(self) -> u32 {
        self.each().map(Array::together).max().unwrap_or(1)
    }

    /// Stores consecutive elements in each.
    #[track_caller]
    pub(crate) fn store_run<const N: usize>(self, index: Val<'k, u32>, values: [Val<'k, f32>; N]) {
        // A loop, so that the caller's line is the stores'.
        for array in self.each() {
            array.store_run(index, values);
        }
    }
}

impl<'k> From<Array<'k>> for Copies<'k> {
    fn from(array: Array<'k>) -> Copies<'k> {
        [array].into_iter().collect()
    }
}

/// The first [`MAX_DEVICES`] of them.
impl<'k> FromIterator<Array<'k>> for Copies<'k> {
    fn from_iter<I: IntoIterator<Item = Array<'k>>>(arrays: I) -> Copies<'k> {
        let mut arrays = arrays.into_iter();
        Copies(std::array::from_fn(|_| arrays.next()))
    }
}

/// Stores one, two or four words by one store, eight by two.
#[track_caller]
fn store_words<'k, T: Scalar>(to: Ptr<'k, Global, T>, words: &[Val<'k, T>], how: Store<'k>) {
    match *words {
        [a, b, c, d, ref rest @ ..] if words.len() == 8 => {
            to.store_as([a, b, c, d], how);
            store_words(to.at(4u32), rest, how);
        }
        [a, b, c, d] => to.store_as([a, b, c, d], how),
        [a, b] => to.store_as([a, b], how),
        _ => words.iter().for_each(|&word| to.store_as([word], how)),
    }
}

/// The two bf16 numbers of a word, lower first: a bf16 is the upper half of an f32.
#[track_caller]
fn widen(pair: Val<'_, u32>) -> (Val<'_, f32>, Val<'_, f32>) {
    ((pair << 16).bits(), (pair & 0xffff_0000).bits())
}

/// Rounds two numbers to a word of bf16, the first lower, and returns the remainders.
#[track_caller]
pub(crate) fn narrow<'k>(a: Val<'k, f32>, b: Val<'k, f32>) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
    let pair = a.pair::<Bf16x2>(b).bits::<u32>();
    let (high_a, high_b) = widen(pair);
    (pair, [a - high_a, b - high_b])
}

/// Rounds two numbers to a word of f16, the first lower, and returns the remainders as `rest`
/// transforms them.
#[track_caller]
pub(crate) fn narrow_f16<'k>(
    a: Val<'k, f32>,
    b: Val<'k, f32>,
    rest: impl Fn(Val<'k, f32>) -> Val<'k, f32>,
) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
    let pair = a.pair::<F16x2>(b);
    let (high_a, high_b) = pair.split();
    (pair.bits(), [rest(a - high_a.cast::<f32>()), rest(b - high_b.cast::<f32>())])
}
