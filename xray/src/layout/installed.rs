//! The table against the headers of the installed DPDK, as the compiler reads them.

use std::collections::BTreeMap;
use std::process::Command;

use pmdscope_testing::{current_test, skip_without};

use super::table::{Build, Machine};
use super::{table, version};

#[test]
fn the_installed_headers_have_the_offsets_of_the_table() {
    let Some(version) = pkg_config("--modversion") else {
        return skip_without(&current_test(), "libdpdk-dev");
    };
    let release = version::stated(version.trim()).unwrap();
    let flags = pkg_config("--cflags").unwrap();
    let compiled = Command::new("cc")
        .args(["-S", "-w", "-o", "-", "-D_GNU_SOURCE", "-DPUBLIC_HEADERS_ONLY"])
        .args(flags.split_whitespace())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/layouts/offsets.c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let assembly = String::from_utf8(compiled.stdout).unwrap();
    let values: BTreeMap<_, u64> = assembly.lines().filter_map(value).collect();
    let machine = match (std::env::consts::ARCH, values[&("rte_config", "cache_line")]) {
        ("aarch64", 64) => Machine::Arm64Line64,
        ("aarch64", 128) => Machine::Arm64Line128,
        _ => Machine::X86,
    };
    let table = table::offsets(release, machine, Build::default());
    let values = values.into_iter().filter(|((structure, _), _)| *structure != "rte_config");
    let mut compared = 0;
    for ((structure, member), offset) in values {
        let expected = table.get(&(structure, member));
        assert_eq!(expected, Some(&offset), "{structure}.{member} of {release:?}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} offsets");
}

fn pkg_config(option: &str) -> Option<String> {
    let output = Command::new("pkg-config").args([option, "libdpdk"]).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// `@ STRUCTURE MEMBER OFFSET`
fn value(line: &str) -> Option<((&str, &str), u64)> {
    let mut words = line.strip_prefix("@ ")?.split(' ');
    Some(((words.next()?, words.next()?), words.next()?.parse().unwrap()))
}
