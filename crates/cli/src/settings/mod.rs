//! Settings. Each can be set by a flag, an environment variable, `filch.toml` in the current
//! directory or the user's file. One table lists them all: flags get their defaults from it
//! (`defaults`), files and variables are read by it (`resolved`), and `filch config show` prints
//! it.

mod defaults;
mod file;
mod resolved;
mod value_kind;

use value_kind::ValueKind;

pub(crate) use defaults::apply_defaults;
pub(crate) use resolved::{Origin, Settings, Value};

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in a file. The part before a dot is the name of a TOML table.
    pub(crate) key: &'static str,
    /// Its flag, without dashes.
    pub(crate) flag: &'static str,
    /// The kind of its value.
    kind: ValueKind,
    /// Its default.
    pub(crate) default: Fallback,
    /// The commands whose flag it is. Other commands may have a different flag of that name.
    commands: Commands,
}

/// A default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// A fixed value.
    Value(&'static str),
    /// Determined at run time, with a description.
    Described(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Commands {
    /// Every command with this flag.
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

/// All settings, in the order of `filch config show`.
pub(crate) const SETTINGS: &[Setting] = &[
    setting(
        "url",
        "server",
        ValueKind::Url,
        Described("the server that has the data open, else http://127.0.0.1:7420"),
        All,
    ),
    setting("token_file", "token-file", ValueKind::Path, Described("none"), All),
    setting("tls_ca", "tls-ca", ValueKind::Path, Described("the CAs of the system"), All),
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
        Described("the default of the server"),
        Only(&["submit", "enqueue"]),
    ),
    setting("submit.timeout", "timeout", ValueKind::Span, Described("none"), SUBMITTERS),
];

impl Setting {
    /// Its environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("FILCH_{}", self.key.to_ascii_uppercase().replace('.', "_"))
    }

    /// Whether the flag of this command (`worker start`) belongs to this setting.
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
    fn keys_and_variables_are_unique() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            for other in &SETTINGS[at + 1..] {
                assert_ne!(setting.key, other.key);
                assert_ne!(setting.variable(), other.variable());
            }
        }
    }

    #[test]
    fn defaults_are_valid_values() {
        for setting in SETTINGS {
            if let Fixed(value) = setting.default {
                assert_eq!(setting.kind.validate(value), Ok(()), "{}", setting.key);
            }
        }
    }
}
