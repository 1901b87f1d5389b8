#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs on Debian 12 what building, testing, linting and the demo need, and reserves hugepages. Safe to
# run again, also after a run that was interrupted. `setup.sh clang` adds what fuzzing needs,
# `setup.sh screenshot` what the README's picture needs, `setup.sh pictures` what those of
# the dashboards need, `setup.sh lab` what the lab in QEMU needs, `setup.sh plots` what plots of
# runs of the generator need, `setup.sh xdp` what the XDP filter is measured against, `setup.sh packages`
# what building Debian packages needs, on Debian 13 as well, `setup.sh roots` what makes bare roots of Debian to test
# packages in, `setup.sh podman` what runs apps in containers, `setup.sh abi` what compares libpmdscope's interface,
# `setup.sh panels` what tests panels with a part of Grafana (23 MB of nodejs and npm, and 45 MB by npm),
# `setup.sh kubernetes` what validates the manifests for Kubernetes (22 MB to fetch, 150 MB unpacked), `setup.sh sbom`
# what validates the SBOM (4 MB to fetch).
set -eu

# python3-venv: for DuckDB, which the test of dashboards/flows.sql reads it with (21 MB to fetch).
# netbase: without its /etc/protocols libpcap knows no protocol by name, and the tests compare with tcpdump.
# clang, libbpf-dev (with libelf-dev and zlib1g-dev): for the XDP filter; 14 MB to fetch.
# dpdk-dev: dpdk-testpmd, dpdk-dumpcap, dpdk-telemetry.py. libcap-ng0, libunbound8: for Open vSwitch.
# systemd: checks the units; it is not started. curl: for the script that takes pictures of dashboards.
packages="dpdk dpdk-dev libdpdk-dev meson ninja-build pkg-config gcc g++ libc6-dev
	libpcap-dev libinih-dev zlib1g-dev tshark tcpdump netbase python3 clang-format
	codespell libcap-ng0 libunbound8 nfdump lz4 bpftrace strace iproute2 iputils-ping
	systemd ethtool clang libbpf-dev liburing-dev gnuplot-nox curl python3-venv"
clang_packages="clang libclang-rt-14-dev"
screenshot_packages="python3-pexpect python3-pyte"
pictures_packages="chromium curl"
plots_packages="gnuplot-nox python3"
lab_packages="qemu-system-x86 bpftrace"
xdp_packages="nftables iptables ethtool"
abi_packages="abigail-tools"
kubernetes_packages="python3-venv"
sbom_packages="python3-venv"
panels_packages="nodejs npm"
roots_packages="debootstrap"
podman_packages="podman runc"
# As debian/control; lintian checks the packages.
packages_packages="build-essential clang debhelper libbpf-dev libdpdk-dev libelf-dev libinih-dev
	libpcap-dev liburing-dev lintian meson pkg-config zlib1g-dev"
rust_needed=1.88
tools=$(dirname "$0")

say() {
	echo "setup: $*"
}

die() {
	echo "setup: $*" >&2
	exit 1
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "'$*' needs root; run 'make setup' as root or install sudo"
	fi
}

is_installed() {
	dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

apt() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

# Finishes what an interrupted dpkg or apt-get left.
repair() {
	[ -n "$(dpkg --audit)" ] || return 0
	say "an earlier installation was interrupted; finishing it"
	as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 || true
	apt --fix-broken -y --no-install-recommends install >/dev/null
	[ -z "$(dpkg --audit)" ] || die "dpkg is still not in order: see 'dpkg --audit'"
}

# install_packages NAME...: installs the missing ones, after printing their size.
install_packages() {
	missing=""
	for package in "$@"; do
		is_installed "$package" || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	say "reading Debian's package lists"
	apt update || die "apt-get update failed: is the network up, and ca-certificates installed?"
	say "will install$missing"
	# With --assume-no apt-get only prints what it would do.
	# shellcheck disable=SC2086 # a list of names
	LC_ALL=C apt-get --assume-no --no-install-recommends install $missing 2>/dev/null |
		sed -n -e 's/^\([0-9]* upgraded.*\)/setup: with what they need: \1/p' \
			-e 's/^\(Need to get\|After this operation\)/setup: \1/p'
	# shellcheck disable=SC2086 # a list of names
	apt install -y --no-install-recommends $missing >/dev/null ||
		die "apt-get could not install$missing; its reasons are above, 'make setup' tries again"
}

# python_tool NAME PACKAGE VERSION: in an environment of its own, build/tools/NAME.
python_tool() {
	place=$tools/../build/tools/$1
	[ "$("$place/bin/pip" show "$2" 2>/dev/null | sed -n 's/^Version: //p')" != "$3" ] || return 0
	python3 -m venv "$place" && "$place/bin/pip" install --quiet "$2==$3"
}

rust_is_recent() {
	command -v cargo >/dev/null || return 1
	have=$(cargo --version | cut -d ' ' -f 2)
	[ "$(printf '%s\n%s\n' "$rust_needed" "$have" | sort -V | head -n 1)" = "$rust_needed" ]
}

# Debian 12 keeps a recent Rust beside its stable one, for the browsers it builds.
install_rust() {
	rust_is_recent || install_packages cargo-web rustc-web
	rust_is_recent || die "need Rust $rust_needed or newer, found: $(cargo --version 2>&1 || true)"
	# They are packages of their own; rustup brings its own.
	! is_installed cargo-web || install_packages rust-web-clippy rustfmt-web
}

command -v apt-get >/dev/null ||
	die "this script knows Debian's apt only; install by hand: $packages, and Rust $rust_needed or newer"
repair
case "${1:-}" in
clang) wanted=$clang_packages ;;
screenshot) wanted=$screenshot_packages ;;
pictures) wanted=$pictures_packages ;;
lab) wanted=$lab_packages ;;
plots) wanted=$plots_packages ;;
xdp) wanted=$xdp_packages ;;
abi) wanted=$abi_packages ;;
kubernetes) wanted=$kubernetes_packages ;;
sbom) wanted=$sbom_packages ;;
panels) wanted=$panels_packages ;;
roots) wanted=$roots_packages ;;
podman) wanted=$podman_packages ;;
packages) wanted=$packages_packages ;;
*) wanted="" ;;
esac
if [ -n "$wanted" ]; then
	# Node.js from elsewhere conflicts with Debian's npm, and brings its own.
	# shellcheck disable=SC2086 # a list of names
	{ [ "$1" = panels ] && command -v node >/dev/null && command -v npm >/dev/null; } ||
		install_packages $wanted
	if [ "$1" = packages ]; then
		# systemd's own pkg-config file says where units belong.
		pkg-config --exists systemd || install_packages "$(
			apt-cache show systemd-dev >/dev/null 2>&1 && echo systemd-dev || echo systemd)"
		rust_is_recent || install_packages cargo-web rustc-web
		rust_is_recent || die "need Rust $rust_needed or newer, found: $(cargo --version 2>&1 || true)"
	fi
	if [ "$1" = kubernetes ]; then
		python_tool kubernetes kubernetes-validate 1.37.0 ||
			die "pip cannot install kubernetes-validate: is the network up?"
	fi
	if [ "$1" = sbom ]; then
		python_tool sbom spdx-tools 0.8.5 || die "pip cannot install spdx-tools: is the network up?"
	fi
	if [ "$1" = panels ]; then
		"$tools/panels.sh" || die "without @grafana/data the tests of panels cannot run"
	fi
	if [ "$1" = lab ]; then
		guest=$tools/../integration/lab/build-guest.sh
		"$guest" || { apt update && "$guest"; } || die "without a guest the lab cannot run"
	fi
	exit 0
fi

# The daemon that comes with nfdump would listen on all addresses; the tests start their own.
if [ -d /run/systemd/system ] && ! command -v nfcapd >/dev/null; then
	as_root systemctl --quiet mask nfdump.service
fi
# In one call, so that the printed size is the total.
# shellcheck disable=SC2046,SC2086 # lists of names
install_packages $packages $(rust_is_recent || echo cargo-web rustc-web rust-web-clippy rustfmt-web)
install_rust

# For the tests of dashboards and alerts.
"$tools/prometheus.sh" || { apt update && "$tools/prometheus.sh"; } ||
	die "without prometheus the tests of dashboards and alerts cannot run"

# For the tests on a third-party app. Its packages would start services, so they are not installed.
"$tools/openvswitch.sh" || { apt update && "$tools/openvswitch.sh"; } ||
	die "without Open vSwitch the tests on it cannot run"
"$tools/dpdk-samples.sh" || { apt update && "$tools/dpdk-samples.sh"; } ||
	die "without DPDK's samples the tests on them cannot run"

python_tool duckdb duckdb-cli 1.5.6 || say "pip cannot install duckdb-cli: flows.sql will not be tested"

"$tools/hugepages.sh" reserve
