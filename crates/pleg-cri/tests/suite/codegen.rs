//! Checks that the committed wire types are generated from the present `api.proto`.
//!
//! The test generates `src/generated/runtime.v1.rs` and compares it with the committed file. With
//! `PLEG_BLESS=1` it writes the file. This is the only generator: there is no build script and no
//! protoc.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// The input, relative to `proto/`.
const PROTO: &str = "runtime/v1/api.proto";
/// The output, relative to this crate.
const GENERATED: &str = "src/generated/runtime.v1.rs";

#[test]
fn committed_wire_types_are_generated_from_the_present_proto() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join(GENERATED);
    let generated = generate();
    if env::var_os("PLEG_BLESS").is_some_and(|v| v != "0") {
        fs::write(&committed, generated).expect("the generated file can be written");
        return;
    }
    let old = match fs::read_to_string(&committed) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => panic!("{}: {error}", committed.display()),
    };
    let differs = old.lines().zip(generated.lines()).position(|(a, b)| a != b);
    assert!(
        old == generated,
        "{GENERATED} is not what proto/{PROTO} gives (first at line {}); run\n    \
         PLEG_BLESS=1 cargo test -p pleg-cri --test suite codegen",
        differs.unwrap_or_else(|| old.lines().count().min(generated.lines().count())) + 1,
    );
}

/// The text of the generated file.
fn generate() -> String {
    let proto = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let descriptors = protox::compile([PROTO], [proto]).expect("the proto compiles");
    let dir = tempfile::tempdir().expect("a temporary directory");
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // Generates no code for connecting: the client makes its connections itself (unix sockets, no TLS).
        .build_transport(false)
        // Generates ordered maps, so that equal messages have the same debug output and encoding.
        .btree_map(".")
        // A server returns Unimplemented for calls that it does not define.
        .generate_default_stubs(true)
        // Hides tonic's types, which are not part of this crate's stable API.
        .client_mod_attribute("runtime.v1", "#[doc(hidden)]")
        .server_mod_attribute("runtime.v1", "#[cfg(feature = \"server\")]")
        .server_mod_attribute("runtime.v1", "#[doc(hidden)]")
        .out_dir(dir.path())
        .compile_fds(descriptors)
        .expect("the code generates");
    fs::read_to_string(dir.path().join("runtime.v1.rs")).expect("the generated file")
}
