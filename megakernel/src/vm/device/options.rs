//! How the generated kernel is cut: warps, ring, patience.

/// Choices of the device machine that change speed and never results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Warps of a block that compute.
    pub warps: u32,
    /// Bytes of a stage of the ring, a multiple of 512 · `warps`.
    pub stage_bytes: u32,
    /// Most stages of the ring; fewer where shared memory ends.
    pub stages: u32,
    /// Most stages in flight for tasks that the team has not come to: what it publishes, polls and loads meanwhile queues
    /// behind them.
    pub in_flight: u32,
    /// Most stages in flight for the task that the team is at. More only queue at the memory.
    pub burst: u32,
    /// Whether keys and values of earlier steps come through the ring, where they fit stages.
    pub stream_tokens: bool,
    /// Whether keys and values that do not come through the ring are asked for before attention comes to them.
    pub pages_ahead: bool,
    /// Fewest tokens of a split of attention, whole pages: merging a split costs more than some more tokens.
    pub split_tokens: u32,
    /// Bytes of shared memory for sums of products.
    pub sums_bytes: u32,
    /// Looks at a counter after which a task gives up and reports it.
    pub spin_limit: u32,
    /// Whether activations carry their own arrival where they can, instead of being released.
    pub tags: bool,
    /// Fewest rows of a task whose activations are held in registers, where there is room; of fewer rows they are copied to
    /// shared memory.
    pub held_rows: u32,
    /// Whether every task's times are recorded.
    pub timeline: bool,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            warps: 8,
            stage_bytes: 16384,
            stages: 16,
            in_flight: 1,
            burst: 4,
            stream_tokens: true,
            pages_ahead: true,
            split_tokens: 256,
            sums_bytes: 4096,
            spin_limit: 1 << 24,
            tags: true,
            held_rows: 3,
            timeline: false,
        }
    }
}
