use super::*;

/// What a file holds, as text: `user/uid[groups]` of each of these tokens, and the number of warnings.
fn read_as(content: &[u8], tokens: &[&[u8]]) -> (Vec<String>, usize) {
    let parsed = parse(content, &BTreeSet::new());
    assert_eq!(parsed.mistakes, [""; 0]);
    let (users, warnings) = (parsed.users, parsed.warnings);
    let shown = |token: &&[u8]| {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let Some(user) = users.get(&digest) else {
            return "-".to_owned();
        };
        format!("{}/{}{:?}", user.name, user.uid, user.groups)
    };
    assert!(users.len() <= tokens.len(), "a token is not looked for");
    (tokens.iter().map(shown).collect(), warnings.len())
}

#[test]
fn a_file_is_read_as_the_apiserver_reads_it() {
    let check = |content: &str, expected: &[(&str, &str)], warnings: usize| {
        let tokens: Vec<&[u8]> = expected.iter().map(|(token, _)| token.as_bytes()).collect();
        let users = expected
            .iter()
            .map(|(_, user)| (*user).to_owned())
            .collect();
        assert_eq!(
            read_as(content.as_bytes(), &tokens),
            (users, warnings),
            "{content:?}"
        );
    };
    check("", &[], 1);
    check("\r\n\n", &[], 1);
    check(",u,1\n", &[], 2);
    check("t,u,1\n", &[("t", "u/1[]")], 0);
    check("t,u,\n", &[("t", "u/[]")], 0);
    check(
        "t,u,1,g\r\ns,v,2",
        &[("t", r#"u/1["g"]"#), ("s", "v/2[]")],
        0,
    );
    check("t,u,1,\"g,h\"\n", &[("t", r#"u/1["g", "h"]"#)], 0);
    check("t,u,1,\"g\"\"h,ü\"\n", &[("t", r#"u/1["g\"h", "ü"]"#)], 0);
    // Groups are split at commas and nothing else, and an empty one is one.
    check("t,u,1,\n", &[("t", r#"u/1[""]"#)], 1);
    check("t,u,1,\"g,,g\"\n", &[("t", r#"u/1["g", "", "g"]"#)], 1);
    // Spaces belong to their token.
    check(" t ,u,1\n", &[(" t ", "u/1[]"), ("t", "-")], 1);
    check("t\tx,u,1\n", &[("t\tx", "u/1[]")], 1);
    check("#t,u,1\n", &[("#t", "u/1[]")], 0);
    check("t,u,1,g,h\n", &[("t", r#"u/1["g"]"#)], 1);
    check("t,u,1\nt,v,2\n", &[("t", "v/2[]")], 1);
    check(",u,1\nt,v,2\n", &[("", "-"), ("t", "v/2[]")], 1);
    check("\u{feff}t,u,1\n", &[("\u{feff}t", "u/1[]"), ("t", "-")], 1);
    assert_eq!(
        read_as(b"\xff,u,1\n", &[b"\xff"]),
        (vec!["u/1[]".to_owned()], 0)
    );
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (content, expected) in [
        (
            &b"t,u\n"[..],
            "line 1: at least 3 columns (token, user name, user uid) are needed, found 2",
        ),
        (
            b"\n\nt\n",
            "line 3: at least 3 columns (token, user name, user uid) are needed, found 1",
        ),
        (
            b"\"\nt\",u,1\ns\n",
            "line 3: at least 3 columns (token, user name, user uid) are needed, found 1",
        ),
        (b"t,u,1\n\"t\"x,u,1\n", "line 2: text after a closing quote"),
        (b"t,\"u,1\n", "line 1: a quote that is not closed"),
        (b"t,u\"v,1\n", "line 1: a quote in a field without quotes"),
        // Stricter than the server: it takes these, and they could not reach a cluster as they are.
        (b"t,,1\n", "line 1: the user has no name"),
        (
            b"t, u,1\n",
            "line 1: user name \" u\" begins or ends with a space",
        ),
        (
            b"t,u,1,\"g, h\"\n",
            "line 1: group \" h\" begins or ends with a space",
        ),
        (
            b"t,\"u\nv\",1\n",
            "line 1: user name \"u\\nv\" has a control character",
        ),
        (
            b"t,u,1,g\0\n",
            "line 1: group \"g\\0\" has a control character",
        ),
        (b"t,\xff,1\n", "line 1: user name is not UTF-8"),
        (b"t,u,\xff\n", "line 1: uid is not UTF-8"),
        (b"t,u,1,\xff\n", "line 1: group is not UTF-8"),
    ] {
        assert_eq!(TokenFile::new(content).unwrap_err(), [expected]);
    }
}

#[test]
fn each_mistake_and_each_warning_is_told_with_its_line() {
    let content = b"t1\nt2,a,,\nt3,b\"c,1\nt4,\"x\"y,2\n,d,3\n\"t5\nmore\",system:e,4,\"system:authenticated,system:f,,system:g\"\nt6,h\n        t7,i,5,system:unauthenticated\nt8, j,6\nt2,k,7,l,m\nt9,\"n";
    let line = |line: usize, text: &str| format!("line {line}: {text}");
    let columns = |found: usize| {
        format!("at least 3 columns (token, user name, user uid) are needed, found {found}")
    };
    let mistakes = [
        line(1, &columns(1)),
        line(3, "a quote in a field without quotes"),
        line(4, "text after a closing quote"),
        line(8, &columns(2)),
        line(10, "user name \" j\" begins or ends with a space"),
        line(12, "a quote that is not closed"),
    ];
    assert_eq!(TokenFile::new(content).unwrap_err(), mistakes);
    let empty = "a group without a name, by a comma too many: it counts, as in kube-apiserver, and a role that lists the groups \
                 to impersonate refuses its user";
    let spaced = "a space or a control character in the token: it belongs to it, and clients cannot send such a token, or send it \
                  up to the first space";
    let own = "names that begin with \"system:\" are Kubernetes' own, and come from here only where allowSystemNames lists them";
    let allow = BTreeSet::from(["system:g".to_owned(), "system:unauthenticated".to_owned()]);
    assert_eq!(
        TokenFile::warnings(content, &allow),
        [
            line(2, empty),
            line(5, "an empty token is nobody's"),
            line(6, spaced),
            line(
                6,
                &format!("nobody has this token: user \"system:e\": {own}")
            ),
            line(6, &format!("group \"system:f\" is left out: {own}")),
            line(6, empty),
            line(9, spaced),
            line(
                9,
                "group \"system:unauthenticated\" is left out: it is for who has no credential"
            ),
            line(
                11,
                "columns after the fourth mean nothing; a list of groups is quoted"
            ),
            line(11, "the token of an earlier line; this one counts"),
        ]
    );
    let fine = b"t,system:e,1,\"system:g,h\"\n";
    let allow = BTreeSet::from(["system:e".to_owned(), "system:g".to_owned()]);
    assert_eq!(TokenFile::warnings(fine, &allow), [""; 0]);
}

#[test]
fn nothing_shown_or_kept_is_a_token() {
    let file = TokenFile::new(b"s3cret,u,1\n").unwrap();
    assert_eq!(format!("{file:?}"), "TokenFile { .. }");
    let kept = format!("{:?}", file.users);
    assert!(kept.contains("\"u\"") && !kept.contains("s3cret"), "{kept}");
    let wrong = TokenFile::new(b"s3cret,u\n").unwrap_err();
    assert!(!wrong[0].contains("s3cret"), "{wrong:?}");
}

#[test]
fn csv_is_read_as_go_reads_it() {
    // What `encoding/csv` of Go 1.26 gives, with any number of fields a record, when it is asked for more after an error too.
    for (content, expected) in [
        ("a,b,c\n", r#"1["a", "b", "c"]"#),
        ("a,b,c", r#"1["a", "b", "c"]"#),
        ("a,b,c\r\n", r#"1["a", "b", "c"]"#),
        ("a,b,c\r", r#"1["a", "b", "c"]"#),
        ("a,b,c\r\r\n", r#"1["a", "b", "c\r"]"#),
        ("\n\n a , b,c\n\n", r#"3[" a ", " b", "c"]"#),
        ("\r\n\r\na\r\n", r#"3["a"]"#),
        ("\r", ""),
        ("", ""),
        ("a,b,c,\"d,e\"\n", r#"1["a", "b", "c", "d,e"]"#),
        ("a,b,c,d,e\n", r#"1["a", "b", "c", "d", "e"]"#),
        ("\"a\"\"b\",c\n", r#"1["a\"b", "c"]"#),
        ("\"a\nb\",c\nd\n", r#"1["a\nb", "c"] 3["d"]"#),
        ("\"a\r\nb\"\n", r#"1["a\nb"]"#),
        ("\"a\n\nb\"\nc\n", r#"1["a\n\nb"] 4["c"]"#),
        ("a\"b,c\n", "error 1"),
        ("a,\"b\"c\n", "error 1"),
        ("a,\"b\" ,c\n", "error 1"),
        ("a, \"b\",c\n", "error 1"),
        ("\"a", "error 1"),
        ("\"a\n", "error 1"),
        ("\"a\nb\r", "error 2"),
        ("\"a\"\r\nb\n", r#"1["a"] 2["b"]"#),
        ("\"a\"\r", r#"1["a"]"#),
        ("\"a\",\n", r#"1["a", ""]"#),
        (",\n", r#"1["", ""]"#),
        ("a,,\"\"\n", r#"1["a", "", ""]"#),
        ("\"\"\n", r#"1[""]"#),
        ("\"\"\"\"\n", r#"1["\""]"#),
        ("#a,b,c\n", r##"1["#a", "b", "c"]"##),
        ("\u{feff}\"a\",b,c\n", "error 1"),
        ("x\n\"a\nb\"c\n", r#"1["x"] error 3"#),
        ("x\ny\"\nz\n", r#"1["x"] error 2 3["z"]"#),
        ("a\rb,c\n", r#"1["a\rb", "c"]"#),
        ("\"a\"\"\n", "error 1"),
    ] {
        let shown = csv::records(content.as_bytes()).map(|record| match record {
            Ok(record) => {
                let fields = record
                    .fields
                    .iter()
                    .map(|field| String::from_utf8_lossy(field));
                format!("{}{:?}", record.line, fields.collect::<Vec<_>>())
            }
            Err(error) => {
                let line = error
                    .strip_prefix("line ")
                    .and_then(|it| it.split(':').next());
                format!("error {}", line.unwrap())
            }
        });
        let shown = shown.collect::<Vec<_>>().join(" ");
        assert_eq!(shown, expected, "{content:?}");
    }
}
