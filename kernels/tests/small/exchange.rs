//! Meetings of simulated devices: all leave each as often as they came, and nobody waits for ever for one that does not come.

use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Device, Stream, launch_side_by_side, sim};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::exchange::{MEET_WORDS, MeetShape, meet};
use tilewright_kernels::tile::MAX_DEVICES;

struct Met {
    devices: Vec<Device>,
    streams: Vec<Stream>,
    words: Vec<Buffer<u32>>,
}

impl Met {
    fn new(seed: u64, count: u32) -> Met {
        let devices = sim::peers(&sim::Options { seed, ..sim::Options::default() }, count);
        let streams: Vec<Stream> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let words = streams.iter().map(|stream| stream.buffer(&[0u32; MEET_WORDS as usize]).unwrap()).collect();
        Met { devices, streams, words }
    }

    /// The launch of a device of the first `devices` of them.
    fn work(&self, at: usize, devices: u32, polls: u32) -> Work {
        let kernel = verify(meet(Arch::Sm90a, MeetShape { devices, polls })).unwrap();
        let words = self.words.iter().take(devices as usize).map(|words| Arg::Address(words.address()));
        let args: Vec<Arg> = [(at as u32).into()].into_iter().chain(words).collect();
        self.devices[at].load(&kernel).unwrap().work(1, &args).unwrap()
    }

    fn read(&self, at: usize) -> Vec<u32> {
        self.streams[at].read(&self.words[at]).unwrap()
    }
}

#[test]
fn devices_meet_again_and_again() {
    for (seed, count) in [(0, 2u32), (1, 3), (2, 4), (3, 8)] {
        let met = Met::new(seed, count);
        for _ in 0..3 {
            let launches: Vec<_> =
                met.streams.iter().enumerate().map(|(at, stream)| (stream, met.work(at, count, 1 << 24))).collect();
            launch_side_by_side(&launches).unwrap();
        }
        let mut expected = vec![0; MEET_WORDS as usize];
        expected[..count as usize].fill(3);
        expected[MAX_DEVICES] = 3;
        (0..count as usize).for_each(|at| assert_eq!(met.read(at), expected, "seed {seed}, device {at} of {count}"));
    }
}

#[test]
fn a_device_gives_up_who_does_not_come() {
    let met = Met::new(4, 2);
    for meeting in 1..3 {
        // The second meeting is not waited for: 2^24 polls would take for ever here.
        let polls = if meeting == 1 { 20 } else { 1 << 24 };
        met.streams[0].submit(&met.work(0, 2, polls)).unwrap();
        let [mine, gave_up] = [0, MAX_DEVICES + 1].map(|at| met.read(0)[at]);
        assert_eq!((mine, gave_up, met.read(1)[0]), (meeting, 1, meeting));
    }
}
