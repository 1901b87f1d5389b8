#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# hugepages.sh reserve [PAGES]|release: 2 MiB hugepages for the demo (512, the default) and the tests.
#
# Reserves only what is missing, remembers how many there were before, and gives
# exactly that difference back. Without root or memory everything still runs, on
# ordinary pages.
set -eu

wanted=${2:-512}
pages=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
free=/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages
record=/run/pmdscope-hugepages

without() {
	echo "hugepages: $1; continuing without: DPDK processes run with --no-huge" \
		"(slower, and no DPDK secondary process can attach to them)"
	exit 0
}

reserve() {
	[ -e "$pages" ] || without "this kernel has no 2 MiB hugepages"
	before=$(cat "$pages")
	missing=$((wanted - $(cat "$free")))
	if [ "$missing" -gt 0 ]; then
		[ -w "$pages" ] || without "reserving needs root"
		echo $((before + missing)) >"$pages"
		got=$(($(cat "$pages") - before))
		echo $(($(cat "$record" 2>/dev/null || echo 0) + got)) >"$record"
		echo "hugepages: reserved $got x 2 MiB of memory; 'make clean-hugepages' gives them back"
		[ "$got" -eq "$missing" ] || without "only $got of $missing pages could be reserved"
	fi
	if ! grep -q ' hugetlbfs ' /proc/mounts; then
		[ "$(id -u)" -eq 0 ] || without "hugetlbfs is not mounted"
		mkdir -p /dev/hugepages
		mount -t hugetlbfs hugetlbfs /dev/hugepages
	fi
}

release() {
	if [ ! -s "$record" ]; then
		echo "hugepages: none were reserved by 'make setup'"
		return
	fi
	ours=$(cat "$record")
	left=$(($(cat "$pages") - ours))
	echo $((left > 0 ? left : 0)) >"$pages"
	rm "$record"
	echo "hugepages: gave $ours x 2 MiB back, $(cat "$pages") remain reserved by others"
}

case "${1:-}" in
reserve) reserve ;;
release) release ;;
*)
	echo "usage: $0 reserve [PAGES]|release" >&2
	exit 2
	;;
esac
