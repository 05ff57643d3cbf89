//! Shadow memory: for each cell of a few bytes the last write and the reads since, and for each
//! byte whether it was written.
//!
//! A cell holds one write and the reads of one warp in place. Reads of several warps, and atomic
//! writes that are not ordered among themselves, go to a set at the side. Pages of cells are made
//! when first touched.

use super::access::{Judge, LaneAccesses, OP, PendingAccess, Site, Stamp, Who, Why};

const PAGE: usize = 256;
/// The marker for a set of readers: they are in the set with the number in `read_time`.
const SET: Who = OP - 1;

/// Entries of a set that are searched for some that can be dropped.
const CROWD: usize = 8;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ShadowCell {
    write: Stamp,
    /// A warp (number + 1), an asynchronous operation, [`SET`], or none.
    reader: Who,
    lanes: u32,
    read_time: u32,
    read_site: Site,
    /// The lanes whose read was judged since the last write: a polling loop reads again and again.
    judged: u32,
}

/// An access among several of a cell.
#[derive(Clone, Copy, Debug)]
struct CellAccess {
    who: Who,
    lanes: u32,
    time: u32,
    site: Site,
    write: bool,
    /// Of a read, the lanes for which it was judged since the last write of the cell.
    judged: u32,
}

impl CellAccess {
    /// Whether it is a read of the same lanes at the same step and time, judged since the last
    /// write. Views only grow, so what passed then passes now.
    fn is_repeated_by(&self, now: &CellAccess) -> bool {
        self.judged & now.lanes != 0 && self.is_of_step(now)
    }

    /// Whether it is a read by the same warp at the same step and time.
    fn is_of_step(&self, now: &CellAccess) -> bool {
        (self.who, self.time, self.site, self.write) == (now.who, now.time, now.site, false)
    }

    /// The access of some thread among the lanes.
    fn stamp(self, lane: u32) -> Stamp {
        let who = if self.who & OP != 0 { self.who } else { (self.who - 1) * 32 + lane + 1 };
        Stamp { who, time: self.time, site: self.site }
    }

    /// Whether all of it comes before an access.
    fn is_ordered(self, judge: &Judge<'_>, now: &PendingAccess<'_>) -> bool {
        let CellAccess { who, lanes, time, write, .. } = self;
        match who & OP {
            0 => judge.ordered_lanes(LaneAccesses { warp: who - 1, lanes, time, wrote: write }, now),
            _ => judge.ordered(self.stamp(0), write, now).is_ok(),
        }
    }
}

/// An earlier access that is not ordered before the present one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conflict {
    pub other: Stamp,
    pub other_wrote: bool,
    pub why: Why,
    /// The first byte of the cell.
    pub offset: usize,
}

/// Cells in a row.
#[derive(Clone)]
struct Page {
    cells: [ShadowCell; PAGE],
    /// Accesses that changed a cell: all but reads that came again.
    changes: u64,
}

/// The shadow of one region of memory.
#[derive(Default)]
pub(crate) struct Shadow {
    cell: usize,
    pages: Vec<Option<Box<Page>>>,
    /// The sets; in each, writes precede reads.
    sets: Vec<Vec<CellAccess>>,
    free: Vec<u32>,
}

impl Shadow {
    /// The shadow of `bytes` bytes in cells of `cell` bytes.
    pub(crate) fn new(bytes: usize, cell: u32) -> Shadow {
        let pages = bytes.div_ceil(cell as usize * PAGE);
        Shadow { cell: cell as usize, pages: vec![None; pages], sets: Vec::new(), free: Vec::new() }
    }

    /// Judges and records an access to bytes.
    pub(crate) fn touch(
        &mut self,
        judge: &Judge<'_>,
        now: &PendingAccess<'_>,
        start: usize,
        bytes: usize,
    ) -> Result<(), Conflict> {
        // Neighbours of a wide access mostly look alike: what became of one becomes of the next.
        // Not so of cells with sets, which are their own.
        let mut last: Option<(ShadowCell, ShadowCell)> = None;
        let sets = &mut Sets { sets: &mut self.sets, free: &mut self.free };
        let mut index = start / self.cell;
        let end = (start + bytes).div_ceil(self.cell);
        let wide = end - index > 1;
        while index < end {
            let page = self.pages[index / PAGE].get_or_insert_with(Page::blank);
            let stop = end.min((index / PAGE + 1) * PAGE);
            let mut changes = now.write;
            for cell in &mut page.cells[index % PAGE..index % PAGE + (stop - index)] {
                match last {
                    Some((before, after)) if *cell == before => {
                        changes |= before != after;
                        *cell = after;
                    }
                    _ => {
                        let before = wide.then_some(*cell);
                        let result = if now.write {
                            cell.write(sets, judge, now).map(|()| true)
                        } else {
                            cell.read(sets, judge, now)
                        };
                        changes |= result.map_err(|conflict| Conflict { offset: index * self.cell, ..conflict })?;
                        last = before
                            .filter(|before| before.reader != SET && cell.reader != SET)
                            .map(|before| (before, *cell));
                    }
                }
                index += 1;
            }
            page.changes += u64::from(changes);
        }
        Ok(())
    }

    /// The number of changes to the shadow of bytes and of some around them. As long as it stays, a
    /// read that was judged may come again.
    pub(crate) fn changes(&self, start: usize, end: usize) -> u64 {
        let pages = start / self.cell / PAGE..=end.saturating_sub(1) / self.cell / PAGE;
        self.pages[pages].iter().flatten().map(|page| page.changes).sum()
    }

    /// Judges an access to bytes, and records nothing.
    pub(crate) fn judge(
        &self,
        judge: &Judge<'_>,
        now: &PendingAccess<'_>,
        start: usize,
        bytes: usize,
    ) -> Result<(), Conflict> {
        let mut last: Option<&ShadowCell> = None;
        for index in start / self.cell..(start + bytes).div_ceil(self.cell) {
            let Some(page) = &self.pages[index / PAGE] else { continue };
            let cell = &page.cells[index % PAGE];
            if last.replace(cell).is_some_and(|last| last == cell) {
                continue;
            }
            let check = cell
                .after_write(judge, now)
                .and_then(|()| if now.write { cell.after_reads(&self.sets, judge, now) } else { Ok(()) });
            check.map_err(|conflict| Conflict { offset: index * self.cell, ..conflict })?;
        }
        Ok(())
    }

    /// The last write of a byte, if the kernel made one.
    pub(crate) fn last_write(&self, offset: usize) -> Option<Stamp> {
        let index = offset / self.cell;
        let stamp = self.pages[index / PAGE].as_ref()?.cells[index % PAGE].write;
        (stamp.who != 0).then_some(stamp)
    }
}

impl Page {
    fn blank() -> Box<Page> {
        Box::new(Page { cells: [ShadowCell::default(); PAGE], changes: 0 })
    }
}

struct Sets<'a> {
    sets: &'a mut Vec<Vec<CellAccess>>,
    free: &'a mut Vec<u32>,
}

impl ShadowCell {
    fn conflict(other: Stamp, other_wrote: bool, why: Why) -> Conflict {
        Conflict { other, other_wrote, why, offset: 0 }
    }

    fn after_write(&self, judge: &Judge<'_>, now: &PendingAccess<'_>) -> Result<(), Conflict> {
        if self.write.who == 0 {
            return Ok(());
        }
        let wrong = |why| Self::conflict(self.write, true, why);
        // Scopes of atomic accesses are cheaper to compare than their order.
        match judge.compatible(self.write, now) {
            Ok(true) => Ok(()),
            Ok(false) => judge.ordered(self.write, true, now).map_err(wrong),
            Err(scope) => judge.ordered(self.write, true, now).map_err(|_| wrong(scope)),
        }
    }

    /// Judges and records a read; whether anything is new about it.
    fn read(&mut self, sets: &mut Sets<'_>, judge: &Judge<'_>, now: &PendingAccess<'_>) -> Result<bool, Conflict> {
        let entry = entry_of(now);
        if self.reader == SET {
            let set = &mut sets.sets[self.read_time as usize];
            if set.iter().rev().any(|old| old.is_repeated_by(&entry)) {
                return Ok(false);
            }
            self.after_write(judge, now)?;
            after_entries(set.iter().take_while(|entry| entry.write), judge, now)?;
            self.join_set(set, entry, judge, now);
            return Ok(true);
        }
        let same = self.reader == entry.who && self.read_time == entry.time && self.read_site == entry.site;
        if same && self.judged & entry.lanes != 0 {
            return Ok(false);
        }
        self.after_write(judge, now)?;
        if same {
            self.lanes |= entry.lanes;
            self.judged |= entry.lanes;
        } else if self.reader == 0 || self.reads_known(judge, now) {
            self.set_reader(entry);
        } else {
            let first = self.entry();
            let index = sets.free.pop().unwrap_or_else(|| {
                sets.sets.push(Vec::new());
                sets.sets.len() as u32 - 1
            });
            self.reader = SET;
            self.read_time = index;
            sets.sets[index as usize].push(first);
            self.join_set(&mut sets.sets[index as usize], entry, judge, now);
        }
        Ok(true)
    }

    fn entry(&self) -> CellAccess {
        CellAccess {
            who: self.reader,
            lanes: self.lanes,
            time: self.read_time,
            site: self.read_site,
            write: false,
            judged: self.judged,
        }
    }

    fn set_reader(&mut self, entry: CellAccess) {
        self.reader = entry.who;
        self.lanes = entry.lanes;
        self.read_time = entry.time;
        self.read_site = entry.site;
        self.judged = entry.judged;
    }

    /// Whether all reads in place come before this access, so that it may stand for them.
    fn reads_known(&self, judge: &Judge<'_>, now: &PendingAccess<'_>) -> bool {
        // An access that represents reads of the other proxy must follow their fence, as it must
        // follow that of writes.
        CellAccess { write: true, ..self.entry() }.is_ordered(judge, now)
    }

    fn join_set(&self, set: &mut Vec<CellAccess>, entry: CellAccess, judge: &Judge<'_>, now: &PendingAccess<'_>) {
        // Mostly the lanes of one instruction, one after the other.
        if let Some(old) = set.iter_mut().rev().find(|old| old.is_of_step(&entry)) {
            old.lanes |= entry.lanes;
            old.judged |= entry.judged;
            return;
        }
        // An access that this one supersedes is dropped: it is known here, or is by the same lanes.
        // Small sets need not shrink.
        if set.len() >= CROWD {
            set.retain_mut(|old| {
                if old.who & OP != 0 {
                    return judge.ordered(old.stamp(0), true, now).is_err();
                }
                if old.write || entry.who & OP != 0 {
                    return true;
                }
                if old.who == entry.who {
                    old.lanes &= !entry.lanes;
                    old.judged &= !entry.lanes;
                }
                old.lanes != 0 && !now.view.seen.knows_lanes(judge.geometry, old.who - 1, old.lanes, old.time)
            });
        }
        set.push(entry);
    }

    fn after_reads(
        &self,
        sets: &[Vec<CellAccess>],
        judge: &Judge<'_>,
        now: &PendingAccess<'_>,
    ) -> Result<(), Conflict> {
        match self.reader {
            0 => Ok(()),
            SET => after_entries(sets[self.read_time as usize].iter(), judge, now),
            _ => after_entries(core::iter::once(&self.entry()), judge, now),
        }
    }

    fn write(&mut self, sets: &mut Sets<'_>, judge: &Judge<'_>, now: &PendingAccess<'_>) -> Result<(), Conflict> {
        self.after_write(judge, now)?;
        self.after_reads(sets.sets, judge, now)?;
        if now.stamp.site.strength().is_some() {
            self.keep_concurrent(sets, judge, now);
        } else if self.reader == SET {
            sets.sets[self.read_time as usize].clear();
            sets.free.push(self.read_time);
            self.reader = 0;
        } else {
            self.reader = 0;
        }
        self.write = now.stamp;
        Ok(())
    }

    /// An atomic write may be concurrent with other atomic accesses: those are kept in addition to
    /// the new write.
    fn keep_concurrent(&mut self, sets: &mut Sets<'_>, judge: &Judge<'_>, now: &PendingAccess<'_>) {
        let old = self.write;
        let is_old_known = old.who == 0 || judge.ordered(old, true, now).is_ok();
        if is_old_known && self.reader != SET {
            // Mostly: the reads in place alone.
            self.judged = 0;
            if self.reader != 0 && self.entry().is_ordered(judge, now) {
                self.reader = 0;
            }
            return;
        }
        let mut kept: Vec<CellAccess> = Vec::new();
        match self.reader {
            0 => {}
            SET => kept = core::mem::take(&mut sets.sets[self.read_time as usize]),
            _ => kept.push(self.entry()),
        }
        kept.retain_mut(|entry| {
            entry.judged = 0;
            !entry.is_ordered(judge, now)
        });
        if !is_old_known {
            let (who, lanes) = match old.who & OP {
                0 => ((old.who - 1) / 32 + 1, 1 << ((old.who - 1) % 32)),
                _ => (old.who, 0),
            };
            kept.retain(|entry| !(entry.write && entry.who == who && entry.lanes == lanes));
            kept.insert(0, CellAccess { who, lanes, time: old.time, site: old.site, write: true, judged: 0 });
        }
        if self.reader == SET {
            if kept.is_empty() {
                sets.free.push(self.read_time);
                self.reader = 0;
            } else {
                sets.sets[self.read_time as usize] = kept;
            }
        } else {
            match kept.as_slice() {
                [] => self.reader = 0,
                [one] if !one.write => self.judged = 0,
                _ => {
                    let index = sets.free.pop().unwrap_or_else(|| {
                        sets.sets.push(Vec::new());
                        sets.sets.len() as u32 - 1
                    });
                    sets.sets[index as usize] = kept;
                    self.reader = SET;
                    self.read_time = index;
                }
            }
        }
    }
}

fn entry_of(now: &PendingAccess<'_>) -> CellAccess {
    let Stamp { who, time, site } = now.stamp;
    if who & OP != 0 {
        return CellAccess { who, lanes: 0, time, site, write: false, judged: 0 };
    }
    let lanes = 1 << ((who - 1) % 32);
    CellAccess { who: (who - 1) / 32 + 1, lanes, time, site, write: false, judged: lanes }
}

/// The lanes of an entry; lane 0 for an operation, which has none.
fn lanes_of(entry: &CellAccess) -> impl Iterator<Item = u32> + use<> {
    let lanes = if entry.who & OP != 0 { 1 } else { entry.lanes };
    let next = |rest: &u32| Some(rest & rest.wrapping_sub(1));
    core::iter::successors(Some(lanes), next).take_while(|&rest| rest != 0).map(u32::trailing_zeros)
}

fn after_entries<'a>(
    entries: impl Iterator<Item = &'a CellAccess>,
    judge: &Judge<'_>,
    now: &PendingAccess<'_>,
) -> Result<(), Conflict> {
    for entry in entries {
        // Lanes of an entry have one strength and one block.
        let Some(first) = lanes_of(entry).next() else { continue };
        let scope = match judge.compatible(entry.stamp(first), now) {
            Ok(true) => continue,
            Ok(false) => None,
            Err(scope) => Some(scope),
        };
        if entry.is_ordered(judge, now) {
            continue;
        }
        for lane in lanes_of(entry) {
            let earlier = entry.stamp(lane);
            if let Err(why) = judge.ordered(earlier, entry.write, now) {
                return Err(ShadowCell::conflict(earlier, entry.write, scope.unwrap_or(why)));
            }
        }
    }
    Ok(())
}
