#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Licences, sources and bans of the dependencies, by cargo-deny; DENY_ADVISORIES=1 checks for known
# vulnerabilities, too, for which cargo-deny fetches RustSec's database by git.
set -eu
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
deny=0.20.2
tools=${XDG_CACHE_HOME:-$HOME/.cache}/pmdscope/cargo-deny-$deny

# cargo-deny on the PATH, or the one that is built once and kept in the cache. Without optimisation: it runs for a second.
if ! command -v cargo-deny >/dev/null; then
	PATH=$tools/bin:$PATH
	[ -x "$tools/bin/cargo-deny" ] || {
		echo "lint: building cargo-deny $deny, for a minute or two"
		"$cargo" install --quiet --locked --profile dev --root "$tools" "cargo-deny@$deny"
	}
fi
# It checks the dependencies for all platforms, including those that the build here does not need.
"$cargo" fetch --quiet --locked
cargo-deny --offline --log-level error check --hide-inclusion-graph bans licenses sources
[ -z "${DENY_ADVISORIES:-}" ] || cargo-deny check --hide-inclusion-graph advisories
