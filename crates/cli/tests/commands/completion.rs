//! Suggestions for misspelt words, and shell completion.

use std::process::Command;

use crate::server::filch;

#[test]
fn a_misspelt_word_is_answered_with_a_suggestion() {
    for (words, said) in [
        (&["sumbit"][..], "'submit'"),
        (&["job", "cancle"], "'cancel'"),
        (&["queue", "strategey"], "'strategy'"),
        (&["dead", "retyr"], "'retry'"),
        (&["submit", "--prioritty", "1"], "'--priority'"),
        (&["wait", "--timout", "1s"], "'--timeout'"),
    ] {
        filch(words).refused(2, said);
    }
}

#[test]
fn there_is_a_completion_script_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = filch(&["completions", shell]).fine().stdout;
        assert!(script.contains("enqueue") && script.contains("each-line"), "{shell}");
    }
    filch(&["completions", "bsh"]).refused(2, "'bash'");
}

/// Each script is parsed by its shell, if that is installed; `bash` always is.
#[test]
fn completion_scripts_are_valid_and_complete_words() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.path().join(shell);
        std::fs::write(&script, filch(&["completions", shell]).fine().stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(read) => {
                assert!(read.status.success(), "{shell}: {read:?}");
                assert!(read.stderr.is_empty(), "{shell}: {read:?}");
            }
            Err(error) => assert_ne!(shell, "bash", "{error}"),
        }
    }
    // Commands and flags are completed.
    let complete = |typed: &str, word: usize| {
        let words: Vec<&str> = typed.split(' ').collect();
        let script = format!(
            "source {}; COMP_WORDS=({typed}); COMP_CWORD={word}; COMP_LINE='{typed}'; _filch filch '{}' ''; echo \"${{COMPREPLY[@]}}\"",
            folder.path().join("bash").display(),
            words.get(word).unwrap_or(&""),
        );
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(complete("filch comp", 1).trim(), "completions");
    assert_eq!(complete("filch job can", 2).trim(), "cancel");
    assert!(complete("filch submit --each", 2).contains("--each-line"));
}
