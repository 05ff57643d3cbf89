//! Processes that share the pieces. The driver compiles one kernel at a time in a process, and a
//! kernel that the hardware ends takes the device from its process; so each core has a process, and
//! one that ends is replaced.

use crate::tally::Tally;
use crate::work::{Piece, pieces};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tilewright_codegen::device::{Device, Name};

/// The argument that makes a process a worker.
pub const WORKER: &str = "worker";

/// The line that ends the output of a piece.
const END: &str = "end";

/// The number of groups that a process reduces: if all differ, a few show why.
const REDUCED: usize = 2;

/// The time limit for a process without output: longer than the reduction of a group. A compiler or
/// a kernel that does not end is a fault.
const SILENCE: Duration = Duration::from_secs(90);

/// Reads numbers of pieces from standard input, compares each piece, and prints the results.
pub fn work(device: &Device, pieces: &[Piece]) {
    let mut reduced = 0;
    for line in std::io::stdin().lines() {
        let Some(piece) = line.ok().and_then(|line| pieces.get(line.parse::<usize>().ok()?)) else { break };
        reduced += usize::from(piece.compare(device, reduced < REDUCED, &mut |line| println!("{line}")));
        println!("{END}");
    }
}

/// A worker, as its parent sees it.
struct Worker {
    process: Child,
    asks: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    fn new(run: u64, programs: u64, device: Name) -> std::io::Result<Worker> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([WORKER, &run.to_string(), &programs.to_string(), &device.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = (process.stdin.take(), process.stdout.take());
        let (Some(asks), Some(answers)) = pipes else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
        let (said, heard) = channel();
        std::thread::spawn(move || {
            BufReader::new(answers).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Ok(Worker { process, asks, answers: heard })
    }

    /// Tells the lines of a piece as they come; whether the process can go on.
    fn compare(&mut self, number: usize, tell: &mut dyn FnMut(&str)) -> bool {
        // A device that is lost stays lost for its process.
        let mut lost = false;
        let mut last = String::from("nothing");
        if writeln!(self.asks, "{number}").is_ok() {
            loop {
                match self.answers.recv_timeout(SILENCE) {
                    Ok(line) if line == END => return !lost,
                    Ok(line) => {
                        lost |= line.starts_with("fault");
                        tell(&line);
                        last = line;
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        let silence = SILENCE.as_secs();
                        tell(&format!("fault piece {number} does not end: silent for {silence} s, said last: {last}"));
                        // A process that is gone already is what is wanted.
                        let _ = self.process.kill();
                        return false;
                    }
                }
            }
        }
        tell(&format!("fault the process that ran piece {number} ended"));
        false
    }

    fn end(self) {
        let Worker { mut process, asks, .. } = self;
        drop(asks);
        // It ends when its input does; how, its lines have told.
        let _ = process.wait();
    }
}

/// Compares everything, by as many processes as there are cores.
pub fn share(run: u64, programs: u64, device: Name) -> Result<Tally, String> {
    let pieces = pieces(run, programs);
    let count = pieces.len();
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    let failed = AtomicU64::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut worker = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let mut mine: Worker = match worker.take().map_or_else(|| Worker::new(run, programs, device), Ok) {
                        Ok(mine) => mine,
                        Err(_) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    };
                    let mut tell = |line: &str| {
                        tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner).line(line);
                    };
                    let sound = mine.compare(number, &mut tell);
                    if !sound {
                        tell(&format!("text piece {number}: {}", pieces[number].name()));
                    }
                    if sound {
                        worker = Some(mine);
                    } else {
                        mine.end();
                    }
                }
                if let Some(worker) = worker {
                    worker.end();
                }
            });
        }
    });
    match failed.into_inner() {
        0 => Ok(tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)),
        many => Err(format!("{many} processes could not be started")),
    }
}
