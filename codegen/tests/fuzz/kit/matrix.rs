//! Matrix multiplies on random inputs: every atom of `mma.sync`, every kind of `wgmma`, its layouts
//! and widths.
//!
//! # What must hold
//! Products are exact. Where all sums are integers that the accumulator holds, results are equal to
//! the bit. Else hardware brings the K products and the accumulator to the largest exponent among
//! them, cuts each off f bits below that one, adds, and rounds or cuts to the accumulator's type.
//! With S = |c| + Σ|aᵢ·bᵢ|, each of the K + 1 terms loses less than 2^−f · 2 · S (the largest
//! term's power of two is at most S; a carry costs one bit), and the last rounding at most 2^−p ·
//! S, p being the bits of the accumulator's mantissa. So
//!
//! ```text
//! |d − exact| ≤ (2 · (K + 1) · 2^−f + 2^−p) · S
//! ```
//!
//! with f = 23, but 13 for `wgmma` of 8-bit floats, whose accumulation Hopper makes in fewer bits.
//! S is what the simulator gives for the absolute values of the inputs.

use super::rng::Rng;
use half::{bf16, f16};
use tilewright_codegen::build::{
    Builder, Descriptor, F16x2, Ptr, RegArray, Scalar, SwizzleMode, Val, WgmmaOperands, block, record,
};
use tilewright_codegen::ir::attr::{Major, ProxyFence, Sign};
use tilewright_codegen::ir::{Arch, Elem, Kernel, MmaAtom, WgmmaAtom, WgmmaKind};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome};
use tilewright_codegen::verify::{Verified, verify};

/// Words of shared memory of A and of B.
const A_WORDS: u32 = 64 * 32;
const B_WORDS: u32 = 256 * 32;

/// The distribution of a block's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Integers whose sums are exact in every accumulator; of integer types, all of them.
    Whole,
    /// Floats of like size.
    Float,
    /// Floats with infinities and NaNs among them.
    Special,
}

/// The layout of an operand in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie {
    pub major: Major,
    pub how: Descriptor,
    /// Bytes from the start of the allocation.
    pub offset: u32,
}

/// The location of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Shared(Lie),
    Registers,
}

/// A multiply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    Mma(MmaAtom),
    Wgmma { atom: WgmmaAtom, a: Left, b: Lie, signs: (Sign, Sign), scale: bool },
}

/// Kernel, inputs by block, and what is compared how.
pub struct Case {
    pub name: String,
    pub kernel: Verified,
    /// The kernel on absolute values.
    magnitude: Verified,
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    pub c: Vec<u32>,
    pub classes: Vec<Class>,
    acc: Elem,
    elems: (Elem, Elem),
    k: u32,
    fraction: i32,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    pub values: u64,
    /// Values that differ where they must not.
    pub wrong: u64,
    /// Values that differ within the bound.
    pub near: u64,
    /// The largest error of a value, over the bound.
    pub worst: f64,
    /// The first wrong one: its index, and both machines' bits.
    pub first: Option<(usize, u32, u32)>,
}

fn elems(form: Form) -> (Elem, Elem, Elem) {
    match form {
        Form::Mma(atom) => atom.elems(),
        Form::Wgmma { atom, .. } => atom.kind().elems(),
    }
}

/// Bits of exponent and mantissa.
fn format(elem: Elem) -> (u32, u32) {
    match elem {
        Elem::F16 => (5, 10),
        Elem::BF16 => (8, 7),
        Elem::TF32 | Elem::F32 => (8, 23),
        Elem::E4M3 => (4, 3),
        Elem::E5M2 => (5, 2),
        Elem::S32 | Elem::S8 | Elem::U8 => (0, 0),
    }
}

/// A small integer in a float's format.
fn whole(value: i64, exponent: u32, mantissa: u32) -> u32 {
    let sign = u32::from(value < 0) << (exponent + mantissa);
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return sign;
    }
    let log = magnitude.ilog2();
    let bias = (1 << (exponent - 1)) - 1;
    let rest = ((magnitude - (1 << log)) << mantissa >> log) as u32;
    sign | (bias + log) << mantissa | rest
}

/// Draws the bits of an element.
fn element(rng: &mut Rng, elem: Elem, class: Class, reach: i64) -> u32 {
    let (exponent, mantissa) = format(elem);
    if exponent == 0 {
        return rng.next() as u32 & (u32::MAX >> (32 - elem.bits()));
    }
    let bias = (1u32 << (exponent - 1)) - 1;
    let sign = (rng.next() as u32 & 1) << (exponent + mantissa);
    let low = rng.next() as u32 & ((1 << mantissa) - 1);
    match class {
        Class::Whole => whole(rng.below(2 * reach as usize + 1) as i64 - reach, exponent, mantissa),
        Class::Special if rng.percent(4) => {
            let ones = ((1 << exponent) - 1) << mantissa;
            // e4m3 has no infinity: all ones is its NaN.
            let quiet = ones | ((1 << mantissa) - 1);
            sign | if elem == Elem::E4M3 || rng.percent(30) { quiet } else { ones }
        }
        Class::Float | Class::Special => sign | (bias + rng.below(8) as u32 - 4) << mantissa | low,
    }
}

/// Words of packed elements.
fn words(rng: &mut Rng, elem: Elem, class: Class, count: usize, reach: i64) -> Vec<u32> {
    let per = 32 / elem.bits();
    (0..count)
        .map(|_| (0..per).fold(0, |word, j| word | element(rng, elem, class, reach) << (j * elem.bits())))
        .collect()
}

/// The words with the signs of their elements cleared.
fn absolute(words: &[u32], elem: Elem) -> Vec<u32> {
    let (exponent, mantissa) = format(elem);
    if exponent == 0 {
        return words.to_vec();
    }
    let sign = (0..32 / elem.bits()).fold(0u32, |mask, j| mask | 1 << (j * elem.bits() + exponent + mantissa));
    words.iter().map(|word| word & !sign).collect()
}

impl Case {
    /// A multiply with these classes of blocks.
    pub fn new(form: Form, classes: &[Class], seed: u64) -> Result<Case, String> {
        let (acc, a_elem, b_elem) = elems(form);
        let kernel = verify(kernel(form)).map_err(|errors| errors.to_string())?;
        let plain = match form {
            Form::Wgmma { atom, a, b, scale, .. } => Form::Wgmma { atom, a, b, signs: (Sign::Plus, Sign::Plus), scale },
            Form::Mma(_) => form,
        };
        let magnitude = verify(self::kernel(plain)).map_err(|errors| errors.to_string())?;
        let (a_words, b_words, c_words) = match form {
            Form::Mma(atom) => {
                let (c, a, b) = atom.registers();
                (a * 32, b * 32, c * 32)
            }
            Form::Wgmma { atom, a, .. } => {
                let a = if a == Left::Registers { 4 * 128 } else { A_WORDS };
                (a, B_WORDS, atom.acc_registers() * 128)
            }
        };
        let mut rng = Rng::new(seed);
        let mut a = Vec::new();
        let mut b = Vec::new();
        let mut c = Vec::new();
        for &class in classes {
            a.extend(words(&mut rng, a_elem, class, a_words as usize, 4));
            b.extend(words(&mut rng, b_elem, class, b_words as usize, 4));
            c.extend(words(&mut rng, acc, class, c_words as usize, 64));
        }
        let (k, fraction) = match form {
            Form::Mma(atom) => (atom.shape().2, 23),
            Form::Wgmma { atom, .. } if a_elem.bits() == 8 => (atom.kind().k(), 13),
            Form::Wgmma { atom, .. } => (atom.kind().k(), 23),
        };
        let name = name(form);
        let classes = classes.to_vec();
        Ok(Case { name, kernel, magnitude, a, b, c, classes, acc, elems: (a_elem, b_elem), k, fraction })
    }

    pub fn blocks(&self) -> u32 {
        self.classes.len() as u32
    }

    /// The results by the simulator.
    pub fn simulate(&self) -> Result<Vec<u32>, String> {
        self.run(&self.kernel, [&self.a, &self.b, &self.c])
    }

    fn run(&self, kernel: &Verified, inputs: [&[u32]; 3]) -> Result<Vec<u32>, String> {
        let mut memory = Memory::new();
        let mut args: Vec<Arg> = ["a", "b", "c"]
            .into_iter()
            .zip(inputs)
            .map(|(name, words)| Arg::Ptr(memory.upload_read_only(name, words)))
            .collect();
        let out = memory.alloc("d", self.c.len() * 4);
        args.push(Arg::Ptr(out));
        match sim::run(kernel, &Launch::new([self.blocks(), 1, 1], args), &mut memory, 3) {
            Ok(Outcome::Finished(_)) => memory.download::<u32>(out, self.c.len()).map_err(|error| error.to_string()),
            Ok(Outcome::Fault(fault)) => Err(format!("{}: {fault}", self.name)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Compares results with the simulator's.
    pub fn judge(&self, expected: &[u32], found: &[u32]) -> Result<Verdict, String> {
        let a = absolute(&self.a, self.elems.0);
        let b = absolute(&self.b, self.elems.1);
        let magnitude = self.run(&self.magnitude, [&a, &b, &absolute(&self.c, self.acc)])?;
        let of_block = self.c.len() / self.classes.len();
        let mut verdict = Verdict::default();
        let per = 32 / self.acc.bits();
        for (index, (&x, &y)) in expected.iter().zip(found).enumerate() {
            let class = self.classes[index / of_block];
            for j in 0..per {
                verdict.values += 1;
                let part = |word: u32| word >> (j * self.acc.bits()) & (u32::MAX >> (32 - self.acc.bits()));
                let x = part(x);
                let y = part(y);
                let s = part(magnitude[index]);
                if x == y {
                    continue;
                }
                let over =
                    if class == Class::Whole || self.acc == Elem::S32 { f64::INFINITY } else { self.over(x, y, s) };
                verdict.worst = verdict.worst.max(over);
                if over > 1.0 {
                    verdict.wrong += 1;
                    verdict.first = verdict.first.or(Some((index, x, y)));
                } else {
                    verdict.near += 1;
                }
            }
        }
        Ok(verdict)
    }

    fn worth(&self, bits: u32) -> f64 {
        match self.acc {
            Elem::F16 => f16::from_bits(bits as u16).to_f64(),
            Elem::BF16 => bf16::from_bits(bits as u16).to_f64(),
            Elem::S32 => f64::from(bits as i32),
            _ => f64::from(f32::from_bits(bits)),
        }
    }

    /// The distance of two results over the bound.
    fn over(&self, expected: u32, found: u32, magnitude: u32) -> f64 {
        let [x, y, s] = [expected, found, magnitude].map(|bits| self.worth(bits));
        if x.is_nan() && y.is_nan() {
            return 0.0;
        }
        if !x.is_finite() || !y.is_finite() {
            return if x == y { 0.0 } else { f64::INFINITY };
        }
        let last = if self.acc == Elem::F16 { 2f64.powi(-10) } else { 2f64.powi(-23) };
        let bound = (2.0 * f64::from(self.k + 1) * 2f64.powi(-self.fraction) + last) * s;
        (x - y).abs() / bound
    }
}

/// The name, from which a case can be told.
fn name(form: Form) -> String {
    let sign = |sign: Sign| if sign == Sign::Plus { "+" } else { "-" };
    let lie = |lie: Lie| format!("{:?}.{:?}.{}", lie.major, lie.how.swizzle, lie.offset);
    match form {
        Form::Mma(atom) => atom.name().into(),
        Form::Wgmma { atom, a, b, signs, scale } => {
            let a = match a {
                Left::Shared(a) => lie(a),
                Left::Registers => "registers".into(),
            };
            let scale = if scale { "+c" } else { "" };
            format!("{atom} {}{a} {}{}{scale}", sign(signs.0), sign(signs.1), lie(b))
        }
    }
}

fn kernel(form: Form) -> Kernel {
    let (acc, ..) = elems(form);
    let threads = if matches!(form, Form::Mma(_)) { 32 } else { 128 };
    record("multiply", Arch::Sm90a, block(threads), |k| match acc {
        Elem::S32 => body::<i32>(k, form),
        Elem::F16 => body::<F16x2>(k, form),
        _ => body::<f32>(k, form),
    })
}

fn body<T: Scalar>(k: &Builder, form: Form) {
    let a = k.global::<u32>("a");
    let b = k.global::<u32>("b");
    let c = k.global::<T>("c");
    let d = k.global::<T>("d");
    let block = k.block_id();
    let tid = k.tid();
    let threads = k.threads();
    let count = match form {
        Form::Mma(atom) => atom.registers().0,
        Form::Wgmma { atom, .. } => atom.acc_registers(),
    };
    let acc = k.regs_unset::<T>(count);
    let place = |i: u32| (block * count + i) * threads + tid;
    for i in 0..count {
        acc.set(i, c.at(place(i)).load());
    }
    match form {
        Form::Mma(atom) => {
            let (_, a_count, b_count) = atom.registers();
            let place = |count: u32, i: u32| (block * count + i) * 32 + tid;
            let a: Vec<Val<'_, u32>> = (0..a_count).map(|i| a.at(place(a_count, i)).load()).collect();
            let b: Vec<Val<'_, u32>> = (0..b_count).map(|i| b.at(place(b_count, i)).load()).collect();
            acc.mma(atom, &a, &b);
        }
        Form::Wgmma { .. } => warpgroup(k, form, acc, a, b),
    }
    for i in 0..count {
        d.at(place(i)).store(acc.get(i));
    }
}

type Input<'k> = Ptr<'k, tilewright_codegen::build::Global, u32>;

fn warpgroup<'k, T: Scalar>(k: &'k Builder, form: Form, acc: RegArray<'k, T>, a: Input<'k>, b: Input<'k>) {
    let Form::Wgmma { atom, a: left, b: lie, signs, scale } = form else { return };
    let block = k.block_id();
    let tid = k.tid();
    let right = k.shared_aligned::<u32>("right", B_WORDS, 1024);
    for i in (0..B_WORDS).step_by(128) {
        right.at(tid + i).store(b.at(block * B_WORDS + tid + i).load());
    }
    let rows = k.shared_aligned::<u32>("left", A_WORDS, 1024);
    if left != Left::Registers {
        for i in (0..A_WORDS).step_by(128) {
            rows.at(tid + i).store(a.at(block * A_WORDS + tid + i).load());
        }
    }
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    let b_descriptor = right.at(lie.offset / 4).descriptor(lie.how);
    let mut operands = WgmmaOperands { sign_a: signs.0, sign_b: signs.1, major_a: Major::K, major_b: lie.major };
    match left {
        Left::Shared(left) => {
            operands.major_a = left.major;
            let a_descriptor = rows.at(left.offset / 4).descriptor(left.how);
            k.wgmma_fence();
            acc.wgmma(atom, a_descriptor, b_descriptor, scale, operands);
        }
        Left::Registers => {
            let fragment: Vec<Val<'_, u32>> = (0..4u32).map(|i| a.at((block * 4 + i) * 128 + tid).load()).collect();
            k.wgmma_fence();
            acc.wgmma_rs(atom, &fragment, b_descriptor, scale, operands);
        }
    }
    k.wgmma_commit();
    k.wgmma_wait(0);
}

/// The ways in which an operand of `rows` rows (of M or N) may lie.
fn lies(rows: u32, elem: Elem) -> Vec<Lie> {
    let lie =
        |major, swizzle, leading, stride, offset| Lie { major, how: Descriptor { swizzle, leading, stride }, offset };
    let mut all = vec![
        lie(Major::K, SwizzleMode::None, 128, 256, 0),
        lie(Major::K, SwizzleMode::None, rows * 16, 128, 0),
        lie(Major::K, SwizzleMode::B32, 16, 256, 0),
        lie(Major::K, SwizzleMode::B64, 16, 512, 32),
        lie(Major::K, SwizzleMode::B128, 16, 1024, 0),
        lie(Major::K, SwizzleMode::B128, 16, 1024, 64),
    ];
    if elem.bits() == 16 {
        // Rows of the swizzle along M or N, two groups of eight in K.
        all.push(lie(Major::Mn, SwizzleMode::None, 128, 256, 0));
        all.push(lie(Major::Mn, SwizzleMode::None, 256, 128, 0));
        for (swizzle, span) in [(SwizzleMode::B32, 32), (SwizzleMode::B64, 64), (SwizzleMode::B128, 128)] {
            if (rows * 2).is_multiple_of(span) {
                all.push(lie(Major::Mn, swizzle, 16 * span, 8 * span, 0));
                let repeats = rows * 2 / span;
                all.push(lie(Major::Mn, swizzle, 8 * span, 8 * span * repeats, 0));
            }
        }
    }
    all
}

/// Every atom of `mma.sync`; of `wgmma` every kind, from shared memory and from registers, in
/// several widths, layouts and signs.
pub fn forms(seed: u64) -> Vec<Form> {
    let mut rng = Rng::new(seed);
    let mut all: Vec<Form> = MmaAtom::ALL.iter().map(|&atom| Form::Mma(atom)).collect();
    for &kind in WgmmaKind::ALL {
        let (_, a_elem, b_elem) = kind.elems();
        for n in [8, 16, 24, 32, 64, 96, 128, 192, 256] {
            let Some(atom) = WgmmaAtom::new(n, kind) else { continue };
            let mut sign = || {
                if a_elem.is_int() { Sign::Plus } else { rng.pick(&[Sign::Plus, Sign::Minus]) }
            };
            let signs = (sign(), sign());
            let a = Left::Shared(rng.pick(&lies(64, a_elem)));
            let b = rng.pick(&lies(n, b_elem));
            let scale = rng.percent(80);
            all.push(Form::Wgmma { atom, a, b, signs, scale });
            let b = rng.pick(&lies(n, b_elem));
            all.push(Form::Wgmma { atom, a: Left::Registers, b, signs, scale });
        }
        let Some(atom) = WgmmaAtom::new(64, kind) else { continue };
        let plus = (Sign::Plus, Sign::Plus);
        for lie in lies(64, b_elem) {
            let plain = lies(64, a_elem)[4];
            all.push(Form::Wgmma { atom, a: Left::Shared(lie), b: plain, signs: plus, scale: true });
            all.push(Form::Wgmma { atom, a: Left::Shared(plain), b: lie, signs: plus, scale: true });
        }
    }
    all
}
