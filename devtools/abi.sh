#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# abi.sh [update]: builds libpmdscope with debug information, and compares its binary interface with lib/abi: fails
# if an app that was linked with the recorded library may not run with the current one. Additions are only
# reported, and belong in lib/abi: `abi.sh update` writes it again. Types of DPDK are left out.
set -eu
cd "$(dirname "$0")/.."

recorded=lib/abi/libpmdscope.so.0.abi
build=build-abi

die() {
	echo "abi: $*" >&2
	exit 1
}

command -v abidiff >/dev/null || die "no abidiff here: run 'devtools/setup.sh abi'"
mkdir -p $build
[ -e $build/build.ninja ] || meson setup $build --buildtype=debugoptimized >$build/log 2>&1 || {
	cat $build/log >&2
	die "meson setup $build failed"
}
library=$build/$(meson introspect $build --targets | python3 -c '
import json, os, sys
for target in json.load(sys.stdin):
    if target["name"] == "pmdscope" and target["type"] == "shared library":
        print(os.path.relpath(target["filename"][0], sys.argv[1]))' $build)
ninja -C $build "${library#"$build"/}" >$build/log || {
	cat $build/log >&2
	die "the library does not build"
}

# write FILE
write() {
	abidw --exported-interfaces-only --headers-dir lib/include --drop-private-types --no-elf-needed \
		--no-comp-dir-path --no-corpus-path --no-show-locs --out-file "$1" "$library"
}

if [ "${1:-}" = update ]; then
	mkdir -p "$(dirname $recorded)"
	write $recorded
	echo "abi: wrote $recorded"
	exit 0
fi

# Exit codes are bits: 1 and 2 errors, 4 a change, 8 one that is surely not compatible. Without new functions and
# variables, and without what abidiff knows to be harmless, each change is one that an app may notice.
write $build/now.abi
status=0
abidiff --suppressions lib/abi/dpdk.suppr --no-added-syms $recorded $build/now.abi || status=$?
[ $((status & 3)) -eq 0 ] || die "abidiff failed ($status)"
[ "$status" -eq 0 ] || die "the interface of libpmdscope has an incompatible change (above): undo it, or raise the \
soname and PMDSCOPE_0 in lib/, and libpmdscope0 in debian/"
# The check must be able to fail: for a removed function, and for a moved member.
sed "s/pmdscope_poll_gap/pmdscope_poll_none/" $recorded >$build/gone.abi
sed "/<class-decl name='pmdscope_conf'/,/<\/class-decl>/s/offset-in-bits='32'/offset-in-bits='33'/" $recorded >$build/moved.abi
for broken in gone moved; do
	! abidiff --suppressions lib/abi/dpdk.suppr --no-added-syms $recorded $build/$broken.abi >/dev/null ||
		die "abidiff does not notice an incompatible change"
done
abidiff --suppressions lib/abi/dpdk.suppr $recorded $build/now.abi >/dev/null ||
	echo "abi: the interface has something new; record it by 'make abi ABI=update'" >&2
echo "abi: ok"
