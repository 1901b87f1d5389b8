#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compares the structures of point releases with those of their release, of which table.txt is made:
# point_releases.sh REPOSITORY [SOURCE_DIR...]
# REPOSITORY is a clone of DPDK or of its stable branches: each point release from 21.11 on with a tag there is
# compared, and then the unpacked point releases. Needs what generate.sh needs.
set -eu

repository=$1
shift
here=$(dirname "$(realpath "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The layouts of unpacked sources, as generate.sh finds them. layouts SOURCE_DIR NAME
layouts() {
	"$here/generate.sh" "$1" >"$scratch/$2.txt"
}

# The same of a tag. layouts_of_tag TAG
layouts_of_tag() {
	mkdir "$scratch/$1"
	git -C "$repository" archive "$1" lib config VERSION | tar -x -C "$scratch/$1"
	layouts "$scratch/$1" "$1"
	rm -r "${scratch:?}/$1"
}

# Compares layouts that were found with those of the release. compare NAME RELEASE
compare() {
	if ! git -C "$repository" rev-parse -q --verify "v$2^{commit}" >/dev/null; then
		echo "$1: not compared, $repository has no tag v$2" >&2
		status=1
		return
	fi
	[ -f "$scratch/v$2.txt" ] || layouts_of_tag "v$2"
	compared=$((compared + 1))
	if diff -u "$scratch/v$2.txt" "$scratch/$1.txt"; then
		echo "$1: no difference from $2"
	else
		status=1
	fi
}

status=0 compared=0
for tag in $(git -C "$repository" tag | grep -E '^v[0-9]{2}\.[0-9]{2}\.[0-9]+$' | sort -V); do
	release=${tag%.*}
	# Older ones are not in the table.
	case $release in
	v1?.* | v20.* | v21.0?) continue ;;
	esac
	layouts_of_tag "$tag"
	compare "$tag" "${release#v}"
done
for source in "$@"; do
	version=$(cat "$source/VERSION")
	layouts "$source" "$version"
	compare "$version" "$(echo "$version" | cut -d. -f1,2)"
done
[ "$compared" -gt 0 ] || { echo "no point release in $repository" >&2; status=1; }
exit "$status"
