//! Compiles the BPF program, which is embedded into the crate.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "../integration/xdp/filter.bpf.c";
const HEADER: &str = "../integration/xdp/filter.h";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={HEADER}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var("OUT_DIR")?).join("filter.bpf.o");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        // Debian has asm/types.h in a directory of the architecture, which clang does not search for BPF.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"])
        // The same object, wherever it is built.
        .arg("-fdebug-compilation-dir=.")
        .args([SOURCE, "-o"])
        .arg(&object)
        .status();
    let advice = "needs clang and libbpf's headers: run 'make setup', or on Debian 'apt install clang libbpf-dev'";
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("{clang} cannot compile {SOURCE} ({status}); it {advice}").into())
        }
        Err(error) => {
            Err(format!("cannot run {clang}: {error}; compiling {SOURCE} {advice}").into())
        }
    }
}
