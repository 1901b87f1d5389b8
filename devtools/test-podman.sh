#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test-podman.sh: runs apps under podman, without and with libpmdscope, with the files of this machine for an image
# and podman's own security settings; they must be found, named, captured from and looked into from the host. As
# root, with hugepages of 2 MiB. Nothing stays: podman's files are in a scratch directory.
set -euo pipefail
cd "$(dirname "$0")/.."

pmdscope=${PMDSCOPE:-target/release/pmdscope}
scratch=$(mktemp -d)
prefix=podman-$$
group=pmdscope-$$

# containers COMMAND ARGUMENT...: podman with files of its own.
containers() {
	podman --root "$scratch/storage" --runroot "$scratch/run" --tmpdir "$scratch/tmp" \
		--storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"
}

clean() {
	set +e
	containers rm --all --force --time 1 >/dev/null 2>&1
	rm -rf "$scratch" "/dev/hugepages/$prefix"*
	# Podman leaves the groups of its own processes, which may just be ending.
	local tries
	for tries in 1 2 3 4 5; do
		find /sys/fs/cgroup -maxdepth 2 -name "$group" -exec find {} -depth -type d -delete \; 2>/dev/null
		[ -n "$(find /sys/fs/cgroup -maxdepth 2 -name "$group")" ] || break
		sleep "0.$tries"
	done
}
trap clean EXIT

die() {
	echo "test-podman: $*" >&2
	containers logs "$id" >&2 || true
	exit 1
}

# start NAME PROGRAM ARGUMENT...: starts an app and sets id to that of its container, once pmdscope names both.
start() {
	local app=$prefix-$1 deadline=$((SECONDS + 30))
	shift
	# Podman's own limits are more than some machines allow.
	id=$(containers run --detach --network none --cgroup-parent "/$group" --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
		--volume /dev/hugepages:/dev/hugepages --rootfs /:O "$1" --lcores 0@0,1@1 --no-pci -m 64 \
		--vdev net_null0 --file-prefix "$app" -- "${@:2}")
	until "$pmdscope" ls 2>/dev/null | grep -q "^$app  *[0-9]*  *${id:0:12} .* live"; do
		[ "$SECONDS" -lt "$deadline" ] || die "$app is not listed as live with container ${id:0:12}"
		sleep 0.2
	done
}

# capture NAME VIA: captures some packets of an app.
capture() {
	local said
	said=$(timeout 30 "$pmdscope" capture -i "$prefix-$1:0" -c 100 -w "$scratch/$1.pcapng" 2>&1) ||
		die "capture from $1: $said"
	grep -q '^100 packets captured' <<<"$said" || die "capture from $1: $said"
	grep -q "listening on $prefix-$1:0$2," <<<"$said" || die "capture from $1, not$2: $said"
}

start stock /usr/bin/dpdk-testpmd --no-mlockall --total-num-mbufs=4096 --auto-start --stats-period=60
capture stock ' via pdump'
capture stock ' via pdump'
echo "test-podman: an app without libpmdscope is captured from"
start linked "$PWD/build/integration/pmdscope-reflector" --mbufs 4095
capture linked ''
leaks=$(timeout 60 "$pmdscope" leaks -a "$prefix-linked" -i 0.1 --scan-interval 0.2 2>&1) || [ $? -eq 1 ] ||
	die "leaks: $leaks"
grep -q reflector_pool <<<"$leaks" || die "leaks: $leaks"
echo "test-podman: an app with libpmdscope is captured from and looked into"
