//! Random programs: well defined whatever the seed, the same under any interleaving, and with the
//! results of a GPU.

mod kit;

use kit::batch::{Batch, Plan};
use kit::corpus::{check_multiply, read_programs};
use kit::flow::{drawn_rows, seed_of};
use kit::matrix::{Case, Class, forms};
use kit::shrink::{shrink, statements};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::ir::{Arch, rows};
use tilewright_codegen::ptx;

const PROGRAMS: &str = include_str!("corpus/programs.txt");
const MULTIPLIES: &str = include_str!("corpus/multiplies.txt");

/// Rows that no program draws, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("clock", "a fact about the machine"),
    ("activemask", "a fact about the machine"),
    ("exit", "a thread that is missing makes what follows undefined"),
    ("trap", "the context is lost"),
    ("print", "no effect on values"),
    ("assert", "the context is lost"),
    ("setmaxnreg", "no effect on values"),
    ("mbarrier.inval", "no effect on values"),
    ("barrier.cluster.arrive", "clusters: the gallery"),
    ("barrier.cluster.wait", "clusters: the gallery"),
    ("cp.async.bulk.s2c", "clusters: `sim_tensors`"),
    ("cp.async.mbarrier.arrive", "copies of many threads on one mbarrier: the gallery"),
    ("cp.async.bulk.s2g", "stores of the copy engine: the gallery"),
    ("cp.async.bulk.commit_group", "stores of the copy engine: the gallery"),
    ("cp.async.bulk.wait_group", "stores of the copy engine: the gallery"),
    ("cp.async.bulk.prefetch.l2", "a hint of the copy engine"),
    ("cp.async.bulk.prefetch.tensor", "a hint of the copy engine"),
    ("cp.reduce.async.bulk.s2g", "reductions of the copy engine: `sim_tensors`"),
    ("cp.reduce.async.bulk.s2c", "reductions of the copy engine: `sim_tensors`"),
    ("cp.reduce.async.bulk.tensor", "reductions of the copy engine: `sim_tensors`"),
    ("cp.async.bulk.tensor.load", "tensor maps: the gallery and `sim_tensors`"),
    ("cp.async.bulk.tensor.store", "tensor maps: the gallery and `sim_tensors`"),
    ("prefetch.tensormap", "tensor maps: the gallery"),
    ("wgmma.fence", "in every multiply of the corpus"),
    ("wgmma.commit_group", "in every multiply of the corpus"),
    ("wgmma.wait_group", "in every multiply of the corpus"),
];

fn batch(rows: &[&'static tilewright_codegen::ir::InstRow], plans: &[Plan]) -> Batch {
    Batch::new(rows, plans).unwrap_or_else(|text| panic!("{text}"))
}

#[test]
fn programs_are_well_defined_and_deterministic() {
    let rows = drawn_rows();
    for run in 0..16 {
        let plans: Vec<Plan> = (run * 25..(run + 1) * 25).map(|n| Plan::Mixed(seed_of(1, n))).collect();
        let batch = batch(&rows, &plans);
        let [results, again] =
            [run, run + 1000].map(|seed| batch.simulate(seed).unwrap_or_else(|text| panic!("{text}")));
        let differences = batch.differences(&results, &again);
        assert!(differences.is_empty(), "{differences:#?}\n{}", batch.kernel.kernel());
    }
}

#[test]
fn programs_assemble() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let rows = drawn_rows();
    let singles: Vec<Plan> = rows.iter().map(|row| Plan::Single(seed_of(3, 0), row)).collect();
    let mixed: Vec<Plan> = (0..60).map(|n| Plan::Mixed(seed_of(3, n))).collect();
    for plans in [singles, mixed] {
        let said = ptxas.assemble(Arch::Sm90a, &ptx::emit(&batch(&rows, &plans).kernel)).unwrap();
        assert!(said.warnings.is_empty(), "{:#?}", said.warnings);
    }
}

#[test]
fn the_simulator_gives_what_the_gpu_gave() {
    let programs = read_programs(PROGRAMS).unwrap_or_else(|text| panic!("{text}"));
    let count: usize = programs.groups.iter().map(|group| group.plans.len()).sum();
    assert!(count >= 300, "the corpus has {count} programs");
    for group in &programs.groups {
        let wrong = group.check(&programs.rows).unwrap_or_else(|text| panic!("{text}"));
        assert!(wrong.is_empty(), "differs from the GPU:\n{}", wrong.join("\n"));
    }
}

#[test]
fn the_simulator_multiplies_as_the_gpu_did() {
    let mut values = 0;
    for line in MULTIPLIES.lines() {
        values += check_multiply(line).unwrap_or_else(|text| panic!("{text}"));
    }
    assert!(values > 100_000, "the corpus has {values} values");
}

#[test]
fn every_row_is_in_the_corpus_or_tried_elsewhere() {
    let programs = read_programs(PROGRAMS).unwrap_or_else(|text| panic!("{text}"));
    let mut used = BTreeSet::new();
    for group in &programs.groups {
        used.extend(batch(&programs.rows, &group.plans).counts.into_keys());
    }
    for form in forms(1) {
        used.insert(match form {
            kit::matrix::Form::Mma(_) => "mma.sync",
            kit::matrix::Form::Wgmma { a: kit::matrix::Left::Registers, .. } => "wgmma.rs",
            kit::matrix::Form::Wgmma { .. } => "wgmma.ss",
        });
    }
    let missing: Vec<&str> = rows()
        .map(|row| row.mnemonic)
        .filter(|row| !used.contains(row) && !ELSEWHERE.iter().any(|(name, _)| name == row))
        .collect();
    assert!(missing.is_empty(), "no program has {missing:?}: record the corpus anew, or say where they are tried");
    let both: Vec<&str> = ELSEWHERE.iter().map(|(name, _)| *name).filter(|name| used.contains(name)).collect();
    assert!(both.is_empty(), "programs have {both:?}");
}

#[test]
fn a_corpus_that_is_out_of_date_says_what_to_do() {
    let stale = PROGRAMS.replacen("group ", "group 1", 1);
    let said = read_programs(&stale).and_then(|programs| programs.groups[0].check(&programs.rows)).unwrap_err();
    assert!(said.contains("--example fuzz_device"), "{said}");
    let mut wrong: Vec<&str> = MULTIPLIES.lines().next().unwrap_or_default().split(' ').collect();
    wrong[7] = "12345678";
    assert!(check_multiply(&wrong.join(" ")).unwrap_err().contains("differs from the GPU"));
}

#[test]
fn a_program_shrinks_to_what_matters() {
    let row = rows().find(|row| row.mnemonic == "popc").expect("a row");
    let program = batch(&drawn_rows(), &[Plan::Single(seed_of(4, 0), row)]);
    let before = statements(program.kernel.kernel()).len();
    let has = |batch: &Batch| ptx::emit(&batch.kernel).matches("popc.b64").count() > 0;
    let small = shrink(program, &mut |smaller| ControlFlow::Continue(has(smaller)));
    let text = small.kernel.kernel().to_string();
    assert!(text.contains("popc.u64") && !text.contains("popc.u32"), "{text}");
    assert!(statements(small.kernel.kernel()).len() <= 12, "{before} statements became\n{text}");
}

/// The caller's time is up: the smallest by then is given, and nothing further is tried.
#[test]
fn a_shrinker_stops_where_it_is_told_to() {
    let program = batch(&drawn_rows(), &[Plan::Mixed(seed_of(4, 1))]);
    let before = statements(program.kernel.kernel()).len();
    let mut asked = 0;
    let small = shrink(program, &mut |_| {
        asked += 1;
        if asked < 3 { ControlFlow::Continue(true) } else { ControlFlow::Break(()) }
    });
    assert_eq!(asked, 3);
    assert!(statements(small.kernel.kernel()).len() < before);
}

#[test]
fn matrices_multiply_in_every_form() {
    for (number, form) in (0..).zip(forms(1)) {
        let case = Case::new(form, &[Class::Float], number).unwrap_or_else(|text| panic!("{text}"));
        let results = case.simulate().unwrap_or_else(|text| panic!("{text}"));
        let judge = |found: &[u32]| case.judge(&results, found).unwrap_or_else(|text| panic!("{text}"));
        assert_eq!((judge(&results).wrong, judge(&results).near), (0, 0));
        let mut other = results.clone();
        other[5] ^= 0x4000_0000;
        assert_eq!(judge(&other).wrong, 1, "{}: a wrong result must be seen", case.name);
    }
}
