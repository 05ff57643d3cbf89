//! The arguments of a group of compressed-tensors: `format` and `weights` become a scheme, or a
//! preset's name does.

use serde_json::Value;
use tilewright_graph::models::keys::{ANY, FALSE, Keys, KnownKey, known};

use super::fp8::read_block;
use super::scheme::{FLOAT8, INT8, MXFP4, MXFP8, NVFP4, PACK_U4, PACK_U8, Scheme};
use crate::checkpoint::StoredModule;
use crate::checkpoint::fault::ConfigFault;
use crate::checkpoint::quant::stored::{Presence, Scales};

/// Keys of `weights` that say how codes were found.
pub(super) const KNOWN: &[KnownKey] = &[
    known("observer", "how scales were found", ANY),
    known("observer_kwargs", "how scales were found", ANY),
    known("scale_dtype", "the element type of scales; they are used as stored", ANY),
    known("zp_dtype", "the element type of zero points; they are used as stored", ANY),
    known("dynamic", "finds scales while the model runs", FALSE),
];

/// The group that a scheme's scales must have.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    /// Rows, a tensor, or groups of any size.
    Any,
    /// Rows, a tensor, groups of any size, or blocks.
    AnyOrBlocks,
    /// Groups of that many columns.
    Of(usize),
}

/// `format`, `type`, `num_bits`: the scheme, and what its scales may cover.
const FORMATS: [(&str, &str, u64, &Scheme, Groups); 9] = [
    ("pack-quantized", "int", 4, &PACK_U4, Groups::Any),
    ("pack-quantized", "int", 8, &PACK_U8, Groups::Any),
    ("int-quantized", "int", 8, &INT8, Groups::Any),
    ("naive-quantized", "int", 8, &INT8, Groups::Any),
    ("float-quantized", "float", 8, &FLOAT8, Groups::AnyOrBlocks),
    ("naive-quantized", "float", 8, &FLOAT8, Groups::AnyOrBlocks),
    ("nvfp4-pack-quantized", "float", 4, &NVFP4, Groups::Of(16)),
    ("mxfp4-pack-quantized", "float", 4, &MXFP4, Groups::Of(32)),
    ("mxfp8-quantized", "float", 8, &MXFP8, Groups::Of(32)),
];

/// The format of a configuration whose groups each have their own.
const MIXED: &str = "mixed-precision";

/// Notes a format that is not read.
pub(super) fn check_format(keys: &mut Keys, format: Option<&Value>) {
    let Some(format) = format else { return };
    if !FORMATS.iter().any(|row| format.as_str() == Some(row.0)) && format.as_str() != Some(MIXED) {
        const ACCEPTED: &str = "pack-quantized, int-quantized, naive-quantized, float-quantized, nvfp4-pack-quantized, \
                                mxfp4-pack-quantized or mxfp8-quantized";
        keys.unsupported("format", format, "stores weights in a way that is not read", ACCEPTED);
    }
}

/// The contents of `weights`.
#[derive(Clone, Copy)]
struct Args {
    bits: u64,
    kind: &'static str,
    symmetric: bool,
    scales: Scales,
}

/// A name for arguments: whether it quantises activations as well.
struct Preset {
    name: &'static str,
    args: Args,
    activations: bool,
}

const fn preset(name: &'static str, bits: u64, kind: &'static str, scales: Scales, activations: bool) -> Preset {
    Preset { name, args: Args { bits, kind, symmetric: true, scales }, activations }
}

const G128: Scales = Scales::Group(128);

const PRESETS: [Preset; 15] = [
    preset("W4A16", 4, "int", G128, false),
    Preset {
        name: "W4A16_ASYM",
        args: Args { bits: 4, kind: "int", symmetric: false, scales: G128 },
        activations: false,
    },
    preset("W8A16", 8, "int", Scales::Channel, false),
    preset("W8A8", 8, "int", Scales::Channel, true),
    preset("INT8", 8, "int", Scales::Channel, true),
    preset("W4A8", 4, "int", G128, true),
    preset("W4AFP8", 4, "int", G128, true),
    preset("FP8", 8, "float", Scales::Tensor, true),
    preset("FP8_DYNAMIC", 8, "float", Scales::Channel, true),
    preset("FP8_BLOCK", 8, "float", Scales::Block(128, 128), true),
    preset("NVFP4A16", 4, "float", Scales::Group(16), false),
    preset("NVFP4", 4, "float", Scales::Group(16), true),
    preset("MXFP4A16", 4, "float", Scales::Group(32), false),
    preset("MXFP4", 4, "float", Scales::Group(32), true),
    preset("MXFP8A16", 8, "float", Scales::Group(32), false),
];

/// The scheme of a preset in a format, and whether it quantises activations.
pub(super) fn of_preset(keys: &mut Keys, name: &str, format: Option<&Value>) -> Option<(StoredModule, bool)> {
    let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) else {
        let value = Value::from(name);
        keys.unsupported("config_groups", &value, "is a preset that is not known", "an object, or a known preset");
        return None;
    };
    Some((stored(keys, preset.args, format, Presence::Absent)?, preset.activations))
}

/// Takes the keys of `weights`.
pub(super) fn read(keys: &mut Keys, format: Option<&Value>) -> Option<StoredModule> {
    let before = keys.faults.len();
    let bits = keys.take("num_bits").unwrap_or(Value::Null);
    let kind = keys.take_value("type").unwrap_or_else(|| Value::from("int"));
    let symmetric = keys.boolean("symmetric", true);
    let scales = read_scales(keys);
    let order = read_order(keys);
    let kind = match kind.as_str() {
        Some("int") => "int",
        Some("float") => "float",
        _ => {
            keys.unsupported("type", &kind, "is a kind of codes that is not known", "int or float");
            "int"
        }
    };
    let Some(bits) = bits.as_u64() else {
        keys.wrong_type("num_bits", &bits, "a whole number");
        return None;
    };
    let stored = stored(keys, Args { bits, kind, symmetric, scales }, format, order)?;
    (keys.faults.len() == before).then_some(stored)
}

/// Reads the range that one scale covers.
fn read_scales(keys: &mut Keys) -> Scales {
    let size = keys.take_value("group_size");
    let block = keys.take_value("block_structure");
    let strategy = keys.take_value("strategy");
    let group = |keys: &mut Keys| match size.as_ref().map(|size| (size.as_i64(), size)) {
        Some((Some(-1), _)) => Scales::Channel,
        Some((Some(group @ 1..=0xffff_ffff), _)) => Scales::Group(group as usize),
        Some((_, value)) => {
            keys.wrong_type("group_size", value, "the columns of a group, or -1 for whole rows");
            Scales::Channel
        }
        None => {
            let key = keys.name("group_size");
            keys.faults.push(ConfigFault::Missing { key });
            Scales::Channel
        }
    };
    match strategy.as_ref().map(|strategy| strategy.as_str().unwrap_or_default()) {
        None if size.is_none() => Scales::Tensor,
        None | Some("group" | "tensor_group") => group(keys),
        Some("tensor") => Scales::Tensor,
        Some("channel") => Scales::Channel,
        Some("block") => match block {
            Some(block) => read_block(keys, "block_structure", &block),
            None => {
                let key = keys.name("block_structure");
                keys.faults.push(ConfigFault::Missing { key });
                Scales::Tensor
            }
        },
        Some(_) => {
            let value = strategy.unwrap_or_default();
            const ACCEPTED: &str = "tensor, channel, group, tensor_group or block";
            keys.unsupported("strategy", &value, "gives weights scales in a way that is not known", ACCEPTED);
            Scales::Tensor
        }
    }
}

/// Takes `actorder`: only one by groups leaves an order in the file.
fn read_order(keys: &mut Keys) -> Presence {
    let Some(value) = keys.take_value("actorder") else { return Presence::Absent };
    match (value.as_bool(), value.as_str()) {
        (Some(true), _) | (_, Some("group" | "dynamic")) => Presence::Required,
        (Some(false), _) | (_, Some("weight" | "static")) => Presence::Absent,
        _ => {
            const ACCEPTED: &str = "null, true, group, dynamic, weight or static";
            keys.unsupported("actorder", &value, "orders columns in a way that is not known", ACCEPTED);
            Presence::Absent
        }
    }
}

/// The row of the table for a format and arguments.
fn stored(keys: &mut Keys, args: Args, format: Option<&Value>, order: Presence) -> Option<StoredModule> {
    let Some(format) = format.filter(|format| format.as_str() != Some(MIXED)) else {
        let key = keys.name("format");
        keys.faults.push(ConfigFault::Missing { key });
        return None;
    };
    // A format that is not known has its fault already, where it stands.
    let of_format: Vec<_> = FORMATS.iter().filter(|row| format.as_str() == Some(row.0)).collect();
    if of_format.is_empty() {
        return None;
    }
    let Some(&&(_, _, _, scheme, groups)) = of_format.iter().find(|row| row.1 == args.kind && row.2 == args.bits)
    else {
        let value = Value::from(args.bits);
        let meaning = format!("with type {} is not a width of codes that format {format} is read with", args.kind);
        keys.unsupported("num_bits", &value, &meaning, "int of 4 or 8 bits, float of 4 or 8, as the format has it");
        return None;
    };
    let fits = match (groups, args.scales) {
        (Groups::Of(size), Scales::Group(group)) => size == group,
        (Groups::Of(_), _) => false,
        (Groups::Any, Scales::Block(..)) => false,
        (Groups::Any | Groups::AnyOrBlocks, _) => true,
    };
    if !fits {
        let value = Value::from(format!("{:?}", args.scales));
        let meaning = format!("is not what scales of format {format} cover");
        keys.unsupported(
            "strategy",
            &value,
            &meaning,
            "the groups of the format: 16 for nvfp4, 32 for mxfp4 and mxfp8",
        );
        return None;
    }
    let has_zeros = scheme.zero.tensor.is_some() && !args.symmetric;
    if !args.symmetric && !has_zeros {
        keys.unsupported("symmetric", &false.into(), "gives minifloats a zero point", "true");
        return None;
    }
    if order == Presence::Required && scheme.order.is_none() {
        keys.unsupported("actorder", &"group".into(), "orders the columns of a format that stores no order", "null");
        return None;
    }
    let zeros = if has_zeros { Presence::Required } else { Presence::Absent };
    // Of one group there is no order, but a writer may leave one.
    let order = if order == Presence::Required && args.scales == Scales::Channel { Presence::Optional } else { order };
    Some(StoredModule { scheme, scales: args.scales, zeros, symmetric: false, order })
}
