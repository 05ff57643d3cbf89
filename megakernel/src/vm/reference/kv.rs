//! The KV pools: the part of the state that outlives a step and that machines of one model share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tilewright_layout::DType;

use crate::oracle::{AtomicWords, poison, zeroed};
use crate::program::{Buffer, BufferKind, Program};
use crate::vm::KvError;

/// The key and value pools of a model, by buffer name.
///
/// A machine is lent them for each step, so that programs of one model and different batches (a
/// prompt by chunks of rows, then single tokens) continue the same sequences.
pub struct KvState {
    pools: HashMap<String, PoolWords>,
}

struct PoolWords {
    dtype: DType,
    shape: Vec<usize>,
    scale: f32,
    words: Vec<AtomicU32>,
}

impl KvState {
    /// The pools of a program, filled with zeros.
    ///
    /// # Errors
    /// [`KvError::Memory`] where there is not enough.
    pub fn new(program: &Program) -> Result<KvState, KvError> {
        let buffers = program.buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool);
        let pool = |buffer: &Buffer| {
            let bytes = buffer.bytes().unwrap_or(usize::MAX);
            let words =
                zeroed(bytes.div_ceil(4)).ok_or_else(|| KvError::Memory { name: buffer.name.clone(), bytes })?;
            let dtype = buffer.dtype;
            let shape = buffer.shape.clone();
            let scale = buffer.factor();
            Ok((buffer.name.clone(), PoolWords { dtype, shape, scale, words }))
        };
        Ok(KvState { pools: buffers.map(pool).collect::<Result<_, _>>()? })
    }

    /// Bytes of all pools.
    pub fn bytes(&self) -> usize {
        self.pools.values().map(|pool| pool.words.len() * 4).sum()
    }

    /// The elements of a pool, `[kv_heads, pages, page_tokens, head_dim]`; `None` where there is no
    /// pool of that name.
    pub fn read(&self, name: &str) -> Option<Vec<f32>> {
        let pool = self.pools.get(name)?;
        let words = pool.words();
        let mut out = Vec::new();
        words.read(0, words.len(), &mut out)?;
        Some(out)
    }

    /// The codes of a pool of e4m3 in the same order; `None` where there is no such pool.
    pub fn codes(&self, name: &str) -> Option<Vec<u8>> {
        let pool = self.pools.get(name).filter(|pool| pool.dtype == DType::F8E4M3)?;
        let bytes = pool.words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        Some(bytes.take(pool.shape.iter().product()).collect())
    }

    /// Stores elements of a pool, `[kv_heads, pages, page_tokens, head_dim]`, from `start` on,
    /// rounded to its type.
    ///
    /// # Errors
    /// If there is no such pool, or it ends before.
    pub fn write(&mut self, name: &str, start: usize, values: &[f32]) -> Result<(), KvError> {
        let pool = self.pools.get(name).ok_or_else(|| KvError::Missing { name: name.to_owned() })?;
        let end = start.saturating_add(values.len());
        let len = pool.shape.iter().product();
        pool.words().write(start, values).ok_or_else(|| KvError::Range { name: name.to_owned(), end, len })
    }

    /// Fills all pools with NaN, so that a token which is read before it was appended shows.
    pub fn poison(&mut self) {
        self.pools.values().for_each(|pool| poison(&pool.words));
    }

    /// The pool for a program's buffer.
    pub(super) fn pool(&self, buffer: &Buffer) -> Result<AtomicWords<'_>, KvError> {
        let name = || buffer.name.clone();
        let pool = self.pools.get(&buffer.name).ok_or_else(|| KvError::Missing { name: name() })?;
        if pool.dtype != buffer.dtype {
            return Err(KvError::DType { name: name(), expected: buffer.dtype, found: pool.dtype });
        }
        if pool.shape != buffer.shape {
            let expected = buffer.shape.clone();
            let found = pool.shape.clone();
            return Err(KvError::Shape { name: name(), expected, found });
        }
        if pool.scale.to_bits() != buffer.factor().to_bits() {
            return Err(KvError::Scale { name: name(), expected: buffer.factor(), found: pool.scale });
        }
        Ok(pool.words())
    }
}

impl PoolWords {
    fn words(&self) -> AtomicWords<'_> {
        AtomicWords::new(&self.words, 0, self.shape.iter().product(), self.dtype).scaled(self.scale)
    }
}
