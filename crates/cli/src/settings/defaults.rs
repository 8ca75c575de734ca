//! Makes settings the defaults of flags, and adds default and variable to the help of each flag.

use clap::{Arg, Command};

use super::{Fallback, Origin, SETTINGS, Setting, Settings, Value};

/// The command that accepts the flag of every setting.
const CONFIG_SHOW: &str = "config show";

/// The command tree in which the settings are the defaults of the flags.
pub(crate) fn apply_defaults(root: Command, settings: &Settings) -> Command {
    walk(root, "", settings)
}

fn walk(mut command: Command, path: &str, settings: &Settings) -> Command {
    for value in settings.values().iter().filter(|value| value.setting.applies_to(path)) {
        let is_its = |arg: &&Arg| arg.get_long() == Some(value.setting.flag);
        let id = command.get_arguments().find(is_its).map(|arg| arg.get_id().clone());
        if let Some(id) = id {
            command = command.mut_arg(id, |arg| with_default(arg, value));
        }
    }
    if path == CONFIG_SHOW {
        let everywhere = |setting: &&Setting| setting.flag != "color";
        command = command.args(SETTINGS.iter().filter(everywhere).map(|setting| {
            Arg::new(setting.key).long(setting.flag).value_name("VALUE").hide(true)
        }));
    }
    let inner: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in inner {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(name, |inner| walk(inner, &path, settings));
    }
    command
}

fn with_default(arg: Arg, value: &Value) -> Arg {
    let (Fallback::Value(default) | Fallback::Described(default)) = value.setting.default;
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = format!("{help} [default: {default}] [env: {}]", value.setting.variable());
    let arg = arg.help(help).hide_default_value(true);
    // An optional flag stays unset unless the setting was set: some commands need to know that.
    let is_set = value.origin != Origin::Default || arg.is_required_set();
    match &value.text {
        Some(text) if is_set => arg.required(false).default_value(text.clone()),
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Commands;

    fn flags<'a>(root: &'a Command, path: &str) -> Vec<&'a Arg> {
        let mut command = root;
        for word in path.split(' ') {
            command = command.find_subcommand(word).expect("it is a command");
        }
        command.get_arguments().collect()
    }

    #[test]
    fn every_setting_is_a_documented_flag_of_its_commands() {
        let root = crate::command();
        for setting in SETTINGS {
            let commands: &[&str] = match setting.commands {
                // A flag of the root command, or of every command that talks to a server.
                Commands::All if setting.flag == "color" => continue,
                Commands::All => &["job", "worker", "up"],
                Commands::Only(commands) => commands,
            };
            for path in commands {
                let flags = flags(&root, path);
                let flag = flags.iter().find(|arg| arg.get_long() == Some(setting.flag));
                let flag = flag.unwrap_or_else(|| panic!("{path} has no --{}", setting.flag));
                let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
                let said = format!("[env: {}]", setting.variable());
                assert!(help.contains(&said), "{path} --{}: {help}", setting.flag);
            }
        }
    }
}
