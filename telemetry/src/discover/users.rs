//! Users whose apps are found: root and the caller keep the names of their apps, those of others are
//! `USER/APP` and limited in number.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::geteuid;

use crate::printable::harmless;

/// Apps of all other users together: so many times those of one.
const USERS: usize = 4;

/// Returns who the user of an app is, unless it is root or the caller: any user can give an app any
/// file-prefix.
pub(super) fn other_user(uid: u32) -> Option<String> {
    (uid != 0 && uid != geteuid().as_raw()).then(|| name_of("/etc/passwd", uid))
}

/// Returns the name of an id in a file such as `/etc/group`, otherwise the id.
pub(super) fn name_of(file: &str, id: u32) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| id.to_string())
}

/// Names of users by id, each looked up once.
#[derive(Debug, Default)]
pub(super) struct UserNames(BTreeMap<u32, Option<String>>);

impl UserNames {
    /// As [`other_user`].
    pub(super) fn other(&mut self, uid: u32) -> Option<String> {
        self.0.entry(uid).or_insert_with(|| other_user(uid)).clone()
    }
}

/// Counts the apps of other users: any user can make thousands.
#[derive(Debug)]
pub(super) struct Crowd {
    per_user: usize,
    admitted: BTreeMap<String, usize>,
    left_out: BTreeMap<String, usize>,
}

impl Crowd {
    pub(super) fn new(per_user: usize) -> Self {
        Self { per_user, admitted: BTreeMap::new(), left_out: BTreeMap::new() }
    }

    /// Whether one more app of this user is looked at; counts those that are not.
    pub(super) fn admits(&mut self, user: Option<&str>) -> bool {
        let Some(user) = user else { return true };
        let all: usize = self.admitted.values().sum();
        let of_user = self.admitted.entry(user.to_owned()).or_default();
        if *of_user < self.per_user && all < self.per_user.saturating_mul(USERS) {
            *of_user += 1;
            return true;
        }
        *self.left_out.entry(user.to_owned()).or_default() += 1;
        false
    }

    /// Returns what both left out, by user.
    pub(super) fn and(mut self, other: Self) -> BTreeMap<String, usize> {
        for (user, number) in other.left_out {
            *self.left_out.entry(user).or_default() += number;
        }
        self.left_out
    }
}

/// What the last search left out: numbers of apps beyond the limit, by user. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LeftOut(Arc<Mutex<BTreeMap<String, usize>>>);

impl LeftOut {
    pub(super) fn set(&self, numbers: BTreeMap<String, usize>) {
        *self.lock() = numbers;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many apps of whom were left out; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        let numbers = self.lock();
        let text = |(user, number): (&String, &usize)| format!("{number} of user {user}");
        let texts: Vec<_> = numbers.iter().map(text).collect();
        (!texts.is_empty()).then(|| {
            let texts = harmless(&texts.join(", "), &[]);
            format!("apps left out, above the limit of discovery.per_user: {texts}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_files_of_the_system() {
        assert_eq!(name_of("/etc/passwd", 0), "root");
        assert_eq!(name_of("/etc/group", 4_000_000_000), "4000000000");
        assert_eq!(name_of("/nonexistent", 7), "7");
    }

    #[test]
    fn root_and_the_caller_need_no_qualification() {
        assert_eq!(other_user(0), None);
        assert_eq!(other_user(geteuid().as_raw()), None);
        assert_eq!(other_user(4_000_000_000).as_deref(), Some("4000000000"));
    }

    #[test]
    fn others_are_limited_one_by_one_and_together() {
        let mut crowd = Crowd::new(2);
        let admitted = |crowd: &mut Crowd, user: &str| crowd.admits(Some(user));
        assert_eq!([(); 4].map(|()| admitted(&mut crowd, "eve")), [true, true, false, false]);
        for user in ["a", "b", "c"] {
            assert!(admitted(&mut crowd, user) && admitted(&mut crowd, user), "{user}");
        }
        assert!(!admitted(&mut crowd, "d") && crowd.admits(None));
        let left_out = LeftOut::default();
        assert_eq!(left_out.text(), None);
        left_out.clone().set(crowd.and(Crowd::new(0)));
        let text = left_out.text().unwrap();
        assert!(text.ends_with("1 of user d, 2 of user eve"), "{text}");
    }
}
