/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-exit-app: an app that ends in a given way while it polls. Only its main lcore polls, as
 * rte_exit() waits for the others, with or without libpmdscope.
 *
 * Its exit status is 3 if it can choose one, and it first prints "the end of the app". It is
 * built without libpmdscope (level 0), with it (1), and with pmdscope_trace.h as well (2).
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#ifndef LEVEL_0
#include <pmdscope.h>
#endif

#define BURST 32
#define DESCRIPTORS 256
#define MBUFS 30000
#define ROOM (RTE_PKTMBUF_HEADROOM + 128)
#define STATUS 3
#define MESSAGE "the end of the app\n"

static uint16_t nb_ports;
static struct rte_mempool *pool;

/* --- What it does until then ----------------------------------------------------------- */

static void
start_pmdscope(void)
{
#ifndef LEVEL_0
	const struct pmdscope_conf conf = {
		.sample_ms = 10,
		.leak_walk_ms = 50,
		.leak_mode = PMDSCOPE_LEAK_ALWAYS,
	};
	const int rc = pmdscope_init(&conf);

	if (rc != 0)
		rte_exit(1, "pmdscope_init: %s\n", rte_strerror(-rc));
#endif
}

static void
stop_pmdscope(void)
{
#ifndef LEVEL_0
	pmdscope_fini();
#endif
}

static void
start_port(uint16_t port)
{
	const struct rte_eth_conf conf = { 0 };
	int rc;

	rc = rte_eth_dev_configure(port, 1, 1, &conf);
	if (rc == 0)
		rc = rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, 0, NULL, pool);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, 0, NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(port);
	if (rc != 0)
		rte_exit(1, "port %u: %s\n", port, rte_strerror(-rc));
}

static void
forward(void)
{
	struct rte_mbuf *pkts[BURST];
	uint16_t port, nb_rx, nb_tx, total = 0;

	for (port = 0; port < nb_ports; port++) {
		nb_rx = rte_eth_rx_burst(port, 0, pkts, BURST);
		nb_tx = rte_eth_tx_burst(port, 0, pkts, nb_rx);
		rte_pktmbuf_free_bulk(pkts + nb_tx, nb_rx - nb_tx);
		total += nb_rx;
	}
#ifndef LEVEL_0
	pmdscope_poll(total);
#else
	(void)total;
#endif
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void
work(unsigned int ms)
{
	const uint64_t until = now_ms() + ms;

	while (now_ms() < until) {
		if (nb_ports != 0)
			forward();
		else
			usleep(1000);
	}
}

/* --- How it ends ----------------------------------------------------------------------- */

static void
end_by_rte_exit(void)
{
	rte_exit(STATUS, MESSAGE);
}

static void
end_by_exit(void)
{
	fputs(MESSAGE, stderr);
	exit(STATUS);
}

static void
end_by_exit_now(void)
{
	fputs(MESSAGE, stderr);
	_exit(STATUS);
}

static void
end_by_abort(void)
{
	fputs(MESSAGE, stderr);
	abort();
}

static void
end_by_return(void)
{
	fputs(MESSAGE, stderr);
}

static void
end_by_cleanup(void)
{
	rte_eal_cleanup();
	fputs(MESSAGE, stderr);
}

static void
end_by_fini(void)
{
	stop_pmdscope();
	rte_eal_cleanup();
	fputs(MESSAGE, stderr);
}

static void
end_by_fini_exit(void)
{
	stop_pmdscope();
	rte_exit(STATUS, MESSAGE);
}

static void
on_signal_rte_exit(int signo)
{
	(void)signo;
	rte_exit(STATUS, MESSAGE);
}

static void
on_signal_exit(int signo)
{
	static const char message[] = MESSAGE;

	(void)signo;
	if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		abort();
	exit(STATUS);
}

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/*
 * The thread may be at any place. The signal goes to this thread, as for ^C: a timer of the process
 * may signal any other thread while this one keeps polling, which DPDK does not survive even
 * without libpmdscope.
 */
static void
signal_in(unsigned int ms, int signo)
{
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = signo,
		.sigev_notify_thread_id = gettid(),
	};
	const struct itimerspec spec = {
		.it_value = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L + 1 },
	};
	timer_t timer;

	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
			timer_settime(timer, 0, &spec, NULL) != 0)
		rte_exit(1, "no timer\n");
}

static const struct way {
	const char *name;
	void (*end)(void);
	int signo; /* Or: ended by a signal with this handler. */
	void (*handler)(int signo);
} ways[] = {
	{ "rte_exit", end_by_rte_exit, 0, NULL },
	{ "exit", end_by_exit, 0, NULL },
	{ "_exit", end_by_exit_now, 0, NULL },
	{ "return", end_by_return, 0, NULL },
	{ "cleanup", end_by_cleanup, 0, NULL },
	{ "fini", end_by_fini, 0, NULL },
	{ "fini_rte_exit", end_by_fini_exit, 0, NULL },
	{ "abort", end_by_abort, 0, NULL },
	{ "sigterm", NULL, SIGTERM, SIG_DFL },
	{ "sigsegv", NULL, SIGSEGV, SIG_DFL },
	{ "sigint_rte_exit", NULL, SIGINT, on_signal_rte_exit },
	{ "sigint_exit", NULL, SIGINT, on_signal_exit },
};

static const struct way *
find_way(const char *name)
{
	unsigned int i;

	for (i = 0; name != NULL && i < RTE_DIM(ways); i++)
		if (strcmp(ways[i].name, name) == 0)
			return &ways[i];
	return NULL;
}

static int
usage(void)
{
	unsigned int i;

	fputs("Usage: pmdscope-exit-app [EAL options] -- WAY MS\nWAY is one of", stderr);
	for (i = 0; i < RTE_DIM(ways); i++)
		fprintf(stderr, " %s", ways[i].name);
	fputs("\n", stderr);
	return 2;
}

int
main(int argc, char **argv)
{
	const struct way *way;
	unsigned int ms;
	uint16_t port;
	int split;

	split = rte_eal_init(argc, argv);
	if (split < 0)
		return 1;
	way = find_way(argc - split == 3 ? argv[split + 1] : NULL);
	if (way == NULL)
		return usage();
	ms = (unsigned int)atoi(argv[split + 2]);
	pool = rte_pktmbuf_pool_create("exit_app", MBUFS, BURST, 0, ROOM, (int)rte_socket_id());
	if (pool == NULL)
		rte_exit(1, "mbuf pool: %s\n", rte_strerror(rte_errno));
	nb_ports = rte_eth_dev_count_avail();
	for (port = 0; port < nb_ports; port++)
		start_port(port);
	start_pmdscope();

	if (way->end == NULL) {
		signal(way->signo, way->handler);
		signal_in(ms, way->signo);
		ms += 60000;
	}
	work(ms);
	if (way->end != NULL)
		way->end();
	return STATUS;
}
