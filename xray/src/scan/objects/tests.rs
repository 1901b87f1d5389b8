//! Objects of generated pools: each is found, whichever are free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::scan::free::PoolHandler;
use crate::scan::made_up::{MadeUpApp, OBJECTS, RING};

const OBJECT_BYTES: u64 = 300;
const SLOT_BYTES: u64 = 448;

/// Chunks of a pool: pages, objects in each page, and whether memory of the other pool comes next.
fn chunks() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((1..6_u64, 1..=9_u64, any::<bool>()), 1..8)
}

/// Two pools whose chunks alternate.
fn pools(chunks: &[(u64, u64, bool)]) -> [PoolObjects; 2] {
    let mut pools = [(); 2].map(|()| PoolObjects { addresses: vec![], chunks: vec![] });
    let mut page = 0x10_0000;
    let mut number = 0;
    for (pages, per_page, other) in chunks {
        let pool = &mut pools[number];
        pool.chunks.push((page..page + pages * 4096).into());
        for _ in 0..*pages {
            let objects = (0..*per_page).map(|object| page + 64 + object * SLOT_BYTES);
            pool.addresses.extend(objects);
            page += 4096;
        }
        number ^= usize::from(*other);
    }
    pools
}

fn read(app: &MadeUpApp) -> Vec<u64> {
    let pool = app.target.pools().remove(0).unwrap();
    let mapped = mapped_bytes(&app.target.memory.maps().unwrap());
    PoolObjects::read(&app.target, &pool, mapped).unwrap().addresses
}

#[test]
fn headers_of_free_objects_are_not_read() {
    let app = MadeUpApp::new(500, PoolHandler::Ring);
    app.free_to_ring(&(0..490).collect::<Vec<_>>());
    let headers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&headers);
    app.before_read(move |address, _| {
        let is_header = (OBJECTS..RING).contains(&address);
        counted.fetch_add(usize::from(is_header), Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(read(&app), (0..500).map(MadeUpApp::mbuf).collect::<Vec<_>>());
    let headers = headers.load(Ordering::Relaxed);
    assert!(headers < 250, "{headers}");
}

/// As if the steps continued at the end of a chunk.
#[test]
fn free_objects_that_are_none_are_no_objects() {
    let app = MadeUpApp::new(120, PoolHandler::Ring);
    let behind = (1..6).map(|step| MadeUpApp::mbuf(49) + step * 768);
    app.free_to_ring(&(0..110).collect::<Vec<_>>());
    app.replace_in_ring(105, behind);
    assert_eq!(read(&app), (0..120).map(MadeUpApp::mbuf).collect::<Vec<_>>());
}

proptest! {
    // Each case generates an app.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn objects_are_the_same_whichever_are_free(
        free in prop::collection::vec(any::<bool>(), 1..160),
        cached in prop::collection::vec(0..160_u64, 0..40),
    ) {
        let count = free.len() as u64;
        let mut app = MadeUpApp::new(count, PoolHandler::Ring);
        let free = (0..).zip(free).filter(|(_, free)| *free).map(|(object, _)| object);
        app.free_to_ring(&free.collect::<Vec<_>>());
        cached.into_iter().filter(|object| *object < count).for_each(|object| app.free_to_cache(1, object));
        prop_assert_eq!(read(&app), (0..count).map(MadeUpApp::mbuf).collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn an_address_is_found_in_its_object_and_nowhere_else(chunks in chunks()) {
        let app = MadeUpApp::new(1, PoolHandler::Ring);
        let mut pool = app.target.pools().remove(0).unwrap();
        (pool.header_bytes, pool.element_bytes, pool.trailer_bytes) = (64, 300, 84);
        let pools = pools(&chunks);
        let index = ObjectIndex::new(pools.iter().map(|objects| (&pool, objects)));
        let all: Vec<u64> = pools.iter().flat_map(|pool| &pool.addresses).copied().collect();
        prop_assert_eq!(index.len(), all.len());
        for (number, begin) in (0..).zip(&all) {
            prop_assert_eq!(index.address(number), *begin);
            let places = [0, 1, OBJECT_BYTES - 1, OBJECT_BYTES, SLOT_BYTES - 1];
            let found = places.map(|offset| index.find(begin + offset));
            prop_assert_eq!(found, [Some(number), Some(number), Some(number), None, None]);
            prop_assert_eq!(index.find(begin - 1), None);
            prop_assert_eq!(index.find_begin(*begin), Some(number));
            prop_assert_eq!(index.find_begin(begin + 1), None);
        }
    }

    #[test]
    fn many_words_are_tested_as_each_of_them(
        low in any::<u64>(),
        span in prop_oneof![0..=u64::MAX >> 1, any::<u64>()],
        words in prop::collection::vec(any::<u64>(), 1..4),
        near in prop::collection::vec(-2..=2_i64, 0..4),
    ) {
        let whole = AddressRange::up_to_length(low, span);
        let index = ObjectIndex { whole, ..ObjectIndex::default() };
        let ends = near.iter().flat_map(|near| [low, whole.end()].map(|end| end.wrapping_add_signed(*near)));
        let words: Vec<u64> = words.into_iter().chain(ends).collect();
        for some in words.chunks(2).chain([&words[..]]) {
            let bytes: Vec<[u8; 8]> = some.iter().map(|word| word.to_le_bytes()).collect();
            let any = some.iter().any(|word| index.may_contain(*word));
            let found = index.may_contain_any(&bytes);
            let is_right = if whole.bytes() >> 63 == 0 { found == any } else { found || !any };
            prop_assert!(is_right);
        }
    }
}
