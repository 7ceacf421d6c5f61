//! How many parameters the text of a kernel says it has.
//!
//! The driver tells of parameters by their numbers, and NVIDIA's tools report it as a failure when asked for one too many.

/// The parameters of the function of that name in a text of CUDA, where it is found; at least as many as there are: a comma
/// between angle brackets counts, too.
pub(super) fn n_parameters(text: &str, name: &str) -> Option<usize> {
    let list = parameters(text, name)?;
    let mut depth = 0;
    let mut is_between = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    let is_empty = matches!(list.trim(), "" | "void");
    Some(if is_empty { 0 } else { 1 + list.chars().filter(|c| is_between(*c)).count() })
}

/// What stands in its brackets, without comments.
fn parameters(text: &str, name: &str) -> Option<String> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let rest = text.match_indices(name).find_map(|(at, _)| {
        let rest = text[at + name.len()..].trim_start().strip_prefix('(')?;
        (!text[..at].ends_with(is_of_name)).then_some(rest)
    })?;
    let mut depth = 1;
    let mut is_inside = |c: &char| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth > 0
    };
    let code =
        rest.lines().flat_map(|line| line.split("//").next().unwrap_or_default().chars().chain(['\n']));
    let list: String = code.take_while(|c| is_inside(c)).collect();
    (depth == 0).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn parameters_are_counted_where_a_kernel_is_defined() {
        for (text, wanted) in [
            (
                "__global__ void __launch_bounds__(BLOCK, 1)\n    k(float* __restrict__ out, i32 n,\n      i64 m) { f(n, m); }",
                3,
            ),
            ("__global__ void k() {}", 0),
            ("__global__ void k (void) {}", 0),
            ("__global__ void k(int a,  // a) one, of many\n  int b) {}", 2),
            (
                "// What kk(a, b) does, k does.\nvoid kk(int a) {}\n__global__ void k(const Map<2, 3> map, int (*f)(int, int)) {}",
                3,
            ),
        ] {
            assert_eq!(n_parameters(text, "k"), Some(wanted), "{text}");
        }
        for text in ["", "__global__ void kk(int n) {}", "k(int n"] {
            assert_eq!(n_parameters(text, "k"), None, "{text}");
        }
    }
    #[test]
    fn every_template_has_a_list_that_is_counted_exactly() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/ops")];
        let mut n_templates = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("it is a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a template").replace("${ kernel }$", "k");
                let list = parameters(&text, "k").unwrap_or_else(|| panic!("{}", path.display()));
                assert!(
                    !list.is_empty() && !list.contains(['<', '(', '%', '$']),
                    "{}: {list}",
                    path.display()
                );
                n_templates += 1;
            }
        }
        assert!(n_templates > 20, "{n_templates}");
    }
}
