//! Compares the table with the compiled headers of the installed DPDK.

use std::collections::BTreeMap;
use std::process::Command;

use pmdscope_testing::{current_test, skip_without};

use super::table::{Build, Machine};
use super::{table, version};
use crate::debug_info::offsets;

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

/// Compares the table with the debug information of an app compiled with the installed headers.
#[test]
fn debug_information_of_an_app_has_the_offsets_of_the_table() {
    const APP: &str = "#include <rte_mbuf.h>\n#include <rte_mempool.h>\n#include <rte_stack.h>\n\
        struct rte_mbuf mbuf; struct rte_mempool pool; struct rte_mempool_cache cache;\n\
        struct rte_mempool_ops_table handlers; struct rte_stack stack; struct rte_ring ring;\n";
    let Some(version) = pkg_config("--modversion") else {
        return skip_without(&current_test(), "libdpdk-dev");
    };
    let release = version::stated(version.trim()).unwrap();
    let flags = pkg_config("--cflags").unwrap();
    let offsets =
        offsets::tests::compiled(APP, &flags.split_whitespace().chain(["-g"]).collect::<Vec<_>>());
    let lines = [Machine::X86, Machine::Arm64Line64, Machine::Arm64Line128];
    let tables = lines.map(|machine| table::offsets(release, machine, Build::default()));
    let agrees = |table: &table::Offsets| {
        offsets.iter().all(|(member, offset)| table.get(member) == Some(offset))
    };
    assert!(tables.iter().any(agrees), "{offsets:?}");
    let wanted = [
        "rte_mbuf",
        "rte_mempool",
        "rte_mempool_cache",
        "rte_mempool_ops",
        "rte_mempool_ops_table",
        "rte_ring",
        "rte_stack",
    ];
    for structure in wanted {
        let found = offsets.keys().any(|(found, _)| *found == structure);
        assert!(found, "{structure}");
    }
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
