//! `bench`: see `bench --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    pleg_benches::main(|| None)
}
