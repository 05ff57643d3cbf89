//! Ops on tensors of numpy, torch and whatever speaks DLPack.
//!
//! An array of a GPU is used in place, on the stream that the caller names. An array in the host's
//! memory is copied to a simulated GPU and back: for tests, where the caller asks for it.
#![expect(unsafe_code, reason = "memory of other libraries, by address")]

use half::bf16;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyString, PyTuple};
use tilewright::codegen::device::{self, Buffer, Stream, cuda};
use tilewright::kernels::activation::Activation;
use tilewright::kernels::naive::Sampling;
use tilewright::kernels::route::{GroupedRouter, RouterKind, RouterScore};
use tilewright::kernels::sample::Request;
use tilewright::layout::DType;
use tilewright::ops::{
    self, AttentionDecode, AttentionPrefill, Embedding, Gated, Gemm, GroupedGemm, KvCache, Linear, MergeAttention, Moe,
    PrefillKv, RmsNorm, Rope, Scores, Tensor, WeightForm, spanned,
};

use crate::dlpack::{self, Described};
use crate::error::{OpError, op_error};
use crate::stream::LastStream;

/// Address, type, shape and strides in elements: of a tuple of these, or of a tensor of torch.
pub struct Array(u64, ElementType, Vec<usize>, Vec<usize>);

impl Array {
    /// Address, type, shape and strides.
    pub fn parts(&self) -> (u64, DType, &[usize], &[usize]) {
        let Array(address, ElementType(dtype), shape, strides) = self;
        (*address, *dtype, shape, strides)
    }
}

impl<'py> FromPyObject<'_, 'py> for Array {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Array> {
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let (address, dtype, shape, strides) = tuple.extract()?;
            return Ok(Array(address, dtype, shape, strides));
        }
        if let Some(described) = dlpack::exchanged(object)? {
            let Described { address, dtype, shape, strides, .. } = described;
            return Ok(Array(address, ElementType(dtype), shape, strides));
        }
        let py = object.py();
        Ok(Array(
            object.call_method0(intern!(py, "data_ptr"))?.extract()?,
            object.getattr(intern!(py, "dtype"))?.extract()?,
            object.getattr(intern!(py, "shape"))?.extract()?,
            object.call_method0(intern!(py, "stride"))?.extract()?,
        ))
    }
}

/// The type of elements: a name, or an object of which the text is one, such as `torch.float32`.
#[derive(Clone, Copy)]
struct ElementType(DType);

impl<'py> FromPyObject<'_, 'py> for ElementType {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<ElementType> {
        if let Ok(name) = object.cast::<PyString>() {
            return Ok(ElementType(dtype_of(name.to_str()?)?));
        }
        let text = object.str()?;
        Ok(ElementType(dtype_of(text.to_str()?.trim_start_matches("torch."))?))
    }
}

/// The ops of a device.
#[pyclass(frozen, module = "tilewright._native")]
pub struct Ops {
    ops: ops::Ops,
    /// The stream of a simulated device.
    simulated: Option<Stream>,
    /// Of a GPU.
    last: LastStream,
}

#[pymethods]
impl Ops {
    /// The ops of `cuda:N`, or of `sim:SEED`.
    #[new]
    fn new(name: &str) -> PyResult<Ops> {
        let device = device::open(name).map_err(op_error)?;
        let simulated = name.starts_with("sim").then(|| device.stream().map_err(op_error)).transpose()?;
        Ok(Ops { ops: ops::Ops::new(&device).map_err(op_error)?, simulated, last: LastStream::default() })
    }

    #[pyo3(signature = (stream, x, weight, out, eps, added=None))]
    fn rms_norm(
        &self,
        stream: u64,
        x: Array,
        weight: Array,
        out: Array,
        eps: f32,
        added: Option<Array>,
    ) -> PyResult<()> {
        let is_sum = added.is_some();
        let call = Call::new(self, stream)?;
        let [x, weight, out, added] =
            call.bind([(Some(&x), is_sum), (Some(&weight), false), (Some(&out), true), (added.as_ref(), false)])?;
        call.run([&x, &weight, &out, &added], |[x, weight, out], stream| {
            self.ops.rms_norm(stream, &RmsNorm { x, weight, out, eps, added: added.tensor() })
        })
    }

    fn gated(&self, stream: u64, activation: &str, gate: Array, up: Array, out: Array) -> PyResult<()> {
        let activation = activation_of(activation)?;
        let call = Call::new(self, stream)?;
        let [gate, up, out] = call.bind([(Some(&gate), false), (Some(&up), false), (Some(&out), true)])?;
        call.run([&gate, &up, &out], |[gate, up, out], stream| {
            self.ops.gated(stream, &Gated { activation, gate, up, out })
        })
    }

    fn embedding(&self, stream: u64, table: Array, ids: Array, out: Array) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [table, ids, out] = call.bind([(Some(&table), false), (Some(&ids), false), (Some(&out), true)])?;
        call.run([&table, &ids, &out], |[table, ids, out], stream| {
            self.ops.embedding(stream, &Embedding { table, ids, out })
        })
    }

    fn rope(&self, stream: u64, x: Array, turns: Array, positions: Array, out: Array) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [x, turns, positions, out] =
            call.bind([(Some(&x), false), (Some(&turns), false), (Some(&positions), false), (Some(&out), true)])?;
        call.run([&x, &turns, &positions, &out], |[x, turns, positions, out], stream| {
            self.ops.rope(stream, &Rope { x, turns, positions, out })
        })
    }

    #[pyo3(signature = (stream, logits, tokens, requests=None))]
    fn choose(&self, stream: u64, logits: Array, tokens: Array, requests: Option<Array>) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [logits, tokens, requests] =
            call.bind([(Some(&logits), false), (Some(&tokens), true), (requests.as_ref(), false)])?;
        call.run([&logits, &tokens, &requests], |[logits, tokens], stream| match requests.tensor() {
            Some(requests) => self.ops.sample(stream, logits, requests, tokens),
            None => self.ops.argmax(stream, logits, tokens),
        })
    }

    #[pyo3(signature = (stream, form, x, packed, out, bias=None, residual=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn linear(
        &self,
        stream: u64,
        form: &str,
        x: Array,
        packed: Array,
        out: Array,
        bias: Option<Array>,
        residual: Option<Array>,
    ) -> PyResult<()> {
        let form = form_of(form)?;
        let call = Call::new(self, stream)?;
        let [x, packed, out, bias, residual] = call.bind([
            (Some(&x), false),
            (Some(&packed), false),
            (Some(&out), true),
            (bias.as_ref(), false),
            (residual.as_ref(), false),
        ])?;
        call.run([&x, &packed, &out, &bias, &residual], |[x, packed, out], stream| {
            self.ops.linear(stream, &Linear { x, packed, form, out, bias: bias.tensor(), residual: residual.tensor() })
        })
    }

    #[pyo3(signature = (stream, a, b, out, a_scale=None, b_scale=None, bias=None, activation=None, gated=false, residual=None, workspace=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn gemm(
        &self,
        stream: u64,
        a: Array,
        b: Array,
        out: Array,
        a_scale: Option<Array>,
        b_scale: Option<Array>,
        bias: Option<Array>,
        activation: Option<&str>,
        gated: bool,
        residual: Option<Array>,
        workspace: Option<Array>,
    ) -> PyResult<()> {
        let activation = activation.map(if gated { gate_of } else { activation_of }).transpose()?;
        let call = Call::new(self, stream)?;
        let [a, b, out, a_scale, b_scale, bias, residual, workspace] = call.bind([
            (Some(&a), false),
            (Some(&b), false),
            (Some(&out), true),
            (a_scale.as_ref(), false),
            (b_scale.as_ref(), false),
            (bias.as_ref(), false),
            (residual.as_ref(), false),
            (workspace.as_ref(), true),
        ])?;
        let scales = scales_of(&a_scale, &b_scale)?;
        call.run([&a, &b, &out, &bias, &residual, &workspace], |[a, b, out], stream| {
            let gemm = Gemm {
                a,
                b,
                out,
                scales,
                bias: bias.tensor(),
                activation,
                gated,
                residual: residual.tensor(),
                workspace: workspace.tensor(),
            };
            self.ops.gemm(stream, &gemm)
        })
    }

    #[pyo3(signature = (stream, q, keys, values, tokens, workspace, out, scale, table=None, soft_cap=None, window=None, sinks=None, lse=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn attention_decode(
        &self,
        stream: u64,
        q: Array,
        keys: Array,
        values: Array,
        tokens: Array,
        workspace: Array,
        out: Array,
        scale: f32,
        table: Option<Array>,
        soft_cap: Option<f32>,
        window: Option<i64>,
        sinks: Option<Array>,
        lse: Option<Array>,
    ) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [q, keys, values, tokens, workspace, out, table, sinks, lse] = call.bind([
            (Some(&q), false),
            (Some(&keys), false),
            (Some(&values), false),
            (Some(&tokens), false),
            (Some(&workspace), true),
            (Some(&out), true),
            (table.as_ref(), false),
            (sinks.as_ref(), false),
            (lse.as_ref(), true),
        ])?;
        let all = [&q, &keys, &values, &tokens, &workspace, &out, &table, &sinks, &lse];
        call.run(all, |[q, keys, values, tokens, workspace, out], stream| {
            let cache = cache_of([keys, values], table.tensor());
            let scores = scores_of(scale, soft_cap, window, &sinks);
            let attention = AttentionDecode { q, cache, tokens, scores, workspace, out, lse: lse.tensor() };
            self.ops.attention_decode(stream, &attention)
        })
    }

    #[pyo3(signature = (stream, q, keys, values, query_starts, token_starts, out, scale, causal, longest=None, table=None, soft_cap=None, window=None, sinks=None, lse=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn attention_prefill(
        &self,
        stream: u64,
        q: Array,
        keys: Array,
        values: Array,
        query_starts: Array,
        token_starts: Array,
        out: Array,
        scale: f32,
        causal: bool,
        longest: Option<i64>,
        table: Option<Array>,
        soft_cap: Option<f32>,
        window: Option<i64>,
        sinks: Option<Array>,
        lse: Option<Array>,
    ) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [q, keys, values, query_starts, token_starts, out, table, sinks, lse] = call.bind([
            (Some(&q), false),
            (Some(&keys), false),
            (Some(&values), false),
            (Some(&query_starts), false),
            (Some(&token_starts), false),
            (Some(&out), true),
            (table.as_ref(), false),
            (sinks.as_ref(), false),
            (lse.as_ref(), true),
        ])?;
        let all = [&q, &keys, &values, &query_starts, &token_starts, &out, &table, &sinks, &lse];
        call.run(all, |[q, keys, values, query_starts, token_starts, out], stream| {
            let kv = match table.tensor() {
                None if keys.shape().len() == 3 => PrefillKv::Ragged { keys, values },
                table => PrefillKv::Cache(cache_of([keys, values], table)),
            };
            let scores = scores_of(scale, soft_cap, window, &sinks);
            // Numbers below the range are refused as 0 is.
            let longest = longest.map(|longest| usize::try_from(longest).unwrap_or(0));
            let lse = lse.tensor();
            let prefill = AttentionPrefill { q, kv, query_starts, token_starts, longest, causal, scores, out, lse };
            self.ops.attention_prefill(stream, &prefill)
        })
    }

    #[pyo3(signature = (stream, a, lse_a, b, lse_b, out, lse=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn merge_attention(
        &self,
        stream: u64,
        a: Array,
        lse_a: Array,
        b: Array,
        lse_b: Array,
        out: Array,
        lse: Option<Array>,
    ) -> PyResult<()> {
        let call = Call::new(self, stream)?;
        let [a, lse_a, b, lse_b, out, lse] = call.bind([
            (Some(&a), false),
            (Some(&lse_a), false),
            (Some(&b), false),
            (Some(&lse_b), false),
            (Some(&out), true),
            (lse.as_ref(), true),
        ])?;
        call.run([&a, &lse_a, &b, &lse_b, &out, &lse], |[a, lse_a, b, lse_b, out], stream| {
            self.ops.merge_attention(stream, &MergeAttention { a, lse_a, b, lse_b, out, lse: lse.tensor() })
        })
    }

    fn attention_workspace(
        &self,
        sequences: usize,
        heads: usize,
        kv_heads: usize,
        dim: usize,
        capacity: usize,
    ) -> usize {
        self.ops.attention_workspace(sequences, heads, kv_heads, dim, capacity)
    }

    #[staticmethod]
    fn gemm_workspace(a_rows: usize, b_rows: usize) -> usize {
        ops::Ops::gemm_workspace(a_rows, b_rows)
    }

    #[pyo3(signature = (stream, a, b, offsets, out, a_scale=None, b_scale=None, bias=None, activation=None, gated=false, residual=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn grouped_gemm(
        &self,
        stream: u64,
        a: Array,
        b: Array,
        offsets: Array,
        out: Array,
        a_scale: Option<Array>,
        b_scale: Option<Array>,
        bias: Option<Array>,
        activation: Option<&str>,
        gated: bool,
        residual: Option<Array>,
    ) -> PyResult<()> {
        let activation = activation.map(if gated { gate_of } else { activation_of }).transpose()?;
        let call = Call::new(self, stream)?;
        let [a, b, offsets, out, a_scale, b_scale, bias, residual] = call.bind([
            (Some(&a), false),
            (Some(&b), false),
            (Some(&offsets), false),
            (Some(&out), true),
            (a_scale.as_ref(), false),
            (b_scale.as_ref(), false),
            (bias.as_ref(), false),
            (residual.as_ref(), false),
        ])?;
        let scales = scales_of(&a_scale, &b_scale)?;
        let (bias, residual) = (bias.tensor(), residual.tensor());
        call.run([&a, &b, &offsets, &out], |[a, b, offsets, out], stream| {
            self.ops
                .grouped_gemm(stream, &GroupedGemm { a, b, offsets, scales, bias, activation, gated, residual, out })
        })
    }

    #[pyo3(signature = (stream, x, logits, gate_up, down, out, workspace, top_k, router, activation, correction=None, gate_up_bias=None, down_bias=None, residual=None))]
    #[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
    fn moe(
        &self,
        stream: u64,
        x: Array,
        logits: Array,
        gate_up: Array,
        down: Array,
        out: Array,
        workspace: Array,
        top_k: u32,
        router: Router,
        activation: &str,
        correction: Option<Array>,
        gate_up_bias: Option<Array>,
        down_bias: Option<Array>,
        residual: Option<Array>,
    ) -> PyResult<()> {
        let activation = gate_of(activation)?;
        let router = router.kind(correction.is_some())?;
        let call = Call::new(self, stream)?;
        let [x, logits, gate_up, down, out, workspace, correction, gate_up_bias, down_bias, residual] = call.bind([
            (Some(&x), false),
            (Some(&logits), false),
            (Some(&gate_up), false),
            (Some(&down), false),
            (Some(&out), true),
            (Some(&workspace), true),
            (correction.as_ref(), false),
            (gate_up_bias.as_ref(), false),
            (down_bias.as_ref(), false),
            (residual.as_ref(), false),
        ])?;
        let needed = [&x, &logits, &gate_up, &down, &out, &workspace];
        call.run(needed, |[x, logits, gate_up, down, out, workspace], stream| {
            let moe = Moe {
                x,
                logits,
                router,
                correction: correction.tensor(),
                top_k,
                activation,
                gate_up,
                gate_up_bias: gate_up_bias.tensor(),
                down,
                down_bias: down_bias.tensor(),
                residual: residual.tensor(),
                out,
                workspace,
            };
            self.ops.moe(stream, &moe)
        })
    }

    #[staticmethod]
    fn moe_workspace(rows: usize, top_k: usize, experts: usize, hidden: usize, inner: usize) -> usize {
        ops::Ops::moe_workspace(rows, top_k, experts, hidden, inner)
    }
}

/// How logits become choices: the scoring, whether weights are divided by their sum, groups of
/// experts, those that are kept, and the factor of the weights.
#[derive(FromPyObject)]
struct Router(String, bool, u32, u32, f32);

impl Router {
    fn kind(self, corrected: bool) -> PyResult<RouterKind> {
        let Router(scoring, renormalise, groups, kept, scale) = self;
        match scoring.as_str() {
            "softmax" if groups == 1 && kept == 1 && scale == 1.0 => Ok(RouterKind::SoftmaxThenTopK { renormalise }),
            "softmax" => Err(OpError::new_err("moe: softmax has no expert_groups and no scale; sigmoid has")),
            "sigmoid" => {
                let score = RouterScore::Sigmoid;
                Ok(RouterKind::Grouped(GroupedRouter { score, corrected, groups, kept, renormalise, scale }))
            }
            other => Err(OpError::new_err(format!("moe: {other} is no scoring; there are softmax and sigmoid"))),
        }
    }
}

/// The 32 bytes by which the op `sample` chooses a row's token.
#[pyfunction]
#[pyo3(signature = (temperature, top_k, top_p, seed, step, row))]
pub fn sampling_request(
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    seed: u64,
    step: u64,
    row: u32,
) -> PyResult<Vec<u8>> {
    let sampling = Sampling::new(temperature, top_k, top_p, seed).map_err(op_error)?;
    let Request { seed, step, temperature, top_p, top_k, row } = Request::new(&sampling, step, row);
    let numbers = [temperature.to_bits(), top_p.to_bits(), top_k, row];
    Ok([seed, step]
        .into_iter()
        .flat_map(u64::to_ne_bytes)
        .chain(numbers.into_iter().flat_map(u32::to_ne_bytes))
        .collect())
}

/// A cache, in pages where there is a table.
fn cache_of<'t>([keys, values]: [&'t Tensor; 2], table: Option<&'t Tensor>) -> KvCache<'t> {
    match table {
        Some(table) => KvCache::Paged { keys, values, table },
        None => KvCache::Dense { keys, values },
    }
}

/// The settings of scores. A window below 0 is refused as 0 is; one beyond `u32` hides nothing.
fn scores_of<'t>(scale: f32, soft_cap: Option<f32>, window: Option<i64>, sinks: &'t Operand) -> Scores<'t> {
    let window = window.map(|window| u32::try_from(window.max(0)).unwrap_or(u32::MAX));
    Scores { scale, soft_cap, window, sinks: sinks.tensor() }
}

/// A form by its name.
pub fn form_of(name: &str) -> PyResult<WeightForm> {
    let found = WeightForm::ALL.into_iter().find(|form| form.name() == name);
    found.ok_or_else(|| {
        let known = WeightForm::ALL.map(WeightForm::name).join(", ");
        OpError::new_err(format!("{name} is no form of a weight; there are {known}"))
    })
}

/// The packed order of a weight's rows of `k` elements of bfloat16, given as bytes, in a form.
#[pyfunction]
pub fn pack_linear<'py>(py: Python<'py>, weight: &[u8], k: usize, form: &str) -> PyResult<Bound<'py, PyBytes>> {
    let form = form_of(form)?;
    let weight: Vec<bf16> = weight.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect();
    let packed = py.detach(|| ops::pack_linear(&weight, k, form)).map_err(op_error)?;
    Ok(PyBytes::new(py, &packed))
}

/// The scales of `a` and `b`, of which none is given alone.
fn scales_of<'t>(a: &'t Operand, b: &'t Operand) -> PyResult<Option<[&'t Tensor; 2]>> {
    match (a.tensor(), b.tensor()) {
        (Some(a), Some(b)) => Ok(Some([a, b])),
        (None, None) => Ok(None),
        _ => Err(OpError::new_err("a_scale and b_scale go together: give both, or neither")),
    }
}

/// An activation that gates, by its name.
fn gate_of(name: &str) -> PyResult<Activation> {
    let found = Activation::ALL.into_iter().find(|activation| activation.name() == name);
    found.ok_or_else(|| {
        OpError::new_err(format!("{name} is no activation; there are silu, gelu_tanh and clamped_swiglu"))
    })
}

fn activation_of(name: &str) -> PyResult<Activation> {
    let known = [Activation::Silu, Activation::GeluTanh];
    let found = known.into_iter().find(|activation| activation.name() == name);
    found.ok_or_else(|| OpError::new_err(format!("{name} is no activation; there are silu and gelu_tanh")))
}

/// An operand of a call, on its device.
struct Operand {
    tensor: Option<Tensor>,
    /// The place in the host's memory to which a simulated device's result goes.
    home: Option<(u64, usize)>,
}

impl Operand {
    fn tensor(&self) -> Option<&Tensor> {
        self.tensor.as_ref()
    }
}

/// A copy of host memory, of an address and bytes, on the simulated device.
struct HostCopy {
    of: (u64, usize),
    buffer: Buffer<u8>,
    is_written: bool,
}

/// A call of an op.
struct Call<'o> {
    stream: Stream,
    ops: &'o Ops,
}

impl<'o> Call<'o> {
    fn new(ops: &'o Ops, stream: u64) -> PyResult<Call<'o>> {
        if let Some(simulated) = &ops.simulated {
            return Ok(Call { stream: simulated.clone(), ops });
        }
        // SAFETY: the package passes the current stream of the framework that owns the arrays,
        // which uses the primary context and keeps its streams.
        let stream = unsafe { ops.last.stream(ops.ops.device(), stream) }.map_err(op_error)?;
        Ok(Call { stream, ops })
    }

    /// The arrays as tensors of the device, each with whether the op writes it.
    fn bind<const N: usize>(&self, arrays: [(Option<&Array>, bool); N]) -> PyResult<[Operand; N]> {
        let mut bound: Vec<HostCopy> = Vec::new();
        let mut operands = Vec::with_capacity(N);
        for (array, is_written) in arrays {
            let Some(Array(address, ElementType(dtype), shape, strides)) = array else {
                operands.push(Operand { tensor: None, home: None });
                continue;
            };
            let dtype = *dtype;
            let bytes = spanned(shape, strides).and_then(|spanned| spanned.checked_mul(dtype.bits() / 8));
            let bytes = bytes.ok_or_else(|| OpError::new_err("an array spans more bytes than memory has"))?;
            let buffer = if self.ops.simulated.is_some() {
                self.copied(&mut bound, (*address, bytes), is_written)?
            } else {
                // SAFETY: the caller's array has these elements, on this device, and its library
                // keeps the memory until work of the stream that was queued before is done.
                unsafe { cuda::foreign_buffer(self.ops.ops.device(), *address, bytes) }.map_err(op_error)?
            };
            let tensor = Tensor::strided(buffer, dtype, shape, strides).map_err(op_error)?;
            let home = (self.ops.simulated.is_some() && is_written).then_some((*address, bytes));
            operands.push(Operand { tensor: Some(tensor), home });
        }
        operands.try_into().map_err(|_| OpError::new_err("an operand is missing"))
    }

    /// The copy of host memory on the simulated device: one for arrays that are the same.
    fn copied(&self, bound: &mut Vec<HostCopy>, of: (u64, usize), is_written: bool) -> PyResult<Buffer<u8>> {
        let (address, bytes) = of;
        if let Some(same) = bound.iter_mut().find(|copy| copy.of == of) {
            same.is_written |= is_written;
            return Ok(same.buffer.clone());
        }
        let overlaps =
            |&(first, length): &(u64, usize)| first < address + bytes as u64 && address < first + length as u64;
        // Each would have results of its own.
        if bound.iter().any(|copy| overlaps(&copy.of) && (is_written || copy.is_written)) {
            return Err(OpError::new_err("arrays in the host's memory overlap in part; give each its own"));
        }
        let from: &[u8] = match bytes {
            0 => &[],
            // SAFETY: the caller's array has these bytes, and Python's lock keeps others from them.
            _ => unsafe { std::slice::from_raw_parts(address as usize as *const u8, bytes) },
        };
        let buffer = self.stream.buffer(from).map_err(op_error)?;
        bound.push(HostCopy { of, buffer: buffer.clone(), is_written });
        Ok(buffer)
    }

    /// Runs the op on its first `R` operands, which there are, and brings results home.
    fn run<const R: usize, const N: usize>(
        &self,
        operands: [&Operand; N],
        op: impl FnOnce([&Tensor; R], &Stream) -> Result<(), ops::OpError> + Send,
    ) -> PyResult<()> {
        let needed: Vec<&Tensor> = operands.iter().take(R).filter_map(|operand| operand.tensor()).collect();
        let needed = needed.try_into().map_err(|_| OpError::new_err("an operand is missing"))?;
        // Other threads go on while a kernel is made.
        Python::attach(|py| py.detach(|| op(needed, &self.stream))).map_err(op_error)?;
        for operand in operands {
            let (Some(tensor), Some((address, bytes))) = (operand.tensor(), operand.home) else { continue };
            if bytes > 0 {
                // SAFETY: as in `copied`; the op writes this array, so that it is writable.
                let to = unsafe { std::slice::from_raw_parts_mut(address as usize as *mut u8, bytes) };
                self.stream.download(tensor.buffer(), to).map_err(op_error)?;
            }
        }
        Ok(())
    }
}

/// The types that ops take, by name.
const TYPE_NAMES: [(&str, DType); 11] = [
    ("float32", DType::F32),
    ("float16", DType::F16),
    ("bfloat16", DType::BF16),
    ("float64", DType::F64),
    ("int64", DType::I64),
    ("int32", DType::I32),
    ("uint32", DType::U32),
    ("int8", DType::I8),
    ("uint8", DType::U8),
    ("float8_e4m3fn", DType::F8E4M3),
    ("bool", DType::Bool),
];

/// The name of a type in numpy and torch; empty for one that no op takes.
pub fn type_name(dtype: DType) -> &'static str {
    TYPE_NAMES.iter().find(|(_, known)| *known == dtype).map_or("", |(name, _)| name)
}

fn dtype_of(name: &str) -> PyResult<DType> {
    let found = TYPE_NAMES.iter().find(|(known, _)| *known == name);
    let error = || OpError::new_err(format!("no op takes elements of type {name}"));
    found.map(|(_, dtype)| *dtype).ok_or_else(error)
}

/// The kind and number of a tensor's device, its address, type, shape and strides. The capsule stays
/// its owner.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
#[pyo3(name = "dlpack")]
pub fn dlpack_tensor(
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<(i32, i32, u64, &'static str, Vec<usize>, Vec<usize>)> {
    let Described { device: (kind, index), address, dtype, shape, strides } = dlpack::described(capsule)?;
    Ok((kind, index, address, type_name(dtype), shape, strides))
}
