//! BPF programs of benchmarks and tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs;

/// Compiles a source of this repository into a directory; returns the object.
pub fn compile(source: &str, dir: &Path) -> Result<PathBuf> {
    let name = Path::new(source).file_stem().context("no name")?;
    let object = dir.join(name).with_extension("o");
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", &include, "-c"]);
    clang.arg(programs::root().join(source)).arg("-o").arg(&object);
    let out = clang.output().context("clang; 'make setup' installs it")?;
    ensure!(out.status.success(), "clang: {}", String::from_utf8_lossy(&out.stderr));
    Ok(object)
}
