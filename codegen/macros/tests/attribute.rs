//! What the derive accepts, and what it says of mistakes: each at its own token, all at once.
//!
//! After a change of wording: `TRYBUILD=overwrite cargo test --test attribute`, and read the difference.

#[test]
fn declarations_expand_and_mistakes_are_reported_at_their_tokens() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/attribute/pass/*.rs");
    cases.compile_fail("tests/attribute/fail/*.rs");
}
