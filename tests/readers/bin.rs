//! `.bin`: tokens from a file.

use crate::damage;
use crate::{Outcome, check_message, hammer, within_memory};
use kernwright_model::corpus::Tokens;
use std::fs;

/// A file in the layout of `magic` that says it has `n` tokens.
fn with_header(magic: u32, version: u32, n: u32, tokens: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [magic, version, n].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(1024, 0);
    bytes.extend(tokens);
    bytes
}

#[test]
fn damaged_files_of_tokens_are_told_and_sound_ones_hold_only_tokens() {
    let narrow: Vec<u8> = (0..600_u16).flat_map(|i| (i * 7 % 500).to_le_bytes()).collect();
    let wide: Vec<u8> = (0..300_u32).flat_map(|i| (i * 1_117 % 90_000).to_le_bytes()).collect();
    let seeds =
        [with_header(20_240_520, 1, 600, &narrow), with_header(20_240_801, 7, 300, &wide), narrow, vec![]];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bin");
    hammer("bin", |random| {
        let mut bytes = seeds[damage::index(random, seeds.len())].clone();
        damage::bytes(random, &mut bytes);
        if let (0, Some(word)) = (random.below(2), bytes.get_mut(8..12)) {
            let n = damage::extreme(random, 600) as u32;
            word.copy_from_slice(&n.to_le_bytes());
        }
        fs::write(&path, &bytes).expect("a file");
        let vocab = *damage::pick(random, &[&1, &499, &500, &65_536, &90_000, &(1 << 20), &usize::MAX]);
        match within_memory(bytes.len(), || Tokens::open(&path, vocab)) {
            Ok(tokens) => {
                check_tokens(random, &tokens, &bytes);
                Outcome::Accepted
            }
            Err(error) => {
                check_message(&error.to_string(), &bytes);
                Outcome::Refused
            }
        }
    });
}

/// All tokens are below the vocabulary, are what lies at the end of the file, and read the same in parts.
fn check_tokens(random: &mut kernwright_model::random::Random, tokens: &Tokens, bytes: &[u8]) {
    let n = tokens.len();
    assert!(0 < n && 2 * n <= bytes.len(), "{n} tokens in {bytes:?}");
    let mut all = vec![-1; n];
    within_memory(bytes.len(), || tokens.fill(0..n, &mut all)).expect("they were checked when it was opened");
    let is_sound = |token: &i32| usize::try_from(*token).is_ok_and(|token| token < tokens.vocab());
    assert!(all.iter().all(is_sound), "{all:?} of {bytes:?}");
    let narrow: Vec<u8> = all.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect();
    let wide: Vec<u8> = all.iter().flat_map(|token| token.to_le_bytes()).collect();
    assert!(bytes.ends_with(&narrow) || bytes.ends_with(&wide), "{all:?} of {bytes:?}");
    let start = damage::index(random, n);
    let end = start + damage::index(random, n - start + 1);
    let mut part = vec![-1; end - start];
    tokens.fill(start..end, &mut part).expect("a part of what was read");
    assert_eq!(part, all[start..end]);
    tokens.fingerprint().expect("the file is there");
}
