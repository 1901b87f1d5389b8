#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds releases of DPDK, small, into $DPDK_CACHE/dpdk-RELEASE, to build and test pmdscope against:
#
#     DPDK_SOURCES=SOURCE [DPDK_CACHE=DIR] [JOBS=N] devtools/dpdk-release.sh RELEASE...
#
# RELEASE is 25.11, for the newest tag v25.11.N, or 25.11.2 exactly, which is installed as 25.11 as well.
# SOURCE is a git directory with the tags, an archive (dpdk-25.11.2.tar.xz) or the address of a git
# repository. DPDK_CACHE is ~/.cache/pmdscope by default. What is there already is not built again.
# Static and shared libraries, pkg-config, dpdk-testpmd, and the drivers that run without a NIC.
set -eu

usage() {
	echo "usage: DPDK_SOURCES=SOURCE [DPDK_CACHE=DIR] [JOBS=N] $0 RELEASE..." >&2
	exit 2
}

[ $# -gt 0 ] || usage
: "${DPDK_SOURCES:=}"
cache=${DPDK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pmdscope}
jobs=${JOBS:-$(nproc)}
drivers=bus/pci,bus/vdev,mempool/ring,mempool/stack,net/null,net/ring,net/memif,net/virtio,net/vhost
drivers=$drivers,net/pcap,net/af_packet,net/af_xdp
# The libraries that pmdscope's library, helper and tests and testpmd use, and their dependencies.
libs=bitratestats,bpf,cmdline,cryptodev,distributor,dmadev,gro,gso,hash,ip_frag,latencystats,metrics
libs=$libs,pcapng,pci,pdump,rcu,reorder,security,stack,timer,vhost

die() {
	echo "dpdk-release.sh: $*" >&2
	exit 1
}

# The tag, among those on standard input, that a release refers to.
tag_of() {
	case $1 in
	*.*.*) pattern="^v$1\$" ;;
	*) pattern="^v$1(\.[0-9]+)?\$" ;;
	esac
	grep -E "$(echo "$pattern" | sed 's/\([0-9]\)\./\1[.]/g')" | sort -V | tail -n 1
}

# Put the sources of a release into a directory.
unpack() {
	case $DPDK_SOURCES in
	'') die "DPDK_SOURCES is not set: a git directory, an archive or the address of a repository" ;;
	*.tar | *.tar.* | *.tgz)
		tar -x -f "$DPDK_SOURCES" -C "$2" --strip-components=1
		;;
	*)
		if git -C "$DPDK_SOURCES" rev-parse --git-dir >/dev/null 2>&1; then
			tag=$(git -C "$DPDK_SOURCES" tag | tag_of "$1")
			[ -n "$tag" ] || die "$DPDK_SOURCES has no tag for $1"
			git -C "$DPDK_SOURCES" archive "$tag" | tar -x -C "$2"
		else
			tag=$(git ls-remote --tags --refs "$DPDK_SOURCES" | sed 's|.*refs/tags/||' | tag_of "$1")
			[ -n "$tag" ] || die "$DPDK_SOURCES has no tag for $1"
			git -c advice.detachedHead=false clone -q --depth 1 --branch "$tag" "$DPDK_SOURCES" "$2/git"
			git -C "$2/git" archive HEAD | tar -x -C "$2"
			rm -rf "$2/git"
		fi
		;;
	esac
	case $(cat "$2/VERSION") in
	"$1" | "$1".*) ;;
	*) die "$DPDK_SOURCES is DPDK $(cat "$2/VERSION"), not $1" ;;
	esac
}

# "-DNAME=VALUE", if this release has the option.
option() {
	! grep -q "^option('$1'" meson_options.txt || echo "-D$1=$2"
}

build() (
	cd "$1" || exit 1
	restrict=$(option enable_libs "$libs")
	[ -n "$restrict" ] || restrict=$(option disable_libs flow_classify,gpudev,jobstats,kni,power)
	# shellcheck disable=SC2046,SC2086 # words
	meson setup build --prefix "$2" --libdir lib -Dbuildtype=release -Ddefault_library=static \
		-Dplatform=generic -Dtests=false -Denable_drivers="$drivers" $restrict \
		$(option enable_docs false) $(option enable_kmods false) $(option enable_apps test-pmd) &&
		ninja -C build -j "$jobs" && rm -rf "$2" &&
		meson install -C build --no-rebuild --quiet
)

install_release() {
	release=$(echo "$1" | cut -d . -f 1,2)
	prefix=$cache/dpdk-$release
	built=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --modversion libdpdk 2>/dev/null || true)
	if [ -x "$prefix/bin/dpdk-testpmd" ]; then
		case $built in
		"$1" | "$1".*)
			echo "dpdk-release.sh: $prefix has DPDK $built"
			return
			;;
		esac
	fi
	mkdir -p "$cache"
	scratch=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$scratch"' EXIT
	unpack "$1" "$scratch"
	echo "dpdk-release.sh: building DPDK $(cat "$scratch/VERSION") for $prefix"
	build "$scratch" "$prefix" >"$prefix.log" 2>&1 || die "it does not build: see $prefix.log"
	rm -rf "$scratch"
	trap - EXIT
	echo "dpdk-release.sh: $prefix"
}

for tool in git meson ninja pkg-config; do
	command -v "$tool" >/dev/null || die "no $tool here"
done
# Debian's python3 has the package python3-pyelftools, a python3 before it in PATH may not.
python3 -c 'import elftools' 2>/dev/null || PATH=/usr/bin:$PATH
python3 -c 'import elftools' 2>/dev/null || die "python3 has no elftools (package python3-pyelftools)"
cache=$(mkdir -p "$cache" && cd "$cache" && pwd)
for release; do
	case $release in
	[0-9][0-9].[0-9][0-9] | [0-9][0-9].[0-9][0-9].[0-9]*) install_release "$release" ;;
	*) usage ;;
	esac
done
