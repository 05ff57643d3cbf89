//! Each collective of warps and blocks equals its loop.

use proptest::prelude::*;
use tilewright_codegen::build::Val;
use tilewright_codegen::ir::Ty;
use tilewright_kernels::collective::{ranked_key, unranked};

use crate::group::{Case, Group, Number, on, order, place};

/// The laws of one type.
fn laws<T: Number>(group: Group, warps: u32, seed: u64) -> Result<(), TestCaseError> {
    let case = Case::<T>::new(group, warps, seed);
    for &(device, host) in T::OPERATORS {
        combined(&case, device, host)?;
    }
    largest(&case)?;
    sorted(&case)
}

/// Reductions and scans.
fn combined<T: Number>(
    case: &Case<T>,
    device: for<'k> fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>,
    host: fn(T, T) -> T,
) -> Result<(), TestCaseError> {
    let group = case.group;
    let fold = |items: &[T]| items.iter().copied().reduce(host).expect("an item");
    case.check(
        |k, inputs| on!(group, k, |g| g.reduce(inputs.number, device)),
        |numbers, _| vec![fold(numbers); numbers.len()],
    )?;
    let valid = case.valid as usize;
    case.check(
        |k, inputs| on!(group, k, |g| g.reduce_valid(inputs.number, inputs.valid, device)),
        |numbers, _| vec![fold(&numbers[..valid]); numbers.len()],
    )?;
    let through = |items: &[T]| (1..=items.len()).map(|end| fold(&items[..end])).collect::<Vec<T>>();
    case.check(|k, inputs| on!(group, k, |g| g.inclusive_scan(inputs.number, device)), |numbers, _| through(numbers))?;
    let initial = case.numbers[case.numbers.len() / 2];
    let start = |items: &[T]| through(&[&[initial], &items[..items.len() - 1]].concat());
    case.check(
        |k, inputs| on!(group, k, |g| g.exclusive_scan(inputs.number, k.lit(initial), device)),
        |numbers, _| start(numbers),
    )?;
    case.check(
        |k, inputs| on!(group, k, |g| g.segmented_scan(inputs.flag.ne(0), inputs.number, device)),
        |numbers, flags| {
            let first = |end: usize| (0..=end).rev().find(|&at| flags[at] != 0).unwrap_or(0);
            (0..numbers.len()).map(|end| fold(&numbers[first(end)..=end])).collect()
        },
    )
}

/// Argmax and top-k.
fn largest<T: Number>(case: &Case<T>) -> Result<(), TestCaseError> {
    let group = case.group;
    // The first of the largest.
    let argmax = |numbers: &[T]| {
        (1..numbers.len()).fold(0, |best, at| if order(numbers[at]) > order(numbers[best]) { at } else { best })
    };
    case.check(
        |k, inputs| on!(group, k, |g| g.argmax(inputs.number, place(k, group)).1),
        |numbers, _| vec![argmax(numbers) as u32; numbers.len()],
    )?;
    case.check(
        |k, inputs| on!(group, k, |g| T::rank(g.argmax(inputs.number, k.tid()).0)),
        |numbers, _| vec![host_rank(numbers[argmax(numbers)]); numbers.len()],
    )?;
    let count = case.valid.min(group.size(32)).min(1 + (case.seed % 7) as u32);
    let valid = case.valid as usize;
    case.check(
        |k, inputs| {
            let at = place(k, group);
            let key = at.lt(inputs.valid).select(ranked_key(inputs.number, at), 0u64);
            // The second key of every thread is absent.
            let top = on!(group, k, |g| g.top_k(&[key, k.lit(0)], count));
            top.eq(0u64).select(u32::MAX, unranked::<T>(top).1)
        },
        |numbers, _| {
            let mut indexes: Vec<usize> = (0..valid).collect();
            indexes.sort_by(|&a, &b| order(numbers[b]).total_cmp(&order(numbers[a])));
            let lanes = group.size(32) as usize;
            let top = |lane: usize| indexes.get(lane).filter(|_| lane < count as usize);
            (0..numbers.len()).map(|at| top(at % lanes).map_or(u32::MAX, |&index| index as u32)).collect()
        },
    )
}

/// The rank on the host.
fn host_rank<T: Number>(value: T) -> u32 {
    let bits = |value: f64| {
        let bits = (value as f32).to_bits();
        if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
    };
    match T::TY {
        Ty::F32 => bits(order(value)),
        Ty::S32 => value.value() as i32 as u32 ^ 1 << 31,
        _ => value.value() as u32,
    }
}

/// Sorts, of all and of the valid ones.
fn sorted<T: Number>(case: &Case<T>) -> Result<(), TestCaseError> {
    let group = case.group;
    let by_order = |numbers: &[T]| {
        let mut indexes: Vec<u32> = (0..numbers.len() as u32).collect();
        indexes.sort_by(|&a, &b| order(numbers[a as usize]).total_cmp(&order(numbers[b as usize])));
        indexes
    };
    // With the place as a part of the item, the sort is stable.
    case.check(
        |k, inputs| {
            let item = (T::rank(inputs.number), place(k, group));
            on!(group, k, |g| g.sort(item, |a, b| a.0.lt(b.0) | (a.0.eq(b.0) & a.1.lt(b.1)))).1
        },
        |numbers, _| by_order(numbers),
    )?;
    let valid = case.valid as usize;
    case.check(
        |k, inputs| {
            let item = T::rank(inputs.number);
            on!(group, k, |g| g.sort_valid(item, inputs.valid, |a, b| a.lt(b)))
        },
        |numbers, _| {
            let mut ranks: Vec<u32> = numbers.iter().map(|&number| host_rank(number)).collect();
            ranks[..valid].sort_unstable();
            ranks
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn of_f32(group in 0u32..8, warps in 1u32..=5, seed: u64) {
        laws::<f32>(Group::any(group), warps, seed)?;
    }

    #[test]
    fn of_u32(group in 0u32..8, warps in 1u32..=5, seed: u64) {
        laws::<u32>(Group::any(group), warps, seed)?;
    }

    #[test]
    fn of_i32(group in 0u32..8, warps in 1u32..=5, seed: u64) {
        laws::<i32>(Group::any(group), warps, seed)?;
    }

    /// Maps x ↦ a·x + b compose, and not in any order.
    #[test]
    fn scans_keep_the_order_of_their_items(group in 0u32..8, warps in 1u32..=5, seed: u64) {
        let case = Case::<u32>::new(Group::any(group), warps, seed);
        let compose = |first: (u32, u32), then: (u32, u32)| {
            (first.0.wrapping_mul(then.0), first.1.wrapping_mul(then.0).wrapping_add(then.1))
        };
        let item = |number: u32| (number | 1, number >> 3);
        case.check(
            |k, inputs| {
                let item = (inputs.number | 1, inputs.number >> 3);
                on!(case.group, k, |g| g.inclusive_scan(item, |a, b| (a.0 * b.0, a.1.mad(b.0, b.1)))).1
            },
            |numbers, _| {
                let through = |end: usize| numbers[..end].iter().map(|&n| item(n)).reduce(compose).unwrap().1;
                (1..=numbers.len()).map(through).collect()
            },
        )?;
        case.check(
            |k, inputs| {
                let item = (inputs.number | 1, inputs.number >> 3);
                on!(case.group, k, |g| g.reduce_valid(item, inputs.valid, |a, b| (a.0 * b.0, a.1.mad(b.0, b.1)))).1
            },
            |numbers, _| {
                let valid = numbers[..case.valid as usize].iter().map(|&n| item(n));
                vec![valid.reduce(compose).unwrap().1; numbers.len()]
            },
        )?;
    }
}

#[test]
fn blocks_of_many_warps_sort_and_scan() {
    for warps in [8, 31, 32] {
        let case = Case::<i32>::new(Group::Block, warps, u64::from(warps));
        sorted(&case).and_then(|()| combined(&case, |a, b| a + b, i32::wrapping_add)).unwrap();
    }
}

/// Numbers of 16 and 64 bits travel between lanes as words.
#[test]
fn other_widths_are_shuffled() {
    let case = Case::<u32>::new(Group::Block, 3, 5);
    let total: u64 = case.numbers.iter().map(|&n| u64::from(n) << 7).sum();
    let check = case.check(
        |k, inputs| on!(case.group, k, |g| g.reduce(inputs.number.cast::<u64>() << 7, |a, b| a + b)),
        |numbers, _| vec![total; numbers.len()],
    );
    check.unwrap();
    let wide = |numbers: &[u32]| numbers.iter().map(|&n| -f64::from(n % 1000)).fold(0.0, f64::min);
    let check = case.check(
        |k, inputs| {
            let value = -(inputs.number % 1000).cast::<f64>();
            on!(case.group, k, |g| g.reduce((value, value.cast::<i64>()), |a, b| (a.0.min(b.0), a.1.min(b.1)))).1
        },
        |numbers, _| vec![wide(numbers) as i64; numbers.len()],
    );
    check.unwrap();
    let check = case.check(
        |k, inputs| {
            let half = (inputs.number % 1000).cast::<f32>().cast::<half::f16>();
            let brain = (inputs.number % 100).cast::<f32>().cast::<half::bf16>();
            let all = on!(case.group, k, |g| g
                .reduce([half.cast::<f32>(), brain.cast::<f32>()], |a, b| { [a[0].max(b[0]), a[1].max(b[1])] }));
            let (value, _) = on!(case.group, k, |g| g.argmax(half, k.tid()));
            let shuffled = on!(case.group, k, |g| g.reduce((half, brain), |a, b| (a.0.max(b.0), a.1.max(b.1))));
            let same = all[0].eq(value.cast::<f32>()) & all[0].eq(shuffled.0.cast()) & all[1].eq(shuffled.1.cast());
            same.as_number::<u32>()
        },
        |numbers, _| vec![1; numbers.len()],
    );
    check.unwrap();
}
