#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Licences, sources and duplicate versions of the dependencies, by cargo-deny.
set -eu

if ! command -v cargo-deny >/dev/null; then
	echo "SKIP: cargo-deny is not installed ('cargo install --locked cargo-deny')"
	exit 0
fi
cargo deny --offline check bans licenses sources
