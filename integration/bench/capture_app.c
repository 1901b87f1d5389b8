/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-capture-app: receives packets at a given rate and reports the cost of each. Like a
 * normal app, it embeds libpmdscope and answers dpdk-dumpcap, so that both capture from the same
 * loop. pmdscope-bench-capture drives it through a socket, with one line per command, one JSON
 * object per answer:
 *
 *   pmdscope on|off            start or stop the library
 *   run DEVICE RATE SIZE MS    receive for so long, RATE packets per second (0: flat out)
 *
 * Between windows nothing is received, so that a capture can begin and end without losing
 * packets, and a peer cannot free memory that a callback still uses.
 *
 * Each worker lcore receives from a queue of its own, and has an equal part of the rate. An answer
 * adds them up. If several share a CPU, they yield to each other.
 *
 * The main lcore counts as polling too, so each capture has a second ring, which is idle unless a
 * net_memif device is used.
 *
 * A net_memif device is a server whose client has the next number. The main lcore sends packets
 * of SIZE bytes on that one and sleeps in between, to share its CPU.
 */

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_pause.h>
#include <rte_pdump.h>

#include <pmdscope.h>

#include "clock.h"
#include "port.h"

#define BURST 32
/* Bursts that a NIC would hold for a late lcore: 1024 descriptors. */
#define BACKLOG 32
#define DESCRIPTORS 1024
#define POOL_SIZE 16383
#define POOL_CACHE 256
#define FEED_US 250
#define DRAIN_US 20000
/* In a burst that takes longer the lcore lost its CPU, not only because of an interrupt. */
#define LOST_CPU_US 100

struct window {
	/* Orders. */
	uint16_t port;
	uint16_t queue;
	bool linked;	   /* Call pmdscope_poll(). */
	uint64_t interval; /* Cycles from burst to burst; 0: as fast as possible. */

	/* Results. */
	uint64_t packets;
	uint64_t missed;   /* Packets that a NIC would have had to drop before the app. */
	uint64_t timed;	   /* Packets of the bursts counted in cycles. */
	uint64_t cycles;   /* Durations of bursts, without those that lost their CPU. */
	uint64_t lost_cpu; /* Bursts that lost their CPU. */
	uint64_t cpu_ns;
	uint64_t wall_ns;
};

static struct window __rte_cache_aligned windows[RTE_MAX_LCORE];
/* Orders of the main lcore to the workers, one window at a time. */
static uint32_t ordered, done[RTE_MAX_LCORE];
static bool stop, quit;
static uint64_t tsc_hz;
static bool linked;
static struct rte_mempool *pool;

static void
fail(const char *what, int error)
{
	fprintf(stderr, "pmdscope-capture-app: %s: %s\n", what, rte_strerror(abs(error)));
	exit(1);
}

static void
sleep_us(unsigned int us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000L }, NULL);
}

/* Drop packets beyond those that a NIC could have kept. Returns when the next burst is due. */
static uint64_t
catch_up(struct window *w, uint64_t due, uint64_t now)
{
	const uint64_t late = (now - due) / w->interval;

	if (likely(late <= BACKLOG))
		return due;
	w->missed += (late - BACKLOG) * BURST;
	return due + (late - BACKLOG) * w->interval;
}

static __rte_always_inline void
receive(struct window *w, const bool polls)
{
	const uint64_t lost_cpu = tsc_hz / 1000000 * LOST_CPU_US;
	uint64_t due = rte_rdtsc(), now, span;
	struct rte_mbuf *pkts[BURST];
	uint16_t nb;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		now = rte_rdtsc();
		if (now < due) {
			if (rte_lcore_count() > 2)
				sched_yield();
			else
				rte_pause();
			continue;
		}
		if (w->interval != 0)
			due = catch_up(w, due, now) + w->interval;
		nb = rte_eth_rx_burst(w->port, w->queue, pkts, BURST);
		rte_pktmbuf_free_bulk(pkts, nb);
		if (polls)
			pmdscope_poll(nb);
		span = rte_rdtsc() - now;
		w->packets += nb;
		if (unlikely(span > lost_cpu)) {
			w->lost_cpu++;
		} else if (nb != 0) {
			w->cycles += span;
			w->timed += nb;
		}
	}
}

static __rte_noinline void
receive_plain(struct window *w)
{
	receive(w, false);
}

static __rte_noinline void
receive_linked(struct window *w)
{
	receive(w, true);
}

static void
carry_out(struct window *w)
{
	const uint64_t cpu = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	const uint64_t wall = clock_read_ns(CLOCK_MONOTONIC);

	if (w->linked)
		receive_linked(w);
	else
		receive_plain(w);
	w->cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	w->wall_ns = clock_read_ns(CLOCK_MONOTONIC) - wall;
}

static int
worker(void *arg __rte_unused)
{
	const unsigned int lcore = rte_lcore_id();

	while (!__atomic_load_n(&quit, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(&ordered, __ATOMIC_ACQUIRE) == done[lcore]) {
			/* So that a capture has a ring for this lcore. */
			pmdscope_poll(0);
			sleep_us(1000);
			continue;
		}
		carry_out(&windows[lcore]);
		__atomic_store_n(&done[lcore], done[lcore] + 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static uint16_t
allocate(struct rte_mbuf **pkts, uint16_t nb, uint16_t size)
{
	uint16_t i;

	if (rte_pktmbuf_alloc_bulk(pool, pkts, nb) != 0)
		return 0;
	for (i = 0; i < nb; i++)
		memset(rte_pktmbuf_append(pkts[i], size), 0x5a, size);
	return nb;
}

/* Send the packets that are due; those that the link does not take are not offered again. */
static void
feed(uint16_t port, uint64_t rate, uint16_t size, uint64_t ms)
{
	const uint64_t begin = clock_read_ns(CLOCK_MONOTONIC), end = begin + ms * 1000000;
	struct rte_mbuf *pkts[BURST];
	uint64_t now, due, sent = 0;
	uint16_t nb, taken;

	while ((now = clock_read_ns(CLOCK_MONOTONIC)) < end) {
		due = (now - begin) * rate / NS_PER_S;
		for (; sent + BURST <= due; sent += BURST) {
			nb = allocate(pkts, BURST, size);
			taken = rte_eth_tx_burst(port, 0, pkts, nb);
			rte_pktmbuf_free_bulk(&pkts[taken], nb - taken);
		}
		sleep_us(FEED_US);
	}
	/* Packets still in the link. */
	sleep_us(DRAIN_US);
}

static void
answer_window(FILE *control, const struct window *w)
{
	fprintf(control,
			"{\"packets\":%" PRIu64 ",\"missed\":%" PRIu64 ",\"timed\":%" PRIu64
			",\"cycles\":%" PRIu64 ",\"lost_cpu\":%" PRIu64 ",\"cpu_ns\":%" PRIu64
			",\"wall_ns\":%" PRIu64 "}\n",
			w->packets, w->missed, w->timed, w->cycles, w->lost_cpu, w->cpu_ns,
			w->wall_ns);
}

static void
answer_error(FILE *control, const char *what, int error)
{
	fprintf(control, "{\"error\":\"%s: %s\"}\n", what, rte_strerror(abs(error)));
}

/* Gives every worker its share of the rate. */
static void
order_windows(uint16_t port, uint64_t rate)
{
	unsigned int lcore;
	uint16_t queue = 0;

	__atomic_store_n(&stop, false, __ATOMIC_RELAXED);
	RTE_LCORE_FOREACH_WORKER(lcore) {
		windows[lcore] =
				(struct window){ .port = port, .queue = queue++, .linked = linked };
		if (rate != 0)
			windows[lcore].interval = BURST * tsc_hz * (rte_lcore_count() - 1) / rate;
	}
	__atomic_store_n(&ordered, ordered + 1, __ATOMIC_RELEASE);
}

/* Ends the windows and adds up their counts; the times are the longest. */
static struct window
collect_windows(void)
{
	struct window all = { 0 };
	unsigned int lcore;

	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	RTE_LCORE_FOREACH_WORKER(lcore) {
		const struct window *w = &windows[lcore];

		while (__atomic_load_n(&done[lcore], __ATOMIC_ACQUIRE) != ordered)
			sleep_us(100);
		all.packets += w->packets;
		all.missed += w->missed;
		all.timed += w->timed;
		all.cycles += w->cycles;
		all.lost_cpu += w->lost_cpu;
		all.cpu_ns = RTE_MAX(all.cpu_ns, w->cpu_ns);
		all.wall_ns = RTE_MAX(all.wall_ns, w->wall_ns);
	}
	return all;
}

static void
run_window(FILE *control, const char *device, uint64_t rate, uint16_t size, uint64_t ms)
{
	const bool fed = strncmp(device, "net_memif", 9) == 0;
	uint16_t port, feeder = 0;
	struct window all;
	char name[64];
	int rc;

	rc = rte_eth_dev_get_port_by_name(device, &port);
	if (rc == 0 && fed) {
		/* The client of a pair of memif devices has the next number. */
		snprintf(name, sizeof(name), "net_memif%d", atoi(device + 9) + 1);
		rc = rte_eth_dev_get_port_by_name(name, &feeder);
	}
	if (rc != 0) {
		answer_error(control, device, rc);
		return;
	}
	/* Packets that are fed arrive at their own rate. */
	order_windows(port, fed ? 0 : rate);
	if (fed)
		feed(feeder, rate, size, ms);
	else
		nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000),
					  .tv_nsec = (long)(ms % 1000) * 1000000 },
				NULL);
	all = collect_windows();
	answer_window(control, &all);
}

static void
link_pmdscope(FILE *control, bool on)
{
	int rc = 0;

	if (on && !linked)
		rc = pmdscope_init(NULL);
	else if (!on && linked)
		pmdscope_fini();
	if (rc != 0) {
		answer_error(control, "pmdscope_init", rc);
		return;
	}
	linked = on;
	if (on)
		pmdscope_poll(0);
	fprintf(control, "{}\n");
}

/* Until the other side disconnects. */
static void
obey(FILE *control)
{
	char line[256], word[64];
	uint64_t rate, ms;
	uint16_t size;

	while (fgets(line, sizeof(line), control) != NULL) {
		if (sscanf(line, "run %63s %" SCNu64 " %" SCNu16 " %" SCNu64, word, &rate, &size,
				    &ms) == 4)
			run_window(control, word, rate, size, ms);
		else if (sscanf(line, "pmdscope %63s", word) == 1)
			link_pmdscope(control, strcmp(word, "on") == 0);
		else
			answer_error(control, "command", EINVAL);
		fflush(control);
	}
}

static FILE *
open_control(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sock < 0 || connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0)
		fail(path, errno);
	return fdopen(sock, "r+");
}

static void
start_ports(void)
{
	const uint16_t queues = (uint16_t)(rte_lcore_count() - 1);
	uint16_t port;

	pool = rte_pktmbuf_pool_create("capture_app", POOL_SIZE, POOL_CACHE, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
	if (pool == NULL)
		fail("mbuf pool", rte_errno);
	RTE_ETH_FOREACH_DEV(port)
		if (port_start(port, queues, queues, DESCRIPTORS, pool) != 0)
			exit(1);
}

static void
close_ports(void)
{
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
		port_stop(port);
	pmdscope_fini();
	RTE_ETH_FOREACH_DEV(port)
		port_close(port);
}

int
main(int argc, char **argv)
{
	const int used = rte_eal_init(argc, argv);
	FILE *control;
	int rc;

	if (used < 0)
		fail("rte_eal_init", rte_errno);
	if (rte_lcore_count() < 2 || argc - used != 2) {
		fprintf(stderr, "usage: pmdscope-capture-app EAL-OPTIONS -- SOCKET, two lcores or more\n");
		return 2;
	}
	control = open_control(argv[used + 1]);
	if (control == NULL)
		fail("control socket", errno);
	rc = rte_pdump_init();
	if (rc < 0)
		fail("rte_pdump_init", rte_errno);
	tsc_hz = clock_measure_hz();
	start_ports();
	rte_eal_mp_remote_launch(worker, NULL, SKIP_MAIN);
	fprintf(control, "{\"tsc_hz\":%" PRIu64 "}\n", tsc_hz);
	fflush(control);

	obey(control);

	__atomic_store_n(&quit, true, __ATOMIC_RELEASE);
	rte_eal_mp_wait_lcore();
	rte_pdump_uninit();
	close_ports();
	fclose(control);
	rte_eal_cleanup();
	return 0;
}
