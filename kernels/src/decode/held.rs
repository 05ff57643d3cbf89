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
}

impl<'k> HeldStage<'k> {
    /// Registers for a stage of at most so many bytes, zeros.
    pub fn new(team: ConsumerWarps<'k>, stage_bytes: u32) -> HeldStage<'k> {
        let chunk = |_| std::array::from_fn(|_| team.k.var(0u32));
        HeldStage { team, chunks: (0..stage_bytes / HeldStage::round(team)).map(chunk).collect() }
    }

    /// Takes the ring's next stage, which has `bytes` bytes, and gives it back; by whole warps.
    pub fn take(&self, ring: &dyn Weights<'k>, bytes: Val<'k, u32>) {
        let (k, team) = (self.team.k, self.team);
        ring.stage(&|stage| {
            let mine = stage.at(k.warp() * (32 * WORDS) + k.lane() * WORDS);
            for (chunk, words) in (0..).zip(&self.chunks) {
                k.when(bytes.gt(chunk * HeldStage::round(team)), || {
                    let loaded: [Val<u32>; WORDS as usize] = mine.at(chunk * HeldStage::round(team) / 4).load_vec();
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
