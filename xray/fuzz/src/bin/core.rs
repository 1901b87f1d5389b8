//! Program of `libFuzzer` for [`pmdscope_xray_fuzz::core`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pmdscope_xray_fuzz::core(input));
