//! An operand of two has no source.
#![allow(unused, reason = "each case uses what it needs")]

use tilewright_codegen::build::{Builder, Global, Ptr};
use tilewright_kernels::ring::{ByBulk, Consumer, BulkSource, Producer, StageTile};
use tilewright_layout::typed::Contiguous as Line;

enum Keys {}
enum Values {}
type Row = (StageTile<f32, Line<128>>,);

fn kernel<'k>(
    k: &'k Builder,
    x: Ptr<'k, Global, f32>,
    mut producer: Producer<'k, Keys, Row, ByBulk>,
    mut consumer: Consumer<'k, Keys, Row>,
) {
    fn two(mut both: Producer<'_, Keys, (StageTile<f32, Line<128>>, StageTile<f32, Line<64>>), ByBulk>, x: Ptr<'_, Global, f32>) {
        both.acquire().fill((BulkSource::from(x),)).commit();
    }
}

fn main() {}
