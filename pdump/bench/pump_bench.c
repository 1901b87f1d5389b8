/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The cost of pmdscope-pdump per packet: one lcore copies packets as rte_pdump does in an app, at
 * the given rate (0: as fast as it can), another one runs the pump. Prints the cycles per packet of
 * both, as medians of a window of 100 ms, and the number of lost packets.
 *
 * usage: bench-pdump-pump [EAL arguments] -- BYTES SAMPLE MPPS WINDOWS
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include "pump.h"

#define APP_BURST 32
/* The first port id that an app with two ports does not use, with some spare ones. */
#define FIRST_PORT 6
#define SNAPLEN 262144U
#define RING_SIZE (1U << 20)
#define WINDOW_MS 100
#define COST_MAX 4096

static struct pump pump;
static struct state state;
static struct pmdscope_capture_spec spec;
static struct pmdscope_ring_tail *tail; /* As the consumer maps it. */

/* Packets by the cycles per packet of their burst: preemption does not move the median. */
struct costs {
	uint64_t packets[COST_MAX];
};

static struct {
	struct rte_mempool *pool;
	struct rte_mbuf *packets[APP_BURST];
	struct costs costs;
	uint64_t pause; /* Cycles from one burst to the next. */
	uint64_t lost;
	bool stop;
} app;

static void
add_cost(struct costs *costs, uint64_t cycles, unsigned int n)
{
	costs->packets[RTE_MIN(cycles / n, COST_MAX - 1ULL)] += n;
}

/* Median of all packets since the last call. */
static unsigned int
take_median(struct costs *costs)
{
	uint64_t sum = 0, half = 0;
	unsigned int i;

	for (i = 0; i < COST_MAX; i++)
		sum += costs->packets[i];
	for (i = 0; i < COST_MAX - 1 && (half += costs->packets[i]) * 2 < sum; i++)
		;
	memset(costs, 0, sizeof(*costs));
	return i;
}

/* As in rte_pdump.c, on packets that are in the CPU cache. */
static int
copy_packets(void *arg __rte_unused)
{
	struct rte_mbuf *copies[APP_BURST];
	struct rte_ring *ring = arena_ring(&pump.arena, 0);
	uint64_t begin, next = 0;
	unsigned int i, n, sent;

	while (!__atomic_load_n(&app.stop, __ATOMIC_RELAXED)) {
		begin = rte_rdtsc();
		if (begin < next)
			continue;
		next = begin + app.pause;
		n = 0;
		for (i = 0; i < APP_BURST; i++) {
			copies[n] = rte_pktmbuf_copy(
					app.packets[i], pump.arena.pool, 0, UINT32_MAX);
			if (copies[n] != NULL)
				n++;
		}
		sent = rte_ring_enqueue_burst(ring, (void **)copies, n, NULL);
		if (n == APP_BURST)
			add_cost(&app.costs, rte_rdtsc() - begin, n);
		app.lost += APP_BURST - sent;
	}
	return 0;
}

static bool
make_packets(unsigned int bytes)
{
	unsigned int i;

	app.pool = rte_pktmbuf_pool_create("packets", 255, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, -1);
	for (i = 0; app.pool != NULL && i < APP_BURST; i++) {
		app.packets[i] = rte_pktmbuf_alloc(app.pool);
		memset(rte_pktmbuf_append(app.packets[i], (uint16_t)bytes), (int)i, bytes);
	}
	return app.pool != NULL;
}

static bool
make_pump(void)
{
	const struct rte_memzone *zone =
			rte_memzone_reserve("counters", sizeof(struct counters), SOCKET_ID_ANY, 0);
	static const struct line_set none;
	struct rte_mempool_ops *ops;
	struct failure failure;
	unsigned int i;

	state.nb_taps = 1;
	state.taps[0].dir = PMDSCOPE_DIR_RX;
	state.taps[0].armed = 1;
	if (zone == NULL || pump_open(&pump, &spec, &state, &failure) < 0)
		return false;
	pump.counts = zone->addr;
	pump.arena.nb_pieces = counters_pieces(zone, FIRST_PORT, &none, pump.arena.pieces);
	if (!arena_place(&pump.arena, 1))
		return false;
	printf("%u mbufs\n", pump.arena.nb_mbufs);
	tail = mmap(NULL, sizeof(*tail), PROT_READ | PROT_WRITE, MAP_SHARED,
			pump.producer.ring->tail_fd, 0);
	if (tail == MAP_FAILED)
		return false;
	pmdscope_capture_ring_close_data(pump.producer.ring);
	if (pmdscope_capture_ring_seal_tail(pump.producer.ring) < 0)
		return false;
	for (i = 0; i < rte_mempool_ops_table.num_ops; i++) {
		ops = &rte_mempool_ops_table.ops[i];
		if (strcmp(ops->name, ARENA_OPS) == 0) {
			arena_build(&pump.arena, (int)i);
			return pump_start(&pump, &failure) == 0;
		}
	}
	return false;
}

/* Packets that the pump processed in a period, and their cost. */
static uint64_t
run_window(struct costs *costs)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() * WINDOW_MS / 1000;
	uint64_t begin, now, packets = 0;
	unsigned int n;

	do {
		begin = rte_rdtsc();
		n = pump_round(&pump);
		now = rte_rdtsc();
		if (n != 0)
			add_cost(costs, now - begin, n);
		packets += n;
		/* A consumer that always reads in time. */
		__atomic_store_n(&tail->tail, pump.producer.head, __ATOMIC_RELEASE);
	} while (now < end);
	return packets;
}

static void
print_windows(unsigned int windows)
{
	static struct costs costs;
	uint64_t packets, lost;

	for (; windows > 0; windows--) {
		lost = app.lost;
		packets = run_window(&costs);
		lost = app.lost - lost;
		printf("pump %u cycles/packet, app %u, %.2f Mpps, lost %.1f %%\n",
				take_median(&costs), take_median(&app.costs),
				(double)packets / WINDOW_MS / 1000,
				100.0 * (double)lost / (double)(lost + packets + 1));
	}
}

int
main(int argc, char **argv)
{
	const int used = rte_eal_init(argc, argv);
	double mpps;

	if (used < 0 || argc - used != 5)
		return 2;
	spec.sample = (uint32_t)atoi(argv[used + 2]);
	spec.ring_size = RING_SIZE;
	spec.snaplen = SNAPLEN;
	mpps = atof(argv[used + 3]);
	if (mpps > 0)
		app.pause = (uint64_t)((double)rte_get_tsc_hz() * APP_BURST / mpps / 1e6);
	if (!make_packets((unsigned int)atoi(argv[used + 1])) || !make_pump())
		return 1;
	rte_eal_remote_launch(copy_packets, NULL, rte_get_next_lcore(-1, 1, 0));
	print_windows((unsigned int)atoi(argv[used + 4]));
	__atomic_store_n(&app.stop, true, __ATOMIC_RELAXED);
	rte_eal_mp_wait_lcore();
	return 0;
}
