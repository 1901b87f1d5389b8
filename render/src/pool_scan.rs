//! What a scan of an app's memory found of a pool, as text.

use pmdscope_xray::{HolderCount, PoolScan};

use crate::number::{count, plural};

/// A part of a pool: mbufs, and what they have in common.
struct Part {
    mbufs: u64,
    name: &'static str,
    meaning: String,
}

/// The pool line by line, with its sum: each cache, and each holder of mbufs. Lines of empty parts
/// are left out, except those of the common part and of lost mbufs.
pub fn explain(pool: &PoolScan) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {}; read from outside", pool.name, plural(pool.size, "mbuf")),
        String::new(),
    ];
    let parts = parts(pool);
    for (index, Part { mbufs, name, meaning }) in parts.iter().enumerate() {
        let plus = if index == 0 { ' ' } else { '+' };
        lines.push(format!("{plus} {:>10}  {name:<10}  {meaning}", count(*mbufs)));
    }
    let sum = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.mbufs));
    let remark = if sum == pool.size {
        "all mbufs of the pool".to_owned()
    } else {
        format!("does not add up to the size of {}", count(pool.size))
    };
    lines.push(format!("= {:>10}  {remark}", count(sum)));
    lines
}

fn parts(pool: &PoolScan) -> Vec<Part> {
    let part = |mbufs, name, meaning: &str| Part { mbufs, name, meaning: meaning.to_owned() };
    let mut parts = vec![part(pool.common, "common", "free, in the common part of the pool")];
    let cached = |(lcore, mbufs): (&u32, &u64)| Part {
        mbufs: *mbufs,
        name: "cached",
        meaning: format!("free, in the cache of lcore {lcore}"),
    };
    parts.extend(pool.caches.iter().map(cached));
    let held = |one: &HolderCount| Part {
        mbufs: one.mbufs,
        name: "held",
        meaning: one.holder.to_string(),
    };
    parts.extend(pool.holders.iter().map(held));
    let named = pool.holders.iter().fold(0_u64, |sum, one| sum.saturating_add(one.mbufs));
    let unnamed = pool.held.saturating_sub(named);
    let not_judged = match pool.not_judged_why.join("; ") {
        why if why.is_empty() => "in use, holders unknown".to_owned(),
        why => why,
    };
    let in_use = [
        part(unnamed, "held", "referenced, holder unknown"),
        part(pool.moving, "moving", "in use, moved while the scans ran"),
        part(pool.not_judged, "not judged", &not_judged),
    ];
    parts.extend(in_use.into_iter().filter(|part| part.mbufs > 0));
    parts.push(part(pool.lost, "lost", "in use, and nothing refers to them"));
    parts
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_xray::Holder;

    use super::*;

    fn scan() -> PoolScan {
        let global = Holder::Global {
            symbol: Some("held_table".into()),
            module: "leaky".into(),
            place: Some("leaky.c:14".into()),
        };
        let holders = [
            (Holder::RxQueue { port: 0, queue: 2 }, 1024),
            (Holder::Ring { name: "backlog".into(), used: 500, capacity: 1023 }, 500),
            (global, 64),
            (Holder::HeapElement { bytes: 4096, socket: 0 }, 40),
            (Holder::Stack { thread: "lcore-worker-3".into() }, 31),
        ];
        let holders = holders.map(|(holder, mbufs)| HolderCount { holder, mbufs });
        PoolScan {
            name: "pkts".into(),
            size: 65_535,
            common: 63_606,
            caches: [(1, 250), (3, 12)].into(),
            held: holders.iter().map(|one| one.mbufs).sum(),
            lost: 4,
            moving: 2,
            not_judged: 2,
            not_judged_why: vec!["port 1 is AF_XDP, which keeps them as offsets".into()],
            holders: holders.into(),
            ..PoolScan::default()
        }
    }

    #[test]
    fn a_scan_is_explained_line_by_line() {
        let whole = explain(&scan()).join("\n");
        let torn = PoolScan { common: 60_000, held: 1700, not_judged_why: Vec::new(), ..scan() };
        let empty = PoolScan { name: "idle".into(), size: 1, common: 1, ..PoolScan::default() };
        let (torn, empty) = (explain(&torn).join("\n"), explain(&empty).join("\n"));
        assert_snapshot!(format!("{whole}\n----\n{torn}\n----\n{empty}"));
    }
}
