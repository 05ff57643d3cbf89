//! Ops on CPU tensors in the simulator, against candle's own ops in f32.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use tilewright_candle::{
    AttentionWorkspace, Context, KvCache, PackedLinear, SequenceStarts, attention_decode, attention_prefill, rms_norm,
    rope, rope_table, silu_mul,
};

/// A normal tensor of bf16 values.
fn normal(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu)?.to_dtype(DType::BF16)
}

/// Asserts that every difference is at most `bound` of the largest element.
fn assert_near(found: &Tensor, expected: &Tensor, bound: f32) -> Result<()> {
    assert_eq!(found.dims(), expected.dims());
    let [found, expected] = [found.to_dtype(DType::F32)?, expected.to_dtype(DType::F32)?];
    let largest = expected.abs()?.max_all()?.to_scalar::<f32>()?;
    let error = (found - expected)?.abs()?.max_all()?.to_scalar::<f32>()?;
    assert!(error <= bound * largest, "error {error} of {largest}");
    Ok(())
}

#[test]
fn norms_agree_with_candle() -> Result<()> {
    let context = Context::simulated(1)?;
    for (shape, dtype, bound) in
        [(&[2, 3, 96][..], DType::F32, 1e-5), (&[1, 256], DType::BF16, 1e-2), (&[5, 72], DType::F32, 1e-5)]
    {
        let width = shape[shape.len() - 1];
        let (x, weight) = (normal(shape)?.to_dtype(dtype)?, normal(&[width])?.to_dtype(dtype)?);
        let expected = candle_nn::ops::rms_norm_slow(&x, &weight, 1e-5)?;
        assert_near(&rms_norm(&context, &x, &weight, 1e-5)?, &expected, bound)?;
    }
    Ok(())
}

#[test]
fn linear_layers_agree_with_candle() -> Result<()> {
    let context = Context::simulated(2)?;
    for (rows, n, k) in [(1, 24, 128), (7, 40, 64), (16, 8, 192), (33, 64, 64)] {
        let (x, weight, bias, added) =
            (normal(&[1, rows, k])?, normal(&[n, k])?, normal(&[n])?, normal(&[1, rows, n])?);
        let layer = PackedLinear::new(&context, &weight, Some(&bias))?;
        let wide = |x: &Tensor| x.to_dtype(DType::F32);
        let expected = candle_nn::Linear::new(wide(&weight)?, Some(wide(&bias)?)).forward(&wide(&x)?)?;
        assert_near(&layer.forward(&x)?, &expected, 1e-2)?;
        assert_near(&layer.forward_add(&x, &added)?, &(expected + wide(&added)?)?, 1e-2)?;
        let without = PackedLinear::new(&context, &weight, None)?;
        let expected = candle_nn::Linear::new(wide(&weight)?, None).forward(&wide(&x)?)?;
        assert_near(&without.forward_f32(&x)?, &expected, 1e-4)?;
    }
    Ok(())
}

#[test]
fn gates_and_rotations_agree_with_candle() -> Result<()> {
    let context = Context::simulated(3)?;
    let (gate, up) = (normal(&[3, 1, 40])?, normal(&[3, 1, 40])?);
    let expected = (candle_nn::ops::silu(&gate.to_dtype(DType::F32)?)? * up.to_dtype(DType::F32)?)?;
    assert_near(&silu_mul(&context, &gate, &up)?, &expected, 1e-2)?;

    let (tokens, heads, dim, first) = (5, 3, 64, 4);
    let angles = Tensor::rand(0f32, 6f32, (16, dim / 2), &Device::Cpu)?;
    let (cos, sin) = (angles.cos()?, angles.sin()?);
    let x = normal(&[tokens, heads, dim])?.to_dtype(DType::F32)?;
    let positions = Tensor::from_vec((first..first + tokens as i32).collect(), tokens, &Device::Cpu)?;
    let found = rope(&context, &x, &rope_table(&cos, &sin)?, &positions)?;
    let narrow = |table: &Tensor| table.narrow(0, first as usize, tokens);
    let by_head = x.unsqueeze(0)?.transpose(1, 2)?.contiguous()?;
    let expected = candle_nn::rotary_emb::rope(&by_head, &narrow(&cos)?, &narrow(&sin)?)?;
    assert_near(&found, &expected.transpose(1, 2)?.squeeze(0)?, 1e-5)
}

#[test]
fn attention_agrees_with_candle() -> Result<()> {
    let context = Context::simulated(4)?;
    // Heads of 32 columns are padded to 64.
    for (sequences, kv_heads, group, dim, capacity, tokens) in [(2, 2, 3, 64, 20, 13), (1, 1, 4, 32, 40, 40)] {
        let heads = kv_heads * group;
        let cache = KvCache::new(&Device::Cpu, sequences, kv_heads, capacity, dim)?;
        let workspace = AttentionWorkspace::new(&context, heads, &cache)?;
        let shape = [sequences, kv_heads, tokens, dim];
        let (keys, values, q) = (normal(&shape)?, normal(&shape)?, normal(&[sequences, heads, dim])?);
        cache.append(&keys, &values, 0)?;
        let lengths = Tensor::from_vec(vec![tokens as u32; sequences], sequences, &Device::Cpu)?;
        let found = attention_decode(&context, &q, &cache, &lengths, &workspace, 0.2)?;
        let wide = |x: &Tensor| x.to_dtype(DType::F32);
        let grouped = wide(&q)?.reshape((sequences, kv_heads, group, dim))?;
        let scores = (grouped.matmul(&wide(&keys)?.t()?.contiguous()?)? * 0.2)?;
        let expected = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&wide(&values)?)?;
        assert_near(&found, &expected.reshape((sequences, heads, dim))?, 2e-2)?;
        assert!(cache.append(&keys, &values, capacity).is_err());
    }
    Ok(())
}

#[test]
fn attention_of_prompts_agrees_with_candle() -> Result<()> {
    let context = Context::simulated(6)?;
    let (sequences, kv_heads, group, dim, capacity, tokens) = (2usize, 2, 2, 32, 40, 33);
    let heads = kv_heads * group;
    let cache = KvCache::new(&Device::Cpu, sequences, kv_heads, capacity, dim)?;
    let shape = [sequences, kv_heads, tokens, dim];
    let (keys, values) = (normal(&shape)?, normal(&shape)?);
    cache.append(&keys, &values, 0)?;
    // The whole of one sequence, and the newest tokens of another.
    let counts = [(tokens, tokens), (5, tokens)];
    let q = normal(&[tokens + 5, heads, dim])?;
    let starts = SequenceStarts::new(&Device::Cpu, &counts)?;
    let found = attention_prefill(&context, &q, &cache, &starts, 0.2)?;
    let mut first = 0;
    for (sequence, (queries, seen)) in counts.into_iter().enumerate() {
        let wide = |x: &Tensor| x.to_dtype(DType::F32);
        let q = wide(&q.narrow(0, first, queries)?)?.transpose(0, 1)?.contiguous()?;
        let of = |cached: &Tensor| -> Result<Tensor> {
            let own = wide(&cached.get(sequence)?)?.unsqueeze(1)?;
            own.expand((kv_heads, group, seen, dim))?.reshape((heads, seen, dim))
        };
        let mask: Vec<f32> = (0..queries)
            .flat_map(|row| (0..seen).map(move |at| if at + queries > row + seen { f32::NEG_INFINITY } else { 0.0 }))
            .collect();
        let mask = Tensor::from_vec(mask, (1, queries, seen), &Device::Cpu)?;
        let scores = (q.matmul(&of(&keys)?.t()?.contiguous()?)? * 0.2)?.broadcast_add(&mask)?;
        let expected = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&of(&values)?)?.transpose(0, 1)?;
        assert_near(&found.narrow(0, first, queries)?, &expected.contiguous()?, 2e-2)?;
        first += queries;
    }
    Ok(())
}

#[test]
fn misfits_are_errors_that_name_the_operand() -> Result<()> {
    let context = Context::simulated(5)?;
    let message = |result: Result<Tensor>| result.map_or_else(|error| error.to_string(), |_| String::new());
    let (x, weight) = (normal(&[2, 64])?, normal(&[63])?);
    let found = message(rms_norm(&context, &x, &weight, 1e-5));
    assert!(found.contains("rms_norm: weight is [63]; it must be the last axis of x, [64]"), "{found}");
    let found = message(rms_norm(&context, &x.t()?, &normal(&[2])?, 1e-5));
    assert!(found.contains("operand 0 of [64, 2] has strides [1, 64]"), "{found}");
    let found = message(silu_mul(&context, &x.to_dtype(DType::F64)?, &x));
    assert!(found.contains("no op takes elements of F64"), "{found}");
    let found = Context::new(&Device::Cpu).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(found.contains("Context::simulated"), "{found}");
    Ok(())
}
