//! Parts added up by NCCL, in whose place the host adds up what simulated devices have: the plan
//! without barriers, the logits, errors.

use tilewright_codegen::device::{Collective, DeviceError, open_peers};
use tilewright_kernels::tile::Float;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::graph::{
    AllReduce, Exchange, GraphFault, GraphPlan, Launch, LaunchArg, LaunchMemory, Scratch,
};

use super::devices::{BOUND, PAGES_OF, devices, exchanging, peers_by, planned, small, step, wide};
use super::lab::{Reference, Rows, prompt, worst};

/// Launches of a layer and sums between them take the place of barriers; the choice of tokens still
/// has one.
#[test]
fn sums_by_nccl_take_the_place_of_barriers() {
    let spec = small(32).layers(1);
    let step = planned(&spec, [17, 2], true);
    let of = |exchange| exchanging(&step, 1, exchange).unwrap();
    let names = |plan: &GraphPlan| -> Vec<String> {
        plan.launches.iter().map(|launch| plan.kernels[launch.kernel].name.clone()).collect()
    };
    let own = of(Exchange::Own);
    let nccl = of(Exchange::Nccl);
    let kinds = |names: &[String]| -> Vec<String> {
        let kind = |name: &String| name.split_once("_bf16").map_or(name.as_str(), |(kind, _)| kind).to_owned();
        names.iter().map(kind).map(|name| if name.starts_with("prefill") { "prefill".into() } else { name }).collect()
    };
    insta::assert_snapshot!(kinds(&names(&own)).join(" "), @"embed meet sum_parts meet rms_norm gemm rope_runs prefill gemm meet sum_rms_norm gemm gemm meet sum_rms_norm");
    insta::assert_snapshot!(kinds(&names(&nccl)).join(" "), @"embed rms_norm gemm rope_runs prefill gemm add_rms_norm gemm gemm add_rms_norm");
    assert_eq!(own.all_reduces, []);
    let width = 64;
    let rows = 17;
    let sum = |before, (float, to)| AllReduce { before, from: Scratch::Part, to, elements: rows * width, float };
    let before: Vec<usize> = nccl.all_reduces.iter().map(|sum| sum.before).collect();
    let [embedding, o, down] = before[..] else { panic!("{before:?}") };
    let added = (Float::Bf16, Scratch::Added);
    let expected = [sum(embedding, (Float::F32, Scratch::Residual)), sum(o, added), sum(down, added)];
    assert_eq!(nccl.all_reduces, expected);
    assert!(before.iter().all(|&before| names(&nccl)[before].ends_with("rms_norm")), "{before:?}");
    assert!(nccl.launches.iter().all(|launch| !nccl.is_barrier(launch)));
    assert!(nccl.choice.as_ref().unwrap().launches.iter().any(|launch| nccl.is_barrier(launch)));
}

/// However parts are exchanged: rows that devices have equally many of or not, and fewer than
/// devices.
#[test]
fn logits_by_every_exchange_are_those_of_the_reference() {
    let cases = [(small(64), 2, 33), (wide(32).layers(1), 4, 66), (wide(32).layers(1), 4, 18)];
    for (seed, (spec, count, tokens)) in (0..).zip(cases) {
        let mut rows = Rows::default();
        rows.add(&prompt(tokens.min(60), seed), 0, &PAGES_OF[0]);
        let on = devices(seed as u64, count);
        let reference = Reference::new(&spec, tokens).step(&rows);
        let errors = [Exchange::OneShot, Exchange::TwoShot, Exchange::Nccl].map(|exchange| {
            let found = step(&mut peers_by(exchange, &on, &spec, tokens, true), &rows);
            worst(&found, &reference)
        });
        println!("{count} devices, in one shot, in two, by NCCL: {errors:.4?}");
        assert!(errors.iter().all(|&error| error < BOUND), "{count} devices: {errors:?}");
    }
}

/// A part that peers may still read is not written: products of a step take two places in turn, and
/// the step ends with the one that the next does not begin with.
#[test]
fn parts_of_one_shot_take_turns() {
    for (layers, shared) in [(1, 2), (2, 4)] {
        let spec = wide(32).layers(layers);
        let step = planned(&spec, [33, shared], false);
        let plan = exchanging(&step, 1, Exchange::OneShot).unwrap();
        let name = |launch: &Launch| plan.kernels[launch.kernel].name.as_str();
        let read = |launch: &Launch| {
            launch.args.iter().find_map(|arg| match arg {
                LaunchArg::Pointer(LaunchMemory::Of { scratch, .. }) if *scratch != Scratch::Residual => Some(*scratch),
                LaunchArg::Pointer(_) | LaunchArg::Map(..) | LaunchArg::Number(_) | LaunchArg::Factor(_) => None,
            })
        };
        let norms: Vec<usize> =
            (0..plan.launches.len()).filter(|&at| name(&plan.launches[at]) == "sum_rms_norm").collect();
        let parts: Vec<Scratch> = norms.iter().filter_map(|&at| read(&plan.launches[at])).collect();
        assert_eq!(parts, [Scratch::Part, Scratch::OtherPart].repeat(layers));
        assert!(norms.iter().all(|&at| plan.is_barrier(&plan.launches[at - 1])));
        let barriers = plan.launches.iter().filter(|launch| plan.is_barrier(launch)).count();
        assert_eq!(barriers, 2 + 2 * layers, "two of the embedding, one of each sum");
    }
}

/// Two devices send as many bytes either way; more of them as long as a barrier takes longer than
/// what it saves.
#[test]
fn two_devices_and_few_rows_add_up_in_one_shot() {
    for (devices, rows, exchange) in [
        (2, 4096, Exchange::OneShot),
        (4, 1024, Exchange::OneShot),
        (4, 4096, Exchange::OneShot),
        (8, 4096, Exchange::TwoShot),
    ] {
        let spec = wide(32).layers(1).hidden(128).heads(16, 2);
        let step = planned(&spec, [rows, devices], false);
        let of = |exchange| exchanging(&step, 0, exchange).unwrap().launches;
        assert_eq!(of(Exchange::Own), of(exchange), "{rows} rows of {devices} devices");
        assert_ne!(of(Exchange::OneShot), of(Exchange::TwoShot));
    }
}

#[test]
fn a_device_that_launches_nothing_is_named_and_the_next_step_is_well() {
    let spec = small(32).layers(1);
    let mut machine = peers_by(Exchange::Nccl, &devices(0, 2), &spec, 17, true);
    let mut rows = Rows::default();
    rows.add(&prompt(17, 1), 0, &PAGES_OF[0]);
    let right = step(&mut machine, &rows);
    for absent in [0, 1] {
        machine.inject(GraphFault::Stays { device: absent, barrier: 0 });
        let error = machine.step(&rows.view(), &[], &mut |_, _| ()).unwrap_err();
        let LaunchError::Absent { device, devices: 2, waiting, .. } = error else { panic!("{error}") };
        assert_eq!((device, waiting), (absent, 1 - absent));
        machine.mend();
        assert!(step(&mut machine, &rows) == right, "after dev{absent}");
    }
}

/// On the GPUs that `TILEWRIGHT_PEERS` names: the logits of both exchanges, one that does not come,
/// and the step after it.
#[test]
fn gpus_add_up_by_nccl() {
    let Ok(name) = std::env::var("TILEWRIGHT_PEERS") else { return };
    let on = open_peers(&name).unwrap_or_else(|error| panic!("{error}"));
    let spec = wide(64).layers(2);
    let mut rows = Rows::default();
    rows.add(&prompt(60, 3), 0, &PAGES_OF[0]);
    let reference = Reference::new(&spec, 60).step(&rows);
    let mut own = peers_by(Exchange::Own, &on, &spec, 60, true);
    let mut nccl = peers_by(Exchange::Nccl, &on, &spec, 60, true);
    for _ in 0..3 {
        let errors = [&mut own, &mut nccl].map(|machine| worst(&step(machine, &rows), &reference));
        println!("{} devices, own and NCCL: {errors:.4?}", on.len());
        assert!(errors.iter().all(|&error| error < BOUND), "{errors:?}");
    }
    nccl.set_timeout(std::time::Duration::from_millis(500)).unwrap();
    let right = step(&mut nccl, &rows);
    nccl.inject(GraphFault::Stays { device: 1, barrier: 0 });
    let error = nccl.step(&rows.view(), &[59], &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, LaunchError::Absent { device: 1, waiting: 0, .. }), "{error}");
    nccl.mend();
    assert!(step(&mut nccl, &rows) == right, "after one that did not come");
}

/// Without a GPU or the library, asking for NCCL is an error.
#[test]
fn without_nccl_there_is_a_clear_answer() {
    let error = Collective::open(&devices(0, 2)).unwrap_err();
    assert!(matches!(error, DeviceError::NoCollective { .. }), "{error}");
}
