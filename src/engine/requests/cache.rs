//! The pages of the KV pools among many sequences: their holders, and the full pages that can be
//! found by their tokens.
//!
//! A page is *free*, *held* by one sequence or several, or *idle*: full, held by no sequence, and
//! still found by its tokens. A full page is found by its tokens and the page before it, so by all
//! tokens up to its end; the tokens themselves are compared, not a hash of them. Only full pages
//! are shared, and a full page is never written again, so none is ever copied.

use std::collections::{BTreeMap, HashMap};

use super::super::pages::PagePool;
use super::kv_events::KvEvent;

/// Pages, their holders and their contents.
#[derive(Debug)]
pub struct PageCache {
    page_tokens: usize,
    free: PagePool,
    pages: Vec<Page>,
    /// Full pages by the prefix before them and their tokens.
    index: HashMap<Contents, i32>,
    /// Pages that no sequence holds, the least recently used one first.
    idle: BTreeMap<u64, i32>,
    available: usize,
    /// Counts prefixes and departures.
    clock: u64,
    /// Changes of the index since they were last taken; none where they are not recorded.
    events: Option<Vec<KvEvent>>,
}

/// The number of a prefix: of all tokens up to the end of a full page. No number is used twice; 0
/// is the empty prefix.
type Prefix = u64;

/// The contents of a full page: its tokens, following a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Contents {
    before: Prefix,
    tokens: Box<[u32]>,
}

#[derive(Clone, Debug, Default)]
struct Page {
    holders: usize,
    /// The prefix that it ends and what it holds, where it can be found.
    full: Option<(Prefix, Contents)>,
    /// The time at which its last holder released it.
    left: u64,
}

impl PageCache {
    /// Creates a cache of free pages.
    pub fn new(pages: usize, page_tokens: usize) -> PageCache {
        PageCache {
            page_tokens,
            free: PagePool::new(pages),
            pages: vec![Page::default(); pages],
            index: HashMap::new(),
            idle: BTreeMap::new(),
            available: pages,
            clock: 0,
            events: None,
        }
    }

    /// Records changes of the index from now on.
    pub fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// Takes the changes of the index since the last call.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Pages that can be taken: free ones and idle ones.
    pub fn available(&self) -> usize {
        self.available
    }

    /// Pages of the longest prefix of `tokens` that is there, whole pages each. They are held from
    /// now on.
    pub fn share(&mut self, tokens: &[u32]) -> Vec<i32> {
        let mut before = 0;
        let mut found = Vec::new();
        for tokens in tokens.chunks_exact(self.page_tokens) {
            let Some(&page) = self.index.get(&Contents { before, tokens: tokens.into() }) else { break };
            let Some((prefix, _)) = &self.page(page).full else { break };
            before = *prefix;
            found.push(page);
        }
        found.iter().for_each(|&page| self.hold(page));
        found
    }

    /// Takes a page: a free page, else the least recently released idle page, whose contents are
    /// forgotten.
    pub fn take(&mut self) -> Option<i32> {
        let page = match self.free.take() {
            Some(page) => page,
            None => {
                let (_, page) = self.idle.pop_first()?;
                self.forget(page);
                page
            }
        };
        self.available -= 1;
        self.page_mut(page).holders = 1;
        Some(page)
    }

    /// A holder leaves its pages, which follow each other in its sequence. The later ones are taken
    /// again first.
    pub fn leave(&mut self, pages: &[i32]) {
        for &page in pages.iter().rev() {
            self.clock += 1;
            let clock = self.clock;
            let state = self.page_mut(page);
            state.holders -= 1;
            state.left = clock;
            let is_full = state.full.is_some();
            if state.holders == 0 {
                self.available += 1;
                if is_full {
                    self.idle.insert(clock, page);
                } else {
                    self.free.give_back([page]);
                }
            }
        }
    }

    /// A page of one holder is full: it holds these tokens, and follows that page of the sequence.
    /// From now on it can be found. Where another page holds the same, that one is held in its
    /// place. Gives the page that is held.
    pub fn fill(&mut self, page: i32, before: Option<i32>, tokens: &[u32]) -> i32 {
        let before = match before {
            None => 0,
            Some(before) => match &self.page(before).full {
                Some((prefix, _)) => *prefix,
                // The page before was forgotten while it was held: no lookup reaches this page.
                None => return page,
            },
        };
        let contents = Contents { before, tokens: tokens.into() };
        if let Some(&same) = self.index.get(&contents) {
            if same != page {
                self.hold(same);
                self.leave(&[page]);
            }
            return same;
        }
        self.clock += 1;
        let block = self.clock;
        if let Some(events) = &mut self.events {
            let parent = (before != 0).then_some(before);
            events.push(KvEvent::Stored { block, parent, tokens: contents.tokens.clone() });
        }
        self.page_mut(page).full = Some((block, contents.clone()));
        self.index.insert(contents, page);
        page
    }

    /// Forgets the contents of all pages: what is held stays held, and no lookup finds it.
    pub fn forget_all(&mut self) {
        for (_, page) in std::mem::take(&mut self.idle) {
            self.free.give_back([page]);
        }
        self.index.clear();
        self.pages.iter_mut().for_each(|page| page.full = None);
        if let Some(events) = &mut self.events {
            events.push(KvEvent::Cleared);
        }
    }

    fn hold(&mut self, page: i32) {
        let state = self.page_mut(page);
        state.holders += 1;
        let first = state.holders == 1;
        let left = state.left;
        if first {
            self.idle.remove(&left);
            self.available -= 1;
        }
    }

    fn forget(&mut self, page: i32) {
        if let Some((block, contents)) = self.page_mut(page).full.take() {
            self.index.remove(&contents);
            if let Some(events) = &mut self.events {
                events.push(KvEvent::Removed { block });
            }
        }
    }

    fn page(&self, page: i32) -> &Page {
        &self.pages[page as usize]
    }

    fn page_mut(&mut self, page: i32) -> &mut Page {
        &mut self.pages[page as usize]
    }
}

/// The tokens of the blocks that can be shared, by their numbers.
#[cfg(test)]
pub type StoredBlocks = BTreeMap<u64, Box<[u32]>>;

#[cfg(test)]
impl PageCache {
    /// The blocks that can be shared.
    pub fn stored(&self) -> StoredBlocks {
        let full = self.index.values().filter_map(|&page| self.page(page).full.clone());
        full.map(|(block, contents)| (block, contents.tokens)).collect()
    }

    /// Pages of the pools.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Asserts that every page is free, idle or held by exactly these holders.
    pub fn check<'p>(&self, held: impl IntoIterator<Item = &'p [i32]>) {
        let mut holders = vec![0; self.pages.len()];
        held.into_iter().flatten().for_each(|&page| holders[page as usize] += 1);
        let found: Vec<usize> = self.pages.iter().map(|page| page.holders).collect();
        assert_eq!(found, holders, "holders of pages");
        let unheld = holders.iter().filter(|holders| **holders == 0).count();
        assert_eq!(unheld, self.available, "pages that no sequence holds");
        assert_eq!(unheld, self.idle.len() + self.free.len(), "pages that can be taken");
        for (contents, &page) in &self.index {
            let full = self.page(page).full.as_ref().expect("what is found is full");
            assert_eq!(&full.1, contents);
        }
        assert!(self.idle.values().all(|&page| self.page(page).full.is_some() && holders[page as usize] == 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 2 tokens that a sequence of these tokens fills one after the other.
    fn filled(cache: &mut PageCache, tokens: &[u32]) -> Vec<i32> {
        let mut pages = Vec::new();
        for tokens in tokens.chunks_exact(2) {
            let page = cache.take().expect("a page");
            pages.push(cache.fill(page, pages.last().copied(), tokens));
        }
        pages
    }

    #[test]
    fn a_prefix_is_found_in_whole_pages_as_far_as_it_is_the_same() {
        let mut cache = PageCache::new(4, 2);
        let first = filled(&mut cache, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(cache.share(&[1, 2, 3, 4, 9, 9]), first[..2]);
        assert_eq!(cache.share(&[1, 2, 3]), first[..1]);
        assert!(cache.share(&[3, 4]).is_empty());
        cache.check([&first[..], &first[..2], &first[..1]]);
    }

    #[test]
    fn equal_pages_become_one() {
        let mut cache = PageCache::new(4, 2);
        let first = filled(&mut cache, &[1, 2, 3, 4]);
        assert_eq!(filled(&mut cache, &[1, 2, 3, 4]), first);
        cache.check([&first[..], &first[..]]);
        assert_eq!(cache.available(), 2);
    }

    #[test]
    fn the_page_that_was_left_first_is_taken_again_first_and_a_prefix_outlives_what_follows_it() {
        let mut cache = PageCache::new(3, 2);
        let pages = filled(&mut cache, &[1, 2, 3, 4, 5, 6]);
        cache.leave(&pages);
        assert_eq!(cache.take(), Some(pages[2]));
        let found = cache.share(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(found, pages[..2]);
        cache.check([&pages[2..], &found]);
        assert_eq!(cache.take(), None);
    }

    #[test]
    fn events_name_blocks_that_are_stored_and_removed() {
        let mut cache = PageCache::new(2, 2);
        cache.record_events();
        let pages = filled(&mut cache, &[1, 2, 3, 4]);
        let [first, second] = &cache.take_events()[..] else { panic!("two pages are full") };
        let &KvEvent::Stored { block, parent: None, ref tokens } = first else { panic!("{first:?}") };
        assert_eq!(**tokens, [1, 2]);
        let &KvEvent::Stored { block: last, parent, ref tokens } = second else { panic!("{second:?}") };
        assert_eq!((parent, &**tokens), (Some(block), &[3, 4][..]));
        cache.leave(&pages);
        cache.take();
        assert_eq!(cache.take_events(), [KvEvent::Removed { block: last }]);
        cache.forget_all();
        assert_eq!(cache.take_events(), [KvEvent::Cleared]);
    }

    #[test]
    fn what_is_forgotten_is_found_no_more() {
        let mut cache = PageCache::new(3, 2);
        let held = filled(&mut cache, &[1, 2]);
        let left = filled(&mut cache, &[7, 8]);
        cache.leave(&left);
        cache.forget_all();
        assert_eq!((cache.share(&[1, 2]), cache.share(&[7, 8])), (vec![], vec![]));
        let next = cache.take().expect("a page");
        assert_eq!(cache.fill(next, Some(held[0]), &[3, 4]), next);
        cache.leave(&[held[0], next]);
        cache.check([]);
        assert_eq!(cache.available(), 3);
    }
}
