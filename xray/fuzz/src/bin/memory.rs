//! Program of `libFuzzer` for [`pmdscope_xray_fuzz::memory`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pmdscope_xray_fuzz::memory(input));
