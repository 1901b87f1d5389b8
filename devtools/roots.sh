# SPDX-License-Identifier: BSD-3-Clause
# Functions that make roots of Debian, for scripts of bash that have `die`, `suite`, and `log`, a file.
# shellcheck shell=bash

roots=$PWD/build-deb/roots

# Variables that cargo and dpkg read; no others of the environment are passed into the roots.
kept='^((https?|all|no)_proxy|(CARGO_(HTTP|NET|REGISTR|SOURCE|PROFILE|BUILD_JOBS|INCREMENTAL)|DEB_BUILD_)[A-Z_]*)='

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
		if [ -n "${PMDSCOPE_CARGO_CACHE:-}" ] && [ -e "$1/build" ]; then
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
	# Without a mirror for security updates, these come with point releases.
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

# copy_root DIRECTORY: replaces it by a copy of the bare root of the suite, which is made once.
copy_root() {
	[ -e "$roots/$suite" ] || make_root "$roots/$suite"
	rm -rf "$1"
	cp -a "$roots/$suite" "$1"
}

# read_arguments "NAME..." ARGUMENT...: sets a variable to `yes` for each option --NAME, and `suites` to the suites that
# follow, or both. Prints the head of the script if there is another option.
read_arguments() {
	local names=" $1 "
	shift
	while [[ ${1:-} == -* ]]; do
		[[ $1 == --* && $names == *" ${1#--} "* ]] || {
			sed -n '/^# test-/,/^[^#]/s/^# *//p' "$0" >&2
			exit 2
		}
		declare -g "${1#--}=yes"
		shift
	done
	[ "$(id -u)" -eq 0 ] || die "needs root, for roots of its own"
	command -v debootstrap >/dev/null || die "no debootstrap here: run 'devtools/setup.sh roots'"
	suites=("$@")
	# shellcheck disable=SC2034 # of the scripts
	[ $# -gt 0 ] || suites=(bookworm trixie)
	mkdir -p "$roots"
}
