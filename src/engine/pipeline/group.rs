//! The process group that a launcher started this process in, from its environment variables.
//!
//! | launcher | rank | size | rank on the host |
//! |---|---|---|---|
//! | torchrun | `RANK` | `WORLD_SIZE` | `LOCAL_RANK` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK` |
//! | MPICH, Intel MPI | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALRANKID` |
//! | Slurm, in a step of `srun` | `SLURM_PROCID` | `SLURM_NTASKS` | `SLURM_LOCALID` |
//! | LeaderWorkerSet | `LWS_WORKER_INDEX` | `LWS_GROUP_SIZE` | 0 |
//!
//! The first launcher whose rank or size is set counts. Only this module reads these variables.

use std::ffi::OsString;
use std::fmt;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::input::{self, InputError};

/// Most processes of a group.
pub const MOST_RANKS: usize = 64;
/// Bytes of a secret on the wire; shorter secrets end with zeros.
pub(super) const SECRET_BYTES: usize = 64;
/// Fewest bytes of a secret.
const LEAST_SECRET: usize = 16;
/// The port if no variable names one, which is torchrun's default.
const PORT: u16 = 29500;
/// Seconds that ranks wait for each other if no variable says so.
const TIMEOUT: f64 = 300.0;
/// The longest time without a heartbeat from a rank.
const SILENCE: Duration = Duration::from_secs(30);

const SECRET: &str = "TILEWRIGHT_GROUP_SECRET";
const SECRET_FILE: &str = "TILEWRIGHT_GROUP_SECRET_FILE";
const GROUP_PORT: &str = "TILEWRIGHT_GROUP_PORT";
const GROUP_TIMEOUT: &str = "TILEWRIGHT_GROUP_TIMEOUT";
const LWS_ADDRESS: &str = "LWS_LEADER_ADDRESS";
/// Set in a step of `srun` only: a batch script has Slurm's other variables, too.
const SLURM_STEP: &str = "SLURM_STEP_ID";

/// The variables of a launcher.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    local: Option<&'static str>,
    /// A variable without which the launcher did not start this process.
    needs: Option<&'static str>,
}

const fn launcher(rank: &'static str, size: &'static str, local: Option<&'static str>) -> Launcher {
    Launcher { rank, size, local, needs: None }
}

const LAUNCHERS: [Launcher; 5] = [
    launcher("RANK", "WORLD_SIZE", Some("LOCAL_RANK")),
    launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", Some("OMPI_COMM_WORLD_LOCAL_RANK")),
    launcher("PMI_RANK", "PMI_SIZE", Some("MPI_LOCALRANKID")),
    Launcher { needs: Some(SLURM_STEP), ..launcher("SLURM_PROCID", "SLURM_NTASKS", Some("SLURM_LOCALID")) },
    launcher("LWS_WORKER_INDEX", "LWS_GROUP_SIZE", None),
];

/// Why the environment does not describe a process group.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum GroupError {
    #[error("the environment variable {missing} is unset, and {set} is set; a launcher sets both")]
    Half { missing: &'static str, set: &'static str },
    #[error("the environment variable {variable} must be {expected}, got `{found}`")]
    Value { variable: &'static str, expected: String, found: String },
    #[error(
        "--tensor-parallel is {found}, and a launcher started no group of processes; start {found} with torchrun or srun, or give \
         --device cuda:A-B"
    )]
    Alone { found: usize },
    #[error("the environment variable MASTER_ADDR is unset; set it to the host of rank 0")]
    NoAddress,
    #[error(
        "neither {SECRET} nor {SECRET_FILE} is set; give all ranks one secret, such as the output of `openssl rand -hex 32`"
    )]
    NoSecret,
    #[error("{SECRET} and {SECRET_FILE} are both set; unset one")]
    TwoSecrets,
    #[error("the secret of {variable} must have {LEAST_SECRET} to {SECRET_BYTES} bytes, got {found}")]
    Secret { variable: &'static str, found: usize },
    #[error("the secret `{}` that {SECRET_FILE} names cannot be read", path.display())]
    SecretFile { path: PathBuf, source: SecretFileError },
}

/// Why the file with the secret cannot be read.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SecretFileError(#[from] InputError);

/// The secret that all ranks of a group share. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// The bytes that a rank sends.
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Whether these are the bytes, in a time that does not depend on where they differ.
    pub fn is(&self, found: &[u8]) -> bool {
        let differing = self.0.iter().zip(found).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
        differing == 0 && found.len() == SECRET_BYTES
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A process group, and this process's place in it. Rank 0 drives; the other ranks compute stages.
///
/// ```
/// use tilewright::engine::ProcessGroup;
/// let variables = [
///     ("RANK", "1"),
///     ("WORLD_SIZE", "2"),
///     ("LOCAL_RANK", "1"),
///     ("MASTER_ADDR", "10.0.0.1"),
///     ("MASTER_PORT", "29500"),
///     ("TILEWRIGHT_GROUP_SECRET", "0123456789abcdef"),
/// ];
/// let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
/// let group = ProcessGroup::of(value)?.expect("two processes");
/// assert_eq!((group.rank(), group.size(), group.local_rank()), (1, 2, Some(1)));
/// // A process that no launcher started is in no group.
/// assert!(ProcessGroup::of(|_| None)?.is_none());
/// # Ok::<(), tilewright::engine::GroupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    rank: usize,
    size: usize,
    local_rank: Option<usize>,
    host: String,
    port: u16,
    secret: Secret,
    timeout: Duration,
    tensor_parallel: usize,
}

impl ProcessGroup {
    /// The group that variables describe; none without a launcher, or for one process.
    ///
    /// # Errors
    /// If a variable is missing or has no valid value.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<ProcessGroup>, GroupError> {
        let variables = Variables(&variable);
        let Some(launcher) = LAUNCHERS.iter().find(|launcher| {
            let is_set = variables.is_set(launcher.rank) || variables.is_set(launcher.size);
            is_set && launcher.needs.is_none_or(|needed| variables.is_set(needed))
        }) else {
            return Ok(None);
        };
        let Launcher { rank, size, local, .. } = *launcher;
        let half = |missing, set| GroupError::Half { missing, set };
        let size_found = variables.number(size, 1, MOST_RANKS as u64)?.ok_or_else(|| half(size, rank))? as usize;
        let most = (size_found - 1) as u64;
        let rank_found = variables.number(rank, 0, most)?.ok_or_else(|| half(rank, size))? as usize;
        if size_found == 1 {
            return Ok(None);
        }
        let local = local.map(|local| variables.number(local, 0, most)).transpose()?.flatten();
        Ok(Some(ProcessGroup {
            rank: rank_found,
            size: size_found,
            local_rank: local.map(|local| local as usize),
            host: variables.host()?,
            port: variables.port()?,
            secret: variables.secret()?,
            timeout: variables.timeout()?,
            tensor_parallel: 1,
        }))
    }

    /// Lets this number of ranks share every layer, each with a shard of it: all ranks of the
    /// group, or with 1, which is the default, none: each rank then has layers of its own.
    #[must_use]
    pub fn with_tensor_parallel(self, ranks: usize) -> ProcessGroup {
        ProcessGroup { tensor_parallel: ranks, ..self }
    }

    /// The number of ranks that share every layer.
    pub fn tensor_parallel(&self) -> usize {
        self.tensor_parallel
    }

    /// The group that this process's environment describes.
    ///
    /// # Errors
    /// As [`ProcessGroup::of`].
    pub fn of_environment() -> Result<Option<ProcessGroup>, GroupError> {
        ProcessGroup::of(|name| std::env::var_os(name))
    }

    /// The rank of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The rank among the processes of this host, if the launcher says so.
    pub fn local_rank(&self) -> Option<usize> {
        self.local_rank
    }

    /// The time that ranks wait for each other to join, and for data of a step.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The host and port where rank 0 listens.
    pub(super) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The same as one text, for messages.
    pub(super) fn address_text(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The secret of the group.
    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The longest time without a heartbeat from a rank. It is shorter than waits for data, so
    /// that a rank that hangs is named, and not one that waits for it.
    pub(super) fn silence(&self) -> Duration {
        (self.timeout / 2).min(SILENCE)
    }

    /// The longest wait for data of a step. A rank waits longer than the ranks before it, and rank 0
    /// the longest, so that the first to give up is the one that waits for the cause.
    pub(super) fn data_timeout(&self) -> Duration {
        let place = if self.rank == 0 { self.size } else { self.rank };
        self.timeout.mul_f64(1.0 + place as f64 / 100.0)
    }
}

/// Reads variables; one that is set to nothing counts as unset.
struct Variables<'v>(&'v dyn Fn(&str) -> Option<OsString>);

impl Variables<'_> {
    fn is_set(&self, name: &str) -> bool {
        (self.0)(name).is_some_and(|value| !value.is_empty())
    }

    fn text(&self, name: &'static str) -> Result<Option<String>, GroupError> {
        let Some(value) = (self.0)(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let text = value.into_string();
        text.map(Some).map_err(|value| invalid(name, "UTF-8 text", &value.to_string_lossy()))
    }

    fn number(&self, name: &'static str, least: u64, most: u64) -> Result<Option<u64>, GroupError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| invalid(name, &format!("a number from {least} to {most}"), &text))
    }

    fn host(&self) -> Result<String, GroupError> {
        let found = match self.text("MASTER_ADDR")? {
            None => self.text(LWS_ADDRESS)?,
            found => found,
        };
        found.ok_or(GroupError::NoAddress)
    }

    /// The agent of torchrun may listen at MASTER_PORT itself; the port after it is then taken.
    fn port(&self) -> Result<u16, GroupError> {
        let most = u64::from(u16::MAX);
        if let Some(port) = self.number(GROUP_PORT, 1, most)? {
            return Ok(port as u16);
        }
        let is_agents =
            self.text("TORCHELASTIC_USE_AGENT_STORE")?.is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let most = most - u64::from(is_agents);
        let port = self.number("MASTER_PORT", 1, most)?.map_or(PORT, |port| port as u16);
        Ok(port + u16::from(is_agents))
    }

    fn timeout(&self) -> Result<Duration, GroupError> {
        let Some(text) = self.text(GROUP_TIMEOUT)? else { return Ok(Duration::from_secs_f64(TIMEOUT)) };
        let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| invalid(GROUP_TIMEOUT, "a number of seconds from 0.1 to 3600", &text))?;
        Ok(Duration::from_secs_f64(seconds))
    }

    fn secret(&self) -> Result<Secret, GroupError> {
        let (variable, text) = match (self.text(SECRET)?, (self.0)(SECRET_FILE).filter(|path| !path.is_empty())) {
            (None, None) => return Err(GroupError::NoSecret),
            (Some(_), Some(_)) => return Err(GroupError::TwoSecrets),
            (Some(text), None) => (SECRET, text),
            (None, Some(path)) => {
                let path = PathBuf::from(path);
                let text = input::read(&path, 4096);
                let unread = |source| GroupError::SecretFile { path, source: SecretFileError(source) };
                (SECRET_FILE, text.map_err(unread)?)
            }
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if !(LEAST_SECRET..=SECRET_BYTES).contains(&text.len()) {
            return Err(GroupError::Secret { variable, found: text.len() });
        }
        let mut secret = [0; SECRET_BYTES];
        secret[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Secret(secret))
    }
}

/// The error of a value, shortened to a line that can be read.
fn invalid(variable: &'static str, expected: &str, found: &str) -> GroupError {
    let found = found.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    GroupError::Value { variable, expected: expected.to_owned(), found }
}
