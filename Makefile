# SPDX-License-Identifier: BSD-3-Clause
# Drives meson (the C parts) and cargo (the Rust parts). `make help` lists the targets.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
# Prefixes of installed DPDKs for whose apps helpers are installed as well.
HELPERS ?=
CARGO ?= cargo
# Of cargo: release, or checked as tests have it. Programs of Rust are then in target/PROFILE.
PROFILE ?= release
PROGRAMS = target/$(PROFILE)
SOAK_SECONDS ?= 7200
KILL_ROUNDS ?= 100
ATTACH_CYCLES ?= 1000
EXIT_ROUNDS ?= 1000
XRAY_ROUNDS ?= 50
FUZZ_SECONDS ?= 60
HOSTILE_SECONDS ?= 600
NO_ALARM_SECONDS ?= 300
LAB ?= all
# Where ld.so and pkg-config look: Debian's directory of the architecture, elsewhere lib64 or lib.
MULTIARCH = $(shell $(CC) -print-multiarch 2>/dev/null)
LIBDIR ?= $(if $(MULTIARCH),lib/$(MULTIARCH),$(if $(wildcard /usr/lib64),lib64,lib))
# Prefixes of the system; with another one, `make install` leaves alone what is not below it.
SYSTEM_PREFIX = $(filter /usr /usr/local,$(PREFIX))
# Where Wireshark looks for programs that capture; empty leaves it alone.
EXTCAP_DIR ?= $(if $(SYSTEM_PREFIX),$(shell pkg-config --variable=extcapdir wireshark 2>/dev/null || \
	ls -d /usr/lib/*/wireshark/extcap /usr/libexec/wireshark/extcap /usr/lib/wireshark/extcap 2>/dev/null | head -1))
UNITS = pmdscope-export.service pmdscope-record.service
# Of the services, to be copied where they are wanted.
DROP_INS = interfaces.conf interrupts.conf xray.conf
BASH_COMPLETION = share/bash-completion/completions/pmdscope
ZSH_COMPLETION = share/zsh/site-functions/_pmdscope
FISH_COMPLETION = share/fish/vendor_completions.d/pmdscope.fish
SHARED_DIRS = $(dir $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)) share/man/man1 lib/systemd/system \
	share/pmdscope share/pmdscope/schema
INSTALLED = bin/pmdscope bin/pmdscope-pdump-build bin/pmdscope-reflector bin/pmdscope-generator bin/pmdscope-kernel-reflector \
	bin/pmdscope-kernel-generator $(LIBDIR)/libpmdscope.a \
	$(LIBDIR)/pkgconfig/pmdscope.pc $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) \
	$(addprefix lib/systemd/system/,$(UNITS)) $(addprefix share/pmdscope/,$(DROP_INS))
C_SOURCES = $(shell git ls-files 'examples/*.[ch]' 'lib/*.[ch]' 'integration/*.[ch]' 'pdump/*.[ch]')

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-releases screenshot test-install deb test-deb test-kubernetes test-podman test-bpftrace abi sbom test-sbom dashboards test-panels dashboard-pictures bench bench-leaks bench-capture bench-export bench-flows bench-interrupts bench-pair bench-pdump bench-top bench-watchpoints bench-xdp bench-xray compare \
	soak soak-pdump soak-exit soak-xray no-alarm lab plots hostile sanitize sanitize-quick fuzz lint lint-quick format install uninstall clean clean-hugepages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install packages for building, testing and the demo; reserve hugepages
	devtools/setup.sh

build: $(BUILD)/build.ninja ## build everything, optimised
	ninja -C $(BUILD)
	$(CARGO) build --profile $(PROFILE) --locked --workspace $(BUILD_FLAGS)

$(BUILD)/build.ninja:
	meson setup $(BUILD)

demo: setup build ## watch two DPDK processes exchange packets (DEMO_SECONDS=N, DEMO_LEAK=1/N)
	$(PROGRAMS)/pmdscope-demo

# One build for tests and for what they run: tests ask for more features of some dependencies.
test: PROFILE = checked
test: BUILD_FLAGS = --lib --bins --tests
test: $(if $(TEST),,setup build) ## run every test: unit, C, and end to end on real DPDK processes (TEST=pattern: only those of such a name)
	TEST="$(TEST)" BUILD=$(BUILD) CARGO=$(CARGO) PROFILE=$(PROFILE) devtools/test.sh

test-releases: $(if $(SYSTEM),,setup build) ## test with releases of DPDK, and write the table in docs/releases.md (RELEASES="21.11 25.11", FEATURES="build xray", SYSTEM=trixie: the one of that Debian)
	$(if $(SYSTEM),devtools/setup.sh roots)
	$(if $(SYSTEM),FEATURES="$(FEATURES)" devtools/test-system.sh $(SYSTEM),BUILD=$(BUILD) CARGO=$(CARGO) \
		PROFILE=$(PROFILE) RELEASES="$(RELEASES)" FEATURES="$(FEATURES)" devtools/test-releases.sh)

# Keys, and what shows then. The row that Enter follows is that of the first finding.
TOP_PICTURES = 1=docs/top.svg j\\r=docs/top/pools.svg 2=docs/top/ports.svg 4=docs/top/lcores.svg 5=docs/top/flows.svg \
	6=docs/top/rings.svg 7=docs/top/captures.svg 8=docs/top/findings.svg 0=docs/top/raw.svg 1c=docs/top/capture.svg

screenshot: build ## regenerate docs/top.svg, the screenshot in the README, and docs/top/*.svg
	devtools/setup.sh screenshot
	mkdir -p docs/top
	DEMO_LEAK=1/1024 $(PROGRAMS)/pmdscope-demo >/dev/null & demo=$$!; trap "kill $$demo" EXIT; sleep 4; \
		devtools/screenshot.py --size 100x26 --after 32 --settle 6 --quit '\x03' $(addprefix --picture ,$(TOP_PICTURES)) -- \
		$(PROGRAMS)/pmdscope top
	BUILD=$(BUILD) devtools/screenshot-kernel.sh docs/top/kernel.svg

test-install: ## install to a temporary directory, and build and run an app against it
	BUILD=$(BUILD) devtools/test-install.sh

deb: ## build Debian packages for this release of Debian, in build-deb/packages (HELPERS as of install)
	devtools/setup.sh packages
	HELPERS="$(HELPERS)" devtools/deb.sh

test-kubernetes: ## compare the manifests for Kubernetes with its schemas (needs devtools/setup.sh kubernetes)
	integration/kubernetes/validate.sh

test-podman: build ## find apps in containers of podman and capture from them, as root
	devtools/setup.sh podman
	devtools/test-podman.sh

test-deb: ## build packages for Debian 12 and 13; install, run, upgrade and purge them in bare roots (SUITES=bookworm: one)
	devtools/setup.sh roots
	devtools/test-deb.sh $(SUITES)

test-bpftrace: ## test that the bpftrace of Debian 12 and 13 understands the scripts, as root (SUITES=trixie: one)
	devtools/setup.sh roots
	CARGO=$(CARGO) devtools/test-bpftrace.sh $(SUITES)

abi: ## test that libpmdscope is still compatible with lib/abi (ABI=update: write that anew)
	devtools/setup.sh abi
	devtools/abi.sh $(ABI)

sbom: ## list the crates in the command, with versions, licences and checksums, as SPDX, in build-deb/pmdscope.spdx.json
	mkdir -p build-deb
	CARGO=$(CARGO) devtools/sbom.py >build-deb/pmdscope.spdx.json

test-sbom: ## validate the SBOM by the tools of SPDX (PyPI; 4 MB to fetch)
	devtools/setup.sh sbom
	CARGO=$(CARGO) devtools/test-sbom.sh

dashboards: ## regenerate the JSON of the dashboards; test dashboards, rules and alerts
	dashboards/grafana/build.py
	devtools/prometheus.sh
	dashboards/tests/run.sh

test-panels: ## test what a part of Grafana shows of the dashboards (Node.js; 70 MB to fetch)
	devtools/setup.sh panels
	node --test dashboards/tests/panels/panels.test.mjs

dashboard-pictures: build ## write pictures of the dashboards to docs/dashboards (GRAFANA_URL=URL, or docker or podman)
	devtools/setup.sh pictures
	devtools/dashboard-pictures.sh

bench: setup build ## benchmark against other tools; print ratios with spread
	meson test -C $(BUILD) --no-rebuild --benchmark --verbose

bench-leaks: setup build ## benchmark the cost of the leak ledger against DPDK's mbuf history
	meson test -C $(BUILD) --no-rebuild --benchmark --verbose --suite leaks

bench-capture: setup build ## benchmark captures against dpdk-dumpcap; 15 minutes (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-capture $(BENCH_ARGS)

bench-export: setup build ## benchmark the exporter against dpdk-telemetry-exporter.py; five minutes (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-export $(BENCH_ARGS)

bench-flows: setup build ## benchmark the flow table against tshark, softflowd and nfpcapd (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-flows $(BENCH_ARGS)

compare: setup build ## compare the kernel with bypass: tables, CSV and a figure in target/compare; five minutes (COMPARE=quick: one)
	$(PROGRAMS)/pmdscope-bench-compare $(if $(filter quick,$(COMPARE)),--quick)

bench-interrupts: setup build ## measure what tracing takes from a poll core; ten minutes (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-interrupts $(BENCH_ARGS)

bench-pair: setup build ## benchmark generator and reflector against two dpdk-testpmd; half an hour (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-pair $(BENCH_ARGS)

bench-pdump: setup build ## measure what pmdscope-pdump spends per packet; 10 s (BENCH_ARGS="BYTES SAMPLE MPPS WINDOWS")
	$(BUILD)/pdump/bench-pdump-pump -l 0,1 -m 64 --huge-unlink --no-pci --no-shconf --no-telemetry \
		--file-prefix bench-pdump -- $(or $(BENCH_ARGS),64 1 4 100)

bench-top: setup build ## measure the CPU time that top takes; three minutes (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-top $(BENCH_ARGS)

bench-watchpoints: setup build ## measure what hardware watchpoints do to a process; one minute (BENCH_ARGS=SECONDS)
	$(BUILD)/integration/pmdscope-bench-watchpoints $(BENCH_ARGS)

bench-xdp: setup build ## benchmark the XDP filter against nftables and iptables; one minute (BENCH_ARGS=--quick)
	devtools/setup.sh xdp
	$(PROGRAMS)/pmdscope-bench-xdp $(BENCH_ARGS)

bench-xray: setup build ## measure counts and scans of a stock app's memory, and what the app notices; seven minutes (BENCH_ARGS=--quick)
	$(PROGRAMS)/pmdscope-bench-xray $(BENCH_ARGS)

soak: setup build ## test for two hours that clean traffic shows no leak (SOAK_SECONDS=N)
	integration/apps/pipeline/soak.sh $(BUILD)/integration/pmdscope-pipeline $(PROGRAMS)/pmdscope $(SOAK_SECONDS)

soak-pdump: setup build ## kill captures of a stock app (KILL_ROUNDS=N), then attach repeatedly (ATTACH_CYCLES=N); ten minutes
	PMDSCOPE_KILL_ROUNDS=$(KILL_ROUNDS) PMDSCOPE_ATTACH_CYCLES=$(ATTACH_CYCLES) \
		$(CARGO) test --locked --package pmdscope-integration -- a_stock_app_survives

soak-exit: setup build ## end an app in every way, observed and not, EXIT_ROUNDS times each; hours
	PMDSCOPE_EXIT_ROUNDS=$(EXIT_ROUNDS) \
		$(CARGO) test --locked --package pmdscope-integration -- an_app_ends_as_it_means_to

soak-xray: setup build ## scan stock and hostile apps XRAY_ROUNDS times each, and a pool of a million mbufs; half an hour
	PMDSCOPE_XRAY_ROUNDS=$(XRAY_ROUNDS) $(CARGO) test --locked --package pmdscope-integration -- xray_

no-alarm: setup build ## watch stock apps that lose nothing, idle and loaded, NO_ALARM_SECONDS each, for critical findings; an hour
	PMDSCOPE_NO_ALARM_SECONDS=$(NO_ALARM_SECONDS) $(CARGO) test --locked --package pmdscope-integration -- no_alarm_

lab: setup build ## reproduce incidents on PCI NICs in QEMU; eight minutes (LAB=quick: three)
	devtools/setup.sh lab
	integration/lab/lab.sh $(LAB)

plots: ## draw a run of the generator as PNG and SVG in plots-out (CSV=FILE, HDR=FILE; without, a run of PLOT_SECONDS)
	devtools/setup.sh plots
	$(if $(CSV)$(HDR),,$(MAKE) build)
	BUILD=$(BUILD) integration/plots/plots.sh $(if $(CSV),-c $(CSV)) $(if $(HDR),-l $(HDR))

hostile: PROFILE = checked
hostile: setup build ## attack what docs/security.md promises, again and again (HOSTILE_SECONDS=N)
	HOSTILE_SECONDS=$(HOSTILE_SECONDS) devtools/hostile.sh

sanitize: ## run the tests of captures under ThreadSanitizer, AddressSanitizer and UBSan
	devtools/sanitize.sh

sanitize-quick: ## a part of sanitize that takes a minute
	devtools/sanitize.sh quick

fuzz: ## fuzz what apps accept from capture tools, and what X-ray reads of apps (FUZZ_SECONDS=N for all targets)
	devtools/setup.sh clang
	devtools/fuzz.sh $(FUZZ_SECONDS)

lint: lint-quick ## check formatting, spelling, clippy, licenses and sources of dependencies
	$(CARGO) clippy --locked --workspace --all-targets --profile $(PROFILE) -- -D warnings
	CARGO=$(CARGO) devtools/check-deny.sh

lint-quick: ## a part of lint that takes seconds
	$(CARGO) fmt --all --check
	clang-format --dry-run -Werror $(C_SOURCES)
	git ls-files -z | xargs -0 codespell

format: ## format the sources
	$(CARGO) fmt --all
	clang-format -i $(C_SOURCES)

# Under sudo nothing should be built: what is there already is installed as it is.
$(BUILD)/lib/libpmdscope.so $(PROGRAMS)/pmdscope:
	$(MAKE) build

install: | $(BUILD)/lib/libpmdscope.so $(PROGRAMS)/pmdscope ## install the build to DESTDIR/PREFIX (HELPERS="/opt/dpdk-25.11": and helpers for these)
	meson setup --reconfigure $(BUILD) --prefix $(PREFIX) --libdir $(LIBDIR) >$(BUILD)/install.log
	DESTDIR=$(DESTDIR) meson install --no-rebuild -C $(BUILD)
	install -D -m 755 $(PROGRAMS)/pmdscope $(DESTDIR)$(PREFIX)/bin/pmdscope
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,$(SHARED_DIRS))
	$(PROGRAMS)/pmdscope completions bash >$(DESTDIR)$(PREFIX)/$(BASH_COMPLETION)
	$(PROGRAMS)/pmdscope completions zsh >$(DESTDIR)$(PREFIX)/$(ZSH_COMPLETION)
	$(PROGRAMS)/pmdscope completions fish >$(DESTDIR)$(PREFIX)/$(FISH_COMPLETION)
	$(PROGRAMS)/pmdscope man $(DESTDIR)$(PREFIX)/share/man/man1
	for unit in $(UNITS); do sed 's|/usr/local/|$(PREFIX)/|' systemd/$$unit > \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; done
	for file in $(DROP_INS); do sed 's|/usr/local/|$(PREFIX)/|' systemd/$$file > \
		$(DESTDIR)$(PREFIX)/share/pmdscope/$$file || exit 1; done
	install -m 644 docs/schema/*.json $(DESTDIR)$(PREFIX)/share/pmdscope/schema
	$(if $(EXTCAP_DIR),install -d $(DESTDIR)$(EXTCAP_DIR))
	$(if $(EXTCAP_DIR),ln -sfn $(PREFIX)/bin/pmdscope $(DESTDIR)$(EXTCAP_DIR)/pmdscope)
	for dpdk in $(HELPERS); do $(DESTDIR)$(PREFIX)/bin/pmdscope-pdump-build "$$dpdk" || exit 1; done
	$(if $(SYSTEM_PREFIX),$(if $(DESTDIR),,ldconfig))

uninstall: ## remove what `make install` installed
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED)) $(DESTDIR)$(PREFIX)/share/man/man1/pmdscope*.1
	rm -f $(DESTDIR)$(PREFIX)/$(LIBDIR)/libpmdscope.so* $(DESTDIR)$(PREFIX)/include/pmdscope*.h
	rm -rf $(DESTDIR)$(PREFIX)/libexec/pmdscope $(addprefix $(DESTDIR)$(PREFIX)/share/pmdscope/,pdump schema)
	-rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/share/pmdscope
	$(if $(EXTCAP_DIR),rm -f $(DESTDIR)$(EXTCAP_DIR)/pmdscope)
	$(if $(SYSTEM_PREFIX),$(if $(DESTDIR),,ldconfig))

clean: ## remove build output
	rm -rf $(BUILD) build-tsan build-asan build-fuzz build-abi build-deb target demo-out plots-out

clean-hugepages: ## free the hugepages that `make setup` reserved
	devtools/hugepages.sh release
