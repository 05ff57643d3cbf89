//! Warps: lanes exchange numbers by shuffles and votes. The last puzzles use
//! [`collective`](tilewright::kernels::collective).

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;
use tilewright::kernels::collective::{Block, Warp, ranked_key, unranked};

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 8] = [
    Puzzle { name: "warp_sum", check: check_warp_sum },
    Puzzle { name: "warp_scan", check: check_warp_scan },
    Puzzle { name: "vote", check: check_vote },
    Puzzle { name: "block_sum", check: check_block_sum },
    Puzzle { name: "argmax", check: check_argmax },
    Puzzle { name: "top_k", check: check_top_k },
    Puzzle { name: "sort", check: check_sort },
    Puzzle { name: "segmented_sum", check: check_segmented_sum },
];

/// The sum of 32 numbers in every lane: in each of five rounds, a lane adds the sum of the lane
/// whose number differs in one bit.
fn warp_sum(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.lane()));
    let mut sum = x.load();
    for bit in [16u32, 8, 4, 2, 1] {
        sum += sum.shfl_bfly(bit);
    }
    y.store(sum);
}

fn check_warp_sum(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 32, 100);
    let y = [x.iter().sum::<f32>(); 32];
    Ok(Case::new("warp_sum", block(32), 1, warp_sum)?.input("x", &x).output("y", &y))
}

/// `y[i] = x[0] + … + x[i]` for 32 numbers, by shuffles alone.
fn warp_scan(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name).at(k.lane()));
    let mut sum = x.load();
    for distance in [1u32, 2, 4, 8, 16] {
        let below = sum.shfl_up(distance);
        sum = k.lane().ge(distance).select(below + sum, sum);
    }
    y.store(sum);
}

fn check_warp_scan(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 32, 100);
    let y: Vec<f32> = (0..32usize).map(|i| x[..=i].iter().sum()).collect();
    Ok(Case::new("warp_scan", block(32), 1, warp_scan)?.input("x", &x).output("y", &y))
}

/// The positive ones of 32 numbers move to the front of y, in their order; the others follow in
/// theirs. The ballot has a bit for each lane: the bits below a lane's own tell its place.
fn vote(k: &Builder) {
    let [x, y] = ["x", "y"].map(|name| k.global::<f32>(name));
    let value = x.at(k.lane()).load();
    let positive = value.gt(0.0);
    let ballot = positive.ballot();
    let below = (k.lit(1u32) << k.lane()) - 1;
    let place = positive.select((ballot & below).popc(), ballot.popc() + (!ballot & below).popc());
    y.at(place).store(value);
}

fn check_vote(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 32, 100);
    let (front, back): (Vec<f32>, Vec<f32>) = x.iter().partition(|&&x| x > 0.0);
    Ok(Case::new("vote", block(32), 1, vote)?.input("x", &x).output("y", &[front, back].concat()))
}

/// The sum of 256 numbers: a sum for each warp, then the sum of those through shared memory.
fn block_sum(k: &Builder) {
    let sum = k.global::<f32>("x").at(k.tid()).load().warp_reduce(|a, b| a + b);
    let sums = k.shared::<f32>("sums", 8);
    k.when(k.lane().eq(0), || sums.at(k.warp()).store(sum));
    k.barrier();
    k.when(k.tid().eq(0), || {
        let all = (1..8u32).fold(sums.load(), |all, warp| all + sums.at(warp).load());
        k.global::<f32>("out").store(all);
    });
}

fn check_block_sum(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 256, 100);
    Ok(Case::new("block_sum", block(256), 1, block_sum)?.input("x", &x).output("out", &[x.iter().sum::<f32>()]))
}

/// The index of the largest of 128 numbers, the lowest index among equals.
fn argmax(k: &Builder) {
    let x = k.global::<f32>("x").at(k.tid()).load();
    let (_, index) = Block::new(k).argmax(x, k.tid());
    k.when(k.tid().eq(0), || k.global::<u32>("out").store(index));
}

fn check_argmax(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 128, 20);
    let most = x.iter().copied().fold(f32::MIN, f32::max);
    let first = x.iter().position(|&x| x == most).unwrap_or_default() as u32;
    Ok(Case::new("argmax", block(128), 1, argmax)?.input("x", &x).output("out", &[first]))
}

/// The indexes of the four largest of n numbers, n from 4 to 100, from the largest on: four numbers
/// a lane of one warp. A key of 0 stands for a number that is not there.
fn top_k(k: &Builder) {
    let (n, x) = (k.param::<u32>("n"), k.global::<f32>("x"));
    let keys = [0u32, 32, 64, 96].map(|from| {
        let (i, key) = (k.lane() + from, k.var(0u64));
        k.when(i.lt(n), || key.set(ranked_key(x.at(i).load(), i)));
        key.get()
    });
    let (_, index) = unranked::<f32>(Warp::new(k).top_k(&keys, 4));
    k.when(k.lane().lt(4), || k.global::<u32>("out").at(k.lane()).store(index));
}

fn check_top_k(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let n = draw.between(4..=100);
    let x = whole(draw, n, 20);
    let mut order: Vec<u32> = (0..n).collect();
    order.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize]));
    Ok(Case::new("top_k", block(32), 1, top_k)?.number(n).input("x", &x).output("out", &order[..4]))
}

/// 96 keys in rising order, and with each its value.
fn sort(k: &Builder) {
    let [keys, values] = ["keys", "values"].map(|name| k.global::<u32>(name).at(k.tid()));
    let item = (keys.load(), values.load());
    let (key, value) = Block::new(k).sort(item, |a, b| a.0.lt(b.0));
    keys.store(key);
    values.store(value);
}

fn check_sort(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    // Keys differ: the sort is not stable.
    let keys: Vec<u32> = (0..96).map(|i| draw.between(0..=1000) * 128 + i).collect();
    let values: Vec<u32> = keys.iter().map(|key| key % 77).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let with: Vec<u32> = sorted.iter().map(|key| key % 77).collect();
    Ok(Case::new("sort", block(96), 1, sort)?.changed("keys", &keys, &sorted).changed("values", &values, &with))
}

/// The sums of runs of equal ids among 64 numbers: the last number of each run writes the run's sum
/// at its id. Ids rise.
fn segmented_sum(k: &Builder) {
    let (ids, out) = (k.global::<u32>("ids"), k.global::<f32>("out"));
    let x = k.global::<f32>("x").at(k.tid()).load();
    let id = ids.at(k.tid()).load();
    let neighbour = |other, inside| {
        let neighbour = k.var(u32::MAX);
        k.when(inside, || neighbour.set(ids.at(other).load()));
        neighbour.get()
    };
    let head = neighbour(k.tid() - 1, k.tid().gt(0)).ne(id);
    let last = neighbour(k.tid() + 1, k.tid().lt(63)).ne(id);
    let sum = Block::new(k).segmented_scan(head, x, |a, b| a + b);
    k.when(last, || out.at(id).store(sum));
}

fn check_segmented_sum(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 64, 100);
    // Every id from 0 to 9 is there.
    let mut ids: Vec<u32> = (0..64).map(|i| if i < 10 { i } else { draw.between(0..=9) }).collect();
    ids.sort_unstable();
    let sum = |id| x.iter().zip(&ids).filter(|pair| *pair.1 == id).map(|pair| pair.0).sum();
    let out: Vec<f32> = (0..10).map(sum).collect();
    let case = Case::new("segmented_sum", block(64), 1, segmented_sum)?;
    Ok(case.input("ids", &ids).output("out", &out).input("x", &x))
}
