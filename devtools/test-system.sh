#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test-system.sh [SUITE...]: tests pmdscope with the DPDK of Debian 12 and 13 (bookworm, trixie), by test-releases.sh in a
# root of each that has what `make setup` installs, and writes its row in docs/releases.md. As root. The roots, with the
# builds and logs in /build, are kept in build-deb. FEATURES selects columns.
set -euo pipefail
cd "$(dirname "$0")/.."
. devtools/roots.sh

die() {
	echo "test-system: $*" >&2
	exit 1
}

say() {
	echo "test-system: $suite: $*"
}

check_suite() {
	local root=$roots/$suite-system
	log=$roots/$suite-system.log
	if [ ! -e "$root" ]; then
		say "making a root"
		copy_root "$root.part"
		# Packages start no services.
		printf '#!/bin/sh\nexit 101\n' >"$root.part/usr/sbin/policy-rc.d"
		chmod 755 "$root.part/usr/sbin/policy-rc.d"
		mkdir "$root.part/build"
		mv "$root.part" "$root"
	fi
	# What was built of files that are still the same is not built again.
	git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x --no-same-owner -C "$root/build"
	say "setting up"
	quietly "setup.sh" enter "$root" 'apt-get -qqy install --no-install-recommends make
		cd /build; devtools/setup.sh; apt-get clean'
	say "building"
	quietly "the build" enter "$root" 'cd /build; cargo build --release --locked --package pmdscope'
	enter "$root" "cd /build; FEATURES='${FEATURES:-}' RELEASES=\$(pkg-config --modversion libdpdk | cut -d . -f 1,2) \
		devtools/test-releases.sh" || failed=1
	cp "$root/build/docs/releases.md" docs/releases.md
}

read_arguments '' "$@"
failed=0
for suite in "${suites[@]}"; do
	check_suite
done
exit $failed
