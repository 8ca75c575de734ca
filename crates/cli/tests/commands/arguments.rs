//! What a command is given is what somebody wrote: no shell, no template and no form in between makes
//! anything else of it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::server::{Running, Server, end, program};

/// Two hundred words that some shell, some format or some parser would make something of.
fn words() -> Vec<String> {
    let whole = [
        "",
        " ",
        "\t",
        "\n",
        "\r\n",
        "a b",
        " a ",
        "two\nlines\n",
        "$(touch hacked)",
        "`touch hacked`",
        "; touch hacked",
        "&& touch hacked",
        "|| touch hacked",
        "| tee hacked",
        "> hacked",
        "< /etc/passwd",
        "$HOME",
        "${HOME}",
        "${IFS}",
        "$'\\n'",
        "$((1+1))",
        "*",
        "?",
        "[a-z]",
        "**/*",
        "~",
        "~root",
        "{a,b}",
        "!!",
        "!$",
        "#",
        "-",
        "--",
        "---",
        "-n",
        "-rf",
        "--help",
        "--server=x",
        "@last",
        "@file",
        "%s",
        "%n%n",
        "%PATH%",
        "\\",
        "\\\\",
        "\\n",
        "\\x00",
        "\\u0041",
        "'",
        "\"",
        "''",
        "\"\"",
        "'\"'\"'",
        "a'b\"c`d",
        "=",
        "A=1",
        "{}",
        "{{}}",
        "{line}",
        "[]",
        "null",
        "true",
        "0",
        "-0",
        "1e999",
        "{\"run\":[\"x\"]}",
        "</script>",
        "<!--",
        "]]>",
        "'; DROP TABLE jobs; --",
        "../../etc/passwd",
        "/dev/null",
        "C:\\Windows",
        "\u{1}",
        "\u{7}\u{8}\u{c}",
        "\u{1b}[2J",
        "\u{7f}",
        "\u{85}",
        "\u{9b}31m",
        "\u{a0}",
        "\u{ad}",
        "\u{200b}",
        "\u{202e}txt.exe",
        "\u{2028}",
        "\u{feff}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10ffff}",
        "é",
        "e\u{301}",
        "Größe",
        "日本語",
        "🦀",
        "👨‍👩‍👧",
        "مرحبا",
    ];
    let mut words: Vec<String> = whole.map(str::to_owned).into();
    words.push("x".repeat(100_000));
    words.push("'\"\\$\n".repeat(2_000));
    // Then every two of these beside one another, as far as there is room.
    let signs = ["'", "\"", "\\", "$", "`", "\n", "*", ";", "&", "|", "(", "é"];
    let pairs =
        signs.iter().flat_map(|one| signs.map(|other| format!("{one}{other} {other}{one}")));
    words.extend(pairs.take(200 - words.len()));
    words
}

#[test]
fn two_hundred_strange_words_arrive_byte_for_byte() {
    let words = words();
    assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), 200, "each is another one");
    let server = Server::idle();
    let _worker = Running::start(&mut server.command(&["worker", "start"]));
    // What the system itself says that the process was given.
    let script = "cat /proc/$$/cmdline > seen; :";
    let expected: Vec<u8> = ["sh", "-c", script, "name"]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .flat_map(|word| word.bytes().chain([0]))
        .collect();
    for verb in ["submit", "run"] {
        let mut command = server.command(&[verb, "--", "sh", "-c", script, "name"]);
        end(command.args(&words), "").fine();
        server.filch(&["wait", "@last"]).fine();
        let seen = server.folder().join("seen");
        let arrived = std::fs::read(&seen).expect("the command has written it");
        assert!(arrived == expected, "{verb}: {}", String::from_utf8_lossy(&arrived));
        std::fs::remove_file(seen).unwrap();
        assert!(!server.folder().join("hacked").exists());
    }
}

/// JSON has no other bytes than text, so nothing could be done with them.
#[test]
fn what_is_not_utf_8_is_refused_by_its_place() {
    for words in [&[&b"submit"[..], b"--", b"echo", b"a\xffb"][..], &[b"\xffsubmit"]] {
        let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
        let ended = end(program().args(&words), "");
        assert_eq!(ended.code, 2, "{ended:?}");
        let place = format!("argument {} is not UTF-8: \"", words.len());
        assert!(ended.stderr.contains(&place) && ended.stderr.contains("\\xFF"), "{ended:?}");
        assert!(ended.stderr.contains("help: "), "{ended:?}");
    }
}
