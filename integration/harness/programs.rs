//! Where the programs under test are.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// Root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The `pmdscope` command: what `PMDSCOPE` names, or that of the release build.
pub fn pmdscope() -> Result<PathBuf> {
    std::env::var_os("PMDSCOPE")
        .map_or_else(|| built("target/release/pmdscope"), |it| Ok(it.into()))
}

/// The demo.
pub fn demo() -> Result<PathBuf> {
    built("target/release/pmdscope-demo")
}

/// The reflector.
pub fn reflector() -> Result<PathBuf> {
    built("build/integration/pmdscope-reflector")
}

/// The generator.
pub fn generator() -> Result<PathBuf> {
    built("build/integration/pmdscope-generator")
}

/// The reflector over sockets of the kernel.
pub fn kernel_reflector() -> Result<PathBuf> {
    built("build/integration/pmdscope-kernel-reflector")
}

/// The generator over sockets of the kernel.
pub fn kernel_generator() -> Result<PathBuf> {
    built("build/integration/pmdscope-kernel-generator")
}

/// The pipeline that loses mbufs on demand.
pub fn pipeline() -> Result<PathBuf> {
    built("build/integration/pmdscope-pipeline")
}

/// The same without libpmdscope, with debug information or without any symbols.
pub fn stock_pipeline(stripped: bool) -> Result<PathBuf> {
    let build = if stripped { "stripped" } else { "stock" };
    built(&format!("build/integration/pmdscope-pipeline-{build}"))
}

/// The app that the capture benchmark captures from.
pub fn capture_app() -> Result<PathBuf> {
    built("build/integration/pmdscope-capture-app")
}

/// The app whose ports are all different, and which does nothing.
pub fn idle_app() -> Result<PathBuf> {
    built("build/integration/pmdscope-idle-app")
}

/// The app that overwrites its own structures.
pub fn hostile_app() -> Result<PathBuf> {
    built("build/integration/pmdscope-hostile-app")
}

/// A sample application of DPDK, if `make setup` compiled it.
pub fn dpdk_sample(name: &str) -> Option<PathBuf> {
    let path = root().join("build/tools/dpdk-samples").join(name);
    path.exists().then_some(path)
}

/// The app that ends in every way, at level 0, 1 or 2.
pub fn exit_app(level: u8) -> Result<PathBuf> {
    built(&format!("build/integration/pmdscope-exit-app-l{level}"))
}

/// Takes CPUs from apps that poll.
pub fn thief() -> Result<PathBuf> {
    built("build/integration/pmdscope-thief")
}

/// The helper that captures from stock apps.
pub fn pdump() -> Result<PathBuf> {
    built("build/pdump/pmdscope-pdump")
}

fn built(path: &str) -> Result<PathBuf> {
    let path = root().join(path);
    ensure!(path.exists(), "{} does not exist: run `make build` first", path.display());
    Ok(path)
}
