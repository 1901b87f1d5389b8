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

roots=$PWD/build-deb/roots
once=''
built=''
# Of what cargo and dpkg look at; nothing else of the environment goes into the roots.
kept='^((https?|all|no)_proxy|(CARGO_(HTTP|NET|REGISTR|SOURCE|PROFILE|BUILD_JOBS|INCREMENTAL)|DEB_BUILD_)[A-Z_]*)='

die() {
	echo "test-deb: $*" >&2
	exit 1
}

say() {
	echo "test-deb: $suite: $*"
}

# indexed ARGUMENT...: where apt gets packages of Debian from, as filtered by grep with these.
indexed() {
	apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' |
		grep "$@" | sort -u | head -n 1
}

# enter ROOT COMMAND: a shell command in the root, with own processes and mounts that end with it.
enter() {
	unshare --mount --pid --fork --kill-child bash -euc '
		mount --bind "$1" "$1"
		mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		mount --rbind /sys "$1/sys"
		mount -t tmpfs tmpfs "$1/run"
		if [ -n "${PMDSCOPE_CARGO_CACHE:-}" ] && [ -e "$1/setup" ]; then
			mkdir -p "$1/root/.cargo/registry"
			mount --bind "$PMDSCOPE_CARGO_CACHE" "$1/root/.cargo/registry"
		fi
		mapfile -t kept < <(env | grep -iE "$3")
		exec chroot "$1" env -i "${kept[@]}" HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euo pipefail -c "$2"
	' _ "$1" "$2" "$kept"
}

# quietly WHAT COMMAND...: shows what the command prints only if it fails.
quietly() {
	local what=$1
	shift
	"$@" >"$log" 2>&1 || {
		tail -n 60 "$log" >&2
		die "$suite: $what failed; all of it is in $log"
	}
}

# make_root DIRECTORY: Debian's minimal system, with mirror and certificates of this machine.
make_root() {
	local main security
	main=$(indexed -v security) || die "apt knows no mirror of Debian here: run 'apt-get update'"
	# Without one of its own, updates for security come with point releases.
	security=$(indexed security) || security=''
	rm -rf "$1.new"
	quietly debootstrap debootstrap --variant=minbase --include=ca-certificates "$suite" "$1.new" "$main"
	cat >"$1.new/etc/apt/sources.list" <<-EOF
		deb $main $suite main
		deb $main $suite-updates main
	EOF
	[ -z "$security" ] || echo "deb $security $suite-security main" >>"$1.new/etc/apt/sources.list"
	apt-config dump | grep -E '^Acquire::(Check-|https?::)' >"$1.new/etc/apt/apt.conf.d/90machine" || true
	cp -r /usr/local/share/ca-certificates "$1.new/usr/local/share/"
	cp /etc/hosts /etc/resolv.conf "$1.new/etc/"
	quietly certificates enter "$1.new" 'update-ca-certificates; apt-get -qq update; apt-get -qqy upgrade; apt-get clean'
	mv "$1.new" "$1"
}

# build PLACE: builds the sources in the root; the packages are in /build/PLACE.
build() {
	local source=$builder/build/$1/source
	rm -rf "$builder/build/$1"
	mkdir -p "$source"
	tar -x --no-same-owner -C "$source" -f "$sources"
	quietly "the build" enter "$builder" "cd /build/$1/source && devtools/deb.sh --here"
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

# What is in the root, but for what apt and dpkg keep.
list_files() {
	(cd "$1" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp \
		-o -path ./packages -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt \
		-o -path ./var/lib/dpkg \) -prune -o -print | sort)
}

check_suite() {
	local bare=$roots/$suite left
	builder=$roots/$suite-build
	log=$roots/$suite.log
	[ -e "$bare" ] || { say "making a bare root"; make_root "$bare"; }
	if [ ! -e "$builder" ]; then
		say "making a root to build in"
		rm -rf "$builder.new"
		cp -a "$bare" "$builder.new"
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
	rm -rf "$used"
	cp -a "$bare" "$used"
	mkdir -p "$used/packages/older"
	cp "$builder"/build/one/*.deb "$used/packages/"
	cp "$builder"/build/one/older/*.deb "$used/packages/older/"
	cp devtools/test-deb-inside.sh "$used/packages/inside.sh"
	list_files "$used" >"$roots/$suite.before"
	enter "$used" "/packages/inside.sh $version command" || die "$suite: the command"
	# Libraries only came with it, which leave nothing either.
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

while [ $# -gt 0 ]; do
	case $1 in
	--once) once=yes ;;
	--built) built=yes ;;
	-*) sed -n '/^# test-deb/,/^[^#]/s/^# *//p' "$0" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
[ "$(id -u)" -eq 0 ] || die "needs root, for roots of its own"
command -v debootstrap >/dev/null || die "no debootstrap here: run 'devtools/setup.sh roots'"
[ $# -gt 0 ] || set -- bookworm trixie
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
mkdir -p "$roots"
# As they are now: builds of the same sources are compared, whatever is written here meanwhile.
sources=$(mktemp "$roots/sources.XXXXXX")
trap 'rm -f "$sources"' EXIT
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - -f "$sources"
for suite in "$@"; do
	check_suite
done
