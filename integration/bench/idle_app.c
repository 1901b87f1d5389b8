/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-idle-app: starts all of its ports and sleeps, so that its CPU time is only used for
 * answering queries. It ends on SIGINT or SIGTERM.
 *
 * All ports differ: port P has an MTU of 1500 - P, and has received P + 1 bursts on each of its
 * queues. So values of a wrong port are detected.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#include "control.h"
#include "options.h"
#include "port.h"

#define BURST 32
#define DESCRIPTORS 64
#define MBUFS 1023
#define MTU 1500
#define POLL_MS 100

static uint32_t queues = 1;
static bool linked;
static bool hotplug;
static struct rte_mempool *pool;

static const struct option_spec specs[] = {
	{ "queues", "N", "queue pairs per port (1)", option_u32, &queues, 1, 64 },
	{ "pmdscope", NULL, "run libpmdscope", option_flag, &linked, 0, 0 },
	{ "hotplug", NULL, "add a port, take it away, and so on", option_flag, &hotplug, 0, 0 },
};

static void
fail(const char *what, int error)
{
	fprintf(stderr, "pmdscope-idle-app: %s: %s\n", what, rte_strerror(abs(error)));
	exit(1);
}

static void
receive(uint16_t port, uint16_t queue)
{
	struct rte_mbuf *pkts[BURST];
	unsigned int burst;
	uint16_t nb;

	for (burst = 0; burst <= port; burst++) {
		nb = rte_eth_rx_burst(port, queue, pkts, BURST);
		rte_pktmbuf_free_bulk(pkts, nb);
	}
}

static void
start_port(uint16_t port)
{
	int rc;

	if (port_start(port, (uint16_t)queues, (uint16_t)queues, DESCRIPTORS, pool) != 0)
		exit(1);
	rc = rte_eth_dev_set_mtu(port, (uint16_t)(MTU - port));
	if (rc != 0)
		fail("rte_eth_dev_set_mtu", rc);
}

static void
open_ports(void)
{
	uint16_t port, queue;
	int rc;

	pool = rte_pktmbuf_pool_create("idle_app", MBUFS, BURST, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
			(int)rte_socket_id());
	if (pool == NULL)
		fail("mbuf pool", rte_errno);
	RTE_ETH_FOREACH_DEV(port)
		start_port(port);
	/* Packets are counted from now on. */
	rc = linked ? pmdscope_init(NULL) : 0;
	if (rc != 0)
		fail("pmdscope_init", rc);
	RTE_ETH_FOREACH_DEV(port)
		for (queue = 0; queue < queues; queue++)
			receive(port, queue);
}

static void
close_ports(void)
{
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
		port_stop(port);
	if (linked)
		pmdscope_fini();
	RTE_ETH_FOREACH_DEV(port)
		port_close(port);
}

/* One more device, which exists after every second call. */
static void
change_ports(void)
{
	static char name[RTE_ETH_NAME_MAX_LEN];
	static uint16_t port = RTE_MAX_ETHPORTS;
	int rc;

	if (port == RTE_MAX_ETHPORTS) {
		snprintf(name, sizeof(name), "net_null%u", rte_eth_dev_count_avail());
		rc = rte_eal_hotplug_add("vdev", name, "");
		if (rc == 0)
			rc = rte_eth_dev_get_port_by_name(name, &port);
		if (rc != 0)
			fail("rte_eal_hotplug_add", rc);
		start_port(port);
		return;
	}
	port_stop(port);
	rc = rte_eal_hotplug_remove("vdev", name);
	if (rc != 0)
		fail("rte_eal_hotplug_remove", rc);
	port = RTE_MAX_ETHPORTS;
}

static void
help(FILE *out)
{
	fputs("Usage: pmdscope-idle-app [EAL options] -- [options]\n\nOptions:\n", out);
	options_help(out, specs, RTE_DIM(specs));
}

int
main(int argc, char **argv)
{
	const int split = options_split(argc, argv);
	const enum options_result result =
			options_parse(specs, RTE_DIM(specs), argc - split, argv + split);

	if (result == OPTIONS_HELP)
		help(stdout);
	if (result != OPTIONS_OK)
		return result == OPTIONS_HELP ? 0 : 2;
	control_prepare();
	if (rte_eal_init(split, argv) < 0)
		fail("rte_eal_init", rte_errno);
	open_ports();
	/* A reader of this line finds everything ready. */
	puts("ready");
	fflush(stdout);

	while (!control_sleep(POLL_MS)) {
		pmdscope_poll(0);
		if (hotplug)
			change_ports();
	}

	close_ports();
	rte_eal_cleanup();
	return 0;
}
