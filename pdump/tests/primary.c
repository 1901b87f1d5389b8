/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * A stock app that sends numbered packets. It answers each line on stdin with "<packets sent>
 * <allocations of its heap> <memzones>". A number in the line reconfigures its port with so many
 * queues; an "h" makes it add a device and remove it, a "d" add one for good, a "p" add or remove what looks
 * like an odd mempool, an "l" change the length of rte_pdump's counters or restore it, a "u" stop its poller and call rte_pdump_uninit().
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>
#include <rte_pdump.h>

#include "counters.h"
#include "numbered.h"

#define BURST 32
#define DESCRIPTORS 512
#define POOL_SIZE 4095
/* Most packets are chains of such segments. */
#define SEGMENT 700
#define PAUSE_US 200

/* Most further ports. */
#define EXTRA_MAX 16

static struct rte_mempool *pool;
static uint64_t sent;
static bool quit;
/* Number of polled queues; 0 pauses the poller, which confirms that. */
static uint16_t nb_queues, nb_polled, nb_configured;
/* Further ports of one queue; changed while the poller pauses. */
static uint16_t extra[EXTRA_MAX];
static unsigned int nb_extra;

static struct rte_mbuf *
make_packet(uint64_t seq)
{
	const uint16_t len = numbered_len(seq);
	struct rte_mbuf *packet = NULL, *m;
	uint16_t at, part, i;

	for (at = 0; at < len; at += part) {
		part = RTE_MIN(len - at, SEGMENT);
		m = rte_pktmbuf_alloc(pool);
		if (m == NULL) {
			rte_pktmbuf_free(packet);
			return NULL;
		}
		for (i = 0; i < part; i++)
			rte_pktmbuf_mtod(m, uint8_t *)[i] = numbered_byte(seq, at + i);
		m->data_len = m->pkt_len = part;
		if (packet == NULL)
			packet = m;
		else
			rte_pktmbuf_chain(packet, m);
	}
	return packet;
}

static void
receive(uint16_t port, uint16_t queue)
{
	struct rte_mbuf *pkts[BURST];
	const uint16_t n = rte_eth_rx_burst(port, queue, pkts, BURST);
	uint16_t i;

	for (i = 0; i < n; i++)
		rte_pktmbuf_free(pkts[i]);
}

static int
poll_port(void *arg)
{
	struct rte_mbuf *pkts[BURST];
	uint16_t n, queue, nb;
	unsigned int i;

	(void)arg;
	while (!__atomic_load_n(&quit, __ATOMIC_RELAXED)) {
		nb = __atomic_load_n(&nb_queues, __ATOMIC_ACQUIRE);
		__atomic_store_n(&nb_polled, nb, __ATOMIC_RELEASE);
		if (nb == 0)
			continue;
		for (n = 0; n < BURST; n++) {
			pkts[n] = make_packet(sent + n);
			if (pkts[n] == NULL)
				break;
		}
		__atomic_fetch_add(&sent, rte_eth_tx_burst(0, 0, pkts, n), __ATOMIC_RELAXED);
		for (queue = 0; queue < nb; queue++)
			receive(0, queue);
		for (i = 0; i < nb_extra; i++)
			receive(extra[i], 0);
		rte_delay_us_block(PAUSE_US);
	}
	return 0;
}

static int
start_port(uint16_t port, uint16_t nb)
{
	const struct rte_eth_conf conf = { 0 };
	uint16_t queue;

	if (rte_eth_dev_configure(port, nb, nb, &conf) < 0)
		return -1;
	for (queue = 0; queue < nb; queue++)
		if (rte_eth_rx_queue_setup(port, queue, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool) <
						0 ||
				rte_eth_tx_queue_setup(
						port, queue, DESCRIPTORS, SOCKET_ID_ANY, NULL) < 0)
			return -1;
	return rte_eth_dev_start(port);
}

static void
hold_poller(void)
{
	__atomic_store_n(&nb_queues, 0, __ATOMIC_RELEASE);
	while (__atomic_load_n(&nb_polled, __ATOMIC_ACQUIRE) != 0)
		rte_delay_us_sleep(PAUSE_US);
}

static void
resume_poller(void)
{
	__atomic_store_n(&nb_queues, nb_configured, __ATOMIC_RELEASE);
}

static int
restart_port(uint16_t nb)
{
	hold_poller();
	if (rte_eth_dev_stop(0) < 0 || start_port(0, nb) < 0)
		return -1;
	nb_configured = nb;
	resume_poller();
	return 0;
}

/* Add and poll a port of this device. */
static int
add_extra(const char *device)
{
	uint16_t port;

	if (nb_extra == EXTRA_MAX || rte_eal_hotplug_add("vdev", device, "") < 0 ||
			rte_eth_dev_get_port_by_name(device, &port) < 0 || start_port(port, 1) < 0)
		return -1;
	hold_poller();
	extra[nb_extra++] = port;
	resume_poller();
	return 0;
}

/* As on the removal of a VF. */
static int
remove_extra(const char *device)
{
	unsigned int i = 0;
	uint16_t port;

	if (rte_eth_dev_get_port_by_name(device, &port) < 0)
		return -1;
	hold_poller();
	while (i < nb_extra && extra[i] != port)
		i++;
	if (i < nb_extra)
		extra[i] = extra[--nb_extra];
	resume_poller();
	if (rte_eth_dev_stop(port) < 0)
		return -1;
	return rte_eal_hotplug_remove("vdev", device);
}

static int
change_extra(const char *line)
{
	char device[32];

	snprintf(device, sizeof(device), "net_null%d", atoi(line + 1));
	return line[0] == 'a' ? add_extra(device) : remove_extra(device);
}

static int
plug_and_unplug(void)
{
	if (rte_eal_hotplug_add("vdev", "net_null9", "") < 0)
		return -1;
	return rte_eal_hotplug_remove("vdev", "net_null9");
}

static int
plug_another(void)
{
	static unsigned int nb = 10;
	char name[32];

	snprintf(name, sizeof(name), "net_null%u", nb++);
	return rte_eal_hotplug_add("vdev", name, "");
}

/* While a poller runs, the remaining callbacks would use freed memory. */
static int
end_pdump(void)
{
	hold_poller();
	return rte_pdump_uninit();
}

/* Add or remove an object that looks like a mempool without caches. */
static int
toggle_odd_pool(void)
{
	static const struct rte_memzone *zone;
	struct rte_mempool *odd;

	if (zone != NULL) {
		const struct rte_memzone *gone = zone;

		zone = NULL;
		return rte_memzone_free(gone);
	}
	zone = rte_memzone_reserve("MP_odd", sizeof(*odd), SOCKET_ID_ANY, 0);
	if (zone == NULL)
		return -1;
	odd = zone->addr;
	memset(odd, 0, sizeof(*odd));
	snprintf(odd->name, sizeof(odd->name), "odd");
	odd->mz = zone;
	odd->cache_size = 32;
	return 0;
}

/* As if this rte_pdump had more counters. */
static int
toggle_counters_length(void)
{
	struct rte_memzone *zone =
			(struct rte_memzone *)(uintptr_t)rte_memzone_lookup(COUNTERS_NAME);

	if (zone == NULL)
		return -1;
	zone->len ^= RTE_CACHE_LINE_SIZE;
	return 0;
}

static void
count_zone(const struct rte_memzone *zone, void *arg)
{
	(void)zone;
	++*(unsigned int *)arg;
}

int
main(int argc, char **argv)
{
	struct rte_malloc_socket_stats heap;
	unsigned int zones;
	char line[16];

	if (rte_eal_init(argc, argv) < 0 || rte_pdump_init() < 0)
		return 1;
	pool = rte_pktmbuf_pool_create(
			"app", POOL_SIZE, 128, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL || start_port(0, 1) < 0)
		return 1;
	nb_configured = 1;
	resume_poller();
	if (rte_eal_remote_launch(poll_port, NULL, rte_get_next_lcore(-1, 1, 0)) < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin) != NULL) {
		if (atoi(line) > 0 && restart_port((uint16_t)atoi(line)) < 0)
			return 1;
		if (line[0] == 'h' && plug_and_unplug() < 0)
			return 1;
		if (line[0] == 'd' && plug_another() < 0)
			return 1;
		if ((line[0] == 'a' || line[0] == 'r') && change_extra(line) < 0)
			return 1;
		if (line[0] == 'u' && end_pdump() < 0)
			return 1;
		if (line[0] == 'p' && toggle_odd_pool() < 0)
			return 1;
		if (line[0] == 'l' && toggle_counters_length() < 0)
			return 1;
		zones = 0;
		rte_memzone_walk(count_zone, &zones);
		rte_malloc_get_socket_stats(0, &heap);
		printf("%ju %u %u\n", (uintmax_t)__atomic_load_n(&sent, __ATOMIC_RELAXED),
				heap.alloc_count, zones);
		fflush(stdout);
	}
	__atomic_store_n(&quit, true, __ATOMIC_RELAXED);
	rte_eal_mp_wait_lcore();
	rte_eal_cleanup();
	return 0;
}
