#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test-bpftrace.sh [--run] [SUITE...]: tests that the bpftrace of Debian 12 and 13 (bookworm, trixie) understands the
# scripts, as `make test` does with the one that is installed. --run also runs the end-to-end tests of `pmdscope
# interrupts` with it, of what `make build` built. As root. The roots that the programs are in are kept in build-deb.
set -euo pipefail
cd "$(dirname "$0")/.."
. devtools/roots.sh

run=''

die() {
	echo "test-bpftrace: $*" >&2
	exit 1
}

say() {
	echo "test-bpftrace: $suite: $*"
}

# make_program ROOT: a command `bpftrace` that runs the one in the root, on this kernel, with files of this machine
# that are below its directory for temporary files and the checkout. It is one process, whose mounts end with it.
make_program() {
	mkdir -p "$1.bin" "$1$PWD"
	cat >"$1.bin/bpftrace" <<-END
		#!/bin/sh
		exec unshare --mount --propagation private sh -euc '
			root=\$1
			at=\$(pwd)
			shift
			mount --rbind /proc "\$root/proc"
			mount --rbind /dev "\$root/dev"
			mount --rbind /sys "\$root/sys"
			mount --bind /tmp "\$root/tmp"
			mount --bind "$PWD" "\$root$PWD"
			exec chroot "\$root" sh -c "cd \"\\\$0\" 2>/dev/null || cd /; exec /usr/bin/bpftrace \"\\\$@\"" "\$at" "\$@"
		' sh "$1" "\$@"
	END
	chmod 755 "$1.bin/bpftrace"
}

check_suite() {
	local root=$roots/$suite-bpftrace
	log=$roots/$suite-bpftrace.log
	if [ ! -e "$root" ]; then
		say "making a root"
		copy_root "$root.part"
		quietly "apt-get install bpftrace" enter "$root.part" \
			'apt-get -qqy install --no-install-recommends bpftrace; apt-get clean'
		mv "$root.part" "$root"
	fi
	make_program "$root"
	say "$("$root.bin/bpftrace" --version)"
	PATH=$root.bin:$PATH quietly "a test of the scripts" \
		"${CARGO:-cargo}" test --locked --package pmdscope-interrupts --test script -- --nocapture
	! grep SKIP "$log" >&2 || die "$suite: not tested"
	[ -z "$run" ] || PATH=$root.bin:$PATH PMDSCOPE_NO_SKIP=programs \
		"${CARGO:-cargo}" test --locked --package pmdscope-integration -- interrupts
	say ok
}

read_arguments run "$@"
for suite in "${suites[@]}"; do
	check_suite
done
