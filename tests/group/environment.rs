//! The variables of launchers, and the command line in a process group.

use std::collections::BTreeMap;
use std::process::Command;

use proptest::prelude::*;
use tilewright::engine::ProcessGroup;

use crate::{SECRET, model};

type Variables = BTreeMap<&'static str, String>;

fn group(variables: &Variables) -> Result<Option<ProcessGroup>, String> {
    ProcessGroup::of(|name| variables.get(name).map(Into::into)).map_err(|error| error.to_string())
}

/// Variables besides those of a launcher.
fn common() -> Variables {
    let address = [("MASTER_ADDR", "10.0.0.1"), ("TILEWRIGHT_GROUP_SECRET", SECRET)];
    address.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

fn with(variables: &[(&'static str, &str)]) -> Variables {
    let mut all = common();
    all.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
    all
}

/// Rank, size and rank on the host of each launcher.
const LAUNCHERS: [[&str; 3]; 5] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
    ["LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_GROUP_KEY"],
];

proptest! {
    #[test]
    fn the_variables_of_a_launcher_are_a_group(at in 0..LAUNCHERS.len(), size in 2usize..=64, rank in 0usize..64) {
        let [rank_name, size_name, local_name] = LAUNCHERS[at];
        let rank = rank % size;
        let (text, size_text, local) = (rank.to_string(), size.to_string(), (rank % 8).min(size - 1).to_string());
        let variables =
            with(&[(rank_name, &text), (size_name, &size_text), (local_name, &local), ("SLURM_STEP_ID", "0")]);
        let group = group(&variables).expect("valid").expect("a group");
        prop_assert_eq!((group.rank(), group.size()), (rank, size));
        // LeaderWorkerSet starts one process a pod.
        prop_assert_eq!(group.local_rank(), (at < 4).then(|| local.parse().expect("a number")));
    }

    /// Whatever the variables hold: a group whose rank is below its size, or one line that names a
    /// variable.
    #[test]
    fn any_variables_are_answered(values in prop::collection::vec(prop_oneof!["[0-9]{1,3}", "\\PC{0,8}", Just(String::new())], 8)) {
        let names =
            ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TILEWRIGHT_GROUP_SECRET", "TILEWRIGHT_GROUP_TIMEOUT", "TILEWRIGHT_GROUP_PORT"];
        let variables: Variables = names.into_iter().zip(values).collect();
        match group(&variables) {
            Ok(found) => prop_assert!(found.is_none_or(|group| group.rank() < group.size())),
            Err(error) => {
                prop_assert!(!error.contains('\n') && names.iter().any(|name| error.contains(name)), "{}", error);
            }
        }
    }
}

#[test]
fn one_process_is_no_group() {
    assert!(group(&Variables::new()).expect("valid").is_none());
    // Neither a secret nor an address is needed for it.
    let alone = [("RANK", "0"), ("WORLD_SIZE", "1")];
    assert!(group(&alone.map(|(name, value)| (name, value.to_owned())).into()).expect("valid").is_none());
    // A batch script of Slurm, outside of a step.
    assert!(group(&with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")])).expect("valid").is_none());
}

#[test]
fn torchrun_counts_before_slurm() {
    let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_STEP_ID", "0")];
    let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
    let group = group(&with(&[slurm, torchrun].concat())).expect("valid").expect("a group");
    assert_eq!((group.rank(), group.size(), group.local_rank()), (3, 4, Some(1)));
}

#[test]
fn a_variable_that_is_missing_or_wrong_is_named() {
    let error = |variables: &[(&'static str, &str)]| group(&with(variables)).expect_err("invalid");
    let torchrun = |rank: &'static str, size: &'static str| error(&[("RANK", rank), ("WORLD_SIZE", size)]);
    insta::assert_snapshot!(error(&[("RANK", "0")]), @"the environment variable WORLD_SIZE is unset, and RANK is set; a launcher sets both");
    insta::assert_snapshot!(error(&[("PMI_SIZE", "2")]), @"the environment variable PMI_RANK is unset, and PMI_SIZE is set; a launcher sets both");
    insta::assert_snapshot!(torchrun("2", "2"), @"the environment variable RANK must be a number from 0 to 1, got `2`");
    insta::assert_snapshot!(torchrun("-1", "2"), @"the environment variable RANK must be a number from 0 to 1, got `-1`");
    insta::assert_snapshot!(torchrun("0", "65"), @"the environment variable WORLD_SIZE must be a number from 1 to 64, got `65`");
    insta::assert_snapshot!(torchrun("0", "two\n"), @"the environment variable WORLD_SIZE must be a number from 1 to 64, got `two `");
    let error =
        |variables: &[(&'static str, &str)]| error(&[&[("RANK", "1"), ("WORLD_SIZE", "2")], variables].concat());
    insta::assert_snapshot!(error(&[("MASTER_ADDR", "")]), @"the environment variable MASTER_ADDR is unset; set it to the host of rank 0");
    insta::assert_snapshot!(error(&[("MASTER_PORT", "0")]), @"the environment variable MASTER_PORT must be a number from 1 to 65535, got `0`");
    insta::assert_snapshot!(error(&[("TILEWRIGHT_GROUP_TIMEOUT", "0")]), @"the environment variable TILEWRIGHT_GROUP_TIMEOUT must be a number of seconds from 0.1 to 3600, got `0`");
    insta::assert_snapshot!(error(&[("TILEWRIGHT_GROUP_SECRET", "")]), @"neither TILEWRIGHT_GROUP_SECRET nor TILEWRIGHT_GROUP_SECRET_FILE is set; give all ranks one secret, such as the output of `openssl rand -hex 32`");
    insta::assert_snapshot!(error(&[("TILEWRIGHT_GROUP_SECRET", "short")]), @"the secret of TILEWRIGHT_GROUP_SECRET must have 16 to 64 bytes, got 5");
    insta::assert_snapshot!(error(&[("TILEWRIGHT_GROUP_SECRET_FILE", "x")]), @"TILEWRIGHT_GROUP_SECRET and TILEWRIGHT_GROUP_SECRET_FILE are both set; unset one");
    insta::assert_snapshot!(error(&[("TILEWRIGHT_GROUP_SECRET", ""), ("TILEWRIGHT_GROUP_SECRET_FILE", "/nowhere")]), @"the secret `/nowhere` that TILEWRIGHT_GROUP_SECRET_FILE names cannot be read");
}

/// The secret is in no debug text of a group.
#[test]
fn the_secret_is_not_printed() {
    let group = group(&with(&[("RANK", "0"), ("WORLD_SIZE", "2")])).expect("valid").expect("a group");
    assert!(!format!("{group:?}").contains(SECRET), "{group:?}");
}

/// One line and exit code 2, at rank 0 and at the others, for each command that runs in a group.
#[test]
fn a_group_without_gpus_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("logits.safetensors");
    let (dir, out) = (model("tiny-llama"), out.to_str().expect("UTF-8").to_owned());
    let dir = dir.to_str().expect("UTF-8");
    let commands: [&[&str]; 3] = [
        &["generate", "--model", dir, "--prompt", "In the beginning"],
        &["logits", "--model", dir, "--prompt-ids", "1", "--out", &out],
        &["serve", "--model", dir, "--listen", "127.0.0.1:0"],
    ];
    for command in commands {
        for (rank, device) in [("0", None), ("1", None), ("0", Some("cpu:1")), ("1", Some("sim:1"))] {
            let mut process = Command::new(env!("CARGO_BIN_EXE_tilewright"));
            process.args(command).args(device.iter().flat_map(|device| ["--device", device]));
            process.envs(with(&[("RANK", rank), ("WORLD_SIZE", "2"), ("CUDA_VISIBLE_DEVICES", "")]));
            let output = process.output().expect("it runs");
            let line = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!(output.status.code(), Some(2), "{line}");
            let errors: Vec<&str> = line.lines().filter(|line| line.starts_with("error: ")).collect();
            let expected = "error: NCCL carries activations between the ranks of a process group, so each needs a GPU; give --device cuda:N, or unset WORLD_SIZE";
            assert_eq!(errors, [expected], "{line}");
        }
    }
    assert!(!folder.path().join("logits.safetensors").exists());
}
