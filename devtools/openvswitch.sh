#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Puts Debian's Open vSwitch on DPDK below build/tools, without installing the packages: those would
# start services. Does nothing when it is there already.
set -eu

tools=$(cd "$(dirname "$0")/.." && pwd)/build/tools
unpacked=$tools/openvswitch

[ ! -x "$unpacked/usr/sbin/ovsdb-server" ] || exit 0

mkdir -p "$tools"
scratch=$(mktemp -d "$tools/openvswitch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
(
	cd "$scratch"
	# As root, apt warns that it cannot download as another user into a directory of root's.
	apt-get -qq -o APT::Sandbox::User=root download \
		openvswitch-common openvswitch-switch openvswitch-switch-dpdk || {
		echo "openvswitch.sh: cannot download Debian's packages: try 'apt-get update' first" >&2
		exit 1
	}
	for package in openvswitch-*.deb; do
		dpkg-deb -x "$package" unpacked
	done
)
for program in sbin/ovsdb-server bin/ovs-vsctl lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk; do
	missing=$(ldd "$scratch/unpacked/usr/$program" | grep 'not found' || true)
	[ -z "$missing" ] || {
		echo "openvswitch.sh: $program does not run here: $missing" >&2
		exit 1
	}
done
rm -rf "$unpacked"
mv "$scratch/unpacked" "$unpacked"
echo "openvswitch.sh: $("$unpacked/usr/bin/ovs-vsctl" --version | head -n 1), in $unpacked"
