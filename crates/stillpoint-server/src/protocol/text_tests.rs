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
    for short in [
        &b"set"[..],
        b"set k",
        b"set k 0 0",
        b"cas k 0 0 1",
        b"set k 0 0 1 2 3",
    ] {
        assert_eq!(refusal(short), ERROR, "{short:?}");
    }
}

#[test]
fn a_value_whose_length_is_known_is_skipped_and_never_taken_for_commands() {
    for line in [
        &b"set k x 0 7"[..],
        b"set k 0 99999999999 7",
        b"cas k 0 0 7 x",
        b"set k -1 0 7",
    ] {
        assert_eq!(
            (refusal(line).line, refusal(line).skip),
            (BAD_FORMAT.line, 9),
            "{line:?}"
        );
    }
    let long = [b"set ".as_slice(), &[b'k'; MAX_KEY + 1], b" 0 0 7"].concat();
    assert_eq!(refusal(&long).skip, 9);
    assert_eq!(
        stored(&[b"set ".as_slice(), &[b'k'; MAX_KEY], b" 0 0 7"].concat()).len,
        7
    );
    assert!(refusal(b"set k x 0 7 noreply").silent);
}

#[test]
fn lengths_that_no_value_has_are_refused() {
    for len in [
        "-1",
        "2147483647",
        "2147483646",
        "4294967295",
        "18446744073709551615",
        "99999999999999999999999999",
        "",
        "1x",
    ] {
        let line = format!("set k 0 0 {len} noreply");
        let refusal = refusal(line.as_bytes());
        // (Without a length, `noreply` is one.)
        assert_eq!((refusal.line, refusal.skip), (BAD_FORMAT.line, 0), "{line}");
    }
    assert_eq!(stored(b"set k 0 0 2147483645").len, MAX_ANNOUNCED);
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
    assert_eq!(refusal(b"delete k 10").line, BAD_DELETE.line);
    assert!(refusal(b"delete k 10 noreply").silent);
    assert_eq!(refusal(b"delete"), ERROR);
    assert_eq!(refusal(b"delete k 0 0 noreply"), ERROR);
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
    // What is missing is not it, either.
    for line in [
        "delete noreply 5",
        "verbosity noreply",
        "cache_memlimit noreply",
    ] {
        assert!(!refusal(line.as_bytes()).silent, "{line}");
    }
    assert_eq!(refusal(b"touch noreply"), ERROR);
}

#[test]
fn numbers_of_other_commands() {
    assert!(matches!(
        parse(b"incr n 18446744073709551615"),
        Ok(Command::Arithmetic {
            delta: u64::MAX,
            down: false,
            ..
        })
    ));
    assert!(matches!(
        parse(b"decr n 1 noreply"),
        Ok(Command::Arithmetic {
            down: true,
            noreply: true,
            ..
        })
    ));
    assert_eq!(refusal(b"incr n -1").line, BAD_DELTA.line);
    assert_eq!(refusal(b"incr n"), ERROR);
    assert_eq!(refusal(b"touch k soon").line, BAD_EXPTIME.line);
    assert!(matches!(
        parse(b"touch k -1"),
        Ok(Command::Touch { exptime: -1, .. })
    ));
    assert!(matches!(
        parse(b"flush_all"),
        Ok(Command::FlushAll {
            exptime: 0,
            noreply: false
        })
    ));
    assert!(matches!(
        parse(b"flush_all noreply"),
        Ok(Command::FlushAll {
            exptime: 0,
            noreply: true
        })
    ));
    assert!(matches!(
        parse(b"flush_all 9 noreply"),
        Ok(Command::FlushAll {
            exptime: 9,
            noreply: true
        })
    ));
    assert_eq!(refusal(b"flush_all invalid").line, BAD_EXPTIME.line);
    assert!(matches!(
        parse(b"cache_memlimit 64"),
        Ok(Command::Limit {
            mib: 64,
            noreply: false
        })
    ));
    assert!(matches!(
        parse(b"verbosity 1"),
        Ok(Command::Verbosity { level: 1, .. })
    ));
    assert_eq!(refusal(b"verbosity"), ERROR);
    assert!(matches!(
        parse(b"shutdown graceful"),
        Ok(Command::Shutdown(true))
    ));
    assert_eq!(
        refusal(b"shutdown now").line,
        "CLIENT_ERROR invalid shutdown mode"
    );
}

#[test]
fn what_is_no_command() {
    for line in [
        &b""[..],
        b" ",
        b"GET k",
        b"bogus",
        b"setx k 0 0 1",
        b"m",
        b"mz k",
        b"mgg k",
        b"\x80\x00",
        b"\0",
    ] {
        assert_eq!(refusal(line), ERROR, "{line:?}");
    }
    assert!(matches!(parse(b"GET / HTTP/1.1"), Ok(Command::Http)));
    assert!(matches!(parse(b"POST HTTP/1.1"), Ok(Command::Http)));
}

#[test]
fn keys_are_read_one_by_one() {
    assert_eq!(
        retrieval(b"get a"),
        Some(Retrieval {
            cas: false,
            touch: false,
            len: 4
        })
    );
    assert_eq!(
        retrieval(b"gats 0 a"),
        Some(Retrieval {
            cas: true,
            touch: true,
            len: 5
        })
    );
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
