#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# sanitize.sh [quick]: runs the tests of captures under ThreadSanitizer, then under AddressSanitizer and
# UBSan. What producer and consumer share is mapped twice, which no sanitizer can follow: the order of
# accesses to it is model-checked instead (capture/src/protocol_tests.rs).
set -eu
cd "$(dirname "$0")/.."

case ${1:-} in
quick)
	of_threads='capture_server capture_session'
	of_memory='filter_burst filter_check filter_cost filter_pcap capture_hostile capture_server capture_session capture_tail headroom'
	;;
'')
	of_threads='capture_hostile capture_ring capture_sample capture_server capture_session capture_stress capture_tx'
	of_memory="$of_threads capture_connect capture_tail filter_burst filter_check filter_cost filter_pcap headroom"
	;;
*)
	echo "usage: $0 [quick]" >&2
	exit 2
	;;
esac

# run DIRECTORY TESTS OPTIONS...
run() {
	build=$1
	names=$2
	shift 2
	[ -f "$build/build.ninja" ] ||
		meson setup "$build" -Dbuildtype=debugoptimized -Db_lundef=false "$@"
	programs=''
	tests=''
	for name in $names; do
		programs="$programs lib/tests/test-$name"
		tests="$tests lib-$name"
	done
	# shellcheck disable=SC2086 # lists of names
	ninja -C "$build" $programs
	# shellcheck disable=SC2086
	meson test -C "$build" --no-rebuild --print-errorlogs --timeout-multiplier 3 $tests
}

# ThreadSanitizer ignores fences, and GCC warns about that; the code under these tests has none.
run build-tsan "$of_threads" -Db_sanitize=thread -Dc_args=-Wno-tsan
run build-asan "$of_memory" -Db_sanitize=address,undefined
