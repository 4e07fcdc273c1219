#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pleg_fuzz::list_bytes(data));
