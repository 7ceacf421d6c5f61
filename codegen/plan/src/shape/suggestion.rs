//! What to say of a name nobody knows: the one that was probably meant, or all that are allowed.
//!
//! In: a path and the paths there are. Out: a message. Must not know what any field means.

use crate::nearest::nearest;

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
    let other = nearest(name, siblings(path, known))?;
    Some(if parent.is_empty() { other.to_owned() } else { format!("{parent}.{other}") })
}

/// What to say of a path that nobody knows.
pub(super) fn unknown(path: &str, known: &[String]) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let siblings = siblings(path, known);
    let list: Vec<_> = siblings.iter().map(|other| format!("`{other}`")).collect();
    let list = list.join(", ");
    if let (true, Some(meant)) = (parent.is_empty(), meant(path, known)) {
        return format!("`{name}` is not a section: did you mean `{meant}`?");
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_gets_the_list() {
        let known = ["model.layers", "model.tied", "attention.rope.theta"].map(str::to_owned);
        assert!(unknown("model.layer", &known).ends_with("did you mean `layers`?"));
        assert!(unknown("model.experts", &known).ends_with("allowed are `layers`, `tied`"));
        assert!(unknown("model.tied.x", &known).contains("takes nothing in parentheses"));
        assert_eq!(meant("attention.rope.thetta", &known), Some("attention.rope.theta".to_owned()));
    }
}
