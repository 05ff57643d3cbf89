//! The host's side of device barriers: their timeout, and the device that an error comes from.

use std::time::{Duration, Instant};

use tilewright_codegen::device::{Buffer, DeviceError};
use tilewright_kernels::exchange::{BARRIER_GAVE_UP, BARRIER_POLLS, BARRIER_WORDS};

use super::launch::Scratch;
use super::machine::GraphMachine;
use super::peers::GraphPeers;
use crate::vm::LaunchError;

/// Polls of a device in three microseconds, by estimate.
const POLLS: u128 = 5;
/// How much longer the host waits for the devices' ends.
const GRACE: Duration = Duration::from_secs(5);

/// A device's words for barriers, where its program has them.
fn words(machine: &GraphMachine) -> Result<Option<Buffer<u32>>, DeviceError> {
    machine.memory.scratch.get(&Scratch::Meetings).map(|words| words.cast()).transpose()
}

impl GraphPeers {
    /// Sets the timeout of a device barrier, after which the step fails (ten seconds by default).
    ///
    /// # Errors
    /// If a device fails.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<(), LaunchError> {
        self.wait()?;
        self.timeout = timeout;
        Ok(self.reset_barriers()?)
    }

    /// Resets the barriers; after the end of all launches.
    pub(super) fn reset_barriers(&self) -> Result<(), DeviceError> {
        let polls = (self.timeout.as_micros() * POLLS / 3).clamp(1, u128::from(u32::MAX));
        let mut before = [0u32; BARRIER_WORDS as usize];
        before[BARRIER_POLLS as usize] = polls as u32;
        for machine in &self.machines {
            if let Some(words) = words(machine)? {
                machine.stream.upload(&before, &words)?;
            }
        }
        // A device writes words of its peers: all are set before any begins.
        self.machines.iter().try_for_each(|machine| machine.stream.wait())
    }

    /// Fails where a device waited in vain at a barrier; after the end of all launches.
    pub(super) fn check_barriers(&self) -> Result<(), LaunchError> {
        let devices = self.machines.len();
        let timeout = self.timeout;
        for (waiting, machine) in self.machines.iter().enumerate() {
            let gave_up = || match words(machine)? {
                Some(words) => Ok(machine.stream.read(&words)?[BARRIER_GAVE_UP as usize]),
                None => Ok(0),
            };
            let gave_up: u32 = self.named(waiting, gave_up())?;
            if gave_up != 0 {
                let device = gave_up.trailing_zeros() as usize;
                return Err(LaunchError::Absent { device, devices, waiting, timeout });
            }
        }
        Ok(())
    }

    /// The cause of an error of a queued step. A lost device outranks the reports of peers that
    /// waited for it.
    ///
    /// If no device is lost, the barrier counters are reset, since devices may have reached
    /// different barriers.
    pub(super) fn judged(&self, error: LaunchError) -> LaunchError {
        let devices = self.machines.len();
        let begun = Instant::now();
        // A device that waits at a barrier gives it up, and later barriers at once.
        let runs = || self.machines.iter().any(|machine| matches!(machine.stream.done(), Ok(false)));
        while runs() && begun.elapsed() < self.timeout + GRACE.min(self.timeout) {
            std::thread::sleep(Duration::from_micros(50));
        }
        let ended = !runs();
        let lost = |(device, machine): (usize, &GraphMachine)| Some((device, machine.stream.done().err()?));
        if let Some((device, source)) = self.machines.iter().enumerate().find_map(lost) {
            return LaunchError::OneOf { device, devices, ended, source: Box::new(source) };
        }
        match ended.then(|| self.reset_barriers()) {
            None | Some(Ok(())) => error,
            Some(Err(source)) => source.into(),
        }
    }
}
