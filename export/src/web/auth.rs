//! Passwords: HTTP basic authentication against bcrypt hashes.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longest wait for a turn: those who guess passwords must not keep others waiting for good.
const PASSWORD_TURN_TIMEOUT: Duration = Duration::from_secs(2);

/// Too many passwords are to be checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthTimeout;

/// Lets users in.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    hashes: BTreeMap<String, Arc<str>>,
    /// Hashing is slow on purpose. One at a time, so that guessing does not take all processors.
    turn: Semaphore,
    /// Digests of user and password that were right, so that each is hashed once.
    right: Mutex<HashSet<Vec<u8>>>,
    /// Makes the digests worthless to others.
    key: hmac::Key,
}

impl BasicAuth {
    /// Lets these users in, by name and bcrypt hash; everybody, when there are none.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub(super) fn new(users: &BTreeMap<String, String>) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        let hashes =
            users.iter().map(|(user, hash)| (user.clone(), hash.as_str().into())).collect();
        Ok(Self { hashes, turn: Semaphore::new(1), right: Mutex::default(), key })
    }

    /// Nobody needs a password.
    pub(crate) fn is_disabled(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether to answer a request with this `Authorization` header.
    ///
    /// # Errors
    /// When that cannot be told in time.
    pub(crate) async fn authenticate(
        &self,
        authorization: Option<&[u8]>,
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
        // An unknown user takes as long as a known one, else names could be guessed.
        let Some(hash) = known.or_else(|| self.hashes.values().next()).cloned() else {
            return Ok(false);
        };
        let Ok(Ok(_turn)) = timeout(PASSWORD_TURN_TIMEOUT, self.turn.acquire()).await else {
            return Err(AuthTimeout);
        };
        let verify = spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let admitted = verify.await.unwrap_or(false) && known.is_some();
        if admitted {
            self.right().insert(digest);
        }
        Ok(admitted)
    }

    fn digest(&self, user: &str, password: &[u8]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.key);
        // A user cannot hold a colon.
        for part in [user.as_bytes(), b":", password] {
            context.update(part);
        }
        context.sign().as_ref().to_vec()
    }

    fn right(&self) -> std::sync::MutexGuard<'_, HashSet<Vec<u8>>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// User and password of an `Authorization` header.
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

    async fn authenticate(basic_auth: &BasicAuth, text: &str) -> bool {
        basic_auth.authenticate(Some(&header(text))).await.unwrap()
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
            assert_eq!(basic_auth.authenticate(Some(wrong)).await, Ok(false), "{wrong:?}");
        }
        assert_eq!(basic_auth.authenticate(None).await, Ok(false));
    }

    #[tokio::test]
    async fn without_users_no_password_is_required() {
        let basic_auth = BasicAuth::new(&BTreeMap::new()).unwrap();
        assert!(basic_auth.is_disabled() && basic_auth.authenticate(None).await.unwrap());
    }

    #[tokio::test]
    async fn only_successful_logins_are_cached() {
        let basic_auth = basic_auth();
        authenticate(&basic_auth, "ann:wrong").await;
        authenticate(&basic_auth, "eve:one:two").await;
        assert!(basic_auth.right().is_empty());
        authenticate(&basic_auth, "ann:one:two").await;
        assert_eq!(basic_auth.right().len(), 1);
        // Nothing is hashed any more: no turn is needed.
        let _turn = basic_auth.turn.acquire().await.unwrap();
        assert!(authenticate(&basic_auth, "ann:one:two").await);
        // Whoever needs one does not wait for it for good.
        tokio::time::pause();
        assert_eq!(basic_auth.authenticate(Some(&header("bob:b"))).await, Err(AuthTimeout));
    }

    #[tokio::test]
    async fn a_password_of_an_unknown_user_is_hashed_as_well() {
        let basic_auth = basic_auth();
        let turn = basic_auth.turn.acquire().await.unwrap();
        tokio::time::pause();
        // Whoever hashes needs the turn.
        for user in ["ann", "eve"] {
            let header = header(&format!("{user}:wrong"));
            assert_eq!(basic_auth.authenticate(Some(&header)).await, Err(AuthTimeout), "{user}");
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
