//! Which tiles to try next.
//!
//! In: the tiles that are legal, and what is known of some. Out: others, around the best so far. Trying all would take hours where
//! this takes minutes: one number is changed at a time, until nothing near the best is unknown.

/// What became of a tile.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    /// It takes so long, seconds.
    Timed(f64),
    /// Why it was not timed.
    Rejected(String),
}

/// A tile of which something is known.
pub(super) type Known = (Vec<usize>, Fate);

/// The fastest.
pub(super) fn best(known: &[Known]) -> Option<(&[usize], f64)> {
    fastest(known).into_iter().next()
}

/// What was timed, the fastest first.
pub(super) fn fastest(known: &[Known]) -> Vec<(&[usize], f64)> {
    let timed = known.iter().filter_map(|(tile, fate)| match fate {
        Fate::Timed(seconds) => Some((tile.as_slice(), *seconds)),
        Fate::Rejected(_) => None,
    });
    let mut timed: Vec<_> = timed.collect();
    timed.sort_by(|one, other| one.1.total_cmp(&other.1));
    timed
}

/// Tiles to try: for each axis and each other value of it, the legal tile that has it and is otherwise nearest to the best, or to
/// `current` where nothing was timed. With `all`, every one.
pub(super) fn proposals(
    current: &[usize],
    legal: &[Vec<usize>],
    known: &[Known],
    all: bool,
) -> Vec<Vec<usize>> {
    let centre = best(known).map_or(current, |(tile, _)| tile);
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut propose = |tile: &[usize]| {
        let is_known = known.iter().any(|(other, _)| other == tile);
        if !is_known && !found.iter().any(|other| other == tile) {
            found.push(tile.to_vec());
        }
    };
    propose(current);
    if all {
        legal.iter().for_each(|tile| propose(tile));
    }
    for axis in 0..centre.len() {
        let mut values: Vec<usize> = legal.iter().map(|tile| tile[axis]).collect();
        values.sort_unstable();
        values.dedup();
        for value in values.into_iter().filter(|value| *value != centre[axis]) {
            let with = legal.iter().filter(|tile| tile[axis] == value);
            if let Some(tile) = with.min_by_key(|tile| distance(tile, centre)) {
                propose(tile);
            }
        }
    }
    found
}

/// How many numbers differ, then by how much.
fn distance(one: &[usize], other: &[usize]) -> (usize, usize) {
    let differing = one.iter().zip(other).filter(|(a, b)| a != b);
    (differing.clone().count(), differing.map(|(a, b)| a.abs_diff(*b)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers up to 8 whose product is at most 32.
    fn legal() -> Vec<Vec<usize>> {
        let all = (1..=8).flat_map(|a| (1..=8).map(move |b| vec![a, b]));
        all.filter(|tile| tile[0] * tile[1] <= 32).collect()
    }

    /// Tries until nothing is left, and says which tiles.
    fn tried(seconds: impl Fn(&[usize]) -> f64, current: &[usize], all: bool) -> Vec<Known> {
        let mut known = Vec::new();
        loop {
            let next = proposals(current, &legal(), &known, all);
            if next.is_empty() {
                return known;
            }
            known.extend(next.into_iter().map(|tile| {
                let seconds = Fate::Timed(seconds(&tile));
                (tile, seconds)
            }));
        }
    }

    #[test]
    fn the_best_is_found_by_steps_from_the_current_one() {
        let seconds = |tile: &[usize]| 100.0 - (tile[0] * tile[1]) as f64 - 0.1 * tile[0] as f64;
        let known = tried(seconds, &[1, 1], false);
        assert_eq!(best(&known).map(|(tile, _)| tile), Some(&[8, 4][..]));
        assert!(known.len() < legal().len(), "{known:?}");
        assert_eq!(tried(seconds, &[1, 1], true).len(), legal().len());
    }

    #[test]
    fn what_was_rejected_is_not_tried_again_and_is_never_the_best() {
        let mut known = vec![(vec![2, 2], Fate::Rejected("spills".to_owned()))];
        assert_eq!(best(&known), None);
        assert!(!proposals(&[2, 2], &legal(), &known, true).contains(&vec![2, 2]));
        known.push((vec![1, 2], Fate::Timed(3.0)));
        assert_eq!(best(&known), Some((&[1, 2][..], 3.0)));
    }

    #[test]
    fn a_value_that_is_legal_only_with_another_beside_it_is_tried() {
        let legal = [vec![2, 4], vec![3, 2], vec![3, 1]];
        assert_eq!(proposals(&[2, 4], &legal, &[], false), [vec![2, 4], vec![3, 2], vec![3, 1]]);
    }
}
