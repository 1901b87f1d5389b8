//! Compiles the BPF program, which is embedded into the crate.

#[path = "../integration/bpf/compile.rs"]
mod bpf;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let (source, header) = ("../integration/xdp/filter.bpf.c", "../integration/xdp/filter.h");
    bpf::compile(source, &[header], "v3", "filter.bpf.o")
}
