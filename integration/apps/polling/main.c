/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-polling-app [EAL options] -- MODE: an app without libpmdscope that polls its first port, as
 * apps do whose threads do not look like those of the EAL. In a secondary process it polls a ring.
 *
 * Modes: renamed (workers have other names), thread (a thread of no lcore polls, on the last CPU),
 * lock (workers wait for a lock for ever, after some time), plain.
 */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define NB_MBUFS 2047
#define CACHE_SIZE 64
#define BURST 32
/* CPU time after which it counts as a thread that polled. */
#define POLLS_MS 1300

static const char *mode;
static struct rte_ring *ring;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t stopped;

static void
stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static void
require(bool holds, const char *what)
{
	if (!holds)
		rte_exit(EXIT_FAILURE, "%s failed\n", what);
}

static void
poll_once(void)
{
	void *objects[BURST];
	unsigned int n;

	if (rte_eal_process_type() == RTE_PROC_SECONDARY || rte_eth_dev_count_avail() == 0) {
		rte_ring_dequeue_burst(ring, objects, BURST, NULL);
		return;
	}
	n = rte_eth_rx_burst(0, 0, (struct rte_mbuf **)objects, BURST);
	rte_pktmbuf_free_bulk((struct rte_mbuf **)objects, n);
}

static unsigned long
cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000UL + now.tv_nsec / 1000000UL;
}

static int
work(void *unused)
{
	char name[16];

	(void)unused;
	if (strcmp(mode, "renamed") == 0) {
		snprintf(name, sizeof(name), "io-loop/%u", rte_lcore_id());
		pthread_setname_np(pthread_self(), name);
	}
	while (!stopped) {
		poll_once();
		if (strcmp(mode, "lock") == 0 && cpu_ms() >= POLLS_MS) {
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
		}
	}
	return 0;
}

static void *
work_in_thread(void *cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(*(const unsigned int *)cpu, &cpus);
	require(pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus) == 0, "affinity");
	pthread_setname_np(pthread_self(), "packet-thread");
	while (!stopped)
		poll_once();
	return NULL;
}

static void
set_up(void)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_mempool *pool;

	if (rte_eal_process_type() == RTE_PROC_SECONDARY) {
		ring = rte_ring_lookup("polled");
		require(ring != NULL, "lookup of the ring");
		return;
	}
	ring = rte_ring_create("polled", 64, SOCKET_ID_ANY, 0);
	require(ring != NULL, "ring");
	if (rte_eth_dev_count_avail() == 0)
		return;
	pool = rte_pktmbuf_pool_create("packets", NB_MBUFS, CACHE_SIZE, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	require(pool != NULL, "pool");
	require(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "port");
	require(rte_eth_rx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL, pool) == 0, "RX queue");
	require(rte_eth_tx_queue_setup(0, 0, 256, SOCKET_ID_ANY, NULL) == 0, "TX queue");
	require(rte_eth_dev_start(0) == 0, "start");
}

int
main(int argc, char *argv[])
{
	static unsigned int cpu;
	pthread_t thread;
	int args;

	args = rte_eal_init(argc, argv);
	require(args >= 0 && args + 1 < argc, "EAL, and a mode,");
	mode = argv[args + 1];
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	set_up();
	pthread_mutex_lock(&lock);
	if (strcmp(mode, "thread") == 0) {
		cpu = sysconf(_SC_NPROCESSORS_ONLN) - 1;
		require(pthread_create(&thread, NULL, work_in_thread, &cpu) == 0, "thread");
	} else {
		rte_eal_mp_remote_launch(work, NULL, SKIP_MAIN);
	}
	puts("it polls from now on");
	fflush(stdout);
	while (!stopped)
		pause();
	pthread_mutex_unlock(&lock);
	if (strcmp(mode, "thread") == 0)
		pthread_join(thread, NULL);
	rte_eal_mp_wait_lcore();
	rte_eal_cleanup();
	return 0;
}
