#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# deb.sh: builds Debian packages of the checkout, as its files are, for the release of Debian that this machine
# runs, in build-deb/packages. `deb.sh --here` builds in the current directory itself, which is not a checkout, and
# leaves the packages next to it. HELPERS: prefixes of installed DPDKs, for whose apps the package has helpers as
# well.
set -eu

die() {
	echo "deb: $*" >&2
	exit 1
}

command -v dpkg-buildpackage >/dev/null || die "no dpkg-buildpackage here: run 'devtools/setup.sh packages'"
release=$(. /etc/os-release && echo "$ID${VERSION_ID:-}") || die "cannot read /etc/os-release"
case $release in
debian[0-9]*) release=deb${release#debian} ;;
*) echo "deb: $release is not a release of Debian that packages are tested on: 12 and 13" >&2 ;;
esac

if [ "${1:-}" = --here ]; then
	# Packages of Debian 13 are newer than those of 12: DPDK's libraries have other names there.
	sed "1s/(\([^+)]*\))/(\1+$release)/" debian/changelog >debian/changelog.new
	mv debian/changelog.new debian/changelog
	# Rust may be from elsewhere than Debian.
	unknown=''
	dpkg-checkbuilddeps 2>/dev/null || unknown=-d
	exec dpkg-buildpackage --build=binary --no-sign $unknown
fi

cd "$(dirname "$0")/.."
source=build-deb/packages/source
rm -rf build-deb/packages
mkdir -p "$source"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$source"
(cd "$source" && devtools/deb.sh --here)
rm -rf "$source"
echo "deb: packages:"
ls build-deb/packages/*.deb
