//! Drops root privileges.

use anyhow::{Context, anyhow};
use nix::unistd::{self, User};

/// Becomes a user with all of its groups; without one, or without being root, nothing happens.
pub(super) fn relinquish(user: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = user.filter(|_| unistd::geteuid().is_root()) else { return Ok(()) };
    let user = User::from_name(name)
        .with_context(|| format!("cannot look up user {name}"))?
        .ok_or_else(|| anyhow!("no such user: {name:?}; give -Z an existing user"))?;
    let groups = std::ffi::CString::new(name).context("a user name cannot contain NUL")?;
    unistd::initgroups(&groups, user.gid)
        .and_then(|()| unistd::setgid(user.gid))
        .and_then(|()| unistd::setuid(user.uid))
        .with_context(|| format!("cannot become user {name}"))
}
