//! The words themselves: suggestions, help, completions.

use crate::server::filch;

#[test]
fn a_word_that_is_nearly_right_is_recognised() {
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
fn every_command_explains_itself() {
    for command in
        ["submit", "enqueue", "flow", "wait", "logs", "why", "dead", "queue", "completions"]
    {
        let help = filch(&[command, "--help"]).fine().stdout;
        assert!(help.contains("Example"), "{command} has no example");
        assert!(help.contains(&format!("filch {command}")), "{command} has no example");
    }
    for command in ["list", "show", "cancel", "retry", "result", "priority"] {
        let help = filch(&["job", command, "--help"]).fine().stdout;
        assert!(help.contains(&format!("filch job {command}")), "job {command} has no example");
    }
}

#[test]
fn shells_can_complete_it() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = filch(&["completions", shell]).fine().stdout;
        assert!(script.contains("enqueue") && script.contains("each-line"), "{shell}");
    }
    filch(&["completions", "bsh"]).refused(2, "'bash'");
}
