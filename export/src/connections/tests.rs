//! Tests of who has to make room for whom.

use proptest::prelude::*;

use super::*;

fn table(total: usize, per_client: usize) -> Arc<ConnectionTable> {
    ConnectionTable::new(ConnectionLimits { total, per_client, ..ConnectionLimits::default() })
}

fn client(number: u8) -> Client {
    Client::V4([10, 0, 0, number].into())
}

fn is_displaced(place: &Place) -> bool {
    place.changes.borrow().0 == Phase::Displaced
}

#[test]
fn addresses_that_a_machine_can_choose_are_one_client() {
    let at = |address: &str| Client::at(SocketAddr::new(address.parse().unwrap(), 1));
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1:2:3"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
}

#[test]
fn a_client_at_its_limit_displaces_its_own_oldest_that_waits() {
    let table = table(100, 3);
    let other = table.admit(client(1)).unwrap();
    let own: Vec<_> = (0..3).map(|_| table.admit(client(2)).unwrap()).collect();
    own[0].enter(Phase::Answering);
    let _newer = table.admit(client(2)).unwrap();
    let displaced: Vec<_> = own.iter().map(is_displaced).collect();
    assert_eq!(displaced, [false, true, false]);
    assert!(!is_displaced(&other));
    let counts = table.counts();
    assert_eq!((counts.open, counts.displaced), (4, 1));
}

#[test]
fn what_waited_longest_goes_first_and_a_response_starts_anew() {
    let table = table(3, 3);
    let places: Vec<_> = (1..4).map(|number| table.admit(client(number)).unwrap()).collect();
    places[0].enter(Phase::Answering);
    places[0].enter(Phase::Idle);
    // Half a request does not make it younger.
    places[1].receives();
    let _newer = table.admit(client(4)).unwrap();
    let displaced: Vec<_> = places.iter().map(is_displaced).collect();
    assert_eq!(displaced, [false, true, false]);
}

#[test]
fn requests_are_not_displaced() {
    let table = table(4, 2);
    let places: Vec<_> = (0..4).map(|number| table.admit(client(number / 2)).unwrap()).collect();
    for place in &places {
        place.enter(Phase::Answering);
    }
    assert_eq!(table.admit(client(0)).unwrap_err(), Rejection::ClientLimit);
    assert_eq!(table.admit(client(9)).unwrap_err(), Rejection::TotalLimit);
    places[3].enter(Phase::Sending);
    assert_eq!(table.admit(client(9)).unwrap_err(), Rejection::TotalLimit);
    places[3].has_flushed();
    assert!(table.admit(client(9)).is_err(), "flushed before the response was complete");
    places[3].has_buffered();
    places[3].has_flushed();
    assert!(table.admit(client(9)).is_ok() && is_displaced(&places[3]));
    let counts = table.counts();
    assert_eq!((counts.client_limit, counts.total_limit, counts.displaced), (1, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn each_phase_has_its_deadline() {
    let table = table(9, 9);
    let limits = table.limits;
    for (phase, limit) in [
        (Phase::Header, Some(limits.header_timeout)),
        (Phase::Answering, None),
        (Phase::Sending, Some(limits.response_timeout)),
        (Phase::Idle, Some(limits.idle_timeout)),
    ] {
        let place = table.admit(client(1)).unwrap();
        place.enter(phase);
        let began = Instant::now();
        let ended = tokio::time::timeout(Duration::from_secs(3600), place.overdue()).await;
        let took = ended.is_ok().then(|| began.elapsed());
        assert_eq!(
            took.map(|took| took.as_secs()),
            limit.map(|limit| limit.as_secs()),
            "{phase:?}"
        );
    }
    let counts = table.counts();
    assert_eq!((counts.header_timeout, counts.response_timeout, counts.open), (1, 1, 0));
}

proptest! {
    /// Whatever clients do, limits hold, and one that has nothing open is refused only if all others have
    /// requests.
    #[test]
    fn limits_hold(steps in proptest::collection::vec((0u8..6, 0u8..5, any::<u16>()), 1..300)) {
        let table = table(8, 3);
        let mut places = Vec::<(u8, Place)>::new();
        for (number, step, at) in steps {
            places.retain(|(_, place)| !is_displaced(place));
            let at = usize::from(at) % places.len().max(1);
            match step {
                0 | 1 => {
                    let waits = |(_, place): &(u8, Place)| place.changes.borrow().0.waits();
                    let (full, waiting) = (places.len() >= 8, places.iter().any(waits));
                    let fresh = places.iter().all(|(owner, _)| *owner != number);
                    match table.admit(client(number)) {
                        Ok(place) => places.push((number, place)),
                        Err(_) => prop_assert!(!fresh || (full && !waiting)),
                    }
                }
                2 if at < places.len() => drop(places.swap_remove(at)),
                3 if at < places.len() => places[at].1.enter(Phase::Answering),
                4 if at < places.len() => places[at].1.enter(Phase::Idle),
                _ => {}
            }
            let open = places.iter().filter(|(_, place)| !is_displaced(place));
            let owners: Vec<u32> = open.map(|(owner, _)| u32::from(*owner)).collect();
            prop_assert!(owners.len() <= 8);
            prop_assert_eq!(owners.len() as u64, table.counts().open);
            for owner in 0..6 {
                prop_assert!(owners.iter().filter(|other| **other == owner).count() <= 3);
            }
        }
    }
}
