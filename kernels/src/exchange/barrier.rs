//! A barrier of devices between launches: writes of all devices before it are visible after it.

use tilewright_codegen::build::{Builder, Global, Ptr, Val, block, record};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};
use tilewright_codegen::ir::{Arch, Kernel};

use crate::pdl::trigger_and_wait;
use crate::tile::MAX_DEVICES;

/// Words of a device's memory that barriers use, zeros before the first but for
/// [`BARRIER_POLLS`]. The first [`MAX_DEVICES`] count the barriers at which each of the others has
/// arrived; a device writes its word of each.
pub const BARRIER_WORDS: u32 = MAX_DEVICES as u32 + 3;
/// The word that counts barriers that this device has passed.
pub const BARRIER_LEFT: u32 = MAX_DEVICES as u32;
/// The word that has a bit for each device that this one gave up waiting for.
pub const BARRIER_GAVE_UP: u32 = MAX_DEVICES as u32 + 1;
/// The word that holds how often a device polls for another before it gives up, set by the host:
/// 2^24 polls take some ten seconds where one takes 0.6 µs.
pub const BARRIER_POLLS: u32 = MAX_DEVICES as u32 + 2;

/// The kernel of one block that ends when each of `devices` devices, at most [`MAX_DEVICES`],
/// has begun its barrier of that number, all whose earlier launches have ended by then. The writes
/// of these launches, in this device's memory or another's, are visible to later launches of all
/// devices. Parameters: `rank` (u32, this device's number), `words0`, `words1` and so on (u32,
/// [`BARRIER_WORDS`] of each device).
///
/// A device that waits too long stores the number of the missing device in its word
/// [`BARRIER_GAVE_UP`]. It then waits at no barrier until the host has zeroed that word. It still
/// arrives at every barrier, so that no other device waits for it. Launches after a barrier that
/// was given up may read anything: the host checks the word before it uses a result.
///
/// ```
/// use tilewright_codegen::device::{Arg, launch_side_by_side, sim};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::verify::verify;
/// use tilewright_kernels::exchange::{BARRIER_POLLS, BARRIER_WORDS, device_barrier};
///
/// let devices = sim::peers(&sim::Options::default(), 2);
/// let kernel = verify(device_barrier(Arch::Sm90a, 2))?;
/// let streams = [devices[0].stream()?, devices[1].stream()?];
/// let mut before = [0u32; BARRIER_WORDS as usize];
/// before[BARRIER_POLLS as usize] = 1 << 24;
/// let words = [0, 1].map(|at: usize| streams[at].buffer(&before).unwrap());
/// let work = |at: usize| devices[at].load(&kernel)?.work(1, &[
///     (at as u32).into(), Arg::peer(&words[0]), Arg::peer(&words[1]),
/// ]);
/// launch_side_by_side(&[(&streams[0], work(0)?), (&streams[1], work(1)?)])?;
/// assert_eq!(streams[1].read(&words[1])?, [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1 << 24]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn device_barrier(arch: Arch, devices: u32) -> Kernel {
    record("meet", arch, block(32), |k: &Builder| {
        if !(1..=MAX_DEVICES as u32).contains(&devices) {
            return k.refuse(&format!("{devices} devices: a barrier takes 1 to {MAX_DEVICES}"));
        }
        let rank = k.param::<u32>("rank");
        let words: Vec<Ptr<Global, u32>> = (0..devices).map(|at| k.global::<u32>(&format!("words{at}"))).collect();
        trigger_and_wait(k);
        wait_for_devices(rank, &words);
    })
}

/// The barrier of [`device_barrier`] as a device function of one warp: what its lanes wrote before
/// is visible to the lanes of every device's warp after this and a barrier of that warp.
pub fn wait_for_devices<'k>(rank: Val<'k, u32>, words: &[Ptr<'k, Global, u32>]) {
    let k = rank.builder();
    let devices = words.len() as u32;
    for (device, &mine) in (0u32..).zip(words) {
        k.when(rank.eq(device), || {
            let [left, gave_up, most] = [BARRIER_LEFT, BARRIER_GAVE_UP, BARRIER_POLLS].map(|word| mine.at(word));
            let number = left.load() + 1;
            let waits = gave_up.load().eq(0);
            let most = most.load();
            // Lane 0 writes what all lanes have read.
            k.sync_warp();
            for (other, theirs) in (0u32..).zip(words).filter(|&(other, _)| other != device) {
                k.when(k.lane().eq(other), || theirs.at(device).store_release(number, Scope::Sys));
            }
            k.when(k.lane().lt(devices) & k.lane().ne(device), || {
                let polls = k.var(0u32);
                k.loop_(|| {
                    let seen = mine.at(k.lane()).load_acquire(Scope::Sys);
                    k.break_if((seen - number).cast::<i32>().ge(0) | !waits);
                    polls.set(polls.get() + 1);
                    let late = polls.get().ge(most);
                    k.when(late, || gave_up.red(AtomOp::Or, k.lit(1u32) << k.lane(), RedOrder::Relaxed(Scope::Gpu)));
                    k.break_if(late);
                });
            });
            k.when(k.lane().eq(0), || left.store(number));
        });
    }
}
