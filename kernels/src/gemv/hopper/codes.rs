//! Weights of codes: what a stage has of them, and how they become the A operand.
//!
//! A stage has some tiles of each strip, followed by the factors of their groups: a row of 16 bytes
//! of every strip for each eight numbers of two bytes, scales before zeros. The copy engine brings
//! both out of the packed stages that the decode machine streams.
//!
//! `wgmma` wants k in its own order, and a lane's 16 bytes of a tile are eight neighbours in k a
//! step ([`Codes`]). Of a step, a lane needs two neighbours from each of its quad's four lanes. It
//! therefore reads the words of all four, and shifts its two to the place where they are widened. A
//! number is `(code − zero) · scale`, rounded once to bf16: the bits that
//! [`Widen`](crate::quant::Widen) has.

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Param, Ptr, Shared, TensorMap, Val};
use tilewright_codegen::ir::attr::Fp8;
use tilewright_layout::{Layout, Swizzle, Swizzled};

use crate::mma::InputType;
use crate::quant::Code;
use crate::ring::Pieces;
use crate::tile::{Float, Index, LayoutTensor, RegisterTensor};
use crate::weights::convert::AND_OR;
use crate::weights::weight_tile::{BYTES, DEPTH, leaf, modes};
use crate::weights::{Codes, Strip};

/// Bytes of a row of factors of a strip: the least that the copy engine brings.
pub(super) const ROW: u32 = 16;
/// The alignment of a row in shared memory.
const ALIGNED: u32 = 128;
/// Words of a lane of a tile, and lanes of a row.
const WORDS: u32 = 4;
/// The swizzle of lines of 128 bytes, of words: the rows of a strip, of which two are in a line,
/// lie in all banks.
const LINES: Swizzle = match Swizzle::new(3, 2, 3) {
    Ok(swizzle) => swizzle,
    Err(_) => panic!("the swizzle of 128 bytes"),
};
/// The divisor of a stage's size: the period of that swizzle.
const PERIOD: u32 = 1024;
/// 128 as bf16, twice: the bits of a code of 4 bits below it make 128 and the code.
const NIBBLES: u32 = 0x4300_4300;
/// 2²³ as f32: the bits of a code of 8 bits below it make 2²³ and the code.
const BYTE: f32 = 8_388_608.0;

/// The A operand of a step of 16.
pub(super) type StepOperand<'k> = RegisterTensor<'k, u32, <bf16 as InputType>::WarpgroupA>;

/// A stage of codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeStage {
    pub(super) codes: Codes,
    pub(super) strips: u32,
    pub(super) tiles: u32,
    /// k of a tile, and of weights of a row that share their factors.
    pub(super) depth: u32,
    pub(super) span: u32,
}

impl CodeStage {
    /// Whether packed stages are whole numbers of these, and groups lie in them as they are read.
    pub fn is_part_of(self, strip: Strip) -> bool {
        let k = self.tiles * self.depth;
        (1..=8).contains(&self.tiles)
            && strip.stage_tiles().is_multiple_of(self.tiles)
            && (k.is_multiple_of(self.span) || self.span.is_multiple_of(k))
    }

    /// Groups of a row.
    fn spans(self) -> u32 {
        (self.tiles * self.depth / self.span).max(1)
    }

    /// Rows of a group's scales.
    fn scale_rows(self) -> u32 {
        self.codes.scale.bytes() / 2
    }

    /// Rows of factors.
    fn rows(self) -> u32 {
        self.spans() * (self.scale_rows() + u32::from(self.codes.zeros))
    }

    /// The distance from a row of factors to the next, in bytes.
    fn row_bytes(self) -> u32 {
        (self.strips * ROW).next_multiple_of(ALIGNED)
    }

    fn factors_at(self) -> u32 {
        self.strips * self.tiles * BYTES
    }

    /// Bytes of shared memory.
    pub fn bytes(self) -> u32 {
        (self.factors_at() + self.rows() * self.row_bytes()).next_multiple_of(PERIOD)
    }

    /// Bytes that are brought.
    pub fn brought(self) -> u32 {
        self.factors_at() + self.rows() * self.strips * ROW
    }

    /// A layout of the stage's memory that begins at a multiple of the swizzle's period.
    pub fn memory(self, lines: Swizzle) -> Swizzled {
        Swizzled::new(lines, 0, leaf(self.bytes() / 2, 1))
    }

    /// Copies chunk `chunk` of k of the strips from `strip` on.
    pub fn bring<'k>(
        self,
        to: Pieces<'k>,
        [codes, factors]: [Ptr<'k, Param, TensorMap>; 2],
        packed: Strip,
        [strip, chunk]: [Val<'k, u32>; 2],
    ) {
        let tile = chunk * self.tiles;
        let of_stage = packed.stage_tiles();
        let stage = tile / of_stage;
        let tile = tile % of_stage;
        let from = |bytes: Val<'k, u32>, unit: u32| (stage * (packed.stage_bytes() / unit) + bytes / unit).cast();
        let zero = strip.builder().lit(0);
        to.bring_box(codes, &[zero, from(tile * BYTES, ALIGNED), strip.cast()]);
        // A chunk is of whole groups, or a part of one.
        let group = tile * self.depth / self.span;
        let scales = (0..self.spans() * self.scale_rows())
            .map(|row| group * (self.scale_rows() * ROW) + (packed.scales_at() + row * ROW));
        let zeros = (0..if self.codes.zeros { self.spans() } else { 0 })
            .map(|row| group * ROW + (packed.zeros_at() + row * ROW));
        for (row, at) in (0..).zip(scales.chain(zeros)) {
            let to = to.at(self.factors_at() + row * self.row_bytes());
            to.bring_box(factors, &[zero, from(at, ROW), strip.cast()]);
        }
    }

    /// Words of codes, (row of the tile, word of its lane and lane): of k a step is a word of 4
    /// bits, two of 8.
    fn words(self) -> Swizzled {
        let rows = modes(&[leaf(Strip::ROWS, WORDS * WORDS), leaf(self.strips, self.tiles * (BYTES / 4))]);
        let words = modes(&[leaf(WORDS, 1), leaf(WORDS, WORDS), leaf(self.tiles, BYTES / 4)]);
        Swizzled::new(LINES, 0, modes(&[rows, words]))
    }

    /// Numbers of a size in bytes, by (row of the tile, group).
    fn numbers(self, bytes: u32) -> Layout {
        let of_row = ROW / bytes;
        let pitch = self.row_bytes() / bytes;
        let within = modes(&[leaf(of_row, 1), leaf(Strip::ROWS / of_row, pitch)]);
        let rows = modes(&[within, leaf(self.strips, of_row)]);
        modes(&[rows, leaf(self.spans(), pitch * (Strip::ROWS / of_row))])
    }
}

/// The part of a stage that a lane reads.
#[derive(Clone, Copy)]
pub(super) struct CodeLane<'k> {
    of: CodeStage,
    stage: Ptr<'k, Shared, u8>,
    /// Its first row of the tile; the second is eight further on.
    row: Index<'k>,
    /// Its number in its quad.
    quad: Index<'k>,
}

/// A group's scale and zero of a row, as codes are widened with them.
#[derive(Clone, Copy)]
struct Factor<'k> {
    scale: Scale<'k>,
    /// The number that is subtracted from 128 or 2²³ plus the code; `None` for minifloats.
    minus: Option<Val<'k, u32>>,
}

#[derive(Clone, Copy)]
enum Scale<'k> {
    /// Twice, for two products at a time: their one rounding is that of a product in f32.
    Two(Val<'k, Bf16x2>),
    One(Val<'k, f32>),
}

impl<'k> CodeLane<'k> {
    /// Thread `thread` of its warpgroup or warp, whose rows begin at `row`, in a stage.
    pub fn new(of: CodeStage, stage: Ptr<'k, Shared, u8>, [thread, row]: [Index<'k>; 2]) -> CodeLane<'k> {
        let lane = thread % 32;
        CodeLane { of, stage, row: row + thread / 32 * 16 + lane / 4, quad: lane % 4 }
    }

    fn k(&self) -> &'k Builder {
        self.stage.builder()
    }

    /// The A operand of the steps of 32 from `first` on of the stage, two of 16 each.
    #[track_caller]
    pub fn operands(&self, first: u32, steps: u32) -> Vec<Vec<StepOperand<'k>>> {
        let of_tile = self.of.depth / DEPTH;
        let mut operands = Vec::new();
        let mut known: Option<(u32, [Factor<'k>; 2])> = None;
        let mut step = first;
        while step < first + steps {
            // Steps of a tile are loaded together.
            let count = (of_tile - step % of_tile).min(first + steps - step);
            let words = [0, 1].map(|half| self.words(half, step, count));
            for at in 0..count {
                let group = (step + at) * DEPTH / self.of.span;
                let factors = match known {
                    Some((of, factors)) if of == group => factors,
                    _ => [0, 1].map(|half| self.factor(half, group)),
                };
                known = Some((group, factors));
                for instruction in 0..2 {
                    let register = |register: usize| {
                        let half = register % 2;
                        let octet = 2 * instruction + register / 2;
                        self.widened(words[half][octet][at as usize], factors[half])
                    };
                    operands.push(vec![StepOperand::from_registers(register)]);
                }
            }
            step += count;
        }
        operands
    }

    /// The words with this lane's two codes, of each lane of its quad those of a number of steps of
    /// a tile.
    #[track_caller]
    fn words(&self, half: u32, step: u32, count: u32) -> [Vec<Val<'k, u32>>; 4] {
        let of_tile = self.of.depth / DEPTH;
        let each = WORDS * DEPTH / self.of.depth;
        let words = LayoutTensor::new(self.stage.cast::<u32>(), self.of.words());
        core::array::from_fn(|octet| {
            let first = step / of_tile * (WORDS * WORDS) + octet as u32 * WORDS + step % of_tile * each;
            let at = |word: Index<'k>| words.at([self.row + 8 * half, word]);
            match (each, count) {
                (1, 4) => at(first.into()).load_vec::<4>().to_vec(),
                (1, 2) => at(first.into()).load_vec::<2>().to_vec(),
                (1, _) => (0..count).map(|step| at((first + step).into()).load()).collect(),
                // Of two words one has them.
                _ => (0..count).map(|step| at(self.quad / 2 + (first + step * each)).load()).collect(),
            }
        })
    }

    /// The factors of this lane's row of a half.
    #[track_caller]
    fn factor(&self, half: u32, group: u32) -> Factor<'k> {
        let k = self.k();
        let CodeStage { codes, .. } = self.of;
        let at = [self.row + 8 * half, group.into()];
        let factors = self.stage.at(self.of.factors_at());
        let twice = |number: Val<'k, u16>| number.cast::<u32>().prmt(0u32, 0x1010u32).bits::<Bf16x2>();
        let scale = match codes.scale {
            Float::F32 => Scale::One(LayoutTensor::new(factors.cast::<f32>(), self.of.numbers(4)).at(at).load()),
            Float::F16 => {
                let scale = LayoutTensor::new(factors.cast::<half::f16>(), self.of.numbers(2)).at(at).load();
                Scale::One(scale.cast())
            }
            Float::Bf16 => {
                let scale = LayoutTensor::new(factors.cast::<u16>(), self.of.numbers(2)).at(at).load();
                match codes.is_widened_in_pairs() {
                    true => Scale::Two(twice(scale)),
                    false => Scale::One((scale.cast::<u32>() << 16u32).bits()),
                }
            }
        };
        let zero = codes.zeros.then(|| {
            let zeros = factors.at(self.of.spans() * self.of.scale_rows() * self.of.row_bytes());
            LayoutTensor::new(zeros.cast::<u16>(), self.of.numbers(2)).at(at).load()
        });
        let minus = match codes.code {
            Code::U4 | Code::I4 => Some(match zero {
                None => k.lit(NIBBLES + 0x0008_0008),
                Some(zero) => (twice(zero) + k.lit(NIBBLES).bits::<Bf16x2>()).bits(),
            }),
            Code::U8 | Code::I8 => Some(match zero {
                None => k.lit(BYTE + 128.0).bits(),
                Some(zero) => ((zero.cast::<u32>() << 16u32).bits::<f32>() + BYTE).bits(),
            }),
            Code::E4m3 | Code::E2m1 => zero.map(|zero| zero.cast::<u32>() << 16u32),
        };
        Factor { scale, minus }
    }

    /// Widens this lane's two codes of a word to two numbers of bf16.
    #[track_caller]
    fn widened(&self, word: Val<'k, u32>, factor: Factor<'k>) -> Val<'k, u32> {
        let k = self.k();
        let code = self.of.codes.code;
        let nibbles = || word >> (self.quad * 4).get(k);
        let less = |x: Val<'k, f32>| factor.minus.map_or(x, |minus| x - minus.bits::<f32>());
        let halves = |both: Val<'k, u32>| [both << 16u32, both & 0xffff_0000u32].map(|half| half.bits::<f32>());
        let numbers = match code {
            Code::U4 | Code::I4 => {
                // 128 and the code, less 128 and the zero: exact.
                let both = nibbles().lop3(0x000f_000fu32, NIBBLES, AND_OR).bits::<Bf16x2>();
                let both = factor.minus.map_or(both, |minus| both - minus.bits::<Bf16x2>());
                if let Scale::Two(scale) = factor.scale {
                    return (both * scale).bits();
                }
                halves(both.bits())
            }
            Code::U8 | Code::I8 => {
                let first = (self.quad % 2).get(k);
                let number = |bytes: u32| word.prmt(BYTE.to_bits(), first + bytes).bits::<f32>();
                // A byte of the word below 2²³'s upper three: bytes of the even places, then of the
                // odd.
                [0x7540u32, 0x7542].map(number).map(less)
            }
            Code::E4m3 => {
                let two = (word >> (self.quad % 2 * 16).get(k)).cast::<u16>();
                let (low, high) = two.halves_of_fp8(Fp8::E4M3).split();
                [low.cast(), high.cast()].map(less)
            }
            Code::E2m1 => {
                // Two bytes as `e4m3`, whose exponents are 6 larger.
                let two = word >> (self.quad % 2 * 16 + self.quad / 2 * 4).get(k);
                let two = (two << 2u32).lop3(0x1c1cu32, (two << 4u32) & 0x8080u32, AND_OR).cast::<u16>();
                let (low, high) = two.halves_of_fp8(Fp8::E4M3).split();
                [low.cast::<f32>(), high.cast()].map(|x| less(x * 64.0))
            }
        };
        let scale = match factor.scale {
            Scale::One(scale) => scale,
            Scale::Two(scale) => (scale.bits::<u32>() << 16u32).bits(),
        };
        (numbers[0] * scale).pair::<Bf16x2>(numbers[1] * scale).bits()
    }
}
