#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause leaky.sh: builds pmdscope-pipeline-stock as "leaky" in the
# directory of this script, with the DPDK that pkg-config finds; exit code 77 without DPDK. Tests
# copy it with its sources to a separate directory.
set -eu
cd "$(dirname "$0")"

command -v gcc >/dev/null && pkg-config --exists libdpdk || exit 77
static=''
# A build that is not installed has its drivers in the program; otherwise the EAL loads them.
pkg-config --uninstalled libdpdk && static=--static
# If the libraries write cookies to mbufs, the inline functions must do so too: both free and
# allocate.
cookies=''
for dir in $(pkg-config --variable=libdir libdpdk) $(pkg-config --libs-only-L libdpdk | sed 's/-L//g'); do
	grep -qs 'bad header cookie' "$dir"/librte_mempool.* && cookies=-DRTE_LIBRTE_MEMPOOL_DEBUG
done
# shellcheck disable=SC2046 # lists of flags
gcc -std=gnu11 -O2 -g -w -D_GNU_SOURCE -DALLOW_EXPERIMENTAL_API $cookies -Ilevel0 -Icommon -Igenerator -Ipipeline -Ireflector \
	$(pkg-config --cflags libdpdk) -o leaky \
	common/app.c common/clock.c common/control.c common/hugefiles.c common/json.c common/lane.c \
	common/options.c common/port.c common/rate.c common/refuse.c common/schedule.c \
	generator/flows.c generator/pacer.c generator/probe.c generator/sequence.c generator/sizes.c \
	pipeline/faults.c pipeline/main.c pipeline/pattern.c pipeline/places.c pipeline/rest.c \
	pipeline/stages.c pipeline/truth.c \
	reflector/answer.c reflector/corrupt.c reflector/reflect.c \
	$(pkg-config --libs $static libdpdk) -lz -lm -lpthread
