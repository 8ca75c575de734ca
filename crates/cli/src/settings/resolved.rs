//! The resolved settings: the first of variable, `filch.toml`, the user's file, default.

use std::path::{Path, PathBuf};

use super::{Fallback, SETTINGS, Setting, file};
use crate::usage::Usage;

/// The settings file in the current directory.
const HERE: &str = "filch.toml";

/// The values of all settings, before flags.
#[derive(Debug)]
pub(crate) struct Settings(Vec<Value>);

/// The value of a setting.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) setting: &'static Setting,
    /// As its flag would be written; `None` if the program determines it at run time.
    pub(crate) text: Option<String>,
    pub(crate) origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable,
    File { path: PathBuf, line: usize },
    Default,
}

impl Settings {
    /// Reads files and variables.
    ///
    /// # Errors
    /// If a file or a variable is invalid.
    pub(crate) fn load() -> Result<Self, Usage> {
        let mut settings = Self::defaults();
        // Later files take precedence.
        for path in user_config().iter().map(PathBuf::as_path).chain([Path::new(HERE)]) {
            for (setting, text, line) in file::read(path)? {
                settings.set(setting, text, Origin::File { path: path.to_owned(), line });
            }
        }
        for setting in SETTINGS {
            if let Some(text) = variable(setting)? {
                settings.set(setting, text, Origin::Variable);
            }
        }
        Ok(settings)
    }

    /// The defaults.
    pub(crate) fn defaults() -> Self {
        let default = |setting: &'static Setting| Value {
            setting,
            text: match setting.default {
                Fallback::Value(text) => Some(text.to_owned()),
                Fallback::Described(_) => None,
            },
            origin: Origin::Default,
        };
        Self(SETTINGS.iter().map(default).collect())
    }

    pub(crate) fn values(&self) -> &[Value] {
        &self.0
    }

    /// The value of the setting with this key.
    pub(crate) fn value(&self, key: &str) -> &Value {
        let value = self.0.iter().find(|value| value.setting.key == key);
        value.expect("every setting has a value")
    }

    fn set(&mut self, setting: &'static Setting, text: String, origin: Origin) {
        let is_it = |value: &&mut Value| value.setting.key == setting.key;
        let value = self.0.iter_mut().find(is_it).expect("every setting has a value");
        *value = Value { setting, text: Some(text), origin };
    }
}

impl Value {
    /// Where the value comes from, as text: `filch.toml:3`.
    pub(crate) fn origin(&self) -> String {
        match &self.origin {
            Origin::Flag => format!("--{}", self.setting.flag),
            Origin::Variable => self.setting.variable(),
            Origin::File { path, line } => format!("{}:{line}", path.display()),
            Origin::Default => "default".to_owned(),
        }
    }
}

/// `$XDG_CONFIG_HOME/filch/config.toml`, by default below `~/.config`.
fn user_config() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(config.join("filch").join("config.toml"))
}

/// The value of the variable. An empty variable counts as unset.
fn variable(setting: &Setting) -> Result<Option<String>, Usage> {
    let name = setting.variable();
    let Some(value) = std::env::var_os(&name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string().map_err(|value| {
        Usage::new(format!("{name} is {value:?}, which is not UTF-8"), "use UTF-8")
    })?;
    if filch_api::token::is_in(&text) {
        let help = "revoke the token, and set FILCH_TOKEN or FILCH_TOKEN_FILE to a new one";
        return Err(Usage::new(
            format!("{name} contains a token, and its value is printed in messages"),
            help,
        ));
    }
    match setting.kind.validate(&text) {
        Ok(()) => Ok(Some(text)),
        Err(help) => Err(Usage::new(format!("invalid value of {name}: {text:?}"), help)),
    }
}
