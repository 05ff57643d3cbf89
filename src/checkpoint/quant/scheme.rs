//! The table of schemes: where the parts of a quantised module lie, to the bit. Facts: the packages
//! compressed-tensors, AutoGPTQ, GPTQModel, AutoAWQ and ModelOpt, and DeepSeek-V3's
//! `README_WEIGHTS.md`.

use tilewright_kernels::quant::Code;
use tilewright_layout::DType;

/// A dimension of a weight: output features, or input features (for scales and zeros: their
/// groups).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightAxis {
    N,
    K,
}

/// The field of a word that holds a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeOrder {
    /// Code i in field i, from the lowest bits on.
    Plain,
    /// Field i of a word of eight holds code 0 2 4 6 1 3 5 7.
    Awq,
}

/// The packing of 4-bit or 8-bit codes in a tensor of two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    /// The elements of the tensor: I32, U8, I8 or F8_E4M3.
    pub word: DType,
    /// The dimension along which a word packs codes.
    pub along: WeightAxis,
    /// The tensor's first dimension.
    pub outer: WeightAxis,
    pub order: CodeOrder,
}

/// The storage type of a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaleType {
    /// f32, f16 or bf16.
    Float,
    /// A byte e, which means 2^(e − 127).
    E8m0,
    /// A minifloat, not negative.
    E4m3,
}

/// A second scale, one f32 for the whole matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// Scales are divided by it.
    Divide(&'static str),
    /// Scales are multiplied by it.
    Multiply(&'static str),
}

/// The source of zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zero {
    /// The zero point where there is no tensor of them.
    pub same: i16,
    /// Name and packing of the tensor, where the scheme has one.
    pub tensor: Option<(&'static str, Packing)>,
    /// The number added to a field, modulo the number of codes.
    pub offset: u8,
}

/// A quantisation scheme. A tensor's name is the module's, a dot and the suffix given here.
#[derive(Debug, PartialEq)]
pub(super) struct Scheme {
    /// Its name in texts.
    pub name: &'static str,
    pub code: Code,
    pub codes: (&'static str, Packing),
    pub scale: &'static str,
    pub scale_type: ScaleType,
    /// The first dimension of the scales' tensor.
    pub scale_outer: WeightAxis,
    pub global: Option<Global>,
    pub zero: Zero,
    /// The group of every column, I32 `[K]`.
    pub order: Option<&'static str>,
    /// N and K, I64 `[2]`.
    pub shape: Option<&'static str>,
    /// Whether N may not be a multiple of a word's codes, nor K of the group.
    pub ragged: bool,
    /// Tensors for quantised activations, which are accepted and ignored.
    pub unused: &'static [&'static str],
}

const fn packing(word: DType, along: WeightAxis, outer: WeightAxis) -> Packing {
    Packing { word, along, outer, order: CodeOrder::Plain }
}

const fn none(same: i16) -> Zero {
    Zero { same, tensor: None, offset: 0 }
}

/// The middle of unsigned codes, which means 0 in symmetric schemes.
const fn middle(code: Code) -> i16 {
    1 << (code.bits() - 1)
}

const AWQ: Packing = Packing { word: DType::I32, along: WeightAxis::N, outer: WeightAxis::K, order: CodeOrder::Awq };

/// AutoAWQ's `version: gemm`.
pub(super) static AWQ_GEMM: Scheme = Scheme {
    name: "AWQ gemm of 4 bits",
    code: Code::U4,
    codes: ("qweight", AWQ),
    scale: "scales",
    scale_type: ScaleType::Float,
    scale_outer: WeightAxis::K,
    global: None,
    zero: Zero { same: middle(Code::U4), tensor: Some(("qzeros", AWQ)), offset: 0 },
    order: None,
    shape: None,
    ragged: false,
    unused: &[],
};

const fn gptq(name: &'static str, code: Code, offset: u8) -> Scheme {
    Scheme {
        name,
        code,
        codes: ("qweight", packing(DType::I32, WeightAxis::K, WeightAxis::K)),
        scale: "scales",
        scale_type: ScaleType::Float,
        scale_outer: WeightAxis::K,
        global: None,
        zero: Zero {
            same: middle(code),
            tensor: Some(("qzeros", packing(DType::I32, WeightAxis::N, WeightAxis::K))),
            offset,
        },
        order: Some("g_idx"),
        shape: None,
        ragged: true,
        unused: &[],
    }
}

/// GPTQ, the first format: zero points are stored minus one.
pub(super) static GPTQ_V1_U4: Scheme = gptq("GPTQ of 4 bits", Code::U4, 1);
/// GPTQ of 8 bits, the first format.
pub(super) static GPTQ_V1_U8: Scheme = gptq("GPTQ of 8 bits", Code::U8, 1);
/// GPTQ, the second format: zero points as they are.
pub(super) static GPTQ_V2_U4: Scheme = gptq("GPTQ v2 of 4 bits", Code::U4, 0);
/// GPTQ of 8 bits, the second format.
pub(super) static GPTQ_V2_U8: Scheme = gptq("GPTQ v2 of 8 bits", Code::U8, 0);

const fn pack_quantized(name: &'static str, code: Code) -> Scheme {
    Scheme {
        name,
        code,
        codes: ("weight_packed", packing(DType::I32, WeightAxis::K, WeightAxis::N)),
        scale: "weight_scale",
        scale_type: ScaleType::Float,
        scale_outer: WeightAxis::N,
        global: None,
        zero: Zero {
            same: middle(code),
            tensor: Some(("weight_zero_point", packing(DType::I32, WeightAxis::N, WeightAxis::N))),
            offset: 0,
        },
        order: Some("weight_g_idx"),
        shape: Some("weight_shape"),
        ragged: true,
        unused: &["input_scale", "output_scale", "input_zero_point", "output_zero_point"],
    }
}

/// compressed-tensors `pack-quantized`; codes and zero points are offset by half their count.
pub(super) static PACK_U4: Scheme = pack_quantized("pack-quantized of 4 bits", Code::U4);
/// compressed-tensors `pack-quantized` of 8 bits.
pub(super) static PACK_U8: Scheme = pack_quantized("pack-quantized of 8 bits", Code::U8);

/// A code an element, a scale for a row, a tensor, a block or a group.
const fn elements(name: &'static str, code: Code, word: DType) -> Scheme {
    Scheme {
        name,
        code,
        codes: ("weight", packing(word, WeightAxis::K, WeightAxis::N)),
        scale: "weight_scale",
        scale_type: ScaleType::Float,
        scale_outer: WeightAxis::N,
        global: None,
        zero: none(0),
        order: None,
        shape: None,
        ragged: true,
        unused: &["input_scale", "output_scale", "input_zero_point", "output_zero_point"],
    }
}

/// compressed-tensors `int-quantized` of 8 bits.
pub(super) static INT8: Scheme = Scheme {
    zero: Zero {
        same: 0,
        tensor: Some(("weight_zero_point", packing(DType::I8, WeightAxis::K, WeightAxis::N))),
        offset: 0,
    },
    ..elements("int-quantized of 8 bits", Code::I8, DType::I8)
};

/// compressed-tensors `float-quantized`, ModelOpt's FP8, `fp8` of a scale a tensor, `fbgemm_fp8`.
pub(super) static FLOAT8: Scheme = elements("fp8 with weight_scale", Code::E4m3, DType::F8E4M3);

/// `fp8` by blocks: the name says inverse, the use is a product.
pub(super) static FP8_BLOCK: Scheme =
    Scheme { scale: "weight_scale_inv", ..elements("fp8 by blocks with weight_scale_inv", Code::E4m3, DType::F8E4M3) };

/// `fp8` by blocks with `scale_fmt: ue8m0`: scales are exponents.
pub(super) static FP8_BLOCK_E8M0: Scheme = Scheme {
    scale: "weight_scale_inv",
    scale_type: ScaleType::E8m0,
    ..elements("fp8 by blocks with weight_scale_inv in e8m0", Code::E4m3, DType::F8E4M3)
};

/// compressed-tensors `mxfp8-quantized`.
pub(super) static MXFP8: Scheme =
    Scheme { scale_type: ScaleType::E8m0, ..elements("mxfp8-quantized", Code::E4m3, DType::F8E4M3) };

const NIBBLES: Packing = packing(DType::U8, WeightAxis::K, WeightAxis::N);

/// compressed-tensors `mxfp4-pack-quantized`.
pub(super) static MXFP4: Scheme = Scheme {
    codes: ("weight_packed", NIBBLES),
    scale_type: ScaleType::E8m0,
    ..elements("mxfp4-pack-quantized", Code::E2m1, DType::U8)
};

/// gpt-oss's `mxfp4`, of experts alone.
pub(super) static GPT_OSS: Scheme = Scheme {
    codes: ("blocks", NIBBLES),
    scale: "scales",
    scale_type: ScaleType::E8m0,
    unused: &[],
    ..elements("mxfp4 of gpt-oss", Code::E2m1, DType::U8)
};

/// compressed-tensors `nvfp4-pack-quantized`: its global scale divides.
pub(super) static NVFP4: Scheme = Scheme {
    codes: ("weight_packed", NIBBLES),
    scale_type: ScaleType::E4m3,
    global: Some(Global::Divide("weight_global_scale")),
    unused: &["input_global_scale", "input_scale"],
    ..elements("nvfp4-pack-quantized", Code::E2m1, DType::U8)
};

/// ModelOpt's NVFP4: its second scale multiplies.
pub(super) static MODELOPT_NVFP4: Scheme = Scheme {
    codes: ("weight", NIBBLES),
    scale_type: ScaleType::E4m3,
    global: Some(Global::Multiply("weight_scale_2")),
    ..elements("NVFP4 of ModelOpt", Code::E2m1, DType::U8)
};

/// Every scheme.
#[cfg(test)]
pub(super) static SCHEMES: [&Scheme; 16] = [
    &AWQ_GEMM,
    &GPTQ_V1_U4,
    &GPTQ_V1_U8,
    &GPTQ_V2_U4,
    &GPTQ_V2_U8,
    &PACK_U4,
    &PACK_U8,
    &INT8,
    &FLOAT8,
    &FP8_BLOCK,
    &FP8_BLOCK_E8M0,
    &MXFP8,
    &MXFP4,
    &GPT_OSS,
    &NVFP4,
    &MODELOPT_NVFP4,
];

impl Packing {
    /// Codes of a word.
    pub fn fields(self, bits: usize) -> usize {
        self.word.bits() / bits
    }

    /// The tensor's shape for codes `[n, k]`.
    pub fn shape(self, bits: usize, n: usize, k: usize) -> [usize; 2] {
        let fields = self.fields(bits);
        let (n, k) = match self.along {
            WeightAxis::N => (n.div_ceil(fields), k),
            WeightAxis::K => (n, k.div_ceil(fields)),
        };
        match self.outer {
            WeightAxis::N => [n, k],
            WeightAxis::K => [k, n],
        }
    }

    /// Calls `each(n, k, bits of the code)` for all codes `[n, k]` of a tensor of
    /// [`Packing::shape`], words in their order.
    pub fn unpack(self, bits: usize, n: usize, k: usize, bytes: &[u8], mut each: impl FnMut(usize, usize, u8)) {
        const AWQ_COLUMNS: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
        let fields = self.fields(bits);
        let word_bytes = self.word.bytes();
        let per_byte = 8 / bits;
        let mask = if bits == 8 { 0xff } else { 15 };
        let [_, inner] = self.shape(bits, n, k);
        for (at, word) in bytes.chunks_exact(word_bytes).enumerate() {
            let outer = at / inner;
            let inner = at % inner;
            let (word_n, word_k) = if self.outer == WeightAxis::N { (outer, inner) } else { (inner, outer) };
            for field in 0..fields {
                let code = word[field / per_byte] >> (bits * (field % per_byte)) & mask;
                let place = match self.order {
                    CodeOrder::Plain => field,
                    CodeOrder::Awq => AWQ_COLUMNS[field % 8],
                };
                let (n_at, k_at) = match self.along {
                    WeightAxis::N => (word_n * fields + place, word_k),
                    WeightAxis::K => (word_n, word_k * fields + place),
                };
                if n_at < n && k_at < k {
                    each(n_at, k_at, code);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schemes_are_unique() {
        for (at, scheme) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..at].iter().all(|other| other.name != scheme.name), "{}", scheme.name);
        }
    }

    /// The words that the formats' own packers give for the codes 0 to 7 (and -8 to -1, offset).
    #[test]
    fn the_words_of_the_published_packers_are_unpacked() {
        let codes = |packing: Packing, word: u32, n, k| {
            let mut found = vec![0; n * k];
            packing.unpack(4, n, k, &word.to_le_bytes(), |row, column, code| found[row * k + column] = code);
            found
        };
        let counted: Vec<u8> = (0..8).collect();
        assert_eq!(codes(PACK_U4.codes.1, 0x7654_3210, 1, 8), counted);
        assert_eq!(codes(GPTQ_V1_U4.codes.1, 0x7654_3210, 1, 8), counted);
        assert_eq!(codes(AWQ, 0x7531_6420, 8, 1), counted);
    }
}
