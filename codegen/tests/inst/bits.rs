//! Cases of the family `bits`: every instruction once at least.

use crate::case::{Case, binary, keep, mine, unary};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("and", |k| {
            binary::<u16, _>(k, "u16", |x, y| x & y);
            binary::<u32, _>(k, "u32", |x, y| x & y);
            binary::<u64, _>(k, "u64", |x, y| x & y & 0xffff_ffff_0000_0000);
            keep(k, "pred", mine::<u32>(k, "p").ne(0) & mine::<u32>(k, "q").ne(0));
        }),
        Case::new("or", |k| {
            binary::<u16, _>(k, "u16", |x, y| x | y);
            binary::<u32, _>(k, "u32", |x, y| x | y);
            binary::<u64, _>(k, "u64", |x, y| x | y);
            keep(k, "pred", mine::<u32>(k, "p").ne(0) | mine::<u32>(k, "q").ne(0));
        }),
        Case::new("xor", |k| {
            binary::<u16, _>(k, "u16", |x, y| x ^ y);
            binary::<i32, _>(k, "s32", |x, y| x ^ y);
            binary::<u64, _>(k, "u64", |x, y| x ^ y);
            keep(k, "pred", mine::<u32>(k, "p").ne(0) ^ mine::<u32>(k, "q").ne(0));
        }),
        Case::new("not", |k| {
            unary::<u16, _>(k, "u16", |x| !x);
            unary::<u32, _>(k, "u32", |x| !x);
            unary::<u64, _>(k, "u64", |x| !x);
            keep(k, "pred", !mine::<u32>(k, "p").ne(0));
        }),
        Case::new("lop3", |k| binary::<u32, _>(k, "u32", |x, y| x.lop3(y, 0x00ff_00ff, 0xca))),
        Case::new("shl", |k| {
            unary::<u16, _>(k, "u16", |x| x << 3);
            binary::<u32, _>(k, "u32", |x, n| x << n);
            unary::<u64, _>(k, "u64", |x| x << x.cast::<u32>());
        }),
        Case::new("shr", |k| {
            unary::<i16, _>(k, "s16", |x| x >> 3);
            binary::<u32, _>(k, "u32", |x, n| x >> n);
            unary::<i32, _>(k, "s32", |x| x >> 40);
            unary::<u64, _>(k, "u64", |x| x >> x.cast::<u32>());
        }),
        Case::new("shf", |k| {
            binary::<u32, _>(k, "l", |x, y| x.funnel_left(y, 7));
            binary::<u32, _>(k, "r", |x, y| x.funnel_right(y, x));
        }),
        Case::new("counts", |k| {
            unary::<u32, _>(k, "popc", |x| x.popc());
            unary::<u64, _>(k, "popcl", |x| x.popc());
            unary::<u32, _>(k, "clz", |x| x.clz());
            unary::<u64, _>(k, "clzl", |x| x.clz());
            unary::<u32, _>(k, "bfind", |x| x.bfind());
            unary::<i64, _>(k, "bfindl", |x| x.bfind());
        }),
        Case::new("brev", |k| {
            unary::<u32, _>(k, "u32", |x| x.brev());
            unary::<u64, _>(k, "u64", |x| x.brev());
        }),
        Case::new("fields", |k| {
            unary::<u32, _>(k, "bfe", |x| x.bfe(5, 9));
            unary::<i32, _>(k, "bfes", |x| x.bfe(x.cast::<u32>(), 9));
            unary::<i64, _>(k, "bfel", |x| x.bfe(40, 24));
            binary::<u32, _>(k, "bfi", |x, y| x.bfi(y, 4, 8));
            binary::<u64, _>(k, "bfil", |x, y| x.bfi(y, 56, 8));
        }),
        Case::new("prmt", |k| binary::<u32, _>(k, "u32", |x, y| x.prmt(y, 0xb712))),
    ]
}
