//! Pages of keys, values and fields, and the requests that use them.

use tilewright_graph::dim::ModelShape;

use crate::bind::BoundFlow;
use crate::error::RunError;
use crate::real::Real;

/// The sizes of a pool's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Heads and blocks.
    pub model: ModelShape,
    /// Tokens of a page.
    pub page_tokens: usize,
}

impl PoolShape {
    /// Blocks of a page, of one key head.
    pub const fn blocks_per_page(&self) -> usize {
        self.page_tokens / self.model.block_tokens
    }

    /// The block of a key head that holds a token.
    ///
    /// ```
    /// use tilewright_flow::{ModelShape, memory::PoolShape};
    /// let model = ModelShape { kv_heads: 2, group: 1, head_dim: 8, block_tokens: 4 };
    /// let shape = PoolShape { model, page_tokens: 8 };
    /// // Page 3, head 1: the second of its blocks holds tokens 4 to 7 of the page.
    /// assert_eq!(shape.block(3, 1, 5), (3 * 2 + 1) * 2 + 1);
    /// ```
    pub const fn block(&self, page: usize, head: usize, token_of_page: usize) -> usize {
        (page * self.model.kv_heads + head) * self.blocks_per_page() + token_of_page / self.model.block_tokens
    }
}

/// The pages that requests share.
#[derive(Clone, Debug)]
pub struct FlowPool<T> {
    shape: PoolShape,
    pages: usize,
    flow: String,
    pub(crate) keys: Vec<T>,
    pub(crate) values: Vec<T>,
    /// The fields, by field, then by block.
    pub(crate) fields: Vec<Vec<T>>,
}

/// A sequence: where its tokens are, and what the flow carries from step to step.
#[derive(Clone, Debug)]
pub struct FlowRequest<T> {
    /// The page of every `page_tokens` tokens.
    pages: Vec<usize>,
    /// Tokens that it has.
    tokens: usize,
    /// The states, by state, then by key head: a row for each block so far.
    pub(crate) states: Vec<Vec<Vec<T>>>,
}

impl<T: Real> FlowPool<T> {
    /// Creates a pool for a bound flow. Unwritten elements are NaN, so that reads of them show.
    ///
    /// # Errors
    /// [`RunError::PageTokens`], [`RunError::PoolSize`].
    pub fn new(bound: &BoundFlow<'_>, page_tokens: usize, pages: usize) -> Result<FlowPool<T>, RunError> {
        let model = bound.extents.model;
        let block_tokens = model.block_tokens;
        if page_tokens == 0 || !page_tokens.is_multiple_of(block_tokens) {
            return Err(RunError::PageTokens { page_tokens, block_tokens });
        }
        let shape = PoolShape { model, page_tokens };
        let blocks = pages.checked_mul(model.kv_heads).and_then(|n| n.checked_mul(shape.blocks_per_page()));
        // A block's number is 32 bits in a selection.
        let blocks = blocks.filter(|n| u32::try_from(*n).is_ok()).ok_or(RunError::PoolSize { pages })?;
        let of = |extents: [usize; 2]| match blocks.checked_mul(extents[0] * extents[1]) {
            Some(elements) if elements <= isize::MAX as usize / 8 => Ok(vec![T::NAN; elements]),
            Some(_) | None => Err(RunError::PoolSize { pages }),
        };
        Ok(FlowPool {
            shape,
            pages,
            flow: bound.traced.name.clone(),
            keys: of([block_tokens, model.head_dim])?,
            values: of([block_tokens, model.head_dim])?,
            fields: bound.extents.fields.iter().map(|extents| of(*extents)).collect::<Result<_, _>>()?,
        })
    }

    /// Blocks that were brought together: a page each, of one key head. Keys, values and fields are
    /// those of the blocks in order, or absent where no op reads them.
    pub(crate) fn gathered(
        bound: &BoundFlow<'_>,
        blocks: usize,
        keys: Vec<T>,
        values: Vec<T>,
        fields: Vec<Vec<T>>,
    ) -> Self {
        let model = bound.extents.model;
        let shape = PoolShape { model, page_tokens: model.block_tokens };
        FlowPool { shape, pages: blocks, flow: bound.traced.name.clone(), keys, values, fields }
    }

    /// The sizes of its pages.
    pub const fn shape(&self) -> PoolShape {
        self.shape
    }

    /// Checks that the pool was made for this flow and model.
    pub(crate) fn check(&self, bound: &BoundFlow<'_>) -> Result<(), RunError> {
        let name = |flow: &str, model: ModelShape| format!("flow `{flow}` with {model}");
        let flow = &bound.traced.name;
        let model = bound.extents.model;
        if self.shape.model == model && self.flow == *flow {
            return Ok(());
        }
        Err(RunError::Foreign { found: name(&self.flow, self.shape.model), wanted: name(flow, model) })
    }

    /// The keys of a block, `[block_tokens, head_dim]`.
    pub fn keys(&self, block: usize) -> &[T] {
        let elements = self.shape.model.block_tokens * self.shape.model.head_dim;
        &self.keys[block * elements..][..elements]
    }

    /// The values of a block, `[block_tokens, head_dim]`.
    pub fn values(&self, block: usize) -> &[T] {
        let elements = self.shape.model.block_tokens * self.shape.model.head_dim;
        &self.values[block * elements..][..elements]
    }

    /// A field of a block, by the number of its declaration; NaN before the block is complete.
    pub fn field(&self, field: usize, block: usize) -> &[T] {
        let blocks = self.pages * self.shape.model.kv_heads * self.shape.blocks_per_page();
        let elements = self.fields[field].len() / blocks.max(1);
        &self.fields[field][block * elements..][..elements]
    }

    /// Writes one token of a request: keys and values `[key heads, head_dim]`.
    pub(crate) fn write(&mut self, page: usize, token: usize, keys: &[T], values: &[T]) {
        let ModelShape { kv_heads, head_dim, block_tokens, .. } = self.shape.model;
        for head in 0..kv_heads {
            let block = self.shape.block(page, head, token);
            let to = (block * block_tokens + token % block_tokens) * head_dim;
            self.keys[to..to + head_dim].copy_from_slice(&keys[head * head_dim..][..head_dim]);
            self.values[to..to + head_dim].copy_from_slice(&values[head * head_dim..][..head_dim]);
        }
    }
}

impl<T: Real> FlowRequest<T> {
    /// A request with a page table. Its first `tokens` tokens are in these pages already: a prefix
    /// that it shares.
    ///
    /// # Errors
    /// [`RunError::TableLength`], [`RunError::Page`].
    pub fn new(pool: &FlowPool<T>, pages: &[usize], tokens: usize) -> Result<FlowRequest<T>, RunError> {
        if let Some(&page) = pages.iter().find(|page| **page >= pool.pages) {
            return Err(RunError::Page { page, pages: pool.pages });
        }
        let request = FlowRequest { pages: pages.to_vec(), tokens, states: Vec::new() };
        request.fits(pool, tokens)?;
        Ok(request)
    }

    /// Checks that the page table covers `tokens` tokens.
    pub(crate) fn fits(&self, pool: &FlowPool<T>, tokens: usize) -> Result<(), RunError> {
        let needed = tokens.div_ceil(pool.shape.page_tokens);
        let pages = self.pages.len();
        if needed <= pages { Ok(()) } else { Err(RunError::TableLength { tokens, needed, pages }) }
    }

    /// Tokens so far.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// The place of a token: its page and where in the page.
    pub(crate) fn place(&self, shape: PoolShape, token: usize) -> (usize, usize) {
        (self.pages[token / shape.page_tokens], token % shape.page_tokens)
    }

    pub(crate) fn advance(&mut self) {
        self.tokens += 1;
    }

    /// The blocks of a key head in the order of the sequence; the last may be partial.
    pub fn blocks(&self, shape: PoolShape, head: usize) -> Vec<u32> {
        let of = |token| {
            let (page, token) = self.place(shape, token);
            shape.block(page, head, token) as u32
        };
        (0..self.tokens).step_by(shape.model.block_tokens).map(of).collect()
    }

    /// A state of a key head: a row for each block that it has had at a step so far.
    pub fn state(&self, state: usize, head: usize) -> &[T] {
        self.states.get(state).map_or(&[], |heads| &heads[head])
    }

    /// Gives every block a row of every state.
    pub(crate) fn grow(&mut self, bound: &BoundFlow<'_>) {
        let model = bound.extents.model;
        let blocks = self.tokens.div_ceil(model.block_tokens);
        let declared = &bound.traced.declared.states;
        self.states.resize_with(declared.len(), || vec![Vec::new(); model.kv_heads]);
        for ((state, decl), extents) in self.states.iter_mut().zip(declared).zip(&bound.extents.states) {
            let elements = blocks * extents[0] * extents[1];
            state.iter_mut().for_each(|head| head.resize(elements, T::from_f64(decl.reset)));
        }
    }
}
