//! Ops on tensors of numpy, torch and whatever speaks DLPack, as functions of Python.
//!
//! An array of a GPU is used in place, on the stream that the caller names. An array in the host's
//! memory is copied to a simulated GPU and back: for tests, where the caller asks for it.

use half::bf16;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use tilewright::kernels::activation::Activation;
use tilewright::kernels::naive::Sampling;
use tilewright::kernels::route::{GroupedRouter, RouterKind, RouterScore};
use tilewright::kernels::sample::Request;
use tilewright::ops::{
    self, AttentionDecode, AttentionPrefill, Embedding, Gated, Gemm, GroupedGemm, KvCache, Linear, MergeAttention, Moe,
    PrefillKv, RmsNorm, Rope, Scores, Tensor, WeightForm,
};

use crate::dlpack::{self, Described};
use crate::error::{OpError, op_error};
use crate::operands::{Call, Object, Operand, reads, type_name, writes};

#[pyfunction]
#[pyo3(signature = (stream, x, weight, out, eps, added=None))]
pub fn rms_norm(
    py: Python<'_>,
    stream: Option<u64>,
    x: &Object<'_>,
    weight: &Object<'_>,
    out: &Object<'_>,
    eps: f32,
    added: Option<&Object<'_>>,
) -> PyResult<()> {
    let first = if added.is_some() { writes("x", x) } else { reads("x", x) };
    let (call, [x, weight, out, added]) =
        Call::new(py, stream, [first, reads("weight", weight), writes("out", out), reads("added", added)])?;
    call.run(py, [&x, &weight, &out, &added], |ops, stream, [x, weight, out]| {
        ops.rms_norm(stream, &RmsNorm { x, weight, out, eps, added: added.tensor() })
    })
}

#[pyfunction]
pub fn gated(
    py: Python<'_>,
    stream: Option<u64>,
    activation: &str,
    gate: &Object<'_>,
    up: &Object<'_>,
    out: &Object<'_>,
) -> PyResult<()> {
    let activation = activation_of(activation)?;
    let (call, [gate, up, out]) = Call::new(py, stream, [reads("gate", gate), reads("up", up), writes("out", out)])?;
    call.run(py, [&gate, &up, &out], |ops, stream, [gate, up, out]| {
        ops.gated(stream, &Gated { activation, gate, up, out })
    })
}

#[pyfunction]
pub fn embedding(
    py: Python<'_>,
    stream: Option<u64>,
    table: &Object<'_>,
    ids: &Object<'_>,
    out: &Object<'_>,
) -> PyResult<()> {
    let (call, [table, ids, out]) =
        Call::new(py, stream, [reads("table", table), reads("ids", ids), writes("out", out)])?;
    call.run(py, [&table, &ids, &out], |ops, stream, [table, ids, out]| {
        ops.embedding(stream, &Embedding { table, ids, out })
    })
}

#[pyfunction]
pub fn rope(
    py: Python<'_>,
    stream: Option<u64>,
    x: &Object<'_>,
    turns: &Object<'_>,
    positions: &Object<'_>,
    out: &Object<'_>,
) -> PyResult<()> {
    let (call, [x, turns, positions, out]) = Call::new(
        py,
        stream,
        [reads("x", x), reads("turns", turns), reads("positions", positions), writes("out", out)],
    )?;
    call.run(py, [&x, &turns, &positions, &out], |ops, stream, [x, turns, positions, out]| {
        ops.rope(stream, &Rope { x, turns, positions, out })
    })
}

#[pyfunction]
#[pyo3(signature = (stream, logits, out, requests=None))]
pub fn choose(
    py: Python<'_>,
    stream: Option<u64>,
    logits: &Object<'_>,
    out: &Object<'_>,
    requests: Option<&Object<'_>>,
) -> PyResult<()> {
    let (call, [logits, out, requests]) =
        Call::new(py, stream, [reads("logits", logits), writes("out", out), reads("requests", requests)])?;
    call.run(py, [&logits, &out, &requests], |ops, stream, [logits, out]| match requests.tensor() {
        Some(requests) => ops.sample(stream, logits, requests, out),
        None => ops.argmax(stream, logits, out),
    })
}

#[pyfunction]
#[pyo3(signature = (stream, form, x, packed, out, bias=None, residual=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn linear(
    py: Python<'_>,
    stream: Option<u64>,
    form: &str,
    x: &Object<'_>,
    packed: &Object<'_>,
    out: &Object<'_>,
    bias: Option<&Object<'_>>,
    residual: Option<&Object<'_>>,
) -> PyResult<()> {
    let form = form_of(form)?;
    let (call, [x, packed, out, bias, residual]) = Call::new(
        py,
        stream,
        [reads("x", x), reads("packed", packed), writes("out", out), reads("bias", bias), reads("residual", residual)],
    )?;
    call.run(py, [&x, &packed, &out, &bias, &residual], |ops, stream, [x, packed, out]| {
        ops.linear(stream, &Linear { x, packed, form, out, bias: bias.tensor(), residual: residual.tensor() })
    })
}

#[pyfunction]
#[pyo3(signature = (stream, a, b, out, a_scale=None, b_scale=None, bias=None, activation=None, gated=false, residual=None, workspace=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn gemm(
    py: Python<'_>,
    stream: Option<u64>,
    a: &Object<'_>,
    b: &Object<'_>,
    out: &Object<'_>,
    a_scale: Option<&Object<'_>>,
    b_scale: Option<&Object<'_>>,
    bias: Option<&Object<'_>>,
    activation: Option<&str>,
    gated: bool,
    residual: Option<&Object<'_>>,
    workspace: Option<&Object<'_>>,
) -> PyResult<()> {
    let activation = activation.map(if gated { gate_of } else { activation_of }).transpose()?;
    let (call, [a, b, out, a_scale, b_scale, bias, residual, workspace]) = Call::new(
        py,
        stream,
        [
            reads("a", a),
            reads("b", b),
            writes("out", out),
            reads("a_scale", a_scale),
            reads("b_scale", b_scale),
            reads("bias", bias),
            reads("residual", residual),
            writes("workspace", workspace),
        ],
    )?;
    let scales = scales_of(&a_scale, &b_scale)?;
    call.run(py, [&a, &b, &out, &bias, &residual, &workspace], |ops, stream, [a, b, out]| {
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
        ops.gemm(stream, &gemm)
    })
}

#[pyfunction]
#[pyo3(signature = (stream, q, keys, values, tokens, workspace, out, scale=None, table=None, soft_cap=None, window=None, sinks=None, lse=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn attention_decode(
    py: Python<'_>,
    stream: Option<u64>,
    q: &Object<'_>,
    keys: &Object<'_>,
    values: &Object<'_>,
    tokens: &Object<'_>,
    workspace: &Object<'_>,
    out: &Object<'_>,
    scale: Option<f32>,
    table: Option<&Object<'_>>,
    soft_cap: Option<f32>,
    window: Option<i64>,
    sinks: Option<&Object<'_>>,
    lse: Option<&Object<'_>>,
) -> PyResult<()> {
    let (call, [q, keys, values, tokens, workspace, out, table, sinks, lse]) = Call::new(
        py,
        stream,
        [
            reads("q", q),
            reads("keys", keys),
            reads("values", values),
            reads("tokens", tokens),
            writes("workspace", workspace),
            writes("out", out),
            reads("table", table),
            reads("sinks", sinks),
            writes("lse", lse),
        ],
    )?;
    let all = [&q, &keys, &values, &tokens, &workspace, &out, &table, &sinks, &lse];
    call.run(py, all, |ops, stream, [q, keys, values, tokens, workspace, out]| {
        let cache = cache_of([keys, values], table.tensor());
        let scores = scores_of(q, scale, soft_cap, window, &sinks);
        let attention = AttentionDecode { q, cache, tokens, scores, workspace, out, lse: lse.tensor() };
        ops.attention_decode(stream, &attention)
    })
}

#[pyfunction]
#[pyo3(signature = (stream, q, keys, values, query_starts, token_starts, out, scale=None, causal=true, longest=None, table=None, soft_cap=None, window=None, sinks=None, lse=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn attention_prefill(
    py: Python<'_>,
    stream: Option<u64>,
    q: &Object<'_>,
    keys: &Object<'_>,
    values: &Object<'_>,
    query_starts: &Object<'_>,
    token_starts: &Object<'_>,
    out: &Object<'_>,
    scale: Option<f32>,
    causal: bool,
    longest: Option<i64>,
    table: Option<&Object<'_>>,
    soft_cap: Option<f32>,
    window: Option<i64>,
    sinks: Option<&Object<'_>>,
    lse: Option<&Object<'_>>,
) -> PyResult<()> {
    let (call, [q, keys, values, query_starts, token_starts, out, table, sinks, lse]) = Call::new(
        py,
        stream,
        [
            reads("q", q),
            reads("keys", keys),
            reads("values", values),
            reads("query_starts", query_starts),
            reads("token_starts", token_starts),
            writes("out", out),
            reads("table", table),
            reads("sinks", sinks),
            writes("lse", lse),
        ],
    )?;
    let all = [&q, &keys, &values, &query_starts, &token_starts, &out, &table, &sinks, &lse];
    call.run(py, all, |ops, stream, [q, keys, values, query_starts, token_starts, out]| {
        let kv = match table.tensor() {
            None if keys.shape().len() == 3 => PrefillKv::Ragged { keys, values },
            table => PrefillKv::Cache(cache_of([keys, values], table)),
        };
        let scores = scores_of(q, scale, soft_cap, window, &sinks);
        // Numbers below the range are refused as 0 is.
        let longest = longest.map(|longest| usize::try_from(longest).unwrap_or(0));
        let lse = lse.tensor();
        let prefill = AttentionPrefill { q, kv, query_starts, token_starts, longest, causal, scores, out, lse };
        ops.attention_prefill(stream, &prefill)
    })
}

#[pyfunction]
#[pyo3(signature = (stream, a, lse_a, b, lse_b, out, lse=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn merge_attention(
    py: Python<'_>,
    stream: Option<u64>,
    a: &Object<'_>,
    lse_a: &Object<'_>,
    b: &Object<'_>,
    lse_b: &Object<'_>,
    out: &Object<'_>,
    lse: Option<&Object<'_>>,
) -> PyResult<()> {
    let (call, [a, lse_a, b, lse_b, out, lse]) = Call::new(
        py,
        stream,
        [
            reads("a", a),
            reads("lse_a", lse_a),
            reads("b", b),
            reads("lse_b", lse_b),
            writes("out", out),
            writes("lse", lse),
        ],
    )?;
    call.run(py, [&a, &lse_a, &b, &lse_b, &out, &lse], |ops, stream, [a, lse_a, b, lse_b, out]| {
        ops.merge_attention(stream, &MergeAttention { a, lse_a, b, lse_b, out, lse: lse.tensor() })
    })
}

#[pyfunction]
pub fn attention_workspace(
    py: Python<'_>,
    q: &Object<'_>,
    sequences: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    capacity: usize,
) -> PyResult<usize> {
    let (call, [_]) = Call::new(py, None, [reads("q", q)])?;
    Ok(call.ops().attention_workspace(sequences, heads, kv_heads, dim, capacity))
}

#[pyfunction]
pub fn gemm_workspace(a_rows: usize, b_rows: usize) -> usize {
    ops::Ops::gemm_workspace(a_rows, b_rows)
}

#[pyfunction]
#[pyo3(signature = (stream, a, b, offsets, out, a_scale=None, b_scale=None, bias=None, activation=None, gated=false, residual=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn grouped_gemm(
    py: Python<'_>,
    stream: Option<u64>,
    a: &Object<'_>,
    b: &Object<'_>,
    offsets: &Object<'_>,
    out: &Object<'_>,
    a_scale: Option<&Object<'_>>,
    b_scale: Option<&Object<'_>>,
    bias: Option<&Object<'_>>,
    activation: Option<&str>,
    gated: bool,
    residual: Option<&Object<'_>>,
) -> PyResult<()> {
    let activation = activation.map(if gated { gate_of } else { activation_of }).transpose()?;
    let (call, [a, b, offsets, out, a_scale, b_scale, bias, residual]) = Call::new(
        py,
        stream,
        [
            reads("a", a),
            reads("b", b),
            reads("offsets", offsets),
            writes("out", out),
            reads("a_scale", a_scale),
            reads("b_scale", b_scale),
            reads("bias", bias),
            reads("residual", residual),
        ],
    )?;
    let scales = scales_of(&a_scale, &b_scale)?;
    let (bias, residual) = (bias.tensor(), residual.tensor());
    call.run(py, [&a, &b, &offsets, &out], |ops, stream, [a, b, offsets, out]| {
        ops.grouped_gemm(stream, &GroupedGemm { a, b, offsets, scales, bias, activation, gated, residual, out })
    })
}

#[pyfunction]
#[pyo3(signature = (stream, x, logits, gate_up, down, out, workspace, top_k, router, activation, correction=None, gate_up_bias=None, down_bias=None, residual=None))]
#[expect(clippy::too_many_arguments, reason = "the operands of the op, by name in Python")]
pub fn moe(
    py: Python<'_>,
    stream: Option<u64>,
    x: &Object<'_>,
    logits: &Object<'_>,
    gate_up: &Object<'_>,
    down: &Object<'_>,
    out: &Object<'_>,
    workspace: &Object<'_>,
    top_k: u32,
    router: Router,
    activation: &str,
    correction: Option<&Object<'_>>,
    gate_up_bias: Option<&Object<'_>>,
    down_bias: Option<&Object<'_>>,
    residual: Option<&Object<'_>>,
) -> PyResult<()> {
    let activation = gate_of(activation)?;
    let router = router.kind(correction.is_some())?;
    let (call, [x, logits, gate_up, down, out, workspace, correction, gate_up_bias, down_bias, residual]) = Call::new(
        py,
        stream,
        [
            reads("x", x),
            reads("logits", logits),
            reads("gate_up", gate_up),
            reads("down", down),
            writes("out", out),
            writes("workspace", workspace),
            reads("correction", correction),
            reads("gate_up_bias", gate_up_bias),
            reads("down_bias", down_bias),
            reads("residual", residual),
        ],
    )?;
    let needed = [&x, &logits, &gate_up, &down, &out, &workspace];
    call.run(py, needed, |ops, stream, [x, logits, gate_up, down, out, workspace]| {
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
        ops.moe(stream, &moe)
    })
}

#[pyfunction]
pub fn moe_workspace(rows: usize, top_k: usize, experts: usize, hidden: usize, inner: usize) -> usize {
    ops::Ops::moe_workspace(rows, top_k, experts, hidden, inner)
}

/// How logits become choices: the scoring, whether weights are divided by their sum, groups of
/// experts, those that are kept, and the factor of the weights.
#[derive(FromPyObject)]
pub struct Router(String, bool, u32, u32, f32);

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

/// The settings of scores; without a scale, that of the depth of `q`. A window below 0 is refused as 0 is; one beyond `u32` hides nothing.
fn scores_of<'t>(
    q: &Tensor,
    scale: Option<f32>,
    soft_cap: Option<f32>,
    window: Option<i64>,
    sinks: &'t Operand,
) -> Scores<'t> {
    let dim = q.shape().last().map_or(1, |&dim| dim.max(1));
    let scale = scale.unwrap_or((1.0 / (dim as f64).sqrt()) as f32);
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

/// The kind and number of a tensor's device, its address, type, shape and strides. The capsule stays
/// its owner.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a tuple for Python")]
#[pyo3(name = "dlpack")]
pub fn dlpack_tensor(
    capsule: &Bound<'_, PyCapsule>,
) -> PyResult<(i32, i32, u64, &'static str, Vec<usize>, Vec<usize>)> {
    let Described { kind, number, address, dtype, shape, strides, .. } = dlpack::described(capsule)?;
    Ok((kind, number, address, type_name(dtype), shape, strides))
}
