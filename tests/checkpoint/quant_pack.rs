//! Writers of quantised modules, one for each scheme, and what their weights mean: by the
//! definitions of the formats, apart from the reader and its table.

use half::{bf16, f16};
use serde_json::{Value, json};

use crate::folder::Tensors;

/// A random module `[n, k]` before it is packed.
pub struct Drawn {
    pub n: usize,
    pub k: usize,
    /// Rows and columns that a scale covers.
    pub cover: [usize; 2],
    /// Bits of each code, `[n, k]`.
    pub codes: Vec<u8>,
    /// A number for each scale, over the grid of scales; what it means is the scheme's.
    pub scales: Vec<u32>,
    /// The bits of each zero point, over the same grid.
    pub zeros: Vec<u8>,
    /// The group of each column.
    pub groups: Vec<usize>,
}

impl Drawn {
    /// Scales along each dimension.
    pub fn grid(&self) -> [usize; 2] {
        [self.n.div_ceil(self.cover[0]), self.k.div_ceil(self.cover[1])]
    }

    fn code(&self, n: usize, k: usize) -> u8 {
        self.codes[n * self.k + k]
    }

    fn cell(&self, n: usize, k: usize) -> usize {
        n / self.cover[0] * self.grid()[1] + self.groups[k]
    }

    /// A scale as f16 has it.
    fn scale(&self, cell: usize) -> f16 {
        f16::from_f32((1 + self.scales[cell] % 1000) as f32 / 4096.0)
    }
}

/// A scheme: how it is drawn and written, and its meaning.
pub struct Row {
    pub name: &'static str,
    pub bits: usize,
    /// `quantization_config`, for a group size.
    pub config: fn(usize) -> Value,
    /// The extents that a scale covers, for a group size.
    pub cover: fn(usize, usize, usize) -> [usize; 2],
    /// Whether columns are in groups out of order.
    pub ordered: bool,
    /// Whether N must be a multiple of 8, and K one of the group.
    pub even: bool,
    /// Whether 0x7f and 0xff are no codes.
    pub nan: bool,
    /// The group that the scheme asks for.
    pub group: Option<usize>,
    pub pack: fn(&Drawn, &str, &mut Tensors),
    /// The weight of row n and column k.
    pub weight: fn(&Drawn, usize, usize) -> f64,
}

/// Codes as a stream of bits, the lowest first, in words of 32.
fn words(bits: usize, codes: impl Iterator<Item = u8>) -> Vec<u32> {
    let mut words = Vec::new();
    for (at, code) in codes.enumerate() {
        let bit = at * bits;
        if bit / 32 == words.len() {
            words.push(0);
        }
        words[bit / 32] |= u32::from(code) << (bit % 32);
    }
    words
}

/// `[words, columns]` of columns of words.
fn columns(columns: &[Vec<u32>]) -> Vec<u32> {
    (0..columns[0].len()).flat_map(|word| columns.iter().map(move |column| column[word])).collect()
}

fn put(tensors: &mut Tensors, name: String, dtype: &str, shape: &[usize], bytes: Vec<u8>) {
    tensors.insert(name, (dtype.to_owned(), shape.to_vec(), bytes));
}

fn put_words(tensors: &mut Tensors, name: String, shape: [usize; 2], words: &[u32]) {
    assert_eq!(words.len(), shape[0] * shape[1], "{name}");
    put(tensors, name, "I32", &shape, words.iter().flat_map(|word| word.to_le_bytes()).collect());
}

/// Scales `[rows, groups]`, or turned, in a type that the drawn number picks: what a file has.
fn put_scales(d: &Drawn, tensors: &mut Tensors, name: String, turned: bool) {
    let [rows, groups] = d.grid();
    let cells: Vec<usize> = match turned {
        false => (0..rows * groups).collect(),
        true => (0..groups).flat_map(|g| (0..rows).map(move |row| row * groups + g)).collect(),
    };
    let shape = if turned { [groups, rows] } else { [rows, groups] };
    match d.scales[0] % 2 {
        0 => put(tensors, name, "F16", &shape, cells.iter().flat_map(|&c| d.scale(c).to_le_bytes()).collect()),
        _ => put(tensors, name, "F32", &shape, cells.iter().flat_map(|&c| d.scale(c).to_f32().to_le_bytes()).collect()),
    }
}

const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

fn awq_words(rows: usize, columns: usize, at: impl Fn(usize, usize) -> u8) -> Vec<u32> {
    let word = |row: usize, block: usize| {
        AWQ_ORDER.iter().enumerate().fold(0, |word, (field, j)| word | u32::from(at(row, 8 * block + j)) << (4 * field))
    };
    (0..rows).flat_map(|row| (0..columns / 8).map(move |block| (row, block))).map(|(r, b)| word(r, b)).collect()
}

fn awq(d: &Drawn, module: &str, tensors: &mut Tensors) {
    let groups = d.grid()[1];
    let codes = awq_words(d.k, d.n, |k, n| d.code(n, k));
    put_words(tensors, format!("{module}.qweight"), [d.k, d.n / 8], &codes);
    let zeros = awq_words(groups, d.n, |g, n| d.zeros[n * groups + g] & 15);
    put_words(tensors, format!("{module}.qzeros"), [groups, d.n / 8], &zeros);
    put_scales(d, tensors, format!("{module}.scales"), true);
}

fn gptq(d: &Drawn, module: &str, tensors: &mut Tensors, bits: usize, stored: impl Fn(u8) -> u8, ordered: bool) {
    let groups = d.grid()[1];
    let codes: Vec<_> = (0..d.n).map(|n| words(bits, (0..d.k).map(|k| d.code(n, k)))).collect();
    put_words(tensors, format!("{module}.qweight"), [codes[0].len(), d.n], &columns(&codes));
    let zeros: Vec<_> = (0..groups).map(|g| words(bits, (0..d.n).map(|n| stored(d.zeros[n * groups + g])))).collect();
    put_words(tensors, format!("{module}.qzeros"), [groups, zeros[0].len()], &zeros.concat());
    put_scales(d, tensors, format!("{module}.scales"), true);
    if ordered {
        let groups = d.groups.iter().flat_map(|&group| (group as i32).to_le_bytes()).collect();
        put(tensors, format!("{module}.g_idx"), "I32", &[d.k], groups);
    }
}

fn pack_quantized(d: &Drawn, module: &str, tensors: &mut Tensors, bits: usize, zeros: bool, ordered: bool) {
    let groups = d.grid()[1];
    let rows: Vec<_> = (0..d.n).map(|n| words(bits, (0..d.k).map(|k| d.code(n, k)))).collect();
    put_words(tensors, format!("{module}.weight_packed"), [d.n, rows[0].len()], &rows.concat());
    if zeros {
        let zeros: Vec<_> = (0..groups).map(|g| words(bits, (0..d.n).map(|n| d.zeros[n * groups + g]))).collect();
        put_words(tensors, format!("{module}.weight_zero_point"), [zeros[0].len(), groups], &columns(&zeros));
    }
    put_scales(d, tensors, format!("{module}.weight_scale"), false);
    let shape = [d.n as i64, d.k as i64].into_iter().flat_map(i64::to_le_bytes).collect();
    put(tensors, format!("{module}.weight_shape"), "I64", &[2], shape);
    if ordered {
        let groups = d.groups.iter().flat_map(|&group| (group as i32).to_le_bytes()).collect();
        put(tensors, format!("{module}.weight_g_idx"), "I32", &[d.k], groups);
    }
}

fn elements(d: &Drawn, module: &str, tensors: &mut Tensors, dtype: &str, scale: &str) {
    put(tensors, format!("{module}.weight"), dtype, &[d.n, d.k], d.codes.clone());
    put_scales(d, tensors, format!("{module}.{scale}"), false);
}

fn exponents(d: &Drawn) -> Vec<u8> {
    d.scales.iter().map(|scale| 110 + (scale % 30) as u8).collect()
}

fn minifloat_scales(d: &Drawn) -> Vec<u8> {
    d.scales.iter().map(|scale| 1 + (scale % 0x7e) as u8).collect()
}

/// Two codes of 4 bits a byte, the lower half first.
fn nibbles(d: &Drawn) -> (Vec<usize>, Vec<u8>) {
    let row = |n: usize| {
        words(
            8,
            (0..d.k.div_ceil(2))
                .map(move |at| d.code(n, 2 * at) | if 2 * at + 1 < d.k { d.code(n, 2 * at + 1) << 4 } else { 0 }),
        )
    };
    let width = d.k.div_ceil(2);
    let bytes = (0..d.n).flat_map(|n| row(n).into_iter().flat_map(u32::to_le_bytes).take(width)).collect();
    (vec![d.n, width], bytes)
}

fn e4m3(bits: u8) -> f64 {
    let sign = bits >> 7;
    let exponent = i32::from(bits >> 3 & 15);
    let mantissa = f64::from(bits & 7);
    let magnitude = if exponent == 0 { mantissa / 512.0 } else { (8.0 + mantissa) * 2f64.powi(exponent - 10) };
    if sign == 1 { -magnitude } else { magnitude }
}

fn e2m1(bits: u8) -> f64 {
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0][usize::from(bits)]
}

fn scaled(d: &Drawn, n: usize, k: usize, number: f64) -> f64 {
    number * d.scale(d.cell(n, k)).to_f64()
}

/// `code − zero`, both unsigned.
fn unsigned(d: &Drawn, n: usize, k: usize) -> f64 {
    scaled(d, n, k, f64::from(d.code(n, k)) - f64::from(d.zeros[d.cell(n, k)]))
}

fn by_group(n: usize, k: usize, group: usize) -> [usize; 2] {
    [1.min(n), group.min(k)]
}

fn args(bits: usize, kind: &str, more: Value) -> Value {
    let mut weights =
        json!({"num_bits": bits, "type": kind, "symmetric": true, "dynamic": false, "observer": "minmax"});
    weights.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    weights
}

fn compressed(format: &str, weights: Value) -> Value {
    json!({"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
        "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
        "input_activations": null, "output_activations": null}}})
}

fn gptq_config(bits: usize, group: usize, more: Value) -> Value {
    let mut config =
        json!({"quant_method": "gptq", "bits": bits, "group_size": group, "sym": false, "desc_act": false});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

const INTEGERS: Row = Row {
    name: "",
    bits: 4,
    config: |_| Value::Null,
    cover: by_group,
    ordered: false,
    even: false,
    nan: false,
    group: None,
    pack: |_, _, _| {},
    weight: unsigned,
};

const MINIFLOATS: Row = Row { bits: 8, nan: true, weight: |d, n, k| scaled(d, n, k, e4m3(d.code(n, k))), ..INTEGERS };

/// Every scheme.
pub const ROWS: [Row; 18] = [
    Row {
        name: "awq",
        even: true,
        config: |g| json!({"quant_method": "awq", "bits": 4, "group_size": g, "zero_point": true, "version": "GEMM"}),
        pack: awq,
        ..INTEGERS
    },
    Row {
        name: "gptq v1",
        config: |g| gptq_config(4, g, json!({"checkpoint_format": "gptq"})),
        pack: |d, module, tensors| gptq(d, module, tensors, 4, |zero| zero.wrapping_sub(1) & 15, false),
        ..INTEGERS
    },
    Row {
        name: "gptq v1, 8 bits, act-order",
        bits: 8,
        ordered: true,
        config: |g| gptq_config(8, g, json!({"desc_act": true})),
        pack: |d, module, tensors| gptq(d, module, tensors, 8, |zero| zero.wrapping_sub(1), true),
        ..INTEGERS
    },
    Row {
        name: "gptq v2, act-order",
        ordered: true,
        config: |g| gptq_config(4, g, json!({"checkpoint_format": "gptq_v2", "desc_act": true})),
        pack: |d, module, tensors| gptq(d, module, tensors, 4, |zero| zero, true),
        ..INTEGERS
    },
    Row {
        name: "gptq v2, 8 bits",
        bits: 8,
        config: |g| gptq_config(8, g, json!({"format": "gptq_v2"})),
        pack: |d, module, tensors| gptq(d, module, tensors, 8, |zero| zero, true),
        ..INTEGERS
    },
    Row {
        name: "pack-quantized",
        config: |g| compressed("pack-quantized", args(4, "int", json!({"strategy": "group", "group_size": g}))),
        pack: |d, module, tensors| pack_quantized(d, module, tensors, 4, false, false),
        weight: |d, n, k| scaled(d, n, k, f64::from(d.code(n, k)) - 8.0),
        ..INTEGERS
    },
    Row {
        name: "pack-quantized with zero points, act-order",
        ordered: true,
        config: |g| {
            let more = json!({"group_size": g, "symmetric": false, "actorder": "group"});
            compressed("pack-quantized", args(4, "int", more))
        },
        pack: |d, module, tensors| pack_quantized(d, module, tensors, 4, true, true),
        ..INTEGERS
    },
    Row {
        name: "pack-quantized, 8 bits, channels with zero points",
        bits: 8,
        cover: |_, k, _| [1, k],
        config: |_| compressed("pack-quantized", args(8, "int", json!({"strategy": "channel", "symmetric": false}))),
        pack: |d, module, tensors| pack_quantized(d, module, tensors, 8, true, false),
        ..INTEGERS
    },
    Row {
        name: "int-quantized",
        bits: 8,
        cover: |_, k, _| [1, k],
        config: |_| compressed("int-quantized", args(8, "int", json!({"strategy": "channel"}))),
        pack: |d, module, tensors| elements(d, module, tensors, "I8", "weight_scale"),
        weight: |d, n, k| scaled(d, n, k, f64::from(d.code(n, k) as i8)),
        ..INTEGERS
    },
    Row {
        name: "float-quantized, a tensor",
        cover: |n, k, _| [n, k],
        config: |_| compressed("float-quantized", args(8, "float", json!({"strategy": "tensor"}))),
        pack: |d, module, tensors| elements(d, module, tensors, "F8_E4M3", "weight_scale"),
        ..MINIFLOATS
    },
    Row {
        name: "float-quantized, blocks",
        cover: |n, k, g| [g.min(n), g.min(k)],
        config: |g| {
            compressed("float-quantized", args(8, "float", json!({"strategy": "block", "block_structure": [g, g]})))
        },
        pack: |d, module, tensors| elements(d, module, tensors, "F8_E4M3", "weight_scale"),
        ..MINIFLOATS
    },
    Row {
        name: "fp8, blocks",
        cover: |n, k, g| [g.min(n), (2 * g).min(k)],
        config: |g| {
            json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": [g, 2 * g]})
        },
        pack: |d, module, tensors| elements(d, module, tensors, "F8_E4M3", "weight_scale_inv"),
        ..MINIFLOATS
    },
    Row {
        name: "fp8, a tensor",
        cover: |n, k, _| [n, k],
        config: |_| json!({"quant_method": "fp8", "activation_scheme": "static"}),
        pack: |d, module, tensors| {
            elements(d, module, tensors, "F8_E4M3", "weight_scale");
            put(tensors, format!("{module}.input_scale"), "F32", &[], vec![0, 0, 128, 63]);
        },
        ..MINIFLOATS
    },
    Row {
        name: "fbgemm_fp8",
        cover: |_, k, _| [1, k],
        config: |_| {
            json!({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
            "modules_to_not_convert": ["lm_head"]})
        },
        pack: |d, module, tensors| elements(d, module, tensors, "F8_E4M3", "weight_scale"),
        ..MINIFLOATS
    },
    Row {
        name: "mxfp8",
        group: Some(32),
        config: |_| compressed("mxfp8-quantized", args(8, "float", json!({"strategy": "group", "group_size": 32}))),
        pack: |d, module, tensors| {
            elements(d, module, tensors, "F8_E4M3", "weight_scale");
            put(tensors, format!("{module}.weight_scale"), "F8_E8M0", &d.grid(), exponents(d));
        },
        weight: |d, n, k| e4m3(d.code(n, k)) * 2f64.powi(i32::from(exponents(d)[d.cell(n, k)]) - 127),
        ..MINIFLOATS
    },
    Row {
        name: "mxfp8 of modelopt",
        group: Some(32),
        config: |_| json!({"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"], "group_size": 32}),
        pack: |d, module, tensors| {
            elements(d, module, tensors, "F8_E4M3", "weight_scale");
            put(tensors, format!("{module}.weight_scale"), "U8", &d.grid(), exponents(d));
        },
        weight: |d, n, k| e4m3(d.code(n, k)) * 2f64.powi(i32::from(exponents(d)[d.cell(n, k)]) - 127),
        ..MINIFLOATS
    },
    Row {
        name: "nvfp4",
        group: Some(16),
        config: |_| {
            compressed("nvfp4-pack-quantized", args(4, "float", json!({"strategy": "tensor_group", "group_size": 16})))
        },
        pack: |d, module, tensors| {
            let (shape, bytes) = nibbles(d);
            put(tensors, format!("{module}.weight_packed"), "U8", &shape, bytes);
            put(tensors, format!("{module}.weight_scale"), "F8_E4M3", &d.grid(), minifloat_scales(d));
            put(tensors, format!("{module}.weight_global_scale"), "F32", &[1], 37.5f32.to_le_bytes().to_vec());
        },
        weight: |d, n, k| {
            let scale = (e4m3(minifloat_scales(d)[d.cell(n, k)]) / 37.5) as f32;
            e2m1(d.code(n, k)) * f64::from(scale)
        },
        ..INTEGERS
    },
    Row {
        name: "mxfp4",
        group: Some(32),
        config: |_| {
            compressed("mxfp4-pack-quantized", args(4, "float", json!({"strategy": "group", "group_size": 32})))
        },
        pack: |d, module, tensors| {
            let (shape, bytes) = nibbles(d);
            put(tensors, format!("{module}.weight_packed"), "U8", &shape, bytes);
            put(tensors, format!("{module}.weight_scale"), "U8", &d.grid(), exponents(d));
        },
        weight: |d, n, k| e2m1(d.code(n, k)) * 2f64.powi(i32::from(exponents(d)[d.cell(n, k)]) - 127),
        ..INTEGERS
    },
];

/// ModelOpt's NVFP4, whose second scale multiplies: the same weights as `nvfp4` with the inverse of
/// its global scale.
pub fn modelopt_nvfp4(d: &Drawn, module: &str, tensors: &mut Tensors, second: f32) {
    let (shape, bytes) = nibbles(d);
    put(tensors, format!("{module}.weight"), "U8", &shape, bytes);
    put(tensors, format!("{module}.weight_scale"), "F8_E4M3", &d.grid(), minifloat_scales(d));
    put(tensors, format!("{module}.weight_scale_2"), "F32", &[], second.to_le_bytes().to_vec());
}

/// A dense tensor of a pattern, times a factor, in bf16.
pub fn dense(shape: &[usize], factor: f32) -> (String, Vec<usize>, Vec<u8>) {
    let count = shape.iter().product::<usize>();
    let bytes = (0..count).flat_map(|i| bf16::from_f32((i % 97) as f32 / 64.0 * factor).to_le_bytes()).collect();
    ("BF16".to_owned(), shape.to_vec(), bytes)
}
