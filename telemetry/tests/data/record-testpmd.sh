#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# record-testpmd.sh DPDK_PREFIX > FILE: records telemetry replies of dpdk-testpmd of a DPDK release (built by
# devtools/dpdk-release.sh) after half a second of forwarding on two ports. Needs root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
name=testpmd-null
scratch=$(mktemp -d)
testpmd=''
trap '[ -z "$testpmd" ] || kill "$testpmd" 2>/dev/null; rm -rf "$scratch"' EXIT

wait_for() {
	tries=0
	until grep -q "$1" "$scratch/log"; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || {
			cat "$scratch/log" >&2
			exit 1
		}
		sleep 0.1
	done
}

mkfifo "$scratch/console"
# Started by its name, without a path, since its replies contain its arguments.
PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib stdbuf -oL dpdk-testpmd --no-pci --no-huge -m 128 -l 0-1 \
	--file-prefix "$name" --vdev net_null0,size=60 --vdev net_null1,size=60 -- -i --no-mlockall --rxq=2 --txq=2 \
	--total-num-mbufs=2048 <"$scratch/console" >"$scratch/log" 2>&1 &
testpmd=$!
exec 3>"$scratch/console"
wait_for '^Done'
echo start >&3
sleep 0.5
echo stop >&3
wait_for '^Done\.$'

# Only existing ids; a command that a release does not have is answered by null.
commands='/ /eal/params /ethdev/list'
for port in 0 1; do
	commands="$commands /ethdev/info,$port /ethdev/stats,$port /ethdev/xstats,$port /ethdev/link_status,$port"
done
commands="$commands /mempool/list /mempool/info,mb_pool_0 /ring/list /ring/info,MP_mb_pool_0 /pmdscope"
commands="$commands /eal/heap_list /eal/heap_info,0 /eal/lcore/list /eal/lcore/info,0 /eal/lcore/info,1"
# shellcheck disable=SC2086 # words
python3 "$here/record.py" "/var/run/dpdk/$name/dpdk_telemetry.v2" $commands /eal/lcore/usage
echo quit >&3
wait "$testpmd"
testpmd=''
