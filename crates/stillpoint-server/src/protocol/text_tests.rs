use super::*;
use crate::protocol::MAX_KEY;
use proptest::prelude::*;

fn refusal(line: &[u8]) -> Refusal {
    parse(line).expect_err(&String::from_utf8_lossy(line))
}

/// Returns the storage command of a line, and whether it asks for no reply.
fn stored(line: &[u8]) -> (Storage<'_>, bool) {
    match parse(line) {
        Ok((Command::Store(storage), noreply)) => (storage, noreply),
        other => panic!("{other:?}"),
    }
}

#[test]
fn storage_commands_have_five_or_six_words() {
    let set = Storage {
        key: b"key",
        flags: 7,
        exptime: -1,
        len: 5,
        mode: Mode::Set,
        compare: None,
    };
    assert_eq!(stored(b"set key 7 -1 5"), (set, false));
    let cas = Storage {
        flags: u32::MAX,
        exptime: 0,
        len: 0,
        compare: Some(u64::MAX),
        ..set
    };
    let line = b"cas  key 4294967295 0 0 18446744073709551615  noreply ";
    assert_eq!(stored(line), (cas, true));
    for (name, mode) in [
        ("add", Mode::Add),
        ("replace", Mode::Replace),
        ("append", Mode::Append),
        ("prepend", Mode::Prepend),
    ] {
        assert_eq!(stored(format!("{name} k 0 0 1").as_bytes()).0.mode, mode);
    }
}

#[test]
fn a_value_whose_length_is_known_is_skipped_and_never_taken_for_commands() {
    let long = [b"set ".as_slice(), &[b'k'; MAX_KEY + 1], b" 0 0 7"].concat();
    assert_eq!(refusal(&long).skip, 9);
    let longest = [b"set ".as_slice(), &[b'k'; MAX_KEY], b" 0 0 7"].concat();
    assert_eq!(stored(&longest).0.len, 7);
    assert_eq!(stored(b"set k 0 0 2147483645").0.len, MAX_ANNOUNCED);
}

/// What answers a line that cannot be executed, how much of what follows is skipped, and whether there is
/// no answer.
#[test]
fn lines_that_are_refused() {
    let mut rows = 0;
    for row in "
        error 0 answered:|  |GET k|bogus|setx k 0 0 1|m|mz k|mgg k|\u{80}\0|\0
        error 0 answered:set|set k|set k 0 0|cas k 0 0 1|set k 0 0 1 2 3
        # A value whose length is known is skipped.
        bad 9 answered:set k x 0 7|set k 0 99999999999 7|cas k 0 0 7 x|set k -1 0 7
        bad 9 silent:set k x 0 7 noreply
        # No value has these lengths. (Without one, `noreply` is it.)
        bad 0 silent:set k 0 0 -1 noreply|set k 0 0 2147483647 noreply|set k 0 0 2147483646 noreply
        bad 0 silent:set k 0 0 4294967295 noreply|set k 0 0 18446744073709551615 noreply
        bad 0 silent:set k 0 0 99999999999999999999999999 noreply|set k 0 0 1x noreply|set k 0 0  noreply
        error 0 answered:delete|delete k 0 0 noreply|incr n|verbosity|touch noreply
        delete 0 answered:delete k 10|delete noreply 5
        delete 0 silent:delete k 10 noreply
        bad 0 answered:verbosity noreply|cache_memlimit noreply
        delta 0 answered:incr n -1
        exptime 0 answered:touch k soon|flush_all invalid
        mode 0 answered:shutdown now
    "
    .lines()
    {
        let Some((told, lines)) = row.trim_start().split_once(':') else {
            continue;
        };
        let [answer, skip, silent] = told.split(' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let answer = match answer {
            "error" => ERROR,
            "bad" => BAD_FORMAT,
            "delete" => BAD_DELETE,
            "delta" => BAD_DELTA,
            "exptime" => BAD_EXPTIME,
            "mode" => Refusal::new("CLIENT_ERROR invalid shutdown mode"),
            other => panic!("{other}"),
        };
        let expected = Refusal {
            skip: skip.parse().unwrap(),
            ..answer.silent(silent == "silent")
        };
        for line in lines.split('|') {
            assert_eq!(refusal(line.as_bytes()), expected, "{line:?}");
        }
        rows += 1;
    }
    assert_eq!(rows, 14);
}

/// Replies to all that follow would be taken for those before them, if a key that is called `noreply` were
/// not answered. Old clients send a time with `delete`.
#[test]
fn commands_without_a_value_are_read() {
    for row in "delete k -> Delete { key: [107] }
delete k 0 -> Delete { key: [107] }
delete k noreply -> Delete { key: [107] } silent
delete k 0 noreply -> Delete { key: [107] } silent
delete noreply -> Delete { key: [110, 111, 114, 101, 112, 108, 121] }
delete noreply 0 -> Delete { key: [110, 111, 114, 101, 112, 108, 121] }
touch noreply 0 -> Touch { key: [110, 111, 114, 101, 112, 108, 121], exptime: 0 }
touch noreply 0 noreply -> Touch { key: [110, 111, 114, 101, 112, 108, 121], exptime: 0 } silent
incr n 18446744073709551615 -> Arithmetic { key: [110], delta: 18446744073709551615, down: false }
decr n 1 noreply -> Arithmetic { key: [110], delta: 1, down: true } silent
touch n -1 -> Touch { key: [110], exptime: -1 }
flush_all -> FlushAll { exptime: 0 }
flush_all noreply -> FlushAll { exptime: 0 } silent
flush_all 9 noreply -> FlushAll { exptime: 9 } silent
cache_memlimit 64 -> Limit { mib: 64 }
verbosity 1 -> Verbosity { level: 1 }
shutdown graceful -> Shutdown(true)
GET / HTTP/1.1 -> Http
POST HTTP/1.1 -> Http"
        .lines()
    {
        let (line, expected) = row.split_once(" -> ").unwrap();
        let (command, noreply) = parse(line.as_bytes()).unwrap();
        let read = format!("{command:?}{}", if noreply { " silent" } else { "" });
        assert_eq!(read, expected, "{line}");
    }
    for line in ["set noreply 0 0 1", "cas noreply 0 0 1 1"] {
        for (line, silent) in [(line.to_owned(), false), (format!("{line} noreply"), true)] {
            let (storage, noreply) = stored(line.as_bytes());
            assert_eq!((storage.key, noreply), (&b"noreply"[..], silent));
        }
    }
}

#[test]
fn keys_are_read_one_by_one() {
    let read = |line| retrieval(line).map(|head| (head.cas, head.touch, head.len));
    assert_eq!(read(b"get a"), Some((false, false, 4)));
    assert_eq!(read(b"gats 0 a"), Some((true, true, 5)));
    for none in [
        &b"get"[..],
        b"ge",
        b"get\r\n",
        b"getx a",
        b"gits a",
        b"set a",
    ] {
        assert_eq!(retrieval(none), None, "{none:?}");
    }
    assert_eq!(keys(b" a b\r\n"), Token::Word { word: b"a", len: 2 });
    assert_eq!(keys(b"b\r\n"), Token::Word { word: b"b", len: 1 });
    assert_eq!(keys(b"\r\nget"), Token::End { len: 2 });
    assert_eq!(keys(b"  \n"), Token::End { len: 3 });
    assert_eq!(keys(b"  abc"), Token::Partial { spaces: 2 });
    assert_eq!(keys(b"abc\r"), Token::Partial { spaces: 0 });
    let key = [b'k'; MAX_KEY];
    assert_eq!(
        keys(&[&key[..], b"\r\n"].concat()),
        Token::Word {
            word: &key,
            len: MAX_KEY
        }
    );
    assert_eq!(
        keys(&[&key[..], b"\r"].concat()),
        Token::Partial { spaces: 0 }
    );
    assert_eq!(keys(&[&key[..], b"k\r\n"].concat()), Token::TooLong);
    assert_eq!(keys(&[&key[..], b"k "].concat()), Token::TooLong);
    assert_eq!(keys(&[b'k'; 100_000]), Token::TooLong);
}

proptest! {
    #[test]
    fn arbitrary_lines_do_not_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&line);
        let _ = keys(&line);
    }

    #[test]
    fn almost_commands_do_not_panic(
        name in "(set|cas|mg|ms|md|ma|me|incr|touch|delete|flush_all|stats)",
        words in proptest::collection::vec("([a-zA-Z][0-9+-]{0,25}|-?[0-9]{1,25}|noreply|b)", 0..30),
    ) {
        let line = format!("{name} {}", words.join(" "));
        if let Ok((Command::Store(storage), _)) = parse(line.as_bytes()) {
            prop_assert!(is_key(storage.key) && storage.len <= MAX_ANNOUNCED);
        }
    }

    // However a line of keys is cut into pieces, the same keys come out.
    #[test]
    fn keys_do_not_depend_on_where_input_ends(
        words in proptest::collection::vec("[a-z]{1,20}", 0..20),
        piece in 1usize..40,
    ) {
        let line = format!(" {}\r\n", words.join("  "));
        let (mut seen, mut at, mut have) = (Vec::new(), 0, 0);
        loop {
            match keys(&line.as_bytes()[at..have]) {
                Token::Word { word, len } => {
                    seen.push(String::from_utf8(word.to_vec()).unwrap());
                    at += len;
                }
                Token::End { len } => {
                    at += len;
                    break;
                }
                Token::Partial { spaces } => {
                    at += spaces;
                    have = (have + piece).min(line.len());
                }
                Token::TooLong => unreachable!(),
            }
        }
        prop_assert_eq!(seen, words);
        prop_assert_eq!(at, line.len());
    }
}
