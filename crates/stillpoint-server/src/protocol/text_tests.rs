use super::*;
use crate::protocol::MAX_KEY;
use proptest::prelude::*;

fn refusal(line: &[u8]) -> Refusal {
    parse(line).expect_err(&String::from_utf8_lossy(line))
}

fn stored(line: &[u8]) -> Storage<'_> {
    match parse(line) {
        Ok(Command::Store(storage)) => storage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn storage_commands_have_five_or_six_words() {
    let set = stored(b"set key 7 -1 5");
    assert_eq!(
        (set.key, set.flags, set.exptime, set.len),
        (&b"key"[..], 7, -1, 5)
    );
    assert_eq!((set.mode, set.noreply), (Mode::Set, false));
    let cas = stored(b"cas  key 4294967295 0 0 18446744073709551615  noreply ");
    assert_eq!(
        (cas.mode, cas.noreply, cas.len),
        (Mode::Cas(u64::MAX), true, 0)
    );
    for (name, mode) in [
        ("add", Mode::Add),
        ("replace", Mode::Replace),
        ("append", Mode::Append),
        ("prepend", Mode::Prepend),
    ] {
        assert_eq!(stored(format!("{name} k 0 0 1").as_bytes()).mode, mode);
        assert_eq!(mode.name(), name);
    }
}

#[test]
fn a_value_whose_length_is_known_is_skipped_and_never_taken_for_commands() {
    let long = [b"set ".as_slice(), &[b'k'; MAX_KEY + 1], b" 0 0 7"].concat();
    assert_eq!(refusal(&long).skip, 9);
    assert_eq!(
        stored(&[b"set ".as_slice(), &[b'k'; MAX_KEY], b" 0 0 7"].concat()).len,
        7
    );
    assert_eq!(stored(b"set k 0 0 2147483645").len, MAX_ANNOUNCED);
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

#[test]
fn delete_knows_what_old_clients_send() {
    for line in [
        &b"delete k"[..],
        b"delete k 0",
        b"delete k noreply",
        b"delete k 0 noreply",
    ] {
        let Ok(Command::Delete { key: b"k", noreply }) = parse(line) else {
            panic!("{line:?}")
        };
        assert_eq!(noreply, line.ends_with(b"noreply"));
    }
}

/// Replies to all that follow would be taken for those before them.
#[test]
fn a_key_that_is_called_noreply_is_answered() {
    let Ok(Command::Delete {
        key: b"noreply",
        noreply,
    }) = parse(b"delete noreply")
    else {
        panic!("it has a key")
    };
    assert!(!noreply);
    for line in [
        "delete noreply 0",
        "touch noreply 0",
        "incr noreply 1",
        "decr noreply 1",
    ] {
        for (line, silent) in [(line.to_owned(), false), (format!("{line} noreply"), true)] {
            match parse(line.as_bytes()) {
                Ok(
                    Command::Delete { key, noreply }
                    | Command::Touch { key, noreply, .. }
                    | Command::Arithmetic { key, noreply, .. },
                ) => assert_eq!((key, noreply), (&b"noreply"[..], silent), "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }
    for line in ["set noreply 0 0 1", "cas noreply 0 0 1 1"] {
        let with = format!("{line} noreply");
        let (without, with) = (stored(line.as_bytes()), stored(with.as_bytes()));
        assert_eq!((without.key, without.noreply), (&b"noreply"[..], false));
        assert_eq!((with.key, with.noreply), (&b"noreply"[..], true));
    }
}

#[test]
fn commands_without_a_value_are_read() {
    for row in "incr n 18446744073709551615 -> Arithmetic { key: [110], delta: 18446744073709551615, down: false, noreply: false }
decr n 1 noreply -> Arithmetic { key: [110], delta: 1, down: true, noreply: true }
touch n -1 -> Touch { key: [110], exptime: -1, noreply: false }
flush_all -> FlushAll { exptime: 0, noreply: false }
flush_all noreply -> FlushAll { exptime: 0, noreply: true }
flush_all 9 noreply -> FlushAll { exptime: 9, noreply: true }
cache_memlimit 64 -> Limit { mib: 64, noreply: false }
verbosity 1 -> Verbosity { level: 1, noreply: false }
shutdown graceful -> Shutdown(true)
GET / HTTP/1.1 -> Http
POST HTTP/1.1 -> Http"
        .lines()
    {
        let (line, command) = row.split_once(" -> ").unwrap();
        let read = format!("{:?}", parse(line.as_bytes()).unwrap());
        assert_eq!(read, command, "{line}");
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
        if let Ok(Command::Store(storage)) = parse(line.as_bytes()) {
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
