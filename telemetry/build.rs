//! Lists the tables of drivers, `drivers/*.toml`, so that they are compiled in.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=drivers");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let entries = fs::read_dir(root.join("drivers"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension() == Some("toml".as_ref()));
    files.sort();
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut list = "&[\n".to_owned();
    for file in &files {
        let path = file.to_string_lossy();
        let _ = writeln!(list, "    ({:?}, include_str!({path:?})),", name(file));
    }
    fs::write(out.join("drivers.rs"), list + "]\n")
}
