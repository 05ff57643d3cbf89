//! The cost model of a decode step: bytes over bandwidth, plus what dependency levels and
//! activations add.
//!
//! A step reads every weight once, and the keys and values of all tokens before. Weights run ahead
//! of the levels, so the device memory is busy all the time but for a latency at each level. Every
//! SM reads the activations of each level from L2, for every row of the batch.
//!
//! Two constants were fitted to the nine decode rows of an H100 (batches 1 to 16, two models;
//! largest error 2.3 %): the latency of a level and the bandwidth of L2. The rate of a device is
//! what a read probe measured; without one it is what the decode rows of that device show, or the
//! same part of its data sheet as on the H100.

use tilewright_codegen::target::Target;
use tilewright_graph::graph::Weight;
use tilewright_megakernel::model::ModelSpec;

/// The cost of a dependency level, in seconds.
const LEVEL: f64 = 0.675e-6;

/// The cost of an exchange between devices, in seconds: every part of a sum sent to every device,
/// and the level that adds them.
///
/// Taken from the timeline of two H200s (2.2 to 3.0 µs); for more devices it is an estimate.
const EXCHANGE: f64 = 3.0e-6;

/// Bytes a second at which all SMs together read activations from L2.
const L2: f64 = 5.73e12;

/// Bytes a second that decode reaches where no read probe ran: device, rate. From its decode rows
/// of one call.
const STREAMED: [(&str, f64); 1] = [("h200", 4.21e12)];

/// The part of the data sheet's bandwidth that a read probe reached on an H100: 3.155 of 3.352
/// TB/s.
const PART_OF_SHEET: f64 = 3.155 / 3.352;

/// Bytes of an element of weights, keys, values and activations: bf16.
const ELEMENT: u64 = 2;

/// The origin of a device's bandwidth figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// A read probe.
    Probe,
    /// Decode rows of that device.
    DecodeRows,
    /// The data sheet, and the part of it that an H100 reaches.
    DataSheet,
}

/// The size of a step, and its number of devices.
#[derive(Clone, Copy, Debug)]
pub struct StepLoad {
    /// Rows of the batch.
    pub rows: usize,
    /// Devices that share the model.
    pub devices: usize,
    /// Tokens that each row holds.
    pub context: usize,
}

/// The memory bandwidth of a device.
struct Bandwidth {
    /// Bytes a second.
    rate: f64,
    known_by: KnownBy,
}

/// A decode step: what a device reads, and how long that takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCost {
    /// Devices that share the model.
    pub devices: usize,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of keys and values.
    pub cache: u64,
    /// Dependency levels.
    pub levels: u64,
    /// Bytes a second from device memory.
    pub rate: f64,
    /// The origin of that figure.
    pub known_by: KnownBy,
    /// Seconds of reading.
    pub reading: f64,
    /// Seconds of the levels' latencies.
    pub waiting: f64,
    /// Seconds of reading activations.
    pub activations: f64,
    /// Exchanges among the devices.
    pub exchanges: u64,
    /// Seconds of these.
    pub exchanging: f64,
}

impl StepCost {
    /// A step of a model on a target.
    pub fn of(spec: &ModelSpec, target: &Target, load: StepLoad) -> StepCost {
        StepCost::at_bandwidth(spec, target, load, bandwidth(target))
    }

    /// Replaces the bytes of weights that a step reads, of all devices together.
    #[must_use]
    pub fn with_weights(self, bytes: u64) -> StepCost {
        let weights = bytes / self.devices as u64;
        StepCost { weights, reading: (weights + self.cache) as f64 / self.rate, ..self }
    }

    fn at_bandwidth(spec: &ModelSpec, target: &Target, load: StepLoad, bandwidth: Bandwidth) -> StepCost {
        let (StepLoad { rows, devices, context }, Bandwidth { rate, known_by }) = (load, bandwidth);
        let elements = |shape: &[usize]| shape.iter().map(|&extent| extent as u64).product::<u64>();
        let all: u64 = spec.tensors().iter().map(|tensor| elements(&tensor.shape)).sum();
        // Of experts those that rows choose uniformly.
        let chosen = |weight: &Weight| weight.experts.filter(|count| *count > 1).unwrap_or(0);
        let of_experts = |weight: &Weight| weight.shape.iter().product::<u64>() * chosen(weight);
        let experts: u64 = spec.graph().parts().weights.iter().map(of_experts).sum();
        let share = spec.experts.map_or(1.0, |experts| experts.share(rows));
        let all = all - experts + (experts as f64 * share) as u64;
        // Of an embedding table that is not the output's, a step reads the rows that it looks up.
        let unread = if spec.tied_embeddings { 0 } else { elements(&[spec.vocab.saturating_sub(rows), spec.hidden]) };
        // Norms, which every device has, are not worth counting.
        let weights = ELEMENT * (all - unread) / devices as u64;
        let kv_heads = spec.kv_heads.div_ceil(devices);
        let cache = ELEMENT * elements(&[rows, context, spec.layers, 2, kv_heads, spec.head_dim]);
        let levels = elements(&[spec.layers, 5 + usize::from(spec.head_norms)]) + 3;
        let inputs = 2 * spec.hidden + (spec.heads * spec.head_dim + spec.intermediate) / devices;
        // The embedding, and o and down of each layer.
        let exchanges = if devices > 1 { 1 + 2 * spec.layers as u64 } else { 0 };
        let activations =
            ELEMENT * elements(&[rows, target.sms]) * (elements(&[spec.layers, inputs]) + spec.hidden as u64);
        StepCost {
            devices,
            weights,
            cache,
            levels,
            rate,
            known_by,
            reading: (weights + cache) as f64 / rate,
            waiting: levels as f64 * LEVEL,
            activations: activations as f64 / L2,
            exchanges,
            exchanging: exchanges as f64 * EXCHANGE,
        }
    }

    /// Bytes from device memory.
    pub fn bytes(&self) -> u64 {
        self.weights + self.cache
    }

    /// Seconds of the step: of one token of every row.
    pub fn seconds(&self) -> f64 {
        self.reading + self.waiting + self.activations + self.exchanging
    }
}

/// Bytes a second that decode reads on a device, and how that is known.
fn bandwidth(target: &Target) -> Bandwidth {
    let of = |rate, known_by| Bandwidth { rate, known_by };
    let decoded = STREAMED.iter().find(|row| row.0 == target.name).map(|row| of(row.1, KnownBy::DecodeRows));
    let probed = target.read_bandwidth.map(|rate| of(rate, KnownBy::Probe));
    probed.or(decoded).unwrap_or(of(target.peak_bandwidth * PART_OF_SHEET, KnownBy::DataSheet))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tilewright_graph::models::Llama;
    use tilewright_megakernel::model::ModelSpec;

    use super::*;
    use crate::results::Results;

    /// The measured decode rows of H100 and H200 at one commit: target, model, rows, position,
    /// microseconds, bytes.
    fn measured() -> Vec<(Target, ModelSpec, usize, usize, f64)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/rows");
        let results = Results::open(&folder).expect("rows");
        let mut found = Vec::new();
        for entry in &results.rows {
            let call = results.call(entry);
            let row = &entry.1;
            let fed_back = row.suite == "decode" && row.variant.starts_with("launches of 200");
            if !fed_back || !row.is_ours() || row.copy_of.is_some() || call.commit.as_deref() != Some("a89995a") {
                continue;
            }
            let device = call.device.to_ascii_lowercase();
            let target = Target::names().find(|name| device.contains(name)).and_then(Target::named).expect("a target");
            let extent = |name: &str| row.shape[name] as usize;
            let mut specs = Llama::names().filter_map(ModelSpec::named);
            let spec = specs.find(|s| (s.hidden, s.layers) == (extent("hidden"), extent("layers"))).expect("a model");
            found.push((target, spec, extent("batch"), extent("context") - 100, row.median_us.expect("a time")));
        }
        found
    }

    #[test]
    fn the_model_is_within_a_tenth_of_every_measured_row_of_h100_and_h200() {
        let rows = measured();
        let of = |name: &str| rows.iter().filter(|row| row.0.name == name).count();
        assert!(of("h100") >= 9 && of("h200") >= 4, "{} and {} rows", of("h100"), of("h200"));
        for (target, spec, batch, position, us) in &rows {
            let planned =
                StepCost::of(spec, target, StepLoad { rows: *batch, devices: 1, context: *position }).seconds() * 1e6;
            let limit = if target.name == "h100" { 0.03 } else { 0.05 };
            let error = planned / us - 1.0;
            assert!(error.abs() < limit, "{} {} rows {batch}: {planned:.1} for {us:.1} µs", target.name, spec.hidden);
        }
    }

    /// Checks that H100 rows alone predict the H200, without any row of an H200.
    #[test]
    fn the_data_sheet_and_the_h100_foretell_an_h200_within_a_tenth() {
        for (target, spec, batch, position, us) in measured().iter().filter(|row| row.0.name == "h200") {
            let rate = target.peak_bandwidth * PART_OF_SHEET;
            let step = {
                let load = StepLoad { rows: *batch, devices: 1, context: *position };
                StepCost::at_bandwidth(spec, target, load, Bandwidth { rate, known_by: KnownBy::DataSheet })
            };
            let error = step.seconds() * 1e6 / us - 1.0;
            assert!(error.abs() < 0.10, "rows {batch} at {position}: {error:.3}");
        }
    }

    /// Tokens of two H200s, milliseconds: the least and the most that calls measured at a context
    /// of 1024.
    #[test]
    fn two_devices_are_within_a_tenth_of_what_was_measured() {
        let target = Target::named("h200").expect("known");
        for (name, least, most) in [("llama-3.1-8b", 2.07, 2.10), ("llama-3.2-1b", 0.477, 0.498)] {
            let load = StepLoad { rows: 1, devices: 2, context: 1024 };
            let step = StepCost::of(&ModelSpec::named(name).expect("known"), &target, load);
            let ms = step.seconds() * 1e3;
            assert!(ms > 0.9 * least && ms < 1.1 * most, "{name}: {ms:.3} ms for {least} to {most}");
        }
    }

    #[test]
    fn bytes_are_those_that_the_bench_counts() {
        let spec = ModelSpec::named("llama-3.2-1b").expect("known");
        let target = Target::named("h100").expect("known");
        // The frequencies of the rotation are not a tensor; the bench counts the same to a part in
        // ten thousand.
        let counted = 2_474_905_728f64;
        let step = StepCost::of(&spec, &target, StepLoad { rows: 1, devices: 1, context: 100 });
        assert!((step.bytes() as f64 / counted - 1.0).abs() < 1e-4, "{}", step.bytes());
        assert_eq!(step.levels, 83);
    }
}
