/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The cost of the parts of a linked and idle libpmdscope, in TSC cycles per iteration of a poll
 * loop with one RX and one TX burst. The loop contains nothing else: short windows of all parts are
 * interleaved, and the loop itself is subtracted. In a loop with work, some of it overlaps with
 * that.
 *
 *   again      the empty loop once more: the noise
 *   callbacks  calls of an RX and a TX callback that do nothing, without those of ethdev
 *   counting   calls of the callbacks of libpmdscope
 *   TSC        a read of the TSC
 *   poll       pmdscope_poll()
 *   all        counting and poll
 *   poll TSC   pmdscope_poll_tsc() with a number, as where the app has read the TSC anyway
 *   all TSC    counting and that
 *   long poll  pmdscope_poll() as after an iteration of 1 us or more, which it adds to a histogram
 */

#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#include "burst.h"
#include "lcore.h"

#define BURST 32
#define ROUNDS 401
#define WINDOW 4000

enum part {
	LOOP,
	AGAIN,
	CALLBACKS,
	COUNTING,
	TSC,
	POLL,
	ALL,
	POLL_TSC,
	ALL_TSC,
	LONG_POLL,
	NB_PARTS
};

static const char *const names[NB_PARTS] = { "loop", "again", "callbacks", "counting", "TSC",
	"poll", "all", "poll TSC", "all TSC", "long poll" };

static double cycles[NB_PARTS][ROUNDS];
static struct rte_mbuf mbufs[BURST], *pkts[BURST];
/* Queue of a driver that cannot be asked for depths. */
static struct pmdscope_queue rx = { .n = { .sample_left = 1,
						    .depth_state = PMDSCOPE_DEPTH_UNSUPPORTED } };
static struct pmdscope_queue tx = { .n = { .sample_left = 1 } };

static uint16_t
empty_rx(uint16_t port, uint16_t queue, struct rte_mbuf **bufs, uint16_t nb, uint16_t max,
		void *arg)
{
	RTE_SET_USED(port);
	RTE_SET_USED(queue);
	RTE_SET_USED(bufs);
	RTE_SET_USED(max);
	RTE_SET_USED(arg);
	return nb;
}

static uint16_t
empty_tx(uint16_t port, uint16_t queue, struct rte_mbuf **bufs, uint16_t nb, void *arg)
{
	return empty_rx(port, queue, bufs, nb, nb, arg);
}

static __rte_always_inline void
iterate(const enum part part, rte_rx_callback_fn on_rx, rte_tx_callback_fn on_tx, uint16_t nb,
		uint64_t tsc)
{
	if (part == CALLBACKS || part == COUNTING || part == ALL || part == ALL_TSC) {
		on_rx(0, 0, pkts, nb, BURST, &rx);
		on_tx(0, 0, pkts, nb, &tx);
	}
	if (part == TSC)
		rte_rdtsc();
	if (part == POLL || part == ALL || part == LONG_POLL)
		pmdscope_poll(nb);
	if (part == POLL_TSC || part == ALL_TSC)
		pmdscope_poll_tsc(nb, tsc);
	/* Keeps iterations from being merged. */
	rte_compiler_barrier();
}

static __rte_always_inline double
measure(const enum part part, uint16_t nb)
{
	/* Called through pointers, as by ethdev. */
	rte_rx_callback_fn volatile on_rx = part == CALLBACKS ? empty_rx : pmdscope_burst_rx;
	rte_tx_callback_fn volatile on_tx = part == CALLBACKS ? empty_tx : pmdscope_burst_tx;
	const uint64_t begin = rte_rdtsc_precise();
	unsigned int i;

	for (i = 0; i < WINDOW; i++)
		iterate(part, on_rx, on_tx, nb, begin + i);
	return (double)(rte_rdtsc_precise() - begin) / WINDOW;
}

/* Every gap is long enough for the histogram, and none is a stall. */
static double
measure_long_polls(uint16_t nb)
{
	double spent;

	pmdscope_lcore_start(UINT32_MAX);
	/* The first poll registers the lcore. */
	pmdscope_poll(nb);
	spent = measure(LONG_POLL, nb);
	pmdscope_lcore_stop();
	return spent;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
report(uint16_t nb)
{
	double sorted[ROUNDS];
	enum part part;
	int i;

	printf("%u packets per burst\n", nb);
	for (part = AGAIN; part < NB_PARTS; part++) {
		for (i = 0; i < ROUNDS; i++)
			sorted[i] = cycles[part][i] - cycles[LOOP][i];
		qsort(sorted, ROUNDS, sizeof(double), by_value);
		printf("  %-9s %5.1f [%.1f .. %.1f]", names[part], sorted[ROUNDS / 2],
				sorted[ROUNDS / 4], sorted[ROUNDS * 3 / 4]);
		printf(nb == 0 ? "\n" : ", %.2f per packet\n", sorted[ROUNDS / 2] / RTE_MAX(nb, 1));
	}
}

static void
run(uint16_t nb)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		/* There is no driver to ask at the first of many samples and empty polls. */
		rx.n.samples = tx.n.samples = 1;
		rx.n.sizes[0] = tx.n.sizes[0] = 1;
		cycles[LOOP][i] = measure(LOOP, nb);
		cycles[AGAIN][i] = measure(AGAIN, nb);
		cycles[CALLBACKS][i] = measure(CALLBACKS, nb);
		cycles[COUNTING][i] = measure(COUNTING, nb);
		cycles[TSC][i] = measure(TSC, nb);
		cycles[POLL][i] = measure(POLL, nb);
		cycles[ALL][i] = measure(ALL, nb);
		cycles[POLL_TSC][i] = measure(POLL_TSC, nb);
		cycles[ALL_TSC][i] = measure(ALL_TSC, nb);
		cycles[LONG_POLL][i] = measure_long_polls(nb);
	}
	report(nb);
}

int
main(void)
{
	unsigned int i;

	for (i = 0; i < BURST; i++)
		pkts[i] = &mbufs[i];
	/* An lcore without an EAL. The library does not run: no gap is long enough. */
	RTE_PER_LCORE(_lcore_id) = 0;
	printf("cycles per iteration, one RX and one TX burst; median and quartiles of %d\n",
			ROUNDS);
	run(BURST);
	run(4);
	run(0);
	return 0;
}
