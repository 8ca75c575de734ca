//! What can be set, and where: by a flag, a variable, the file `filch.toml` in the present folder, the
//! user's own file, or not at all. This one table says it; the flags get their defaults from it
//! (`apply_defaults`), files and variables are read by it (`settings`), and `filch config show` prints it.

mod defaults;
mod file;
mod resolved;
mod value_kind;

use value_kind::ValueKind;

pub(crate) use defaults::apply_defaults;
pub(crate) use resolved::{Origin, Settings, Value};

/// One thing that can be set.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name in a file. What comes before a dot is the name of a table.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes.
    pub(crate) flag: &'static str,
    /// What kind of value it has.
    kind: ValueKind,
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
    Described(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Commands {
    /// Wherever there is such a flag.
    All,
    Only(&'static [&'static str]),
}

use Commands::{All, Only};
use Fallback::{Described, Value as Fixed};

const SERVERS: Commands = Only(&["up", "server start"]);
const WORKERS: Commands = Only(&["up", "worker start"]);
const LOGGERS: Commands = Only(&["up", "server start", "worker start"]);
const SUBMITTERS: Commands = Only(&["run", "submit", "enqueue"]);

const fn setting(
    key: &'static str,
    flag: &'static str,
    kind: ValueKind,
    default: Fallback,
    commands: Commands,
) -> Setting {
    Setting { key, flag, kind, default, commands }
}

/// Everything that can be set, in the order in which it is shown.
pub(crate) const SETTINGS: &[Setting] = &[
    setting(
        "url",
        "server",
        ValueKind::Url,
        Described("the one that has the data open, else http://127.0.0.1:7420"),
        All,
    ),
    setting("token_file", "token-file", ValueKind::Path, Described("none"), All),
    setting("tls_ca", "tls-ca", ValueKind::Path, Described("those that the system trusts"), All),
    setting("tls_client_cert", "tls-client-cert", ValueKind::Path, Described("none"), All),
    setting("tls_client_key", "tls-client-key", ValueKind::Path, Described("none"), All),
    setting("data", "data", ValueKind::Path, Fixed("."), All),
    setting("color", "color", ValueKind::Choice(&["auto", "always", "never"]), Fixed("auto"), All),
    setting("listen", "listen", ValueKind::Address, Fixed("127.0.0.1:7420"), SERVERS),
    setting("tls_cert", "tls-cert", ValueKind::Path, Described("none"), SERVERS),
    setting("tls_key", "tls-key", ValueKind::Path, Described("none"), SERVERS),
    setting("tls_client_ca", "tls-client-ca", ValueKind::Path, Described("none"), SERVERS),
    setting("allow_host", "allow-host", ValueKind::Names, Described("none"), SERVERS),
    setting("lease", "lease", ValueKind::Span, Fixed("10s"), SERVERS),
    setting("retention", "retention", ValueKind::Span, Fixed("7d"), SERVERS),
    setting(
        "slots",
        "slots",
        ValueKind::Count { least: 0 },
        Described("the number of cores"),
        WORKERS,
    ),
    setting("queues", "queues", ValueKind::Names, Described("all"), WORKERS),
    setting(
        "reserve",
        "reserve",
        ValueKind::Count { least: 0 },
        Fixed("1024"),
        Only(&["worker start"]),
    ),
    setting(
        "log",
        "log-level",
        ValueKind::Choice(&["error", "warn", "info", "debug", "trace"]),
        Fixed("info"),
        LOGGERS,
    ),
    setting(
        "log_format",
        "log-format",
        ValueKind::Choice(&["text", "json"]),
        Fixed("text"),
        LOGGERS,
    ),
    setting("submit.queue", "queue", ValueKind::Text, Described("default"), SUBMITTERS),
    setting("submit.priority", "priority", ValueKind::Priority, Fixed("0"), SUBMITTERS),
    setting(
        "submit.retry",
        "retry",
        ValueKind::Count { least: 1 },
        Described("what the server takes"),
        Only(&["submit", "enqueue"]),
    ),
    setting("submit.timeout", "timeout", ValueKind::Span, Described("none"), SUBMITTERS),
];

impl Setting {
    /// The variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("FILCH_{}", self.key.to_ascii_uppercase().replace('.', "_"))
    }

    /// Whether a flag of this command (`worker start`) is this setting's.
    fn applies_to(&self, command: &str) -> bool {
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
                assert_eq!(setting.kind.validate(value), Ok(()), "{}", setting.key);
            }
        }
    }
}
