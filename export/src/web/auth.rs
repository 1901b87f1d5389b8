//! Passwords: HTTP basic authentication against bcrypt hashes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::{AcquireError, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::connections::Client;

/// Longest wait for the permit to hash, so that many wrong passwords do not block other users for long.
const PASSWORD_TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// Too many passwords are waiting to be checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthTimeout;

/// HTTP basic authentication.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    hashes: BTreeMap<String, Arc<str>>,
    /// bcrypt is slow by design. Only one password is hashed at a time, so that guessing cannot use all
    /// CPUs.
    turn: Semaphore,
    /// A client waits for this permit with one password at a time, so that guessing delays itself alone.
    own_turns: Mutex<BTreeMap<Client, Weak<Semaphore>>>,
    /// Digests of valid users and passwords, so that each is hashed only once.
    right: Mutex<HashSet<Vec<u8>>>,
    /// Key of the digests, which are useless without it.
    key: hmac::Key,
}

impl BasicAuth {
    /// Accepts these users, by name and bcrypt hash; everyone if there are none.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub(super) fn new(users: &BTreeMap<String, String>) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        let hashes =
            users.iter().map(|(user, hash)| (user.clone(), hash.as_str().into())).collect();
        let (turn, own_turns) = (Semaphore::new(1), Mutex::default());
        Ok(Self { hashes, turn, own_turns, right: Mutex::default(), key })
    }

    /// Returns whether no password is needed.
    pub(crate) fn is_disabled(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns whether a request with this `Authorization` header may be answered.
    ///
    /// # Errors
    /// Fails if the password could not be checked in time.
    pub(crate) async fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        client: Client,
    ) -> Result<bool, AuthTimeout> {
        if self.is_disabled() {
            return Ok(true);
        }
        let Some((user, password)) = authorization.and_then(credentials) else {
            return Ok(false);
        };
        let digest = self.digest(&user, &password);
        if self.right().contains(&digest) {
            return Ok(true);
        }
        let known = self.hashes.get(&user);
        // An unknown user takes as long as a known one; otherwise names could be guessed by timing.
        let Some(hash) = known.or_else(|| self.hashes.values().next()).cloned() else {
            return Ok(false);
        };
        let own_turn = self.own_turn(client);
        let turns = async {
            Ok::<_, AcquireError>((own_turn.acquire().await?, self.turn.acquire().await?))
        };
        let Ok(Ok(_turns)) = timeout(PASSWORD_TURN_TIMEOUT, turns).await else {
            return Err(AuthTimeout);
        };
        let verify = spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let admitted = verify.await.unwrap_or(false) && known.is_some();
        if admitted {
            self.right().insert(digest);
        }
        Ok(admitted)
    }

    /// Returns the turn of a client, which all its requests share.
    fn own_turn(&self, client: Client) -> Arc<Semaphore> {
        let mut turns = self.own_turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&client).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(client, Arc::downgrade(&turn));
        turn
    }

    fn digest(&self, user: &str, password: &[u8]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key);
        // User names cannot contain a colon.
        for part in [user.as_bytes(), b":", password] {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }

    fn right(&self) -> std::sync::MutexGuard<'_, HashSet<Vec<u8>>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the user and password of an `Authorization` header.
fn credentials(header: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_at_checked(6)?;
    let encoded = scheme.eq_ignore_ascii_case(b"basic ").then(|| encoded.trim_ascii())?;
    let decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn basic_auth() -> BasicAuth {
        let hash = |password| bcrypt::hash(password, 4).unwrap();
        let users = [("ann", hash("one:two")), ("bob", hash("b"))];
        BasicAuth::new(&users.map(|(user, hash)| (user.to_owned(), hash)).into()).unwrap()
    }

    fn header(text: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(text)).into_bytes()
    }

    const CLIENT: Client = Client::User(None);

    async fn authenticate(basic_auth: &BasicAuth, text: &str) -> bool {
        basic_auth.authenticate(Some(&header(text)), CLIENT).await.unwrap()
    }

    #[tokio::test]
    async fn guesses_of_one_client_do_not_delay_another() {
        let basic_auth = Arc::new(basic_auth());
        let turn = basic_auth.turn.acquire().await.unwrap();
        let guesses: Vec<_> = (0..100)
            .map(|guess| {
                let (basic_auth, header) =
                    (Arc::clone(&basic_auth), header(&format!("ann:{guess}")));
                tokio::spawn(async move {
                    basic_auth.authenticate(Some(&header), Client::User(Some(1))).await
                })
            })
            .collect();
        while basic_auth.own_turns.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let other = tokio::spawn({
            let basic_auth = Arc::clone(&basic_auth);
            async move { authenticate(&basic_auth, "bob:b").await }
        });
        tokio::task::yield_now().await;
        drop(turn);
        assert!(other.await.unwrap());
        let waiting = guesses.iter().filter(|guess| !guess.is_finished()).count();
        assert!(waiting >= 90, "it waited for guesses: only {waiting} are left");
        guesses.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn only_the_password_of_the_user_is_accepted() {
        let basic_auth = basic_auth();
        assert!(authenticate(&basic_auth, "ann:one:two").await);
        assert!(authenticate(&basic_auth, "bob:b").await);
        for wrong in ["ann:b", "ann:", "ann", "", ":", "eve:one:two", "bob:one:two", "annone:two"] {
            assert!(!authenticate(&basic_auth, wrong).await, "{wrong}");
        }
        for wrong in [&b"Bearer x"[..], b"Basic", b"Basic ?", b"", &[0xff; 9]] {
            assert_eq!(basic_auth.authenticate(Some(wrong), CLIENT).await, Ok(false), "{wrong:?}");
        }
        assert_eq!(basic_auth.authenticate(None, CLIENT).await, Ok(false));
    }

    #[tokio::test]
    async fn without_users_no_password_is_required() {
        let basic_auth = BasicAuth::new(&BTreeMap::new()).unwrap();
        assert!(basic_auth.is_disabled() && basic_auth.authenticate(None, CLIENT).await.unwrap());
    }

    #[tokio::test]
    async fn only_successful_logins_are_cached() {
        let basic_auth = basic_auth();
        authenticate(&basic_auth, "ann:wrong").await;
        authenticate(&basic_auth, "eve:one:two").await;
        assert!(basic_auth.right().is_empty());
        authenticate(&basic_auth, "ann:one:two").await;
        assert_eq!(basic_auth.right().len(), 1);
        // The digest is known, so the permit is not needed.
        let _turn = basic_auth.turn.acquire().await.unwrap();
        assert!(authenticate(&basic_auth, "ann:one:two").await);
        // A password that must be hashed waits only for a limited time.
        tokio::time::pause();
        assert_eq!(basic_auth.authenticate(Some(&header("bob:b")), CLIENT).await, Err(AuthTimeout));
    }

    #[tokio::test]
    async fn a_password_of_an_unknown_user_is_hashed_as_well() {
        let basic_auth = basic_auth();
        let turn = basic_auth.turn.acquire().await.unwrap();
        tokio::time::pause();
        // Hashing needs the permit.
        for user in ["ann", "eve"] {
            let header = header(&format!("{user}:wrong"));
            assert_eq!(
                basic_auth.authenticate(Some(&header), CLIENT).await,
                Err(AuthTimeout),
                "{user}"
            );
        }
        tokio::time::resume();
        drop(turn);
        assert!(!authenticate(&basic_auth, "eve:wrong").await);
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(header: Vec<u8>) {
            let _ = credentials(&header);
        }

        #[test]
        fn credentials_are_read_as_they_were_written(user in "[^:]*", password: String) {
            let read = credentials(&header(&format!("{user}:{password}"))).unwrap();
            prop_assert_eq!(read, (user, password.into_bytes()));
        }
    }
}
