//! Paged pools: where the key or value of a token lies.

/// The extents of a key or value pool, `[kv_heads, pages, page_tokens, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Pages of every head.
    pub pages: usize,
    /// Tokens in a page.
    pub page_tokens: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

impl PoolShape {
    /// Elements of the whole pool.
    pub fn elements(self) -> usize {
        self.kv_heads * self.pages * self.page_tokens * self.head_dim
    }

    /// The offset of the first element of a token's vector:
    /// `pool[head, table[p / page_tokens], p % page_tokens, 0]`.
    ///
    /// ```
    /// use tilewright_kernels::naive::PoolShape;
    /// let shape = PoolShape { kv_heads: 2, pages: 8, page_tokens: 16, head_dim: 64 };
    /// assert_eq!(shape.offset(1, &[5, 3], 17), ((8 + 3) * 16 + 1) * 64);
    /// ```
    pub fn offset(self, head: usize, table: &[usize], position: usize) -> usize {
        let page = table[position / self.page_tokens];
        ((head * self.pages + page) * self.page_tokens + position % self.page_tokens) * self.head_dim
    }
}

/// `pool[h, table[p / page_tokens], p % page_tokens, :] = x[h, :]` with `p = position`, for every
/// head; an idle row (`None`) appends nothing.
pub fn append<T: Copy>(pool: &mut [T], shape: PoolShape, x: &[T], table: &[usize], position: Option<usize>) {
    let Some(position) = position else { return };
    for (head, x) in x.chunks_exact(shape.head_dim).enumerate() {
        let at = shape.offset(head, table, position);
        pool[at..at + shape.head_dim].copy_from_slice(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_to_the_slot_of_the_token_and_nowhere_else() {
        let shape = PoolShape { kv_heads: 2, pages: 3, page_tokens: 2, head_dim: 2 };
        let mut pool = vec![0; shape.elements()];
        append(&mut pool, shape, &[1, 2, 3, 4], &[2, 0], None);
        assert_eq!(pool, vec![0; 24]);
        append(&mut pool, shape, &[1, 2, 3, 4], &[2, 0], Some(3));
        let mut expected = vec![0; 24];
        expected[2..4].copy_from_slice(&[1, 2]);
        expected[14..16].copy_from_slice(&[3, 4]);
        assert_eq!(pool, expected);
    }
}
