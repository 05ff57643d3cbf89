//! Stages of weights in registers: what a team that waits for its activations has taken out of the ring, so that the ring
//! has room for what comes behind.

use tilewright_codegen::build::{Val, Var};

use super::{ConsumerWarps, Weights};

/// Words of a lane's part of a chunk.
const WORDS: u32 = 4;

/// A stage of the ring in the registers of the team: of each chunk that a warp multiplies, a lane's 16 bytes.
pub struct HeldStage<'k> {
    team: ConsumerWarps<'k>,
    chunks: Vec<[Var<'k, u32>; WORDS as usize]>,
    /// Whether it has been taken, where that is not certain.
    taken: Option<Var<'k, bool>>,
}

impl<'k> HeldStage<'k> {
    /// Registers for a stage of at most so many bytes, zeros. `certain`: it is taken before anybody multiplies it.
    pub fn new(team: ConsumerWarps<'k>, stage_bytes: u32, certain: bool) -> HeldStage<'k> {
        let chunk = |_| std::array::from_fn(|_| team.k.var(0u32));
        let taken = (!certain).then(|| team.k.var(false));
        HeldStage { team, chunks: (0..stage_bytes / HeldStage::round(team)).map(chunk).collect(), taken }
    }

    /// Takes the ring's next stage, which has `bytes` bytes, and gives it back; by whole warps.
    pub fn take(&self, ring: &dyn Weights<'k>, bytes: Val<'k, u32>) {
        let (k, team) = (self.team.k, self.team);
        self.read(ring, |chunk, load| k.when(bytes.gt(chunk * HeldStage::round(team)), load));
        if let Some(taken) = self.taken {
            taken.set(true);
        }
    }

    /// Whether it has been taken.
    pub fn is_taken(&self) -> Val<'k, bool> {
        self.taken.map_or_else(|| self.team.k.lit(true), Var::get)
    }

    /// Takes it now, if it has not been taken, with so many chunks of each warp.
    pub(super) fn bring(&self, ring: &dyn Weights<'k>, chunks: u32) {
        if let Some(taken) = self.taken {
            let some = |chunk: u32, load: &dyn Fn()| {
                if chunk < chunks {
                    load()
                }
            };
            self.team.k.when(!taken.get(), || self.read(ring, some));
        }
    }

    /// Reads the ring's next stage; `inside` lets chunks be loaded that exist.
    fn read(&self, ring: &dyn Weights<'k>, inside: impl Fn(u32, &dyn Fn())) {
        let k = self.team.k;
        ring.stage(&|stage| {
            let mine = stage.at(k.warp() * (32 * WORDS) + k.lane() * WORDS);
            for (chunk, words) in (0..).zip(&self.chunks) {
                inside(chunk, &|| {
                    let from = mine.at(chunk * HeldStage::round(self.team) / 4);
                    let loaded: [Val<u32>; WORDS as usize] = from.load_vec();
                    words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
                });
            }
        });
    }

    /// This lane's words of its warp's chunk of the stage.
    pub(super) fn chunk(&self, chunk: u32) -> [Val<'k, u32>; WORDS as usize] {
        self.chunks[chunk as usize].map(|word| word.get())
    }

    /// Bytes of a chunk of each warp.
    fn round(team: ConsumerWarps<'_>) -> u32 {
        team.threads() * WORDS * 4
    }
}
