#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Tests pmdscope with releases of DPDK, one after the other, and writes what passed to docs/releases.md:
#
#     [RELEASES="21.11 25.11"] [FEATURES="build xray"] [DPDK_CACHE=DIR] [DPDK_SOURCES=SOURCE] devtools/test-releases.sh
#
# The release that is installed is tested as it is, in $BUILD; the others are those of the cache. What is missing there
# is built by devtools/dpdk-release.sh if DPDK_SOURCES is set, and skipped otherwise. Each is tested in build-RELEASE,
# and the output is kept there in FEATURE.log. pmdscope itself must have been built. Exit status 1: something failed.
set -eu
cd "$(dirname "$0")/.."

releases=${RELEASES:-21.11 22.11 23.11 24.11 25.11 26.07}
all_features="build headers tests telemetry capture leaks xray"
features=${FEATURES:-$all_features}
cache=${DPDK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pmdscope}
cargo=${CARGO:-cargo}
SKIPPED=77
: "${PMDSCOPE_NO_SKIP:=programs}"
export PMDSCOPE_NO_SKIP

say() {
	echo "test-releases: $*"
}

# Headers, libraries and programs of a release are all those of $place.
choose() {
	unset PKG_CONFIG_PATH LD_LIBRARY_PATH
	system=
	installed=$(pkg-config --modversion libdpdk 2>/dev/null || true)
	case $installed in
	"$1" | "$1".*)
		version=$installed
		system=$(. /etc/os-release && echo "$NAME ${VERSION_ID:-}" | sed 's|/Linux||; s|GNU||; s|  *| |g')
		build=${BUILD:-build}
		place=$scratch/dpdk-$1
		mkdir -p "$place/bin" "$place/lib"
		ln -sfn "$(command -v dpdk-testpmd)" "$place/bin/dpdk-testpmd"
		ln -sfn "$(pkg-config --variable=libdir libdpdk)" "$place/lib/system"
		return
		;;
	esac
	[ -z "${DPDK_SOURCES:-}" ] || devtools/dpdk-release.sh "$1" || return 1
	place=$cache/dpdk-$1
	[ -x "$place/bin/dpdk-testpmd" ] || return $SKIPPED
	build=build-$1
	PKG_CONFIG_PATH=$place/lib/pkgconfig
	# Libraries that those of the program need are not looked for in its own path.
	LD_LIBRARY_PATH=$place/lib
	export PKG_CONFIG_PATH LD_LIBRARY_PATH
	version=$(pkg-config --modversion libdpdk)
}

# The end-to-end test of a name.
end_to_end() {
	: >"$scratch/skips"
	PMDSCOPE_SKIPS=$scratch/skips PMDSCOPE_DPDK_RELEASES=$place PMDSCOPE_BUILD=$build \
		"$cargo" test --locked --workspace --profile "${PROFILE:-dev}" --test end_to_end -- --exact "$1" || return 1
	! grep "^SKIP $1:" "$scratch/skips" || return $SKIPPED
}

# Warnings are errors.
compile() {
	{ [ -e "$build/build.ninja" ] || meson setup "$build"; } && ninja -C "$build"
}

run_feature() {
	case $1 in
	build) compile ;;
	headers) compile && meson test -C "$build" --no-rebuild --print-errorlogs --suite headers ;;
	tests) compile && meson test -C "$build" --no-rebuild --print-errorlogs --no-suite headers ;;
	telemetry) end_to_end releases_are_observed ;;
	capture)
		pdump/pmdscope-pdump-build -o "$place/pdump" "$place" && end_to_end releases_are_captured_from
		;;
	leaks) end_to_end frequent_leaks_are_named ;;
	xray) end_to_end xray_reads_other_releases ;;
	*)
		say "no feature $1: there are $all_features"
		return 1
		;;
	esac
}

# note RELEASE FEATURE RESULT
note() {
	echo "$1|$version|$system|$2|$3" >>"$scratch/results"
	[ "$3" != fail ] || failed=1
}

test_release() {
	version=$1
	status=0
	choose "$1" || status=$?
	if [ $status -ne 0 ]; then
		result=fail
		[ $status -ne $SKIPPED ] || result=skip
		say "$(echo $result | tr a-z A-Z) $1: no DPDK in $cache/dpdk-$1; DPDK_SOURCES=SOURCE builds it"
		for feature in $features; do
			note "$1" "$feature" $result
		done
		return
	fi
	mkdir -p "build-$1"
	for feature in $features; do
		status=0
		log=build-$1/$feature.log
		run_feature "$feature" >"$log" 2>&1 </dev/null || status=$?
		case $status in
		0) result=pass ;;
		"$SKIPPED") result=skip ;;
		*) result=fail ;;
		esac
		say "DPDK $version: $feature: $result"
		if [ $result != pass ]; then
			tail -n 20 "$log"
			say "all of it is in $log"
		fi
		note "$1" "$feature" $result
	done
}

# Into docs/releases.md: a row for each release, and for each system's own package of it. What was not tested now, and a
# release that is not here, keep what was there.
write_table() {
	python3 - "$scratch/results" docs/releases.md "$all_features" <<'END'
import re, sys

results, page, features = sys.argv[1], sys.argv[2], sys.argv[3].split()
head, old, tail = re.match(
    r"(.*<!-- test-releases -->\n)(.*)(<!-- end of test-releases -->.*)", open(page).read(), re.S).groups()
rows = {}
for line in old.splitlines()[2:]:
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    version, _, system = name.partition(", ")
    rows[".".join(version.split(".")[:2]), system] = [version, dict(zip(features, cells))]
for line in open(results):
    release, version, system, feature, result = line.rstrip("\n").split("|")
    row = rows.setdefault((release, system), [version, {}])
    if version != release:
        row[0] = version
    if result != "skip" or row[1].get(feature, "-") == "-":
        row[1][feature] = result
table = [["DPDK", *features], ["---"] * (1 + len(features))]
table += [[", ".join(filter(None, [version, system])), *(cells.get(f, "-") for f in features)]
          for (_, system), (version, cells) in sorted(rows.items())]
text = "".join(f"| {' | '.join(row)} |\n" for row in table).replace("| --- |", "|---|").replace(" --- |", "---|")
open(page, "w").write(head + text + tail)
print(text, end="")
END
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/results"
failed=0
for release in $releases; do
	test_release "$release"
done
write_table
exit $failed
