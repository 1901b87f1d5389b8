#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs what building, testing and the demo need on Debian 12. Safe to run again.
set -eu

packages="dpdk libdpdk-dev meson ninja-build pkg-config gcc g++ libc6-dev
	libpcap-dev tshark tcpdump python3 clang-format
	libcap-ng0 libunbound8 nfdump"
rust_needed=1.88

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "setup: '$*' needs root; run 'make setup' as root or install sudo" >&2
		exit 1
	fi
}

apt_install() {
	missing=""
	for package in "$@"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
			missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	echo "setup: installing$missing"
	as_root apt-get update -qq
	# shellcheck disable=SC2086 # a list of names
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
		--no-install-recommends $missing >/dev/null
}

rust_is_recent() {
	command -v cargo >/dev/null || return 1
	have=$(cargo --version | cut -d ' ' -f 2)
	[ "$(printf '%s\n%s\n' "$rust_needed" "$have" | sort -V | head -n 1)" = "$rust_needed" ]
}

command -v apt-get >/dev/null || {
	echo "setup: this script knows Debian's apt only; install by hand: $packages," \
		"and Rust $rust_needed or newer" >&2
	exit 1
}

# The daemon that comes with nfdump would listen to everybody; the tests start their own.
if [ -d /run/systemd/system ] && ! command -v nfcapd >/dev/null; then
	as_root systemctl --quiet mask nfdump.service
fi
# shellcheck disable=SC2086 # a list of names
apt_install $packages
# Debian 12 keeps a recent Rust beside its stable one, for the browsers it builds.
rust_is_recent || apt_install cargo-web rustc-web
rust_is_recent || {
	echo "setup: need Rust $rust_needed or newer, found: $(cargo --version 2>&1 || true)" >&2
	exit 1
}

# For the tests of dashboards and alerts.
prometheus=$(dirname "$0")/prometheus.sh
"$prometheus" || { as_root apt-get update -qq && "$prometheus"; } ||
	echo "setup: without prometheus the tests of dashboards and alerts cannot run" >&2

# For the tests on an app of others. Its packages would start services, so they are not installed.
openvswitch=$(dirname "$0")/openvswitch.sh
"$openvswitch" || { as_root apt-get update -qq && "$openvswitch"; } ||
	echo "setup: without Open vSwitch the tests on it cannot run" >&2

"$(dirname "$0")/hugepages.sh" reserve
