//! The host as one more reader: what it would know of the kernel's writes.

use super::{Address, Home, Simulation, Trouble, Try};
use crate::ir::attr::Scope;
use crate::sim::OnLoss;
use crate::sim::fault::{FaultKind, HostWhy};
use crate::sim::machine::Host;
use crate::sim::machine::host_words::WORD;
use crate::sim::memory::{Judge, PendingAccess, Stamp};
use crate::sim::order::ThreadView;

impl Simulation<'_> {
    /// Looks whether the host may use bytes at the moment of this access.
    pub(super) fn meets_host(
        &self,
        at: Address,
        bytes: u32,
        write: bool,
        strength: Option<Scope>,
    ) -> Result<(), HostWhy> {
        let Some(host) = &self.host else { return Ok(()) };
        let Some(used) = host.offsets(at, bytes) else { return Ok(()) };
        let mut words = host.order.atomic.iter().chain([&host.order.flag]);
        if words.any(|word| used.contains(word)) {
            return if strength == Some(Scope::Sys) { Ok(()) } else { Err(HostWhy::NotAtomic) };
        }
        let open = used.start < host.open.end && host.open.start < used.end;
        if write && open { Err(HostWhy::Open) } else { Ok(()) }
    }

    /// Records that words were stored. Threads that acquire them in this scope receive the view; a
    /// read-modify-write also passes on the view of the previous value. If the host polls them, it
    /// may go on to read more.
    pub(crate) fn host_sees(
        &mut self,
        lane: usize,
        at: Address,
        bytes: u32,
        told: Option<&(Scope, ThreadView)>,
        modifies: bool,
    ) -> Try<()> {
        let Some(mut host) = self.host.take() else { return Ok(()) };
        if !host.offsets(at, bytes).is_some_and(|used| used.contains(&host.order.flag)) {
            self.host = Some(host);
            return Ok(());
        }
        if !modifies {
            host.view = ThreadView::default();
        }
        if let Some((Scope::Sys, view)) = told {
            host.view.join(view);
        }
        let region = self.region(at.home);
        let value = region.map_or(0, |region| region.load(at.offset, bytes.min(WORD as u32) as usize));
        host.open = (host.order.opens)(value);
        let result = self.host_reads(lane, &host);
        for (word, value) in host.order.answers.as_ref().map_or_else(Vec::new, |answers| answers(value)) {
            self.host_stores(host.word(word), value);
        }
        self.host = Some(host);
        result
    }

    /// The host learns that a device was lost.
    pub(super) fn host_hears(&mut self) {
        let Some(host) = &self.host else { return };
        if let Some(OnLoss { word, value, .. }) = host.order.on_loss {
            self.host_stores(host.word(word), value);
        }
    }

    /// Steps after a loss until the host learns of it, if it does.
    pub(super) fn hears_after(&self) -> Option<u64> {
        Some(self.host.as_ref()?.order.on_loss?.after)
    }

    /// The host stores a word; outside the buffer there is none.
    fn host_stores(&mut self, at: Address, value: u32) {
        self.released.remove(&at.key());
        let region = self.region_mut(at.home).filter(|region| at.offset + 4 <= region.data.len());
        if region.is_some_and(|region| region.store(at.offset, 4, value.into())) {
            self.changed();
        }
    }

    /// Whether the host uses words of this region.
    pub(super) fn is_the_hosts(&self, home: Home) -> bool {
        self.host.as_ref().is_some_and(|host| host.home == home)
    }

    /// The host reads all that is open.
    fn host_reads(&self, lane: usize, host: &Host) -> Try<()> {
        let Some(region) = self.region(host.home) else { return Ok(()) };
        let end = (host.base + host.open.end).min(region.data.len() as u64) as usize;
        let start = (host.base + host.open.start) as usize;
        // No thread of the grid: what none of them told it, it does not know.
        let now =
            PendingAccess { stamp: Stamp::default(), thread: u32::MAX, view: &host.view, write: false, proxy: None };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        if start >= end {
            return Ok(());
        }
        region.shadow.judge(&judge, &now, start, end - start).map_err(|conflict| {
            let at = self.name_address(Address { home: host.home, offset: conflict.offset }, self.program.cell[0]);
            let mut trouble = Trouble::lane(FaultKind::Host { at, why: HostWhy::NotReleased }, lane);
            trouble.other = Some((conflict.other, conflict.other_wrote));
            trouble
        })
    }
}
