//! Hugepages that are free, from which the heaps of apps can grow.

use std::fs;
use std::path::Path;

/// Returns the bytes of all free hugepages of a NUMA node; `None` if the kernel does not report them. Kernels
/// without NUMA list them for the host as a whole.
pub(crate) fn free_bytes(sys: &Path, node: u32) -> Option<u64> {
    let of_node = free_in(&sys.join(format!("devices/system/node/node{node}/hugepages")));
    of_node.or_else(|| free_in(&sys.join("kernel/mm/hugepages")).filter(|_| node == 0))
}

fn free_in(dir: &Path) -> Option<u64> {
    let mut bytes = 0_u64;
    for size in fs::read_dir(dir).ok()?.flatten() {
        let name = size.file_name();
        let kib =
            name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
        let pages = fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        let pages = pages.trim().parse::<u64>().ok()?;
        bytes = bytes.saturating_add(pages.saturating_mul(kib).saturating_mul(1024));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_of_all_sizes_of_a_node_are_added() {
        let sys = tempfile::tempdir().unwrap();
        let put = |dir: &str, pages: &str| {
            let dir = sys.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("free_hugepages"), pages).unwrap();
        };
        assert_eq!(free_bytes(sys.path(), 0), None);
        put("kernel/mm/hugepages/hugepages-2048kB", "3\n");
        assert_eq!((free_bytes(sys.path(), 0), free_bytes(sys.path(), 1)), (Some(3 << 21), None));
        put("devices/system/node/node1/hugepages/hugepages-2048kB", "5\n");
        put("devices/system/node/node1/hugepages/hugepages-1048576kB", "1\n");
        assert_eq!(free_bytes(sys.path(), 1), Some((5 << 21) + (1 << 30)));
        put("devices/system/node/node1/hugepages/hugepages-2048kB", "many\n");
        assert_eq!(free_bytes(sys.path(), 1), None);
    }
}
