#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause exports.sh LIBRARY: the shared library exports what its
# headers declare, with the version of the interface, and the two functions of DPDK that it
# intercepts, and nothing else.
set -eu

exported=$(nm --dynamic --defined-only --with-symbol-versions "$1" |
	awk '$2 != "A" && $3 !~ /^pmdscope_[a-z0-9_]+@@PMDSCOPE_0$/ { print $3 }' | sort | tr '\n' ' ')
[ "$exported" = 'rte_eal_cleanup rte_exit ' ] || {
	echo "$1 also exports: $exported" >&2
	exit 1
}
nm --dynamic --defined-only --with-symbol-versions "$1" | grep -q ' T pmdscope_init@@PMDSCOPE_0$' || {
	echo "$1 does not export pmdscope_init" >&2
	exit 1
}
readelf --dynamic "$1" | grep -qF '[libpmdscope.so.0]' || {
	echo "$1 has another soname than libpmdscope.so.0" >&2
	exit 1
}
