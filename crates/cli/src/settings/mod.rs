//! What can be set, and where: by a flag, a variable, the file `filch.toml` in the present folder, the
//! user's own file, or not at all. This one table says it; the flags get their defaults from it
//! (`furnish`), files and variables are read by it (`found`), and `filch config show` prints it.

mod file;
mod form;
mod found;
mod furnish;

use form::Form;

pub(crate) use found::{Found, Origin, Value};
pub(crate) use furnish::furnish;

/// One thing that can be set.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name in a file. What comes before a dot is the name of a table.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes.
    pub(crate) flag: &'static str,
    /// What kind of value it has.
    form: Form,
    /// What holds if nobody says anything.
    pub(crate) default: Fallback,
    /// The commands whose flag it is: elsewhere a flag of that name means something else.
    commands: Commands,
}

/// What holds if nobody says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// This value.
    Value(&'static str),
    /// What the program finds out, in words.
    Words(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Commands {
    /// Wherever there is such a flag.
    All,
    Only(&'static [&'static str]),
}

use Commands::{All, Only};
use Fallback::{Value as Fixed, Words};

const SERVERS: Commands = Only(&["up", "server start"]);
const WORKERS: Commands = Only(&["up", "worker start"]);
const SUBMITTERS: Commands = Only(&["run", "submit", "enqueue"]);

const fn setting(
    key: &'static str,
    flag: &'static str,
    form: Form,
    default: Fallback,
    commands: Commands,
) -> Setting {
    Setting { key, flag, form, default, commands }
}

/// Everything that can be set, in the order in which it is shown.
pub(crate) const SETTINGS: &[Setting] = &[
    setting(
        "url",
        "server",
        Form::Url,
        Words("the one that has the data open, else http://127.0.0.1:7420"),
        All,
    ),
    setting("token_file", "token-file", Form::Path, Words("none"), All),
    setting("tls_ca", "tls-ca", Form::Path, Words("those that the system trusts"), All),
    setting("tls_client_cert", "tls-client-cert", Form::Path, Words("none"), All),
    setting("tls_client_key", "tls-client-key", Form::Path, Words("none"), All),
    setting("data", "data", Form::Path, Fixed("."), All),
    setting("color", "color", Form::Choice(&["auto", "always", "never"]), Fixed("auto"), All),
    setting("listen", "listen", Form::Address, Fixed("127.0.0.1:7420"), SERVERS),
    setting("tls_cert", "tls-cert", Form::Path, Words("none"), SERVERS),
    setting("tls_key", "tls-key", Form::Path, Words("none"), SERVERS),
    setting("tls_client_ca", "tls-client-ca", Form::Path, Words("none"), SERVERS),
    setting("allow_host", "allow-host", Form::Names, Words("none"), SERVERS),
    setting("lease", "lease", Form::Span, Fixed("10s"), SERVERS),
    setting("retention", "retention", Form::Span, Fixed("7d"), SERVERS),
    setting("slots", "slots", Form::Count { least: 0 }, Words("the number of cores"), WORKERS),
    setting("queues", "queues", Form::Names, Words("all"), WORKERS),
    setting("reserve", "reserve", Form::Count { least: 0 }, Fixed("1024"), Only(&["worker start"])),
    setting("submit.queue", "queue", Form::Text, Words("default"), SUBMITTERS),
    setting("submit.priority", "priority", Form::Priority, Fixed("0"), SUBMITTERS),
    setting(
        "submit.retry",
        "retry",
        Form::Count { least: 1 },
        Words("what the server takes"),
        Only(&["submit", "enqueue"]),
    ),
    setting("submit.timeout", "timeout", Form::Span, Words("none"), SUBMITTERS),
];

impl Setting {
    /// The variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("FILCH_{}", self.key.to_ascii_uppercase().replace('.', "_"))
    }

    /// Whether a flag of this command (`worker start`) is this setting's.
    fn counts_in(&self, command: &str) -> bool {
        match self.commands {
            All => true,
            Only(commands) => commands.contains(&command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_variables_are_named_once() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            for other in &SETTINGS[at + 1..] {
                assert_ne!(setting.key, other.key);
                assert_ne!(setting.variable(), other.variable());
            }
        }
    }

    #[test]
    fn defaults_are_values_that_could_be_written() {
        for setting in SETTINGS {
            if let Fixed(value) = setting.default {
                assert_eq!(setting.form.judge(value), Ok(()), "{}", setting.key);
            }
        }
    }
}
