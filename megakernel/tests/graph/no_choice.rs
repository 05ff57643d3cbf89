//! Rows whose largest logit is infinite, or whose logits are all NaN: they have no token and end, the
//! others go on, with every kernel that chooses, fed by the device or by the host.

use std::ops::ControlFlow;
use std::sync::Arc;

use tilewright_codegen::ir::Arch;
use tilewright_graph::models::Llama;
use tilewright_kernels::naive::Sampling;
use tilewright_kernels::sample::Request;
use tilewright_megakernel::vm::graph::{AnyGraph, GraphWeights, PeerWeights, Scratch};
use tilewright_megakernel::vm::{MAX_ENDS, NO_TOKEN};
use tilewright_megakernel::weights::Weights;

use super::damaged::{Damage, Damaged, until_damage};
use super::devices::{devices, planned as planned_on, small};
use super::lab::{PAGES, Rows, device, packed_of, planned, program, random, sampled, tiny};

const STEPS: usize = 5;
/// What the two rows begin with.
const FIRST: [i32; 2] = [3, 90];
const PAGES_OF: [[i32; PAGES]; 2] = [[5, 17, 2, 9, 23, 0, 11, 14], [1, 3, 20, 4, 22, 6, 8, 7]];

type SharedWeights = Arc<dyn Weights + Send + Sync>;

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Chooser {
    /// The largest of the logits.
    Argmax,
    /// The largest of what the product kept.
    Best,
    /// As requests say.
    Sample,
    /// The largest of the logits; the host feeds tokens back.
    ByHost,
    /// The first of two devices, at random.
    OnTwo,
}

const CHOOSERS: [Chooser; 5] = [Chooser::Argmax, Chooser::Best, Chooser::Sample, Chooser::ByHost, Chooser::OnTwo];

impl Chooser {
    fn spec(self) -> Llama {
        // No decode attention has heads of 32.
        let spec = if self == Chooser::ByHost { tiny(32) } else { tiny(64) };
        let spec = if self == Chooser::OnTwo { small(64) } else { spec };
        spec.layers(1).inner(32).tied(false)
    }

    fn machine(self, weights: SharedWeights) -> AnyGraph {
        let spec = self.spec();
        if self == Chooser::OnTwo {
            let step = planned_on(&spec, [17, 2], true);
            return PeerWeights::new(&devices(2, 2), &weights).machine(step, None, &mut |_, _| ()).unwrap();
        }
        let device = device(Arch::Sm90a, 5);
        let mut graphs = GraphWeights::new(device.clone(), Arc::clone(&weights));
        if self == Chooser::Best {
            graphs.share(&packed_of(weights, program(&spec, 1, 3), device));
        }
        let step = if self == Chooser::Sample { sampled(&spec, 17) } else { planned(&spec, 17) };
        let machine = graphs.machine(step, None, &mut |_, _| ()).unwrap();
        let keeps = machine.plan().scratch.iter().any(|(scratch, _)| *scratch == Scratch::WantedBests);
        assert_eq!(keeps, self == Chooser::Best);
        AnyGraph::One(Box::new(machine))
    }

    fn draws(self) -> Vec<Request> {
        let warm = Sampling::new(0.9, Some(20), 0.95, 3).unwrap();
        let draws = [Request::new(&warm, 7, 0), Request::new(&warm, 2, 1)];
        if matches!(self, Chooser::Sample | Chooser::OnTwo) { draws.to_vec() } else { vec![] }
    }
}

fn rows() -> Rows {
    let mut rows = Rows::default();
    FIRST.iter().zip(&PAGES_OF).for_each(|(token, pages)| rows.add(&[*token], 0, pages));
    rows.idle(17)
}

/// The tokens of each step.
fn run(machine: &mut AnyGraph, chooser: Chooser, ends: &[u32]) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    let told = machine.run_until(&rows().view(), STEPS, &chooser.draws(), &[ends; 17], &mut |tokens| {
        assert!(tokens[2..].iter().all(|&token| token == NO_TOKEN));
        seen.push(tokens[..2].to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(told.unwrap(), seen.len());
    seen
}

#[test]
fn a_model_whose_logits_are_all_infinite_or_nan_has_no_token() {
    for chooser in CHOOSERS {
        for logit in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
            let mut machine = chooser.machine(Arc::new(Damaged::new(&chooser.spec(), Damage::Logits(logit))));
            let mut logits = Vec::new();
            machine.step(&rows().view(), &[0, 1], &mut |_, row| logits.extend_from_slice(row)).unwrap();
            assert!(logits.iter().all(|x| *x == logit || (x.is_nan() && logit.is_nan())), "{chooser:?}: {logits:?}");
            let found = machine.choose(&rows().view(), &[1, 0], &chooser.draws()).unwrap();
            assert_eq!(found, [NO_TOKEN; 2], "{chooser:?}, {logit}");
            assert_eq!(run(&mut machine, chooser, &[]), [[NO_TOKEN; 2]], "{chooser:?}, {logit}");
        }
    }
}

#[test]
fn a_row_that_has_no_token_ends_and_the_others_go_on() {
    for chooser in CHOOSERS {
        let healthy = run(&mut chooser.machine(Arc::new(random(&chooser.spec()))), chooser, &[]);
        assert_eq!(healthy.len(), STEPS);
        // A token that a row chooses first in some step, and that the other row is not fed: the row
        // has none in the step after it.
        let is_new = |step: usize, row: usize| {
            let token = healthy[step][row];
            let before = healthy[..step].iter().any(|tokens| tokens[row] == token);
            let other = healthy.iter().any(|tokens| tokens[1 - row] == token);
            !before && !other && FIRST.iter().all(|&first| first as u32 != token)
        };
        let places = (0..STEPS - 1).flat_map(|step| [(step, 0), (step, 1)]);
        let (step, row) = places.rev().find(|&(step, row)| is_new(step, row)).expect("a new token");
        let token = healthy[step][row];
        let expected = until_damage(&healthy, &FIRST, token, NO_TOKEN);
        assert_eq!((expected[step][row], expected[step + 1][row], expected.len()), (token, NO_TOKEN, STEPS));
        let mut machine = chooser.machine(Arc::new(Damaged::new(&chooser.spec(), Damage::Token(token))));
        let chosen = |end: &u32| healthy.iter().flatten().any(|token| token == end);
        let others: Vec<u32> = (0..136).filter(|end| !chosen(end)).take(MAX_ENDS).collect();
        // None of the places of ends is free where there are as many as that.
        for ends in [&[][..], &others] {
            assert_eq!(run(&mut machine, chooser, ends), expected, "{chooser:?}, {ends:?}");
        }
    }
}
