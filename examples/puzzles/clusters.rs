//! Clusters of blocks, which read each other's shared memory. They need Hopper or newer.

use tilewright::codegen::build::{Builder, block};
use tilewright::codegen::trial::Draw;
use tilewright::codegen::verify::VerifyErrors;
use tilewright::kernels::collective::Cluster;

use super::case::{Case, Puzzle, whole};

pub const PUZZLES: [Puzzle; 2] =
    [Puzzle { name: "neighbours", check: check_neighbours }, Puzzle { name: "cluster_max", check: check_cluster_max }];

/// The four blocks of a cluster pass their 32 numbers on: the block of rank r writes those of rank
/// r + 1, the last those of the first. No block may end while another reads its memory.
fn neighbours(k: &Builder) {
    let at = k.block_id() * 32 + k.tid();
    let mine = k.shared::<f32>("mine", 32);
    mine.at(k.tid()).store(k.global::<f32>("x").at(at).load());
    k.cluster_sync();
    let next = (k.cluster_rank() + 1) % 4;
    k.global::<f32>("y").at(at).store(mine.at(k.tid()).on(next).load());
    k.cluster_sync();
}

fn check_neighbours(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 256, 100);
    let turned = |cluster: &[f32]| [&cluster[32..], &cluster[..32]].concat();
    let y: Vec<f32> = x.chunks(128).flat_map(turned).collect();
    Ok(Case::new("neighbours", block(32).cluster(4), 8, neighbours)?.input("x", &x).output("y", &y))
}

/// `y[i] = x[i] / m` for rows of 512 numbers, where m is the row's largest magnitude: two blocks of
/// 256 threads a row.
fn cluster_max(k: &Builder) {
    let at = k.block_id() * 256 + k.tid();
    let x = k.global::<f32>("x").at(at).load();
    let most = Cluster::new(k).reduce(x.abs(), |a, b| a.max(b));
    k.global::<f32>("y").at(at).store(x / most);
}

fn check_cluster_max(draw: &mut Draw) -> Result<Case, VerifyErrors> {
    let x = whole(draw, 2 * 512, 1000);
    let row = |row: &[f32]| -> Vec<f32> {
        let most = row.iter().map(|x| x.abs()).fold(0.0, f32::max);
        row.iter().map(|x| x / most).collect()
    };
    let y: Vec<f32> = x.chunks(512).flat_map(row).collect();
    Ok(Case::new("cluster_max", block(256).cluster(2), 4, cluster_max)?.input("x", &x).output("y", &y))
}
