//! Compiles the BPF program, which is embedded into the crate.

#[path = "../integration/bpf/compile.rs"]
mod bpf;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let source = "../integration/bypass/redirect.bpf.c";
    // Only instructions of Linux 5.1: the app's libbpf loads the program on any kernel.
    bpf::compile(source, &[], "v2", "redirect.bpf.o")
}
