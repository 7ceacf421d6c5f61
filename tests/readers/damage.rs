//! Damage to sound input: to text by its tokens, to files by their bytes.
//!
//! In: random numbers and something sound. Out: something that often is not.

use kernwright_model::random::Random;

/// One of `choices`.
pub(crate) fn pick<'a, T: ?Sized>(random: &mut Random, choices: &[&'a T]) -> &'a T {
    choices[index(random, choices.len())]
}

/// A number below `n`, which is not 0.
pub(crate) fn index(random: &mut Random, n: usize) -> usize {
    random.below(n as u64) as usize
}

/// A number that is likely to lie where a check stands or is missing.
pub(crate) fn extreme(random: &mut Random, near: u64) -> u64 {
    let base = match random.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.below(64),
        3 => random.next_u64() >> random.below(64),
        _ => near,
    };
    base.wrapping_add(random.below(5)).wrapping_sub(2)
}

/// Does up to four things to `bytes`: bits flipped, a piece cut out, repeated, overwritten, or the end cut off.
pub(crate) fn bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(5) {
        if bytes.is_empty() {
            bytes.push(random.next_u64() as u8);
        }
        let start = index(random, bytes.len());
        let end = (start + 1 + index(random, 16)).min(bytes.len());
        match random.below(6) {
            0 => bytes[start] ^= 1 << random.below(8),
            1 => bytes[start] = pick(random, &[&b'\n', &b'"', &0, &0xff, &b'{', &b'9', &0x1b]).to_owned(),
            2 => drop(bytes.drain(start..end)),
            3 => {
                let piece = bytes[start..end].to_vec();
                bytes.splice(start..start, piece);
            }
            4 => bytes[start..end].fill(random.next_u64() as u8),
            _ => bytes.truncate(start),
        }
    }
}

/// Text that no grammar of ours knows, or only just.
const STRANGE: &[&str] = &[
    "",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{feff}",
    "\u{1b}[31m",
    "é",
    "日本",
    "\"",
    "'",
    "`",
    "\\",
    "\"\\n\"",
    "\"a\nb\"",
    "\"\\u001b\"",
    "r#\"a\n\"#",
    "b\"x\ny\"",
    "c\"z\"",
    "'c'",
    "'a",
    "r#type",
    "r#fn",
    "_",
    "is",
    "true",
    "false",
    "nan",
    "inf",
    "-",
    "+",
    "0",
    "1",
    "-1",
    "0x",
    "0xff",
    "0b2",
    "1_0",
    "1u8",
    "1e5f32",
    "1e999",
    "1e-400",
    "-0.0",
    "0.1e-5",
    "9223372036854775808",
    "340282366920938463463374607431768211456",
    "1979-05-27T07:32:00Z",
    "#",
    "//",
    "/*",
    "*/",
    "///",
    "!",
    "::",
    "=",
    "==",
    "=>",
    ",",
    ".",
    ";",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "()",
    "[]",
    "{}",
    "[[",
    "]]",
    "(,)",
    "$x",
    "\"\"\"",
    "'''",
    "a.b",
    "\"a.b\"",
    "\"x\\ny\"",
];

/// `text` in pieces: words, numbers, quotes and signs, which together are the text again.
fn pieces(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in text.char_indices() {
        if last.is_some_and(|last| !(is_word(last) && is_word(c))) {
            pieces.push(&text[start..at]);
            start = at;
        }
        last = Some(c);
    }
    pieces.push(&text[start..]);
    pieces
}

/// Text like `sound`, with up to four pieces lost, doubled, moved, nested or replaced, by what is strange, by pieces of
/// `others` and by `words` that the reader knows.
pub(crate) fn text(random: &mut Random, sound: &str, others: &[&str], words: &[String]) -> String {
    let mut pieces: Vec<String> = pieces(sound).into_iter().map(str::to_owned).collect();
    for _ in 0..random.below(5) {
        if pieces.is_empty() {
            pieces.push(String::new());
        }
        let at = index(random, pieces.len());
        let end = (at + 1 + index(random, 8)).min(pieces.len());
        let new = match random.below(4) {
            0 => pick(random, STRANGE).to_owned(),
            1 => words[index(random, words.len())].clone(),
            2 => extreme(random, 8).to_string(),
            _ => {
                let other = self::pieces(pick(random, others));
                let start = index(random, other.len());
                other[start..(start + 1 + index(random, 12)).min(other.len())].concat()
            }
        };
        match random.below(8) {
            0 => drop(pieces.drain(at..end)),
            1 => {
                let piece = pieces[at..end].to_vec();
                pieces.splice(at..at, piece);
            }
            2 => pieces.swap(at, end - 1),
            3 => pieces.insert(at, new),
            4 => {
                let (open, close) = *pick(random, &[&("(", ")"), &("[", "]"), &("{", "}"), &("\"", "\"")]);
                let depth = [1, 2, 40][index(random, 3)];
                pieces.insert(end, close.repeat(depth));
                pieces.insert(at, open.repeat(depth));
            }
            5 => {
                let n = 1 << random.below(8);
                pieces[at] = pieces[at].repeat(n);
            }
            _ => pieces[at] = new,
        }
    }
    pieces.concat()
}
