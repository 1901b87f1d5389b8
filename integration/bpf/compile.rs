//! Compiles a BPF program for a crate that embeds it. Part of the build scripts of those crates.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Compiles `source` to `object` in the output directory of the crate. `cpu` is the instruction set
/// that the kernel must support. The crate is built again when `source` or one of `headers`
/// changes.
pub(crate) fn compile(
    source: &str,
    headers: &[&str],
    cpu: &str,
    object: &str,
) -> Result<(), Box<dyn Error>> {
    for file in headers.iter().chain(&[source, "../integration/bpf/compile.rs"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var("OUT_DIR")?).join(object);
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        // Debian has asm/types.h in a directory of the architecture, which clang does not search for BPF.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .args(["-target", "bpf", &format!("-mcpu={cpu}")])
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"])
        // Makes the object independent of the build directory.
        .arg("-fdebug-compilation-dir=.")
        .args([source, "-o"])
        .arg(&object)
        .status();
    let advice = "needs clang and libbpf's headers: run 'make setup', or on Debian 'apt install clang libbpf-dev'";
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("{clang} cannot compile {source} ({status}); it {advice}").into())
        }
        Err(error) => {
            Err(format!("cannot run {clang}: {error}; compiling {source} {advice}").into())
        }
    }
}
