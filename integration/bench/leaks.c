/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The cost of the leak ledger, in TSC cycles per forwarded packet.
 *
 * One lcore swaps the MAC addresses of packets. Short windows of all variants are
 * interleaved in one process, so that noise of the machine affects all of them; each is compared
 * with the window without pmdscope of its round.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf_dyn.h>

#include <pmdscope.h>

#include "json.h"
#include "loop.h"
#include "nic.h"
#include "options.h"

#define SKIP 77
#define MAX_ROUNDS 1001
#define WARM_BURSTS 2000
/* Longer than the start of the library, in which every poll is a slow one. */
#define SETTLE_MS 40

enum variant {
	BASE,
	AGAIN,
	COPY,
	LEVEL1_DISARMED,
	LEVEL2_DISARMED,
	LEVEL1_ARMED,
	LEVEL2_ARMED,
	HISTORY,
	NB_VARIANTS,
};

static const struct {
	const char *name;
	const char *what;
	uint64_t (*loop)(struct nic *nic, uint32_t bursts);
	bool linked; /* With the library running. */
	bool armed;
} variants[NB_VARIANTS] = {
	[BASE] = { "base", "the loop without pmdscope", loop_plain, false, false },
	[AGAIN] = { "again", "the same once more: noise", loop_plain, false, false },
	[COPY] = { "copy", "the same elsewhere in memory: noise of placement", loop_copy, false,
			false },
	[LEVEL1_DISARMED] = { "level1_disarmed", "callbacks and pmdscope_poll()", loop_linked, true,
			false },
	[LEVEL2_DISARMED] = { "level2_disarmed", "and -include pmdscope_trace.h", loop_traced, true,
			false },
	[LEVEL1_ARMED] = { "level1_armed", "callbacks that stamp", loop_linked, true, true },
	[LEVEL2_ARMED] = { "level2_armed", "callbacks and call sites that stamp", loop_traced, true,
			true },
	[HISTORY] = { "history", "peer: the algorithm of DPDK 25.11's mbuf history", loop_history,
			false, false },
};

static const struct {
	const char *name;
	const char *what;
	uint16_t descriptors;
	unsigned int mbufs;
} sets[] = {
	{ "fits_l2", "256 + 256 descriptors, 2047 mbufs", 256, 2047 },
	{ "beyond_l2", "8192 + 8192 descriptors, 32767 mbufs", 8192, 32767 },
};

static uint32_t rounds = 61, window_bursts = 8000;
static const char *json_path;
static struct nic nics[RTE_DIM(sets)];
static double cycles[RTE_DIM(sets)][NB_VARIANTS][MAX_ROUNDS];

static const struct option_spec specs[] = {
	{ "rounds", "N", "windows of every variant (61)", option_u32, &rounds, 3, MAX_ROUNDS },
	{ "bursts", "N", "bursts of 32 packets in a window (8000)", option_u32, &window_bursts, 100,
			10000000 },
	{ "json", "FILE", "write the results to FILE as JSON", option_output, &json_path, 0, 0 },
};

static void
fail(const char *what, int rc)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
			rte_strerror(rc < 0 ? -rc : rc));
	exit(1);
}

static void
window(unsigned int set, enum variant v, unsigned int round)
{
	const uint64_t wanted = (uint64_t)window_bursts * NIC_BURST;
	struct nic *nic = &nics[set];
	uint64_t start, packets;

	if ((pmdscope_stamp_now() != 0) != variants[v].armed)
		fail(variants[v].armed ? "stamps are not armed" : "stamps are armed", EPROTO);
	nic->history = v == HISTORY;
	variants[v].loop(nic, WARM_BURSTS);
	start = rte_rdtsc_precise();
	packets = variants[v].loop(nic, window_bursts);
	cycles[set][v][round] = (double)(rte_rdtsc_precise() - start) / (double)packets;
	/* A loop that finds no packets is not a valid measurement. */
	if (packets < wanted - wanted / 100)
		fail("the port ran dry", ENOBUFS);
}

/* All windows of a round that need the library in this state, in a rotating order. */
static void
windows(unsigned int round, bool linked, bool armed)
{
	unsigned int set, i;
	enum variant v;

	for (set = 0; set < RTE_DIM(sets); set++)
		for (i = 0; i < NB_VARIANTS; i++) {
			v = (enum variant)((i + round) % NB_VARIANTS);
			if (variants[v].linked == linked && variants[v].armed == armed)
				window(set, v, round);
		}
}

static void
windows_linked(unsigned int round, enum pmdscope_leak_mode mode)
{
	const struct pmdscope_conf conf = {
		.sample_ms = 10, .flags = PMDSCOPE_F_NO_TEE, .leak_mode = mode
	};
	const uint64_t settled = rte_rdtsc() + rte_get_tsc_hz() * SETTLE_MS / 1000;
	const int rc = pmdscope_init(&conf);

	if (rc != 0)
		fail("pmdscope_init", rc);
	while (rte_rdtsc() < settled)
		loop_linked(&nics[0], 1);
	windows(round, true, mode == PMDSCOPE_LEAK_ALWAYS);
	pmdscope_fini();
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct quartiles {
	double low;
	double median;
	double high;
};

static struct quartiles
quartiles(const double *values)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, values, rounds * sizeof(*values));
	qsort(sorted, rounds, sizeof(*sorted), by_value);
	return (struct quartiles){ sorted[rounds / 4], sorted[rounds / 2],
		sorted[rounds - 1 - rounds / 4] };
}

/* Cost of one variant compared with another, window by window of the same round. */
static struct quartiles
over(unsigned int set, enum variant v, enum variant than)
{
	double delta[MAX_ROUNDS];
	unsigned int i;

	for (i = 0; i < rounds; i++)
		delta[i] = cycles[set][v][i] - cycles[set][than][i];
	return quartiles(delta);
}

/* The ledger only, in a library that is linked anyway. */
static const struct {
	const char *name;
	const char *what;
	enum variant v;
	enum variant than;
} parts[] = {
	{ "level2_gates", "disarmed call sites", LEVEL2_DISARMED, LEVEL1_DISARMED },
	{ "level1_stamps", "armed over disarmed", LEVEL1_ARMED, LEVEL1_DISARMED },
	{ "level2_stamps", "armed over disarmed", LEVEL2_ARMED, LEVEL2_DISARMED },
};

/* The ratio of the peer to all of level 2, and to its stamps alone, which are comparable. */
static double
ratio_all(unsigned int set)
{
	return over(set, HISTORY, BASE).median / over(set, LEVEL2_ARMED, BASE).median;
}

static double
ratio_stamps(unsigned int set)
{
	return over(set, HISTORY, BASE).median / over(set, LEVEL2_ARMED, LEVEL2_DISARMED).median;
}

static void
print_row(const char *name, struct quartiles q, const char *what)
{
	printf("  %-16s %+7.2f  [%+.2f .. %+.2f]  %s\n", name, q.median, q.low, q.high, what);
}

static void
print_set(unsigned int set)
{
	struct quartiles q = quartiles(cycles[set][BASE]);
	unsigned int i;
	enum variant v;

	printf("\n%s: %s\n", sets[set].name, sets[set].what);
	printf("  %-16s %7.2f  [%.2f .. %.2f]  cycles per packet, %s\n", variants[BASE].name,
			q.median, q.low, q.high, variants[BASE].what);
	for (v = BASE + 1; v < NB_VARIANTS; v++)
		print_row(variants[v].name, over(set, v, BASE), variants[v].what);
	for (i = 0; i < RTE_DIM(parts); i++)
		print_row(parts[i].name, over(set, parts[i].v, parts[i].than), parts[i].what);
	printf("  history / level2_armed: %.1f; history / level2_stamps: %.1f\n", ratio_all(set),
			ratio_stamps(set));
}

static void
put_quartiles(struct json *json, const char *name, struct quartiles q)
{
	json_open(json, name);
	json_f64(json, "median", q.median);
	json_f64(json, "low", q.low);
	json_f64(json, "high", q.high);
	json_close(json);
}

static int
save(void)
{
	struct json json;
	unsigned int set, i;
	enum variant v;

	if (json_begin(&json) != 0)
		return -ENOMEM;
	json_u64(&json, "schema", 1);
	json_str(&json, "unit", "TSC cycles per packet over base");
	json_u64(&json, "rounds", rounds);
	json_u64(&json, "packets_per_window", (uint64_t)window_bursts * NIC_BURST);
	for (set = 0; set < RTE_DIM(sets); set++) {
		json_open(&json, sets[set].name);
		json_u64(&json, "descriptors", sets[set].descriptors);
		json_u64(&json, "mbufs", sets[set].mbufs);
		put_quartiles(&json, variants[BASE].name, quartiles(cycles[set][BASE]));
		for (v = BASE + 1; v < NB_VARIANTS; v++)
			put_quartiles(&json, variants[v].name, over(set, v, BASE));
		for (i = 0; i < RTE_DIM(parts); i++)
			put_quartiles(&json, parts[i].name, over(set, parts[i].v, parts[i].than));
		json_f64(&json, "history_to_level2_armed", ratio_all(set));
		json_f64(&json, "history_to_level2_stamps", ratio_stamps(set));
		json_close(&json);
	}
	return json_save(&json, json_path);
}

static void
open_nics(void)
{
	const struct rte_mbuf_dynfield history = {
		.name = "bench_history", .size = sizeof(uint64_t), .align = sizeof(uint64_t)
	};
	unsigned int set;
	int rc;

	history_offset = rte_mbuf_dynfield_register(&history);
	if (history_offset < 0)
		fail("rte_mbuf_dynfield_register", rte_errno);
	for (set = 0; set < RTE_DIM(sets); set++) {
		rc = nic_open(&nics[set], sets[set].name, sets[set].descriptors, sets[set].mbufs);
		if (rc != 0)
			fail(sets[set].name, rc);
	}
}

static void
help(FILE *out)
{
	fputs("Usage: pmdscope-bench-leaks [EAL options] -- [options]\n\n"
	      "Measures what the leak ledger costs a poll loop.\n\nOptions:\n",
			out);
	options_help(out, specs, RTE_DIM(specs));
}

int
main(int argc, char **argv)
{
	const int split = options_split(argc, argv);
	enum options_result result =
			options_parse(specs, RTE_DIM(specs), argc - split, argv + split);
	unsigned int i;
	int rc = 0;

	if (result == OPTIONS_HELP)
		help(stdout);
	if (result != OPTIONS_OK)
		return result == OPTIONS_HELP ? 0 : 2;
	if (rte_eal_init(split, argv) < 0) {
		printf("skipped: rte_eal_init: %s\n", rte_strerror(rte_errno));
		return SKIP;
	}
	open_nics();
	for (i = 0; i < rounds; i++) {
		windows(i, false, false);
		windows_linked(i, PMDSCOPE_LEAK_NEVER);
		windows_linked(i, PMDSCOPE_LEAK_ALWAYS);
	}
	printf("%u rounds, %u packets a window; median and quartiles\n", rounds,
			window_bursts * NIC_BURST);
	for (i = 0; i < RTE_DIM(sets); i++)
		print_set(i);
	if (json_path != NULL)
		rc = save();
	if (rc != 0)
		fail(json_path, rc);
	rte_eal_cleanup();
	return 0;
}
