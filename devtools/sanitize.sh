#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs the tests of captures under ThreadSanitizer, then under AddressSanitizer and UBSan.
# What producer and consumer share is mapped twice, which no sanitizer can follow: the order of
# accesses to it is model-checked instead (capture/src/protocol_tests.rs).
set -eu
cd "$(dirname "$0")/.."

tests='lib-tee_hostile lib-tee_ring lib-tee_sample lib-tee_server lib-tee_session lib-tee_stress lib-tee_tx'

# run DIRECTORY TESTS OPTIONS...
run() {
	build=$1
	wanted=$2
	shift 2
	[ -f "$build/build.ninja" ] ||
		meson setup "$build" -Dbuildtype=debugoptimized -Db_lundef=false "$@"
	# shellcheck disable=SC2086
	meson test -C "$build" --print-errorlogs --timeout-multiplier 3 $wanted
}

# ThreadSanitizer takes a fence for nothing, and GCC says so; none stands where these tests look.
run build-tsan "$tests" -Db_sanitize=thread -Dc_args=-Wno-tsan
run build-asan "$tests lib-filter_check lib-filter_pcap" -Db_sanitize=address,undefined
