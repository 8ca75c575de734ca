//! The filch program. The code is in the library next to it, where tests can walk the command tree.

use std::process::ExitCode;

fn main() -> ExitCode {
    filch_cli::main()
}
