//! `cargo run -p pleg-fuzz --example replay TARGET FILE` replays one input and prints what happens,
//! one line for each operation, answer and output.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a tool"
)]

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, file] = arguments.as_slice() else {
        panic!("usage: replay TARGET FILE");
    };
    let bytes = std::fs::read(file).expect("a file that can be read");
    match target.as_str() {
        #[cfg(feature = "bytes")]
        "event_bytes" => pleg_fuzz::event_bytes(&bytes),
        #[cfg(feature = "bytes")]
        "list_bytes" => pleg_fuzz::list_bytes(&bytes),
        "operations" => pleg_fuzz::operations(&bytes),
        other => panic!("no target {other}"),
    }
    println!("no invariant is violated");
}
