//! Which keys a query sees: how far it sees to both sides of its own place.
//!
//! Queries and keys end together, whatever their numbers: the last query stands at the last key. Of more queries than keys the
//! first ones stand before all keys, and a mask may leave them none. What computes, counts or checks attention in Rust asks
//! here; kernels ask `device/mask.cuh`, which says the same.

use std::fmt;
use std::ops::Range;

/// How far a query sees; `None` is as far as there are keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Keys before its own place.
    pub left: Option<usize>,
    /// Keys behind its own place.
    pub right: Option<usize>,
}

impl Window {
    /// Every key.
    pub const FULL: Self = Self { left: None, right: None };

    /// The key at its own place and those before it.
    pub const CAUSAL: Self = Self { left: None, right: Some(0) };

    /// Keys nearer than `distance`, on both sides; the one at its own place is at distance 0.
    #[must_use]
    pub const fn nearer(distance: usize) -> Self {
        let bound = Some(distance.saturating_sub(1));
        Self { left: bound, right: bound }
    }

    /// The same without what is behind a query's place.
    #[must_use]
    pub const fn causal(self) -> Self {
        Self { right: Some(0), ..self }
    }

    /// Keys that a query sees, of so many queries and keys.
    #[must_use]
    pub fn keys_of(self, query: usize, [queries, keys]: [usize; 2]) -> Range<usize> {
        // A place may lie before the first key: counted from `queries` before it.
        let place = query + keys;
        let end = self.right.map_or(keys, |right| before(place, right.saturating_add(1), queries).min(keys));
        let start = self.left.map_or(0, |left| place.saturating_sub(queries.saturating_add(left)));
        start.min(end)..end
    }

    /// Queries that see a key.
    #[must_use]
    pub fn queries_of(self, key: usize, [queries, keys]: [usize; 2]) -> Range<usize> {
        let place = key + queries;
        let end = self.left.map_or(queries, |left| before(place, left.saturating_add(1), keys).min(queries));
        let start = self.right.map_or(0, |right| place.saturating_sub(keys.saturating_add(right)));
        start.min(end)..end
    }
}

/// `place + further - origin`, no less than 0.
fn before(place: usize, further: usize, origin: usize) -> usize {
    place.saturating_add(further).saturating_sub(origin)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: Option<usize>| bound.map_or("all".to_owned(), |bound| bound.to_string());
        match *self {
            Self::FULL => f.write_str("full"),
            Self::CAUSAL => f.write_str("causal"),
            Self { left, right } => write!(f, "window {} to {}", bound(left), bound(right)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [Option<usize>; 5] = [None, Some(0), Some(1), Some(3), Some(usize::MAX)];

    /// The definition, pair by pair.
    fn sees(window: Window, query: usize, key: usize, [queries, keys]: [usize; 2]) -> bool {
        let number = |n: usize| i128::try_from(n).expect("it is small");
        let ahead = number(key) - (number(query) + number(keys) - number(queries));
        window.left.is_none_or(|left| -ahead <= number(left))
            && window.right.is_none_or(|right| ahead <= number(right))
    }

    #[test]
    fn ranges_hold_the_pairs_that_the_bounds_leave() {
        for (left, right) in BOUNDS.into_iter().flat_map(|left| BOUNDS.map(|right| (left, right))) {
            let window = Window { left, right };
            for sizes in [[1, 1], [1, 6], [6, 1], [5, 5], [4, 9], [9, 4]] {
                for query in 0..sizes[0] {
                    let expected: Vec<_> =
                        (0..sizes[1]).filter(|key| sees(window, query, *key, sizes)).collect();
                    assert_eq!(
                        window.keys_of(query, sizes).collect::<Vec<_>>(),
                        expected,
                        "{window}, {sizes:?}"
                    );
                }
                for key in 0..sizes[1] {
                    let expected: Vec<_> =
                        (0..sizes[0]).filter(|query| sees(window, *query, key, sizes)).collect();
                    assert_eq!(
                        window.queries_of(key, sizes).collect::<Vec<_>>(),
                        expected,
                        "{window}, {sizes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_last_query_stands_at_the_last_key() {
        assert_eq!(Window::CAUSAL.keys_of(0, [1, 7]), 0..7);
        assert_eq!(Window::CAUSAL.keys_of(2, [7, 3]), 0..0);
        assert_eq!(Window::nearer(2).causal().keys_of(0, [1, 7]), 5..7);
        assert_eq!(Window::nearer(2).keys_of(3, [7, 7]), 2..5);
        assert_eq!(Window::nearer(1), Window { left: Some(0), right: Some(0) });
    }

    #[test]
    fn a_window_is_named_by_what_it_leaves() {
        let named =
            [Window::FULL, Window::CAUSAL, Window::nearer(4).causal(), Window { left: None, right: Some(2) }];
        assert_eq!(
            named.map(|window| window.to_string()),
            ["full", "causal", "window 3 to 0", "window all to 2"]
        );
    }
}
