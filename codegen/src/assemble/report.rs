//! Parses the report of the assembler, with `-v`.

/// The resources of an entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The entry point.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory that the module declares; what a launch adds is not among them.
    pub shared: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes of spilled registers of a thread, stores and loads together.
    pub spills: u32,
}

/// The resources of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// The resources of each entry point.
    pub entries: Vec<Resources>,
    /// Warnings, and notes of lost performance such as `wgmma`s that are serialised.
    pub warnings: Vec<String>,
}

impl Assembled {
    /// The flaws that no shipped kernel may have: warnings, and entry points that spill, one line
    /// each.
    pub fn flaws(&self) -> Vec<String> {
        let spilling = self.entries.iter().filter(|entry| entry.spills > 0);
        let spills = spilling.map(|entry| format!("{} spills {} bytes of a thread", entry.entry, entry.spills));
        self.warnings.iter().cloned().chain(spills).collect()
    }
}

/// The release in what `--version` says: `Cuda compilation tools, release 13.0, V13.0.88`.
pub(super) fn version(said: &str) -> Option<&str> {
    let rest = said.lines().find(|line| line.contains("release"))?.rsplit(", V").next()?;
    let version = rest.split_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

pub(super) fn read(said: &str) -> Assembled {
    let mut out = Assembled::default();
    for line in said.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let entry = rest.split('\'').next().unwrap_or_default().into();
            out.entries.push(Resources { entry, ..Resources::default() });
        } else if line.contains("Advisory") {
            // Multicast works on every target with clusters; on some it is merely slow.
        } else if line.contains("warning") || line.contains("Potential Performance Loss") {
            out.warnings.push(line.trim().into());
        } else if let Some(entry) = out.entries.last_mut() {
            entry.registers = before(line, " registers").unwrap_or(entry.registers);
            entry.shared = before(line, " bytes smem").unwrap_or(entry.shared);
            entry.stack = before(line, " bytes stack frame").unwrap_or(entry.stack);
            entry.spills += before(line, " bytes spill stores").unwrap_or(0);
            entry.spills += before(line, " bytes spill loads").unwrap_or(0);
        }
    }
    out
}

/// The number in front of a noun.
fn before(line: &str, noun: &str) -> Option<u32> {
    line[..line.find(noun)?].split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_lines_are_read() {
        let said = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'tile' for 'sm_90a'
ptxas info    : Function properties for tile
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 4096 bytes smem, 904 bytes cmem[0]
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to a call
";
        let found = read(said);
        let tile = Resources { entry: "tile".into(), registers: 168, shared: 4096, stack: 16, spills: 20 };
        let plain = Resources { entry: "plain".into(), registers: 10, ..Resources::default() };
        assert_eq!(found.entries, [tile, plain]);
        assert!(found.warnings.len() == 1 && found.warnings[0].contains("serialized"), "{found:?}");
        assert_eq!(found.flaws().len(), 2);
    }

    #[test]
    fn the_release_is_read() {
        let said =
            "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 13.0, V13.0.88\nBuild x";
        assert_eq!(version(said), Some("13.0.88"));
        assert_eq!(version("busybox, no such applet"), None);
    }
}
