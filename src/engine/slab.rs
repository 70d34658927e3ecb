//! Things behind handles: an index and a generation, so that a handle outlives its thing safely.

/// Where a thing is kept, and which of those kept there in turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// One number for both.
    pub(crate) const fn raw(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`Self::raw`] made.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self { index: raw as u32, generation: (raw >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Things behind keys. Places are used again, last freed first; generations start at 1.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.insert_with(|_| value)
    }

    /// Keeps what `make` makes for the key that it gets.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            let key = Key { index, generation: entry.generation };
            entry.value = Some(make(key));
            return key;
        }
        let key = Key { index: self.entries.len() as u32, generation: 1 };
        self.entries.push(Entry { generation: 1, value: Some(make(key)) });
        key
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(index as usize)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index);
        Some(value)
    }

    /// Like [`Self::remove`], without moving what goes; whether it was there.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32) -> bool {
        let Some(entry) = self.entries.get_mut(index as usize).filter(|entry| entry.value.is_some()) else {
            return false;
        };
        entry.value = None;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        self.free.push(index);
        true
    }

    /// What is kept at `index` now, with its key.
    #[inline]
    pub(crate) fn entry_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let entry = self.entries.get_mut(index as usize)?;
        let key = Key { index, generation: entry.generation };
        entry.value.as_mut().map(|value| (key, value))
    }

    /// The key of what is kept at `index` now.
    #[inline]
    pub(crate) fn key(&self, index: u32) -> Option<Key> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref().map(|_| Key { index, generation: entry.generation })
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// Indices of everything kept.
    pub(crate) fn indices(&self) -> Vec<u32> {
        let kept = |(index, entry): (usize, &Entry<T>)| entry.value.as_ref().map(|_| index as u32);
        self.entries.iter().enumerate().filter_map(kept).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_find_the_next_tenant() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first.index), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!(slab.key(first.index), Some(second));
        assert_eq!(Key::from_raw(second.raw()), second);
        assert_eq!((slab.remove(second.index), slab.remove(second.index)), (Some('b'), None));
        assert!(slab.len() == 0 && slab.indices().is_empty());
    }
}
