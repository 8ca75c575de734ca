//! Arguments reach the command byte for byte: no shell, template or format changes them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::server::{Running, Server, end, program};

/// Two hundred words with a special meaning to some shell, format or parser.
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
    // Then pairs of these characters, up to 200 words.
    let signs = ["'", "\"", "\\", "$", "`", "\n", "*", ";", "&", "|", "(", "é"];
    let pairs =
        signs.iter().flat_map(|one| signs.map(|other| format!("{one}{other} {other}{one}")));
    words.extend(pairs.take(200 - words.len()));
    words
}

#[test]
fn two_hundred_strange_words_arrive_byte_for_byte() {
    let words = words();
    assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), 200, "they are distinct");
    let server = Server::idle();
    let _worker = Running::start(&mut server.command(&["worker", "start"]));
    // The arguments of the process, as the kernel reports them.
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

/// Jobs are stored as JSON, which cannot hold other bytes.
#[test]
fn arguments_that_are_not_utf_8_are_rejected_by_position() {
    for words in [&[&b"submit"[..], b"--", b"echo", b"a\xffb"][..], &[b"\xffsubmit"]] {
        let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
        let ended = end(program().args(&words), "");
        assert_eq!(ended.code, 2, "{ended:?}");
        let place = format!("argument {} is not UTF-8: \"", words.len());
        assert!(ended.stderr.contains(&place) && ended.stderr.contains("\\xFF"), "{ended:?}");
        assert!(ended.stderr.contains("help: "), "{ended:?}");
    }
}
