//! The pages of the KV pools: which are free, and which a sequence holds.

/// Free pages, lowest first.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<i32>,
}

impl PagePool {
    /// A pool of `pages` free pages.
    pub fn new(pages: usize) -> PagePool {
        PagePool { free: (0..pages).rev().map(|page| i32::try_from(page).unwrap_or(i32::MAX)).collect() }
    }

    /// Takes a page, if one is free.
    pub fn take(&mut self) -> Option<i32> {
        self.free.pop()
    }

    /// Free pages.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Returns pages to the pool.
    pub fn give_back(&mut self, pages: impl IntoIterator<Item = i32>) {
        self.free.extend(pages);
    }
}

/// A sequence in the page pools: its number of tokens, and its pages.
#[derive(Debug, Default)]
pub struct PagedSequence {
    /// Tokens whose keys and values are in the pools.
    pub len: usize,
    /// Page of every run of `page_tokens` tokens.
    pub pages: Vec<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_owner_until_it_is_given_back() {
        let mut pool = PagePool::new(3);
        let taken: Vec<i32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, [0, 1, 2]);
        pool.give_back([1]);
        assert_eq!((pool.take(), pool.take()), (Some(1), None));
    }
}
