#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test-sbom.sh: writes the SBOM, of a package with two helpers as well, and validates it by the tools of SPDX, which
# `setup.sh sbom` installs.
set -eu
cd "$(dirname "$0")/.."

validate=build/tools/sbom/bin/pyspdxtools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

die() {
	echo "test-sbom: $*" >&2
	exit 1
}

# sbom FILE HELPER...: a valid one.
sbom() {
	file=$scratch/$1.spdx.json
	shift
	devtools/sbom.py "$@" >"$file"
	"$validate" --infile "$file" >"$scratch/log" 2>&1 || {
		cat "$scratch/log" >&2
		die "the SBOM of $# helpers is not valid"
	}
}

[ -x "$validate" ] || die "no pyspdxtools here: run 'devtools/setup.sh sbom'"
sbom own
for dpdk in 22.11.11 25.11.2; do
	printf '#!/bin/sh\necho "pmdscope-pdump 1 (DPDK %s)"\n' $dpdk >"$scratch/pdump-$dpdk"
	chmod 755 "$scratch/pdump-$dpdk"
done
sbom helpers "$scratch"/pdump-*
for dpdk in 22.11.11 25.11.2; do
	grep -q "\"SPDXRef-dpdk-$dpdk\"" "$scratch/helpers.spdx.json" || die "it does not list DPDK $dpdk"
done
# The validation must be able to fail.
sed 's/"STATIC_LINK"/"STATIC"/' "$scratch/own.spdx.json" >"$scratch/broken.spdx.json"
! "$validate" --infile "$scratch/broken.spdx.json" >/dev/null 2>&1 || die "a broken SBOM passed"
echo "test-sbom: ok"
