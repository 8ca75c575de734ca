//! The filch program; everything it does is in the library beside it, where tests can reach its words.

use std::process::ExitCode;

fn main() -> ExitCode {
    filch_cli::main()
}
