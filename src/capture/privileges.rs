//! Drops root privileges.

use anyhow::{Context, anyhow};
use nix::unistd::{self, Gid, User};

/// Becomes a user with all of its groups; without one, or without being root, nothing happens.
pub(super) fn relinquish(user: Option<&str>) -> anyhow::Result<()> {
    let Some(user) = other_user(user)? else { return Ok(()) };
    unistd::setgroups(&groups_of(&user)?)
        .and_then(|()| unistd::setgid(user.gid))
        .and_then(|()| unistd::setuid(user.uid))
        .with_context(|| format!("cannot become user {}", user.name))
}

/// Does something with the rights of a user, as [`relinquish`], and has those of root again.
pub(super) fn as_user<T>(
    user: Option<&str>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(user) = other_user(user)? else { return work() };
    let before = unistd::getgroups().context("cannot read the groups of root")?;
    unistd::setgroups(&groups_of(&user)?)
        .and_then(|()| unistd::setegid(user.gid))
        .and_then(|()| unistd::seteuid(user.uid))
        .with_context(|| format!("cannot become user {}", user.name))?;
    let done = work();
    unistd::seteuid(unistd::Uid::from_raw(0))
        .and_then(|()| unistd::setegid(unistd::getgid()))
        .and_then(|()| unistd::setgroups(&before))
        .context("cannot become root again")?;
    done
}

/// The user to become.
fn other_user(name: Option<&str>) -> anyhow::Result<Option<User>> {
    let Some(name) = name.filter(|_| unistd::geteuid().is_root()) else { return Ok(None) };
    let user = User::from_name(name).with_context(|| format!("cannot look up user {name}"))?;
    user.map(Some).ok_or_else(|| anyhow!("no such user: {name:?}; give -Z an existing user"))
}

fn groups_of(user: &User) -> anyhow::Result<Vec<Gid>> {
    let name = std::ffi::CString::new(user.name.as_str());
    let name = name.context("a user name cannot contain NUL")?;
    unistd::getgrouplist(&name, user.gid)
        .with_context(|| format!("cannot look up the groups of user {}", user.name))
}
