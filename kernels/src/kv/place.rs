//! The location of the rows of one sequence and head.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Val};

use super::TokenRow;

/// A page table of one sequence.
#[derive(Clone, Copy)]
pub struct Pages<'k> {
    /// The page of each `page_tokens` tokens.
    pub table: Ptr<'k, Global, u32>,
    /// Tokens in a page.
    pub page_tokens: u32,
    /// Whether rows are in the order of [`swizzled`](super::swizzled); then pages are whole groups
    /// of eight tokens.
    pub swizzled: bool,
}

/// Rows of a plane: token `t` is row `first + t`, or, in pages, `table[t / P]·P + t mod P`.
///
/// Row `r` begins `plane·plane_stride + r·row_stride` elements into the tensor.
#[derive(Clone, Copy)]
pub struct KvView<'k> {
    /// The plane: the head, or sequence and head.
    pub plane: Val<'k, u32>,
    /// Elements from plane to plane.
    pub plane_stride: Val<'k, u32>,
    /// The row of token 0, without pages.
    pub first: Val<'k, u32>,
    /// Elements from row to row.
    pub row_stride: Val<'k, u32>,
    /// Tokens of the sequence: later rows read as zero.
    pub tokens: Val<'k, u32>,
    /// The page table.
    pub pages: Option<Pages<'k>>,
}

impl<'k> KvView<'k> {
    /// The rows of as many tokens of `to` columns, where these have `from`: planes and rows are as many
    /// columns.
    pub(crate) fn of_columns(self, [from, to]: [u32; 2]) -> KvView<'k> {
        if from == to {
            return self;
        }
        let scaled = |stride: Val<'k, u32>| stride / from * to;
        KvView { plane_stride: scaled(self.plane_stride), row_stride: scaled(self.row_stride), ..self }
    }

    /// The row of a token.
    pub fn row(&self, token: Val<'k, u32>) -> Val<'k, u32> {
        match self.pages {
            None => self.first + token,
            Some(Pages { table, page_tokens, .. }) => {
                table.at(token / page_tokens).load() * page_tokens + token % page_tokens
            }
        }
    }

    /// The pointer to the first element of a token.
    pub fn pointer(&self, base: Ptr<'k, Global, bf16>, token: Val<'k, u32>) -> Ptr<'k, Global, bf16> {
        base.at(self.plane.mul_wide(self.plane_stride)).at(self.row(token).mul_wide(self.row_stride))
    }

    /// The pointer to a vector of eight columns of a token, which begins at `column`.
    pub fn vector(
        &self,
        base: Ptr<'k, Global, bf16>,
        token: Val<'k, u32>,
        column: Val<'k, u32>,
    ) -> Ptr<'k, Global, bf16> {
        let swizzled = self.pages.is_some_and(|pages| pages.swizzled);
        self.pointer(base, token).at(if swizzled { TokenRow::swizzled_at(token, column) } else { column })
    }

    /// Rows of a tile of `rows` rows that are certain to be consecutive.
    pub fn run(&self, rows: u32) -> u32 {
        self.pages.map_or(rows, |pages| gcd(rows, pages.page_tokens))
    }
}

pub(super) fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
