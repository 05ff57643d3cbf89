//! A meeting of devices between launches: what all of them wrote before is there behind it.

use tilewright_codegen::build::{Builder, Global, Ptr, block, record};
use tilewright_codegen::ir::attr::Scope;
use tilewright_codegen::ir::{Arch, Kernel};

use crate::early::early;
use crate::tile::MAX_DEVICES;

/// Words of a device's memory that meetings use, zeros before the first: for each device how many meetings it has come to, how many this one
/// has left, and whether it gave one up.
pub const MEET_WORDS: u32 = MAX_DEVICES as u32 + 2;

/// What the kernel is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeetShape {
    /// Devices that meet, at most [`MAX_DEVICES`].
    pub devices: u32,
    /// Polls of another device before it gives up: 2^24 take some ten seconds.
    pub polls: u32,
}

/// The kernel `meet`, of one block: ends when every device has begun its meeting of that number, all whose earlier launches have ended by then.
/// What these wrote, in this device's memory or another's, is what later launches of all read. Parameters: `rank` (u32), `words0`, `words1`
/// and so on (u32, [`MEET_WORDS`] of each device).
///
/// A device that waits too long sets the last of its words, and no longer waits in this meeting or another.
///
/// ```
/// use tilewright_codegen::device::{Arg, launch_side_by_side, sim};
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::verify::verify;
/// use tilewright_kernels::exchange::{MEET_WORDS, MeetShape, meet};
///
/// let devices = sim::peers(&sim::Options::default(), 2);
/// let kernel = verify(meet(Arch::Sm90a, MeetShape { devices: 2, polls: 1 << 24 }))?;
/// let streams = [devices[0].stream()?, devices[1].stream()?];
/// let words = [0, 1].map(|at: usize| streams[at].buffer(&[0u32; MEET_WORDS as usize]).unwrap());
/// let work = |at: usize| devices[at].load(&kernel)?.work(1, &[
///     (at as u32).into(), Arg::Address(words[0].address()), Arg::Address(words[1].address()),
/// ]);
/// launch_side_by_side(&[(&streams[0], work(0)?), (&streams[1], work(1)?)])?;
/// assert_eq!(streams[1].read(&words[1])?, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn meet(arch: Arch, shape: MeetShape) -> Kernel {
    let MeetShape { devices, polls: most } = shape;
    record("meet", arch, block(32), |k: &Builder| {
        let rank = k.param::<u32>("rank");
        let words: Vec<Ptr<Global, u32>> = (0..devices).map(|at| k.global::<u32>(&format!("words{at}"))).collect();
        early(k);
        for (device, &mine) in (0u32..).zip(&words) {
            k.when(rank.eq(device), || {
                let (left, gave_up) = (mine.at(MAX_DEVICES as u32), mine.at(MAX_DEVICES as u32 + 1));
                let (number, lost) = (left.load() + 1, gave_up.load().ne(0));
                k.sync_warp();
                for (other, theirs) in (0u32..).zip(&words) {
                    k.when(k.lane().eq(other), || theirs.at(device).store_release(number, Scope::Sys));
                }
                k.when(k.lane().lt(devices), || {
                    let polls = k.var(0u32);
                    k.loop_(|| {
                        let seen = mine.at(k.lane()).load_acquire(Scope::Sys);
                        k.break_if((seen - number).cast::<i32>().ge(0) | lost);
                        polls.set(polls.get() + 1);
                        let late = polls.get().ge(most);
                        k.when(late, || gave_up.store_relaxed(1u32, Scope::Gpu));
                        k.break_if(late);
                    });
                });
                k.when(k.lane().eq(0), || left.store(number));
            });
        }
    })
}
