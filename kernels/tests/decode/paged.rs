//! Pages of a pool: whose they are, and what lies in them.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr};
use tilewright_codegen::trial::Draw;
use tilewright_kernels::kv::{PageTable, PagedPool, PoolArray, SplitPages, StepScalars, swizzled};
use tilewright_kernels::naive::{self, PoolShape};

/// A pool and the page table of every row.
#[derive(Clone, Debug)]
pub struct Paged {
    pub shape: PoolShape,
    pub width: u32,
    /// `[rows, width]`.
    pub table: Vec<i32>,
}

impl Paged {
    /// Pages for rows of `tokens` tokens, in any order, and one that belongs to no row.
    pub fn draw(draw: &mut Draw, rows: u32, tokens: u32, [kv_heads, page_tokens, head_dim]: [u32; 3]) -> Paged {
        let width = tokens.div_ceil(page_tokens);
        let pages = rows * width + 1;
        let mut all: Vec<i32> = (0..pages as i32).collect();
        for last in (1..pages).rev() {
            all.swap(last as usize, draw.between(0..=last) as usize);
        }
        all.pop();
        let [kv_heads, pages, page_tokens, head_dim] = [kv_heads, pages, page_tokens, head_dim].map(|n| n as usize);
        Paged { shape: PoolShape { kv_heads, pages, page_tokens, head_dim }, width, table: all }
    }

    /// The pool at an address, where it and the cells of its rows lie in global memory.
    pub fn pages<'k>(
        &self,
        k: &'k Builder,
        pool: impl Into<PoolArray<'k>>,
        position: Ptr<'k, Global, i32>,
        table: Ptr<'k, Global, i32>,
    ) -> PagedPool<'k> {
        PagedPool {
            pool: pool.into(),
            pages: k.lit(self.shape.pages as u32),
            page_tokens: self.shape.page_tokens as u32,
            dim: self.shape.head_dim as u32,
            position: StepScalars::Global(position),
            table: PageTable { cells: StepScalars::Global(table), width: k.lit(self.width), near: None },
            split_pages: SplitPages::ANY,
        }
    }

    /// The pages of a row.
    pub fn row(&self, row: usize) -> Vec<usize> {
        let width = self.width as usize;
        self.table[row * width..][..width].iter().map(|&page| page as usize).collect()
    }

    /// A pool as kernels keep it.
    pub fn swizzled<T: Copy>(&self, pool: &[T]) -> Vec<T> {
        swizzled(pool, self.shape.page_tokens, self.shape.head_dim)
    }

    /// A pool that holds the tokens of each row up to its position, and is not a number elsewhere.
    pub fn fill(&self, draw: &mut Draw, position: &[i32]) -> Vec<bf16> {
        let mut pool = vec![bf16::NAN; self.shape.elements()];
        for (row, &position) in position.iter().enumerate() {
            for token in 0..=position {
                let x = draw.floats(self.shape.kv_heads * self.shape.head_dim, bf16::from_f64);
                naive::append(&mut pool, self.shape, &x, &self.row(row), Some(token as usize));
            }
        }
        pool
    }
}
