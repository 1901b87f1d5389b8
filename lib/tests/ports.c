/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Callbacks on ports that are added, changed and removed, also while a worker polls. */

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#include "pmdscope.h"
#include "readers.h"
#include "test.h"

#define BURST 32

static const struct pmdscope_conf conf = { .sample_ms = 10, .window_ms = 100 };
static struct rte_mempool *pool;

static uint16_t
plug(const char *name, const char *args)
{
	uint16_t port;

	CHECK(rte_eal_hotplug_add("vdev", name, args) == 0);
	CHECK(rte_eth_dev_get_port_by_name(name, &port) == 0);
	return port;
}

static void
configure(uint16_t port, uint16_t nb_queues)
{
	const struct rte_eth_conf eth_conf = { 0 };
	uint16_t q;

	CHECK(rte_eth_dev_configure(port, nb_queues, nb_queues, &eth_conf) == 0);
	for (q = 0; q < nb_queues; q++) {
		CHECK(rte_eth_rx_queue_setup(port, q, 256, SOCKET_ID_ANY, NULL, pool) == 0);
		CHECK(rte_eth_tx_queue_setup(port, q, 256, SOCKET_ID_ANY, NULL) == 0);
	}
	CHECK(rte_eth_dev_start(port) == 0);
}

static void
unplug(const char *name, uint16_t port)
{
	CHECK(rte_eth_dev_stop(port) == 0);
	CHECK(rte_eal_hotplug_remove("vdev", name) == 0);
}

static unsigned int
nb_rows(void)
{
	return (unsigned int)tel_u64(tel_ask("/pmdscope/queues", ""), "total");
}

/* Row of a queue in a table of one page. */
static unsigned int
row_of(const char *body, uint16_t port, uint16_t queue, const char *dir)
{
	unsigned int i;

	for (i = 0; i < json_len(json_get(body, "port")); i++)
		if (tel_cell(body, "port", i) == port && tel_cell(body, "queue", i) == queue &&
				tel_cell_is(body, "dir", i, dir))
			return i;
	fprintf(stderr, "no row for port %u queue %u %s\n", port, queue, dir);
	exit(1);
}

static uint64_t
cell(uint16_t port, uint16_t queue, const char *dir, const char *column)
{
	const char *body = tel_ask("/pmdscope/queues", "");

	return tel_cell(body, column, row_of(body, port, queue, dir));
}

static bool
has_callbacks(uint16_t port)
{
	return rte_eth_fp_ops[port].rxq.clbk[0] != NULL || rte_eth_fp_ops[port].txq.clbk[0] != NULL;
}

/* Receive and send on. */
static void
forward(uint16_t port, uint16_t queue, uint16_t nb)
{
	struct rte_mbuf *pkts[BURST];
	uint16_t nb_rx = rte_eth_rx_burst(port, queue, pkts, nb);

	CHECK(rte_eth_tx_burst(port, queue, pkts, nb_rx) == nb_rx);
}

static void
test_counts(void)
{
	static const uint16_t sizes[] = { 1, 2, 3, 4, 5, 8, 9, 16, 17, 32 };
	static const uint64_t buckets[] = { 1, 1, 2, 2, 2, 2, 0, 0 };
	const uint16_t port = plug("net_null0", "size=100");
	const char *body;
	unsigned int i, row, packets = 0;

	configure(port, 2);
	WAIT_FOR(nb_rows() == 4);
	for (i = 0; i < RTE_DIM(sizes); i++) {
		forward(port, 1, sizes[i]);
		packets += sizes[i];
	}
	CHECK(rte_eth_rx_burst(port, 1, NULL, 0) == 0);
	CHECK_U64(cell(port, 1, "rx", "polls"), RTE_DIM(sizes) + 1);
	CHECK_U64(cell(port, 1, "rx", "empty"), 1);
	CHECK_U64(cell(port, 1, "rx", "packets"), packets);
	CHECK_U64(cell(port, 1, "rx", "bytes"), packets * 100);
	CHECK_U64(cell(port, 1, "tx", "polls"), RTE_DIM(sizes));
	CHECK_U64(cell(port, 1, "tx", "packets"), packets);
	CHECK_U64(cell(port, 0, "rx", "polls"), 0);

	body = tel_ask("/pmdscope/queues", "");
	row = row_of(body, port, 1, "rx");
	CHECK(tel_cell_is(body, "device", row, "net_null0"));
	CHECK_U64(tel_u64(body, "bursts_buckets"), RTE_DIM(buckets));
	for (i = 0; i < RTE_DIM(buckets); i++)
		CHECK_U64(tel_cell(body, "bursts", row * RTE_DIM(buckets) + i), buckets[i]);
	/* net_null reports neither: not supported, so no values are shown. */
	CHECK_U64(tel_cell(body, "depth_supported", row), 0);
	CHECK_U64(tel_u64(body, "depths_buckets"), 13);
	CHECK_U64(tel_cell(body, "depths", row * 13), 0);
	CHECK_U64(tel_cell(body, "descriptors", row), 0);
	/* The same without histograms. */
	body = tel_ask("/pmdscope/queue_counters", "");
	CHECK_U64(tel_u64(body, "total"), 4);
	row = row_of(body, port, 1, "rx");
	CHECK_U64(tel_cell(body, "polls", row), RTE_DIM(sizes) + 1);
	CHECK_U64(tel_cell(body, "packets", row), packets);
	CHECK(json_get(body, "bursts") == NULL && json_get(body, "depths_buckets") == NULL);
	CHECK(json_get(body, "depth") == NULL && json_get(body, "depth_supported") == NULL);
	/* net_null does not report its pool, the only one; its packets tell. */
	WAIT_FOR(cell(port, 1, "rx", "pool_row") == 1);
	CHECK_U64(cell(port, 0, "rx", "pool_row"), 0);
	CHECK_U64(cell(port, 1, "tx", "pool_row"), 0);
	unplug("net_null0", port);
	WAIT_FOR(nb_rows() == 0);
}

static uint64_t
event(const char *column)
{
	const char *body = tel_ask("/pmdscope/ports", "");

	CHECK(tel_cell_is(body, "device", 0, "net_null0"));
	return tel_cell(body, column, 0);
}

/* Events of a port are counted since it was first seen, and removed with it. */
static void
test_starts_and_stops(void)
{
	const uint16_t port = plug("net_null0", "");
	unsigned int i;

	WAIT_FOR(tel_u64(tel_ask("/pmdscope/ports", ""), "total") == 1);
	CHECK_U64(event("started"), 0);
	CHECK_U64(event("changed_realtime_ns"), 0);
	configure(port, 1);
	WAIT_FOR(event("started") == 1);
	for (i = 1; i <= 3; i++) {
		CHECK(rte_eth_dev_stop(port) == 0);
		WAIT_FOR(event("stops") == i);
		CHECK_U64(event("started"), 0);
		CHECK(rte_eth_dev_start(port) == 0);
		WAIT_FOR(event("starts") == i + 1);
	}
	CHECK_U64(event("port"), port);
	CHECK_U64(event("stops"), 3);
	CHECK_U64(event("link_changes"), 0);
	CHECK(event("changed_realtime_ns") != 0);
	unplug("net_null0", port);
	WAIT_FOR(tel_u64(tel_ask("/pmdscope/ports", ""), "total") == 0);
	CHECK(plug("net_null0", "") == port);
	WAIT_FOR(tel_u64(tel_ask("/pmdscope/ports", ""), "total") == 1);
	CHECK_U64(event("starts"), 0);
	CHECK(rte_eal_hotplug_remove("vdev", "net_null0") == 0);
	WAIT_FOR(tel_u64(tel_ask("/pmdscope/ports", ""), "total") == 0);
}

/* A reconfiguration adds queues; removed ones lose their row once others are polled. */
static void
test_reconfigure(void)
{
	const uint16_t port = plug("net_null0", "");
	uint16_t q;

	configure(port, 1);
	WAIT_FOR(nb_rows() == 2);
	forward(port, 0, 1);
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 4);
	WAIT_FOR(nb_rows() == 8);
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 2);
	WAIT_FOR((forward(port, 0, 1), nb_rows()) == 4);
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 4);
	WAIT_FOR(nb_rows() == 8);
	/* Each burst is counted once, whatever happened to the queue. */
	for (q = 1; q < 4; q++) {
		forward(port, q, 7);
		CHECK_U64(cell(port, q, "rx", "polls"), 1);
		CHECK_U64(cell(port, q, "tx", "packets"), 7);
	}
	unplug("net_null0", port);
	WAIT_FOR(nb_rows() == 0);
}

static uint32_t waiting;

/* What a driver returns: since DPDK 25.11 errors as well. */
#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
typedef int rx_queue_count_t;
#else
typedef uint32_t rx_queue_count_t;
#endif

static rx_queue_count_t
tell_waiting(void *rxq __rte_unused)
{
	return (rx_queue_count_t)waiting;
}

/* No virtual device counts here, so the test replaces the driver's function. */
static void
test_depth(void)
{
	const uint16_t port = plug("net_null0", "");
	uint64_t samples = 0;
	const char *body;
	unsigned int i;

	configure(port, 1);
	WAIT_FOR(nb_rows() == 2);
	rte_eth_fp_ops[port].rx_queue_count = tell_waiting;
	CHECK(rte_eth_rx_burst(port, 0, NULL, 0) == 0);
	/* Unknown before the driver is queried, at the first packet. */
	CHECK_U64(cell(port, 0, "rx", "depth_supported"), 0);
	waiting = 990;
	forward(port, 0, 10);
	CHECK_U64(cell(port, 0, "rx", "depth_supported"), 1);
	CHECK_U64(cell(port, 0, "rx", "depth"), 1000);
	waiting = 0;
	for (i = 0; i < 640; i++)
		forward(port, 0, 1);
	CHECK_U64(cell(port, 0, "rx", "depth"), 1);
	CHECK(rte_eth_rx_burst(port, 0, NULL, 0) == 0);
	CHECK_U64(cell(port, 0, "rx", "depth"), 0);
	CHECK_U64(cell(port, 0, "rx", "depth_max"), 1000);
	WAIT_FOR(cell(port, 0, "rx", "depth_window_max") == 0);

	body = tel_ask("/pmdscope/queues", "");
	CHECK_U64(tel_cell(body, "depths", 0), 2);
	CHECK_U64(tel_cell(body, "depths", 10), 1);
	/* net_null fills each burst: of each 16 one is sampled, of the last one maybe. */
	for (i = 1; i < 13; i++)
		samples += tel_cell(body, "depths", i);
	CHECK(samples == 640 / 16 || samples == 640 / 16 + 1);
	CHECK_U64(cell(port, 0, "tx", "depth_supported"), 0);
	unplug("net_null0", port);
	WAIT_FOR(nb_rows() == 0);
}

/*
 * DPDK does not let go of a callback on a queue that the port no longer has (as after the close
 * of many drivers): the next port with the same id takes it over, and counts once.
 */
static void
test_leftover(void)
{
	uint16_t port = plug("net_null0", ""), q;

	configure(port, 4);
	WAIT_FOR(nb_rows() == 8);
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 1);
	unplug("net_null0", port);
	WAIT_FOR(nb_rows() == 0);
	port = plug("net_null1", "");
	configure(port, 4);
	WAIT_FOR(nb_rows() == 8);
	for (q = 0; q < 4; q++) {
		forward(port, q, 5);
		CHECK_U64(cell(port, q, "rx", "packets"), 5);
		CHECK_U64(cell(port, q, "tx", "polls"), 1);
	}
	CHECK(tel_cell_is(tel_ask("/pmdscope/queues", ""), "device", 0, "net_null1"));
	/* The same over a stop of the library. */
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 1);
	pmdscope_fini();
	CHECK(rte_eth_dev_stop(port) == 0);
	configure(port, 4);
	CHECK(pmdscope_init(&conf) == 0);
	CHECK_U64(nb_rows(), 8);
	forward(port, 3, 5);
	CHECK_U64(cell(port, 3, "rx", "packets"), 5);
	unplug("net_null1", port);
	WAIT_FOR(nb_rows() == 0);
}

/* Ports that are added and removed, some too fast to be seen, leave nothing behind. */
static void
test_hotplug(void)
{
	unsigned int i;

	for (i = 0; i < 20; i++) {
		const uint16_t port = plug("net_null0", "");

		configure(port, 4);
		if (i % 4 == 0) {
			WAIT_FOR(nb_rows() == 8);
			forward(port, 3, BURST);
			CHECK_U64(cell(port, 3, "rx", "polls"), 1);
		}
		unplug("net_null0", port);
		if (i % 8 == 0)
			WAIT_FOR(nb_rows() == 0);
	}
	/* A port with the same id has no callback until it is discovered. */
	WAIT_FOR(nb_rows() == 0);
	pmdscope_fini();
	i = plug("net_null0", "");
	configure((uint16_t)i, 1);
	CHECK(!has_callbacks((uint16_t)i));
	CHECK(pmdscope_init(&conf) == 0);
	CHECK(has_callbacks((uint16_t)i));
	unplug("net_null0", (uint16_t)i);
}

/* 64 queues: more rows than fit into a page. */
static void
test_many_queues(void)
{
	const uint16_t port = plug("net_null0", "");
	bool seen[2][64] = { { false } };
	unsigned int offset = 0, i, pages = 0;
	uint16_t q;
	bool more;

	configure(port, 64);
	WAIT_FOR(nb_rows() == 128);
	for (q = 0; q < 64; q++)
		forward(port, q, (uint16_t)(1 + q % BURST));
	do {
		char params[16];
		const char *page;

		snprintf(params, sizeof(params), "%u", offset);
		page = tel_ask("/pmdscope/queues", params);
		for (i = 0; i < json_len(json_get(page, "queue")); i++) {
			const unsigned int queue = (unsigned int)tel_cell(page, "queue", i);
			const bool tx = tel_cell_is(page, "dir", i, "tx");

			CHECK(queue < 64 && !seen[tx][queue]);
			seen[tx][queue] = true;
			CHECK_U64(tel_cell(page, "packets", i), 1 + queue % BURST);
		}
		offset += i;
		pages++;
		more = json_get(page, "next") != NULL;
	} while (more);
	CHECK_U64(offset, 128);
	CHECK(pages > 1);
	/* Without histograms they fit. */
	CHECK_U64(json_len(json_get(tel_ask("/pmdscope/queue_counters", ""), "queue")), 128);
	unplug("net_null0", port);
	WAIT_FOR(nb_rows() == 0);
}

static volatile bool stop;

static int
forward_forever(void *arg)
{
	const uint16_t port = *(const uint16_t *)arg;

	while (!stop) {
		forward(port, 0, BURST);
		pmdscope_poll(BURST);
	}
	return 0;
}

/* The library starts and stops while a worker polls without pauses. */
static void
test_busy(void)
{
	const uint16_t port = plug("net_null0", "");
	unsigned int i;

	configure(port, 1);
	pmdscope_fini();
	CHECK(rte_eal_remote_launch(forward_forever, (void *)(uintptr_t)&port,
			      rte_get_next_lcore(-1, 1, 0)) == 0);
	for (i = 0; i < 10; i++) {
		CHECK(pmdscope_init(&conf) == 0);
		CHECK(has_callbacks(port));
		WAIT_FOR(cell(port, 0, "rx", "packets") != 0);
		pmdscope_fini();
		CHECK(!has_callbacks(port));
	}
	stop = true;
	rte_eal_mp_wait_lcore();
	unplug("net_null0", port);
}

static uint64_t
counted(void)
{
	return tel_u64(tel_ask("/pmdscope", ""), "queues_counted");
}

/* As if nobody had asked for a table for long. */
static void
stop_reading(void)
{
	pmdscope_readers_hold_ns = 1;
	WAIT_FOR(counted() == 0);
	pmdscope_readers_hold_ns = 600 * UINT64_C(1000000000);
}

/* Queues have callbacks while somebody asks for tables, here while a worker polls. */
static void
test_on_demand(void)
{
	struct pmdscope_conf on_demand = conf;
	const uint16_t port = plug("net_null0", "");
	unsigned int i;

	on_demand.flags = PMDSCOPE_F_COUNT_ON_DEMAND;
	configure(port, 1);
	CHECK(pmdscope_init(&on_demand) == 0);
	stop = false;
	CHECK(rte_eal_remote_launch(forward_forever, (void *)(uintptr_t)&port,
			      rte_get_next_lcore(-1, 1, 0)) == 0);
	for (i = 0; i < 5; i++) {
		rte_delay_us_sleep(300000);
		CHECK_U64(counted(), 0);
		CHECK(!has_callbacks(port));
		/* The first request only begins the counting. */
		CHECK_U64(nb_rows(), 0);
		WAIT_FOR(nb_rows() == 2);
		CHECK_U64(counted(), 1);
		WAIT_FOR(cell(port, 0, "rx", "packets") != 0);
		stop_reading();
	}
	stop = true;
	rte_eal_mp_wait_lcore();

	/* Counted from 0 each time, and exactly. */
	WAIT_FOR(nb_rows() == 2);
	forward(port, 0, 7);
	CHECK_U64(cell(port, 0, "rx", "polls"), 1);
	CHECK_U64(cell(port, 0, "tx", "packets"), 7);
	stop_reading();
	forward(port, 0, 7);
	WAIT_FOR(nb_rows() == 2);
	forward(port, 0, 3);
	CHECK_U64(cell(port, 0, "rx", "polls"), 1);
	CHECK_U64(cell(port, 0, "tx", "packets"), 3);

	/* Stamps are a reason to count. */
	stop_reading();
	CHECK_U64(tel_u64(tel_ask("/pmdscope/arm", "60"), "armed"), 1);
	WAIT_FOR(counted() == 1);
	CHECK(tel_ask("/pmdscope/arm", "0") != NULL);
	WAIT_FOR(counted() == 0);
	pmdscope_fini();
	CHECK(!has_callbacks(port));
	unplug("net_null0", port);
}

int
main(void)
{
	test_eal("0@(0,1),1@(0,1)");
	pool = rte_pktmbuf_pool_create("pool", 4095, 64, 0, 2048, SOCKET_ID_ANY);
	CHECK(pool != NULL);
	CHECK(pmdscope_init(&conf) == 0);
	test_counts();
	test_starts_and_stops();
	test_depth();
	test_reconfigure();
	test_leftover();
	test_hotplug();
	test_many_queues();
	test_busy();
	test_on_demand();
	rte_eal_cleanup();
	return 0;
}
