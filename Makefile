# SPDX-License-Identifier: BSD-3-Clause
# Drives meson (the C parts) and cargo (the Rust parts). `make help` lists the targets.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
SOAK_SECONDS ?= 7200
KILL_ROUNDS ?= 100
ATTACH_CYCLES ?= 1000
EXIT_ROUNDS ?= 1000
# Where Wireshark looks for programs that capture; empty leaves it alone.
EXTCAP_DIR ?= $(shell pkg-config --variable=extcapdir wireshark 2>/dev/null || \
	ls -d /usr/lib/*/wireshark/extcap /usr/libexec/wireshark/extcap /usr/lib/wireshark/extcap 2>/dev/null | head -1)
C_SOURCES = $(shell git ls-files 'lib/*.[ch]' 'integration/*.[ch]' 'capture/*.[ch]')

.DEFAULT_GOAL := help
.PHONY: help setup build demo test dashboards bench bench-leaks bench-capture bench-export bench-flows soak soak-pdump soak-exit sanitize lint format install clean clean-hugepages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building, testing and the demo need; reserve hugepages
	devtools/setup.sh

build: $(BUILD)/build.ninja ## build everything, optimised
	ninja -C $(BUILD)
	$(CARGO) build --release --locked --workspace

$(BUILD)/build.ninja:
	meson setup $(BUILD)

demo: setup build ## watch two DPDK processes exchange packets (DEMO_SECONDS=N, DEMO_LEAK=1/N)
	target/release/pmdscope-demo

test: setup build ## run every test: unit, C, and end to end on real DPDK processes
	meson test -C $(BUILD) --no-rebuild --print-errorlogs
	$(CARGO) test --locked --workspace --exclude pmdscope-integration
	$(CARGO) test --locked --package pmdscope-integration
	dashboards/tests/run.sh

dashboards: ## write the JSON of the dashboards anew, and test dashboards, rules and alerts
	dashboards/grafana/build.py
	devtools/prometheus.sh
	dashboards/tests/run.sh

bench: setup build ## measure against named peers; prints ratios with their spread
	meson test -C $(BUILD) --no-rebuild --benchmark --verbose

bench-leaks: setup build ## measure what the leak ledger costs, against DPDK's mbuf history
	meson test -C $(BUILD) --no-rebuild --benchmark --verbose --suite leaks

bench-capture: setup build ## measure captures against dpdk-dumpcap; a quarter of an hour (BENCH_ARGS=--quick)
	target/release/pmdscope-bench-capture $(BENCH_ARGS)

bench-export: setup build ## measure the exporter against dpdk-telemetry-exporter.py; five minutes (BENCH_ARGS=--quick)
	target/release/pmdscope-bench-export $(BENCH_ARGS)

bench-flows: setup build ## measure the flow table against tshark, softflowd and nfpcapd (BENCH_ARGS=--quick)
	target/release/pmdscope-bench-flows $(BENCH_ARGS)

soak: setup build ## two hours of clean traffic must show no leak (SOAK_SECONDS=N)
	integration/pipeline/soak.sh $(BUILD)/integration/pmdscope-pipeline target/release/pmdscope $(SOAK_SECONDS)

soak-pdump: setup build ## captures from stock apps: 100 rounds of kill -9, 1000 attachments
	PMDSCOPE_KILL_ROUNDS=$(KILL_ROUNDS) PMDSCOPE_ATTACH_CYCLES=$(ATTACH_CYCLES) \
		$(CARGO) test --locked --package pmdscope-integration -- a_stock_app_survives

soak-pdump: setup build ## kill captures of a stock app 100 times, attach 1000 times; ten minutes
	PMDSCOPE_KILL_ROUNDS=100 PMDSCOPE_ATTACH_CYCLES=1000 \
		$(CARGO) test --locked --package pmdscope-integration -- a_stock_app_survives

soak-exit: setup build ## end an app in every way, 1000 times each, watched and not; hours (EXIT_ROUNDS=N)
	PMDSCOPE_EXIT_ROUNDS=$(EXIT_ROUNDS) \
		$(CARGO) test --locked --package pmdscope-integration -- an_app_ends_as_it_means_to

sanitize: ## run the tests of captures under ThreadSanitizer, AddressSanitizer and UBSan
	devtools/sanitize.sh

lint: ## formatting, clippy, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	clang-format --dry-run -Werror $(C_SOURCES)
	devtools/check-deny.sh

format: ## rewrite the sources in the house style
	$(CARGO) fmt --all
	clang-format -i $(C_SOURCES)

install: build ## install library, headers, command, completions, services and extcap below DESTDIR/PREFIX
	meson configure $(BUILD) --prefix $(PREFIX)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD)
	install -D -m 755 target/release/pmdscope $(DESTDIR)$(PREFIX)/bin/pmdscope
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	target/release/pmdscope completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pmdscope
	target/release/pmdscope completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_pmdscope
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in pmdscope-export pmdscope-record; do sed 's|/usr/local/|$(PREFIX)/|' systemd/$$unit.service > \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service || exit 1; done
	$(if $(EXTCAP_DIR),install -d $(DESTDIR)$(EXTCAP_DIR))
	$(if $(EXTCAP_DIR),ln -sfn $(PREFIX)/bin/pmdscope $(DESTDIR)$(EXTCAP_DIR)/pmdscope)

clean: ## remove what was built
	rm -rf $(BUILD) build-tsan build-asan target demo-out

clean-hugepages: ## give back the hugepages that `make setup` reserved
	devtools/hugepages.sh release
