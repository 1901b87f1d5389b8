#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Draws the Kernel page of `pmdscope top` as SVG: an interface with an XDP filter, and two senders, one of which the
# filter denies. All of it is in namespaces that end with this script. As root:
#
#     devtools/screenshot-kernel.sh docs/top/kernel.svg
set -eu
cd "$(dirname "$0")/.."

picture=${1:?the file to write is missing}
programs=${BUILD:-build}/integration
pmdscope=${PMDSCOPE:-target/release/pmdscope}

if [ "${2:-}" != apart ]; then
	exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" "$picture" apart
fi
# Pinned maps end with the namespace, and apps of others are not in the picture.
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/dpdk
mount -t tmpfs tmpfs /run/dpdk

unshare --net sleep infinity &
far=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do
	sleep 0.1
done
ip link set lo up
ip link add wan0 type veth peer name far0 netns $far
ip address add 192.0.2.1/24 dev wan0
ip link set wan0 up
nsenter --net=/proc/$far/ns/net sh -eu <<-END
	ip address add 192.0.2.7/24 dev far0
	ip address add 198.51.100.9/24 dev far0
	ip link set far0 up
END

"$pmdscope" xdp attach wan0 --deny 198.51.100.0/24 --rate-limit 50000
"$programs/pmdscope-kernel-reflector" --quiet &
send() {
	nsenter --net=/proc/$far/ns/net "$programs/pmdscope-kernel-generator" --quiet --dst-ip 192.0.2.1 "$@" &
}
send --src-ip 192.0.2.7 --rate 20k
send --src-ip 198.51.100.9 --rate 60k
devtools/screenshot.py --size 100x26 --after 14 --settle 4 --quit '\x03' --picture "9=$picture" -- "$pmdscope" top
