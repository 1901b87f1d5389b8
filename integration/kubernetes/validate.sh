#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compares the manifests with the schemas of Kubernetes, without a cluster. `setup.sh kubernetes` installs
# what that needs; it is a failure where it is missing.
set -eu

here=$(dirname "$0")
validate=$here/../../build/tools/kubernetes/bin/kubernetes-validate
# The oldest release that knows each field, and a recent one.
releases="1.30 1.34"

if ! [ -x "$validate" ]; then
	echo "$validate is missing: run devtools/setup.sh kubernetes" >&2
	exit 1
fi
for release in $releases; do
	# Unknown fields are errors, as a cluster would drop them silently.
	"$validate" --strict --kubernetes-version "$release" "$here"/*.yaml
done
# The validation must be able to fail.
broken=$(mktemp --suffix .yaml)
trap 'rm -f "$broken"' EXIT
sed 's/hostPID:/hostPIDs:/' "$here/daemonset.yaml" >"$broken"
if "$validate" --strict --kubernetes-version 1.30 "$broken" >/dev/null 2>&1; then
	echo "a manifest with an unknown field passed" >&2
	exit 1
fi
echo "kubernetes: the manifests are valid"
