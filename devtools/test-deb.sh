#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test-deb.sh [--once|--built] [SUITE...]: for Debian 12 and 13 (bookworm, trixie), builds the packages twice, at
# different places, which must give the same files; checks them by lintian; and in a bare root installs them, runs
# the command, captures from apps that are compiled there, upgrades from an older version, and purges them, which
# must leave nothing. Then it builds the image of Containerfile and starts it. As root. Roots are kept in build-deb.
# --once builds once, --built tests what was built last. PMDSCOPE_CARGO_CACHE is a directory of fetched crates to
# share (~/.cargo/registry).
set -euo pipefail
cd "$(dirname "$0")/.."
. devtools/roots.sh

once=''
built=''

die() {
	echo "test-deb: $*" >&2
	exit 1
}

say() {
	echo "test-deb: $suite: $*"
}

# build PLACE: builds the sources in the root, with a helper for another DPDK, which here is the same; the packages are in
# /build/PLACE.
build() {
	local source=$builder/build/$1/source
	rm -rf "$builder/build/$1"
	mkdir -p "$source"
	tar -x --no-same-owner -C "$source" -f "$sources"
	quietly "the build" enter "$builder" "cd /build/$1/source && HELPERS=/usr devtools/deb.sh --here"
	rm -rf "$source"
}

hashes() {
	(cd "$builder/build/$1" && sha256sum -- *.deb)
}

# The same packages with a lower version.
make_older() {
	enter "$builder" "version=$version;"'cd /build/one; rm -rf older; mkdir older
		for file in *.deb; do
			dpkg-deb -R "$file" older/tree
			sed -i "s/$version+deb/0.1.0+deb/" older/tree/DEBIAN/control
			dpkg-deb --root-owner-group -Zgzip -z1 -b older/tree "older/${file%%_*}.deb" >/dev/null
			rm -r older/tree
		done'
}

# The files in the root, except those that apt and dpkg keep.
list_files() {
	(cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp \
		-o -path ./packages -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt \
		-o -path ./var/lib/dpkg \) -prune -o -print | sort)
}

check_suite() {
	local bare=$roots/$suite left
	builder=$roots/$suite-build
	log=$roots/$suite.log
	if [ ! -e "$builder" ]; then
		say "making a root to build in"
		copy_root "$builder.new"
		mv "$builder.new" "$builder"
	fi
	install -D -m 755 devtools/setup.sh "$builder/setup/setup.sh"
	quietly "setup.sh packages" enter "$builder" '/setup/setup.sh packages; apt-get clean'

	if [ -z "$built" ]; then
		say "building"
		build one
	fi
	if [ -z "$built$once" ]; then
		say "building once more, elsewhere"
		build another/place
		diff <(hashes one) <(hashes another/place) >&2 || die "$suite: two builds differ"
		say "reproducible"
	fi
	quietly lintian enter "$builder" 'cd /build/one; lintian --allow-root --fail-on error,warning --display-info *.deb'
	say "lintian: $(grep -vc '^N:' "$log" || true) hints"
	make_older

	used=$bare.used
	copy_root "$used"
	mkdir -p "$used/packages/older"
	cp "$builder"/build/one/*.deb "$used/packages/"
	cp "$builder"/build/one/older/*.deb "$used/packages/older/"
	cp devtools/test-deb-inside.sh "$used/packages/inside.sh"
	list_files "$used" >"$roots/$suite.before"
	enter "$used" "/packages/inside.sh $version command" || die "$suite: the command"
	# Only libraries were installed with it, and purging them leaves nothing either.
	list_files "$used" >"$roots/$suite.after"
	left=$(diff "$roots/$suite.before" "$roots/$suite.after") || die "$suite: purging left and took $left"
	say "the command: ok"
	enter "$used" "/packages/inside.sh $version all" || die "$suite: all packages"
	mkdir -p "$used/image/base" "$used/image/build-deb/packages"
	cp Containerfile "$used/image/"
	cp "$builder"/build/one/pmdscope_*.deb "$used/image/build-deb/packages/"
	tar -c --one-file-system -C "$bare" -f "$used/image/base/root.tar" .
	enter "$used" "/packages/inside.sh $version image" || die "$suite: the image"
	rm -rf "$used"
	say ok
}

read_arguments 'once built' "$@"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# A copy of the sources: both builds use it, even if files change meanwhile.
sources=$(mktemp "$roots/sources.XXXXXX")
trap 'rm -f "$sources"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - -f "$sources"
for suite in "${suites[@]}"; do
	check_suite
done
