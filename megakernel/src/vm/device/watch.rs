//! The host's eye on a launch: tokens as they come, an end on demand, and a watchdog.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tilewright_codegen::device::{DeviceError, Mapped, Stream};

use super::status;
use crate::vm::AbortHandle;

/// How long a launch that was told to end may take to end, unless the host waits less for a
/// step.
const GRACE: Duration = Duration::from_secs(5);
/// The time that the host polls without a pause: about a token of a large model.
const EAGER: Duration = Duration::from_millis(20);

/// The callback for the tokens of a launch, step by step; `Break` ends the launch.
pub(super) type EachStep<'e> = &'e mut dyn FnMut(&[u32]) -> ControlFlow<()>;

/// A launch under way.
pub(super) struct Watch<'w> {
    /// A stream of each device.
    pub streams: &'w [&'w Stream],
    pub status: &'w Mapped<u32>,
    pub abort: &'w AbortHandle,
    /// How long a step may take.
    pub timeout: Duration,
    /// Rows of the batch.
    pub rows: usize,
}

/// The way in which a launch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself: see the status words.
    Itself,
    /// The callback ended the launch; `steps` steps were delivered.
    Enough { steps: u32 },
    /// The host asked for the end, since no step ended for too long.
    Hung,
    /// The launch did not end.
    Never,
}

impl Watch<'_> {
    fn word(&self, at: u32) -> Result<u32, DeviceError> {
        self.status.load(at as usize)
    }

    /// Steps that ended.
    pub fn steps(&self) -> Result<u32, DeviceError> {
        self.word(status::STEPS)
    }

    fn ask_for_the_end(&self) -> Result<(), DeviceError> {
        self.status.store(status::ABORT as usize, 1)
    }

    /// Waits for the end.
    pub fn run(&self, each: EachStep) -> Result<Ended, DeviceError> {
        let begun = Instant::now();
        let mut moved = Instant::now();
        let mut taken = 0;
        let mut enough = false;
        loop {
            let done = match self.done() {
                Ok(done) => done,
                Err(error) => return self.end_the_others(error),
            };
            let steps = self.steps()?;
            while taken < steps && !enough {
                enough = each(&self.tokens(taken)?).is_break();
                (taken, moved) = (taken + 1, Instant::now());
            }
            if done {
                return Ok(if enough { Ended::Enough { steps: taken } } else { Ended::Itself });
            }
            if enough || self.abort.is_set() {
                self.ask_for_the_end()?;
                match self.settle() {
                    Ok(true) => {}
                    Ok(false) => return Ok(Ended::Never),
                    Err(error) => return self.end_the_others(error),
                }
            }
            if moved.elapsed() > self.timeout {
                self.ask_for_the_end()?;
                return match self.settle() {
                    Ok(true) => Ok(Ended::Hung),
                    Ok(false) => Ok(Ended::Never),
                    Err(error) => self.end_the_others(error),
                };
            }
            if begun.elapsed() > EAGER {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Whether the launch has ended on every device.
    fn done(&self) -> Result<bool, DeviceError> {
        self.streams.iter().try_fold(true, |all, stream| Ok(stream.done()? && all))
    }

    /// A device failed: the others, which wait for it, are told to end. The error is the device's,
    /// or that they do not.
    pub fn end_the_others(&self, error: DeviceError) -> Result<Ended, DeviceError> {
        if self.streams.len() > 1 {
            self.ask_for_the_end()?;
            let begun = Instant::now();
            // A device that failed has ended, too.
            while self.streams.iter().any(|stream| matches!(stream.done(), Ok(false))) {
                if begun.elapsed() > self.grace() {
                    return Ok(Ended::Never);
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        Err(error)
    }

    fn grace(&self) -> Duration {
        GRACE.min(self.timeout)
    }

    /// Whether the launch ends in time.
    fn settle(&self) -> Result<bool, DeviceError> {
        let begun = Instant::now();
        while !self.done()? {
            if begun.elapsed() > self.grace() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(true)
    }

    /// The tokens of a step that ended.
    fn tokens(&self, step: u32) -> Result<Vec<u32>, DeviceError> {
        let first = status::TOKENS as usize + step as usize * self.rows;
        (first..first + self.rows).map(|at| self.status.load(at)).collect()
    }
}
