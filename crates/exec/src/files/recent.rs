//! A bounded memory: what was put first gives way.

use std::collections::BTreeMap;

/// Values by keys, the newest `most` of them.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    values: BTreeMap<K, (u64, V)>,
    /// The keys by when they were put.
    order: BTreeMap<u64, K>,
    next: u64,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            values: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        self.remove(&key);
        self.order.insert(self.next, key.clone());
        self.values.insert(key, (self.next, value));
        self.next += 1;
        if self.values.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (number, value) = self.values.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }

    /// Gives the keys from one on, in their order.
    pub(super) fn keys_from(&self, key: K) -> impl Iterator<Item = &K> {
        self.values.range(key..).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_first_gives_way() {
        let mut recent = Recent::new(2);
        for (key, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            recent.put(key, value);
        }
        assert_eq!(recent.get(&"b"), None);
        assert_eq!(recent.keys_from("a").collect::<Vec<_>>(), [&"a", &"c"]);
        assert_eq!(recent.remove(&"a"), Some(3));
        assert_eq!((recent.values.len(), recent.order.len()), (1, 1));
    }
}
