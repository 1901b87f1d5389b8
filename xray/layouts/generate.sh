#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes table.txt from the sources of DPDK releases: generate.sh SOURCE_DIR... >table.txt
# Each SOURCE_DIR is the unpacked source of one release, of which only lib/, config/ and VERSION are used.
# Needs gcc and, for arm64, aarch64-linux-gnu-gcc.
set -eu

here=$(dirname "$(realpath "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The C macros that meson would set. build_config RELEASE MACHINE BUILD
build_config() {
	year=${1%.*} month=${1#*.}
	line=64
	case $2 in
	*-128) line=128 ;;
	esac
	cat <<-END
		#define RTE_VER_YEAR $year
		#define RTE_VER_MONTH ${month#0}
		#define RTE_VER_MINOR 0
		#define RTE_VER_SUFFIX ""
		#define RTE_VER_RELEASE 99
		#define RTE_ARCH_64 1
		#define RTE_CACHE_LINE_SIZE $line
		#define RTE_EXEC_ENV 1
		#define RTE_EXEC_ENV_LINUX 1
		#define RTE_EXEC_ENV_IS_LINUX 1
		#define RTE_ENV_LINUX 1
		#define RTE_TOOLCHAIN_GCC 1
		#define RTE_MAX_LCORE 128
		#define RTE_MAX_NUMA_NODES 32
		#define RTE_MAX_ETHPORTS 32
		#define RTE_MAX_MEM_MB 524288
		#define RTE_MAX_VFIO_GROUPS 64
		#define RTE_BACKTRACE 1
		#define RTE_MBUF_REFCNT_ATOMIC 1
		#ifndef RTE_PKTMBUF_HEADROOM
		#define RTE_PKTMBUF_HEADROOM 128
		#endif
	END
	case $2 in
	x86_64) printf '#define RTE_ARCH_X86 1\n#define RTE_ARCH_X86_64 1\n' ;;
	arm64*) printf '#define RTE_ARCH_ARM 1\n#define RTE_ARCH_ARM64 1\n#define RTE_FORCE_INTRINSICS 1\n' ;;
	esac
	iova=1
	case $3 in
	no_iova) iova=0 ;;
	stats) echo '#define RTE_LIBRTE_MEMPOOL_STATS 1' ;;
	debug) echo '#define RTE_LIBRTE_MEMPOOL_DEBUG 1' ;;
	stats_debug) printf '#define RTE_LIBRTE_MEMPOOL_STATS 1\n#define RTE_LIBRTE_MEMPOOL_DEBUG 1\n' ;;
	esac
	printf '#define RTE_IOVA_AS_PA %s\n#define RTE_IOVA_IN_MBUF %s\n' $iova $iova
}

# Lists the offsets of one build. offsets SOURCE_DIR RELEASE MACHINE BUILD
offsets() {
	case $3 in
	x86_64) compiler="gcc -march=corei7" cpu=x86 ;;
	arm64*) compiler="aarch64-linux-gnu-gcc -march=armv8-a+crc" cpu=arm ;;
	esac
	build_config "$2" "$3" "$4" >"$scratch/rte_build_config.h"
	set -- "$1" "$2" "$3" "$4" -I"$scratch" -I"$1/config" -I"$1/lib/eal/include" -I"$1/lib/eal/common" \
		-I"$1/lib/eal/linux" -I"$1/lib/eal/linux/include" -I"$1/lib/eal/$cpu/include"
	for library in "$1"/lib/*/; do
		set -- "$@" -I"$library"
	done
	# Statistics came with debug builds only until 22.07.
	case $4,$2 in
	debug,21.11 | debug,22.03 | debug,22.07 | stats_debug,* | stats,22.11 | stats,2[3-9].*)
		set -- "$@" -DHAVE_MEMPOOL_STATS
		;;
	esac
	source=$1
	shift 4
	$compiler -S -w -D_GNU_SOURCE -DALLOW_INTERNAL_API -DALLOW_EXPERIMENTAL_API "$@" -include rte_config.h -o "$scratch/list.s" \
		"$here/offsets.c" || { echo "cannot compile with $source" >&2; return 1; }
	grep '^@' "$scratch/list.s"
}

for source in "$@"; do
	release=$(cut -d. -f1,2 "$source/VERSION")
	for machine in x86_64 arm64-64 arm64-128; do
		for build in default no_iova stats debug stats_debug; do
			offsets "$source" "$release" "$machine" "$build" >"$scratch/one"
			sed "s/^@/$release $machine $build/" "$scratch/one"
		done
	done
done >"$scratch/all"

# Identical layouts become one entry: STRUCTURE RELEASES MACHINES BUILDS, and the fields below it.
cat <<'END'
# Offsets of the fields of DPDK's structures, in bytes. Made by generate.sh; do not edit.
# An entry: structure, releases, machines (with the cache line size on arm64), and builds, "*" for all.
# Builds: no_iova is meson -Denable_iova_as_pa=false; stats, debug and stats_debug have
# RTE_LIBRTE_MEMPOOL_STATS and RTE_LIBRTE_MEMPOOL_DEBUG.
END
sort -t. -k1,1n -k2,2n -s "$scratch/all" | awk '
{
	if ($1 in seen_release && ($4, $1, $2, $3, $5) in seen_member) {
		# Another version of the same release.
		if (seen_member[$4, $1, $2, $3, $5] != $6) {
			print $0 " differs between versions of this release" >"/dev/stderr"
			failed = 1
		}
		next
	}
	seen_member[$4, $1, $2, $3, $5] = $6
	if (!($1 in seen_release)) { seen_release[$1]; release[++releases] = $1 }
	if (!($2 in seen_machine)) { seen_machine[$2]; machine[++machines] = $2 }
	if (!($3 in seen_build)) { seen_build[$3]; build[++builds] = $3 }
	if (!($4 in seen_structure)) { seen_structure[$4]; structure[++structures] = $4 }
	fields[$4, $1, $2, $3] = fields[$4, $1, $2, $3] " " $5 "=" $6
}
function wrapped(text,   words, count, i, line, all) {
	count = split(text, words, " ")
	line = "\t" words[1]
	for (i = 2; i <= count; i++) {
		if (length(line) + length(words[i]) > 100) { all = all line "\n"; line = "\t" words[i] }
		else line = line " " words[i]
	}
	return all line
}
# Which machines and builds have one layout from one release to another.
function range(s, first, last, m, b,   key) {
	key = release[first] "-" release[last] "\t" fields[s, release[first], m, b]
	if (!(key in cells)) { order[++keys] = key; cells[key] }
	if (!((key, m) in of)) { of[key, m] = b; number[key, m] = 1 }
	else { of[key, m] = of[key, m] "," b; number[key, m]++ }
}
END {
	if (failed) exit 1
	for (i = 1; i <= structures; i++) {
		s = structure[i]
		keys = 0; delete cells; delete of; delete number; delete order
		for (first = 1; first <= releases; first++)
			for (j = 1; j <= machines; j++)
				for (k = 1; k <= builds; k++) {
					m = machine[j]; b = build[k]; here = fields[s, release[first], m, b]
					if (first > 1 && fields[s, release[first - 1], m, b] == here) continue
					for (last = first; last < releases; last++)
						if (fields[s, release[last + 1], m, b] != here) break
					range(s, first, last, m, b)
				}
		for (n = 1; n <= keys; n++) {
			split(order[n], part, "\t")
			delete done
			for (j = 1; j <= machines; j++) {
				list = of[order[n], machine[j]]
				if (list == "" || (list in done)) continue
				done[list]
				names = ""; same = 0
				for (k = j; k <= machines; k++)
					if (of[order[n], machine[k]] == list) { names = names "," machine[k]; same++ }
				print s, part[1], same == machines ? "*" : substr(names, 2), \
					number[order[n], machine[j]] == builds ? "*" : list
				print wrapped(part[2])
			}
		}
	}
}'
