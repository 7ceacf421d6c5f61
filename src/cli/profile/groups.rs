//! What kinds of work there are in a step.

/// The groups, in the order in which they are shown, with the ops that belong to each. Products of matrices are a group of
/// their own, whatever op they are of, but for those of attention.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (PRODUCTS, &["linear", "linear_backward"]),
    (ATTENTION, &["attention", "attention_backward"]),
    ("norm", &["norm", "norm_backward"]),
    ("loss", &["head_loss", "head"]),
    ("optimiser", &["adamw", "gradient_norm"]),
];

/// Products of matrices.
pub(super) const PRODUCTS: &str = "GEMM";
const ATTENTION: &str = "attention";
/// Whatever else there is.
const OTHER: &str = "other";

/// The group of a launch of an op.
pub(super) fn of(op: &str, is_product: bool) -> &'static str {
    let group = GROUPS.iter().find(|(_, ops)| ops.contains(&op)).map_or(OTHER, |(group, _)| *group);
    if is_product && group != ATTENTION { PRODUCTS } else { group }
}

/// Colours that are told apart in the dark and in the light, by group.
pub(super) fn colour(group: &str) -> &'static str {
    match GROUPS.iter().position(|(name, _)| *name == group) {
        Some(0) => "#3b82f6",
        Some(1) => "#f59e0b",
        Some(2) => "#10b981",
        Some(3) => "#ec4899",
        Some(4) => "#a855f7",
        _ => "#8b949e",
    }
}
