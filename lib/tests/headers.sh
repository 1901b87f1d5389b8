#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause headers.sh INCLUDE_DIR HEADER... -- FLAG...: compiles each
# public header on its own, without warnings, as C11, C17, C++17 and C++20, with gcc and clang.
# FLAGs are those of DPDK, whose headers are not held to our warnings. The test fails if a compiler
# is missing: `make setup` installs all.
set -eu

include=$1
shift
headers=""
while [ "$1" != -- ]; do
	headers="$headers $1"
	shift
done
shift

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

# compile COMPILER STANDARD SUFFIX HEADER FLAG...
compile() {
	compiler=$1 standard=$2 source=$scratch/header.$3 header=$4
	shift 4
	echo "#include \"$header\"" >"$source"
	if ! "$compiler" "-std=$standard" -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
		"-I$include" "$@" "$source"; then
		echo "$header does not compile: $compiler -std=$standard" >&2
		failed=1
	fi
}

for header in $headers; do
	for compiler in gcc clang; do
		for standard in c11 c17; do
			# DPDK's headers need more than ISO C of the C library.
			compile $compiler $standard c "$header" -D_GNU_SOURCE "$@"
		done
	done
	for compiler in g++ clang++; do
		for standard in c++17 c++20; do
			compile $compiler $standard cc "$header" "$@"
		done
	done
done
exit $failed
