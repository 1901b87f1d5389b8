//! Program of `libFuzzer` for [`pmdscope_xray_fuzz::maps`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pmdscope_xray_fuzz::maps(input));
