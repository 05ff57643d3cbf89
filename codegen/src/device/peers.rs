//! Devices that reach each other's memory, and launches that run side by side on them.

use super::backend::{Backend, Handle, Work};
use super::{Device, DeviceError, Stream, cuda, sim};

/// Queues one launch on each of some devices, which run side by side: what one waits for, another
/// may do. Where devices were opened as [`peers`](sim::peers), a kernel reaches the memory of all
/// by [`Arg::peer`](super::Arg::peer).
///
/// On a GPU this is a launch on each stream in turn; on the simulator the kernels, the same on a
/// grid of the same shape, run under one scheduler, and the scope `.gpu` ends at a device.
///
/// ```
/// use tilewright_codegen::build::{block, record};
/// use tilewright_codegen::device::{Arg, launch_side_by_side, sim};
/// use tilewright_codegen::ir::{Arch, attr::Scope};
/// use tilewright_codegen::verify::verify;
///
/// // Each device writes its number into the other's word, and waits for the other's.
/// let kernel = verify(record("swap", Arch::Sm90a, block(32), |k| {
///     let mine = k.global::<u32>("mine");
///     let theirs = k.global::<u32>("theirs");
///     let number = k.param::<u32>("number");
///     k.when(k.tid().eq(0), || {
///         theirs.store_relaxed(number, Scope::Sys);
///         k.loop_(|| k.break_if(mine.load_relaxed(Scope::Sys).ne(0)));
///     });
/// })).unwrap();
/// let devices = sim::peers(&sim::Options::default(), 2);
/// let streams = [devices[0].stream()?, devices[1].stream()?];
/// let words = [streams[0].buffer(&[0u32])?, streams[1].buffer(&[0u32])?];
/// let work = |at: usize| devices[at].load(&kernel)?.work(1, &[
///     (&words[at]).into(), Arg::peer(&words[1 - at]), (at as u32 + 1).into(),
/// ]);
/// launch_side_by_side(&[(&streams[0], work(0)?), (&streams[1], work(1)?)])?;
/// assert_eq!([streams[0].read(&words[0])?, streams[1].read(&words[1])?], [[2], [1]]);
/// # Ok::<(), tilewright_codegen::device::DeviceError>(())
/// ```
///
/// # Errors
/// As [`Kernel::launch`](super::Kernel::launch); [`DeviceError::SideBySide`] on the simulator where
/// kernels or grids differ.
pub fn launch_side_by_side(launches: &[(&Stream, Work)]) -> Result<(), DeviceError> {
    let all: Vec<(&dyn Backend, &Handle, &Work)> =
        launches.iter().map(|(stream, work)| (stream.device().backend(), stream.handle(), work)).collect();
    all.first().map_or(Ok(()), |(first, ..)| first.submit_side_by_side(&all))
}

/// The devices of a name, which reach each other's memory: `cuda:0-1`, `sim:7x2`, or one device as
/// [`open`](super::open) has it.
///
/// ```
/// use tilewright_codegen::device;
/// assert_eq!(device::open_peers("sim:7x2")?.len(), 2);
/// assert_eq!(device::open_peers("sim")?.len(), 1);
/// assert_eq!(device::open_peers("cuda:3-1").unwrap_err().to_string(),
///     "`cuda:3-1` is not a device; devices are sim, sim:SEED and cuda:N, such as sim:7 or cuda:0");
/// # Ok::<(), device::DeviceError>(())
/// ```
///
/// # Errors
/// [`DeviceError::Name`] for an invalid name, [`DeviceError::NoPeer`]; as [`open`](super::open).
pub fn open_peers(name: &str) -> Result<Vec<Device>, DeviceError> {
    let unknown = || DeviceError::Name { found: name.into() };
    let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
    match name.split_once(':') {
        Some(("cuda", range)) if range.contains('-') => {
            let (first, last) = range.split_once('-').ok_or_else(unknown)?;
            let first = number(first)?;
            let last = number(last)?;
            if first > last { Err(unknown()) } else { cuda::peers(first..=last) }
        }
        Some(("sim", text)) if text.contains('x') => {
            let (seed, count) = text.split_once('x').ok_or_else(unknown)?;
            let seed = seed.parse().map_err(|_| unknown())?;
            let count = number(count)?;
            if !(1..=8).contains(&count) {
                return Err(unknown());
            }
            Ok(sim::peers(&sim::Options { seed, ..sim::Options::default() }, count))
        }
        _ => super::open(name).map(|device| vec![device]),
    }
}
