//! Where the programs under test are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The `pmdscope` command: what `PMDSCOPE` names, or the newest that was built.
pub fn pmdscope() -> Result<PathBuf> {
    std::env::var_os("PMDSCOPE").map_or_else(|| newest("pmdscope"), |it| Ok(it.into()))
}

/// The demo.
pub fn demo() -> Result<PathBuf> {
    newest("pmdscope-demo")
}

/// A program of Rust: the newest of that of the build of this test, which is in `deps` beside it, and that of
/// the release build.
fn newest(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let of_this_build = this.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let of_release = root().join("target/release").join(name);
    let modified = |path: &PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    let built = of_this_build.chain([of_release]).filter(|path| path.is_file());
    let newest = built.max_by_key(modified);
    newest.with_context(|| format!("there is no {name}: run `make build` first"))
}

/// The reflector.
pub fn reflector() -> Result<PathBuf> {
    compiled("integration/pmdscope-reflector")
}

/// The generator.
pub fn generator() -> Result<PathBuf> {
    compiled("integration/pmdscope-generator")
}

/// The reflector over sockets of the kernel.
pub fn kernel_reflector() -> Result<PathBuf> {
    compiled("integration/pmdscope-kernel-reflector")
}

/// The generator over sockets of the kernel.
pub fn kernel_generator() -> Result<PathBuf> {
    compiled("integration/pmdscope-kernel-generator")
}

/// The pipeline that loses mbufs on demand.
pub fn pipeline() -> Result<PathBuf> {
    compiled("integration/pmdscope-pipeline")
}

/// The same without libpmdscope, with debug information or without any symbols.
pub fn stock_pipeline(stripped: bool) -> Result<PathBuf> {
    let build = if stripped { "stripped" } else { "stock" };
    compiled(&format!("integration/pmdscope-pipeline-{build}"))
}

/// The app that the capture benchmark captures from.
pub fn capture_app() -> Result<PathBuf> {
    compiled("integration/pmdscope-capture-app")
}

/// The app whose ports are all different, and which does nothing.
pub fn idle_app() -> Result<PathBuf> {
    compiled("integration/pmdscope-idle-app")
}

/// The app that misuses its mbufs.
pub fn faulty_app() -> Result<PathBuf> {
    compiled("integration/pmdscope-faulty-app")
}

/// The app whose threads do not look like those of the EAL.
pub fn polling_app() -> Result<PathBuf> {
    compiled("integration/pmdscope-polling-app")
}

/// The app that overwrites its own structures.
pub fn hostile_app() -> Result<PathBuf> {
    compiled("integration/pmdscope-hostile-app")
}

/// A sample application of DPDK, if `make setup` compiled it.
pub fn dpdk_sample(name: &str) -> Option<PathBuf> {
    let path = root().join("build/tools/dpdk-samples").join(name);
    path.exists().then_some(path)
}

/// The app that ends in every way, at level 0, 1 or 2.
pub fn exit_app(level: u8) -> Result<PathBuf> {
    compiled(&format!("integration/pmdscope-exit-app-l{level}"))
}

/// Takes CPUs from apps that poll.
pub fn thief() -> Result<PathBuf> {
    compiled("integration/pmdscope-thief")
}

/// The helper that captures from stock apps.
pub fn pdump() -> Result<PathBuf> {
    compiled("pdump/pmdscope-pdump")
}

/// Of the C part: in the build directory that `PMDSCOPE_BUILD` names, as one with another release of DPDK,
/// or in `build`.
fn compiled(path: &str) -> Result<PathBuf> {
    let build = std::env::var_os("PMDSCOPE_BUILD").unwrap_or_else(|| "build".into());
    built(&Path::new(&build).join(path).display().to_string())
}

fn built(path: &str) -> Result<PathBuf> {
    let path = root().join(path);
    ensure!(path.exists(), "{} does not exist: run `make build` first", path.display());
    Ok(path)
}
