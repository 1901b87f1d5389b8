#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# fuzz.sh SECONDS: runs the libFuzzer targets of lib/fuzz, under AddressSanitizer and UBSan, and those of
# xray/fuzz, with all of Rust's checks, all at the same time for SECONDS. Inputs worth keeping stay in
# build-fuzz/corpus for the next run.
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-60}
build=build-fuzz
cargo=${CARGO:-cargo}
[ -f "$build/build.ninja" ] ||
	CC=clang meson setup "$build" -Dfuzz=true -Db_lundef=false
of_lib="request filter"
of_xray="memory maps core"
for target in $of_lib; do
	ninja -C "$build" "lib/fuzz/fuzz-$target"
done

# As cargo-fuzz does, but for AddressSanitizer, which needs a nightly rustc: X-ray has no unsafe code.
# With --target the programs that only build others are not instrumented.
machine=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(clang --rtlib=compiler-rt -print-libgcc-file-name | sed 's/libclang_rt\.builtins/libclang_rt.fuzzer/')
CUSTOM_LIBFUZZER_PATH=$runtime \
	CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
	RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
		-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
		-Cllvm-args=-sanitizer-coverage-trace-compares" \
	"$cargo" build --release --locked --package pmdscope-xray-fuzz --features libfuzzer \
	--target "$machine" --target-dir "$build/xray"

# program TARGET
program() {
	case " $of_lib " in
	*" $1 "*) echo "$build/lib/fuzz/fuzz-$1" ;;
	*) echo "$build/xray/$machine/release/fuzz-$1" ;;
	esac
}

# fuzz TARGET
fuzz() {
	corpus=$build/corpus/$1
	mkdir -p "$corpus"
	"$(program "$1")" -max_total_time="$seconds" -timeout=5 -print_final_stats=1 \
		-artifact_prefix="$build/found-$1-" "$corpus" >"$build/$1.log" 2>&1
}

# Text and an ELF file; the others begin with something that is sound.
mkdir -p "$build/corpus/maps"
cc -shared -fPIC -g -nostdlib -o "$build/library.so" xray/fuzz/seeds/library.c
{ cat xray/fuzz/seeds/maps.txt; printf '\0'; cat "$build/library.so"; } >"$build/corpus/maps/seed"

# Each uses one CPU.
targets="$of_lib $of_xray"
echo "fuzz: $targets for $seconds s"
running=''
for target in $targets; do
	fuzz "$target" &
	running="$running $target:$!"
done
status=0
for process in $running; do
	target=${process%:*}
	if wait "${process#*:}"; then
		sed -n "s/^stat::\(number_of_executed_units\|new_units_added\): */fuzz:   $target \1 /p" \
			"$build/$target.log"
	else
		status=1
		tail -n 60 "$build/$target.log" >&2
	fi
done
exit "$status"
