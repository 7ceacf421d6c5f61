//! What to say of a name nobody knows: the one that was probably meant, or all that are allowed.
//!
//! In: a path and the paths there are. Out: a message. Must not know what any field means.

use crate::arch;

/// The last part of a path.
pub(super) fn key(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The names known beside `path`, in its section or setting.
fn siblings<'a>(path: &str, known: &'a [String]) -> Vec<&'a str> {
    let (parent, _) = path.rsplit_once('.').unwrap_or(("", path));
    let split = known.iter().map(|other| other.rsplit_once('.').unwrap_or(("", other)));
    split.filter(|(other_parent, _)| *other_parent == parent).map(|(_, name)| name).collect()
}

/// The path that was probably meant by one that nobody knows.
pub(super) fn meant(path: &str, known: &[String]) -> Option<String> {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let distances = siblings(path, known).into_iter().map(|other| (distance(name, other), other));
    let (distance, other) = distances.min()?;
    (parent != "target" && distance <= 2.min(name.len() / 2)).then(|| format!("{parent}.{other}"))
}

/// What to say of a path that nobody knows.
pub(super) fn unknown(path: &str, known: &[String]) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    if parent == "target" {
        // `sm_90` for `sm_90a`: the letter is easily forgotten, since GPUs are known by their number.
        let is_letter = |rest: &str| rest.chars().all(char::is_alphabetic);
        let meant = arch::ALL.iter().find(|arch| arch.name.strip_prefix(name).is_some_and(is_letter));
        return match meant {
            Some(arch) => format!("`{name}` is not a known GPU: did you mean `{}`?", arch.name),
            None => format!("`{name}` is not a known GPU: allowed are {}", arch::names()),
        };
    }
    let siblings = siblings(path, known);
    let list: Vec<_> = siblings.iter().map(|other| format!("`{other}`")).collect();
    let list = list.join(", ");
    if parent.is_empty() {
        return format!("`{name}` is not a section: allowed are {list}");
    }
    if let Some(meant) = meant(path, known) {
        return format!("`{name}` is not a field of `{parent}`: did you mean `{}`?", key(&meant));
    }
    if siblings.is_empty() {
        return format!("`{}` takes nothing in parentheses, found `{name}`", key(parent));
    }
    format!("`{name}` is not a field of `{parent}`: allowed are {list}")
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
    fn a_near_name_is_suggested_and_a_far_one_gets_the_list() {
        let known = ["model.layers", "model.tied", "attention.rope.theta"].map(str::to_owned);
        assert!(unknown("model.layer", &known).ends_with("did you mean `layers`?"));
        assert!(unknown("model.experts", &known).ends_with("allowed are `layers`, `tied`"));
        assert!(unknown("target.sm_90", &known).ends_with("did you mean `sm_90a`?"));
        assert!(unknown("target.sm_9", &known).contains("allowed are"));
        assert!(unknown("model.tied.x", &known).contains("takes nothing in parentheses"));
        assert_eq!(meant("attention.rope.thetta", &known), Some("attention.rope.theta".to_owned()));
    }
}
