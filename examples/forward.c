/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * A minimal app with libpmdscope: forwards packets between pairs of ports (0 and 1, 2 and 3; a
 * port without a partner sends them back), with one lcore and one queue per port. Build it with an
 * installed libpmdscope:
 *
 *   level 1: cc forward.c $(pkg-config --cflags --libs pmdscope libdpdk) -o forward
 *   level 2: cc -include pmdscope_trace.h forward.c $(pkg-config --cflags --libs pmdscope libdpdk) -o forward
 *
 * Try it without a NIC:
 *
 *   ./forward --no-huge -m 128 --no-pci --file-prefix forward --vdev net_null0 --vdev net_null1
 *   pmdscope top
 */

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#define BURST 32
#define DESCRIPTORS 512
#define MBUFS 8191
#define MBUF_CACHE 250

static volatile sig_atomic_t stop;

static void
on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void
start_port(uint16_t port, struct rte_mempool *pool)
{
	const struct rte_eth_conf conf = { 0 };

	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 ||
			rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool) !=
					0 ||
			rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL) != 0 ||
			rte_eth_dev_start(port) != 0)
		rte_exit(EXIT_FAILURE, "cannot start port %u\n", port);
}

/* Returns the number of packets received. Packets that the NIC does not accept are dropped. */
static uint16_t
forward(uint16_t from, uint16_t to)
{
	struct rte_mbuf *pkts[BURST];
	const uint16_t received = rte_eth_rx_burst(from, 0, pkts, BURST);
	const uint16_t sent = rte_eth_tx_burst(to, 0, pkts, received);

	if (sent < received)
		rte_pktmbuf_free_bulk(pkts + sent, received - sent);
	return received;
}

int
main(int argc, char **argv)
{
	struct rte_mempool *pool;
	uint16_t port, partner, received;

	if (rte_eal_init(argc, argv) < 0)
		return EXIT_FAILURE;
	pool = rte_pktmbuf_pool_create(
			"packets", MBUFS, MBUF_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		rte_exit(EXIT_FAILURE, "no memory for %u packets\n", MBUFS);
	RTE_ETH_FOREACH_DEV(port)
		start_port(port, pool);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);

	/* If this fails, the library logs the reason, and the app forwards without it. */
	pmdscope_init(NULL);
	while (!stop) {
		/*
		 * One call per iteration of the loop, with the packets received on all ports.
		 */
		received = 0;
		RTE_ETH_FOREACH_DEV(port) {
			partner = port ^ 1;
			received += forward(
					port, rte_eth_dev_is_valid_port(partner) ? partner : port);
		}
		pmdscope_poll(received);
	}
	pmdscope_fini();
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
