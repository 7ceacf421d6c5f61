use super::*;

fn all(tokens: &Tokens) -> Vec<i32> {
    let mut out = vec![0; tokens.len()];
    tokens.fill(0..tokens.len(), &mut out).unwrap();
    out
}

fn bytes_of(tokens: &Tokens) -> Vec<u8> {
    all(tokens).into_iter().map(|token| u8::try_from(token).unwrap()).collect()
}

fn raw(tokens: &[u16]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

#[test]
fn a_text_file_is_its_bytes_invalid_utf8_included() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let text = b"caf\xC3\xA9 \xFF\x00\n";
    fs::write(&path, text).unwrap();
    assert_eq!(bytes_of(&Tokens::open(&path, 256).unwrap()), text);
    let error = Tokens::open(&path, 255).unwrap_err().to_string();
    assert_eq!(error, "`vocab` must be at least 256 for text, whose tokens are bytes, found `255`");
    assert_eq!(bytes_of(&Tokens::embedded("poem", b"\xFEab", 256).unwrap()), b"\xFEab");
}

#[test]
fn a_folder_of_text_is_joined_in_path_order_by_newlines() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["b/inner", ".git"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let files = [("b/inner/x", "three"), ("b/y", "four\n"), ("a", "one\n"), ("b.txt", "two"), ("c", "")];
    let hidden = [(".DS_Store", "no"), (".git/HEAD", "no")];
    files.iter().chain(&hidden).for_each(|(name, text)| fs::write(at(name), text).unwrap());
    let found = String::from_utf8(bytes_of(&Tokens::open(folder.path(), 300).unwrap())).unwrap();
    assert_eq!(found, "one\nthree\nfour\ntwo");
}

#[test]
fn shards_join_in_path_order_and_any_range_of_them_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let sequence: Vec<u16> = (0..97).map(|i| i * 13 % 101).collect();
    let pieces = [&sequence[..1], &sequence[1..40], &[], &sequence[40..41], &sequence[41..]];
    for (i, piece) in pieces.iter().enumerate() {
        fs::write(folder.path().join(format!("part_{i}.bin")), raw(piece)).unwrap();
    }
    let tokens = Tokens::open(folder.path(), 101).unwrap();
    let expected: Vec<i32> = sequence.iter().map(|token| i32::from(*token)).collect();
    assert_eq!(all(&tokens), expected);
    for start in 0..=97 {
        for end in start..=97 {
            let mut out = vec![-1; end - start];
            tokens.fill(start..end, &mut out).unwrap();
            assert_eq!(out, expected[start..end], "{start}..{end}");
        }
    }
}

#[test]
fn a_folder_of_text_beside_tokens_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.bin"), raw(&[1, 2])).unwrap();
    fs::write(at(".hidden"), "no part of it").unwrap();
    assert!(!Tokens::open(folder.path(), 256).unwrap().is_text());
    fs::create_dir(at("inner")).unwrap();
    fs::write(at("inner/b.txt"), "text").unwrap();
    fs::write(at("z.txt"), "text").unwrap();
    let error = Tokens::open(folder.path(), 256).unwrap_err().to_string();
    let expected = format!(
        "a corpus folder must hold either `.bin` files alone or none, found `1` of them and `2` others, such as \
         `{}`, in `{}`: give them folders of their own",
        at("inner/b.txt").display(),
        folder.path().display()
    );
    assert_eq!(error, expected);
    fs::remove_file(at("a.bin")).unwrap();
    assert!(Tokens::open(folder.path(), 256).unwrap().is_text());
    assert!(Tokens::embedded("poem", b"a", 256).unwrap().is_text());
}

#[test]
fn a_fingerprint_tells_texts_and_the_ends_of_tokens_apart() {
    let folder = tempfile::tempdir().unwrap();
    let fingerprint = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        Tokens::open(&path, 300).unwrap().fingerprint().unwrap()
    };
    assert_eq!(fingerprint("a.txt", b"Nobody inspects"), Checksum::of(b"Nobody inspects"));
    assert_ne!(fingerprint("a.txt", b"Nobody inspects"), fingerprint("b.txt", b"Nobody inspectz"));
    let mib = 1 << 20;
    for n in [2, mib - 2, mib, 2 * mib, 5 * mib] {
        let bytes = vec![0; n];
        let whole = fingerprint("a.bin", &bytes);
        assert_eq!(whole, fingerprint("b.bin", &bytes), "{n} bytes");
        assert_ne!(whole, fingerprint("a.bin", &vec![0; n + 2]), "{n} bytes and 2 more");
        for at in [0, n - 2, (n - 1).min(mib - 2), n.saturating_sub(mib)] {
            let mut other = bytes.clone();
            other[at & !1] = 1;
            assert_ne!(whole, fingerprint("a.bin", &other), "byte {at} of {n}");
        }
    }
}

#[test]
fn a_file_of_tokens_that_is_cut_while_it_is_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    fs::write(&path, raw(&[7; 50_000])).unwrap();
    let tokens = Tokens::open(&path, 10).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20).unwrap();
    let mut out = [0; 10];
    tokens.fill(0..10, &mut out).unwrap();
    let error = tokens.fill(40_000..40_010, &mut out).unwrap_err().to_string();
    let expected = "must not change while it is read, but has become shorter";
    assert_eq!(error, format!("`{}` {expected}", path.display()));
    assert!(matches!(tokens.fingerprint(), Err(CorpusError::Shrunk { .. })));
}

#[cfg(unix)]
#[test]
fn devices_pipes_and_sockets_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket.bin");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [Path::new("/dev/zero"), &socket, &pipe] {
        let error = Tokens::open(path, 256).unwrap_err().to_string();
        let expected = "a corpus must be a file or a folder, found something else at";
        assert_eq!(error, format!("{expected} `{}`", path.display()));
    }
}

#[test]
fn a_token_outside_the_vocabulary_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    fs::write(&path, raw(&[1, 2, 50, 3])).unwrap();
    let error = Tokens::open(&path, 50).unwrap_err().to_string();
    let expected = "a token must be below `vocab`, `50`, found `50` at position `2` of ";
    assert_eq!(error, format!("{expected}`{}`", path.display()));
    assert!(Tokens::open(&path, 51).is_ok());
}

#[test]
fn a_bad_token_past_the_checked_part_is_found_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    let mut bytes = vec![0; 2 * N_CHECKED];
    bytes.extend(raw(&[9, 10]));
    fs::write(&path, bytes).unwrap();
    let tokens = Tokens::open(&path, 10).unwrap();
    let mut out = [0];
    tokens.fill(N_CHECKED..N_CHECKED + 1, &mut out).unwrap();
    assert_eq!(out, [9]);
    let error = tokens.fill(N_CHECKED + 1..N_CHECKED + 2, &mut out).unwrap_err();
    assert!(matches!(error, CorpusError::Token { token: 10, position, .. } if position == N_CHECKED + 1));
}

#[test]
fn what_cannot_be_a_corpus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| Tokens::open(path, 256).unwrap_err().to_string();
    let shown = |path: &Path| path.display().to_string();
    let root = folder.path();
    assert_eq!(
        error(root),
        format!("a corpus must have at least one file that is not hidden, found none in `{}`", shown(root))
    );
    let missing = root.join("missing");
    assert_eq!(error(&missing), format!("cannot read `{}`", shown(&missing)));
    for name in ["empty.txt", "empty.bin"] {
        let path = root.join(name);
        fs::write(&path, b"").unwrap();
        let expected = format!("a corpus must have at least one token, found none in `{}`", shown(&path));
        assert_eq!(error(&path), expected);
    }
}
