//! Which of some names was probably meant by one that nobody knows.

/// The nearest of `names`, unless even that is another word altogether.
#[must_use]
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().map(|other| (distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= 2.min(name.chars().count() / 2)).then_some(other)
}

/// Edit distance (V. Levenshtein, 1966): fewest insertions, deletions and replacements.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_letters() {
        for (a, b, expected) in
            [("layer", "layers", 1), ("thetta", "theta", 1), ("", "abc", 3), ("kv", "vk", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("layer", ["vocab", "layers"]), Some("layers"));
        assert_eq!(nearest("experts", ["vocab", "layers"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
