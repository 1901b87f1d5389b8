/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Faults report as many lost mbufs as the pools miss. TX faults need a port: not tested here. */

#include <errno.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include "check.h"
#include "faults.h"
#include "test_eal.h"

#define BURST 8
#define EVERY 7
#define BURSTS 200

static struct pipe lane;

static void
receive(struct rte_mbuf **pkts)
{
	unsigned int i;

	CHECK_EQ(rte_pktmbuf_alloc_bulk(lane.packets, pkts, BURST), 0);
	for (i = 0; i < BURST; i++)
		CHECK(rte_pktmbuf_append(pkts[i], 60) != NULL);
}

/* Passes one burst through RX and worker; the remaining packets are sent and so freed. */
static void
pass_burst(void)
{
	struct rte_mbuf *pkts[BURST], *kept[NB_FAULTS];
	uint16_t nb, nb_kept;

	receive(pkts);
	nb = faults_rx(&lane, pkts, BURST);
	nb = faults_work(&lane, pkts, nb, kept, &nb_kept);
	CHECK(nb + nb_kept <= BURST);
	rte_pktmbuf_free_bulk(pkts, nb);
	rte_pktmbuf_free_bulk(kept, nb_kept);
}

static void
forget_faults(void)
{
	unsigned int i;

	for (i = 0; i < NB_FAULTS; i++) {
		faults[i].schedule = (struct schedule){ 0 };
		memset(&faults[i].truth, 0, sizeof(faults[i].truth));
	}
}

/* The losses of one fault, exactly one in EVERY bursts, or one. */
static void
test_fault(const char *when, const char *name, uint64_t times)
{
	const unsigned int packets = rte_mempool_in_use_count(lane.packets);
	const unsigned int copies = rte_mempool_in_use_count(lane.clones);
	struct truth *truth = NULL;
	struct rte_mbuf *none[1];
	char text[64];
	uint16_t nb_none;
	unsigned int i;

	forget_faults();
	snprintf(text, sizeof(text), "%s%s", name, when);
	CHECK(faults_parse(text));
	for (i = 0; i < NB_FAULTS; i++)
		if (strcmp(faults[i].name, name) == 0)
			truth = &faults[i].truth;
	CHECK(truth != NULL);
	for (i = 0; i < BURSTS; i++)
		pass_burst();
	/* A packet may still wait for its acknowledgement. */
	faults_work(&lane, none, 0, none, &nb_none);

	CHECK_EQ(truth->injected, times);
	CHECK_EQ(truth->nb_samples, RTE_MIN(times, (uint64_t)TRUTH_SAMPLES));
	CHECK_EQ(rte_mempool_in_use_count(lane.packets) - packets, faults_lost_packets());
	CHECK_EQ(rte_mempool_in_use_count(lane.clones) - copies, faults_lost_clones());
}

static void
test_all_at_once(void)
{
	const unsigned int packets = rte_mempool_in_use_count(lane.packets);
	struct rte_mbuf *none[1];
	uint16_t nb_none;
	unsigned int i;

	forget_faults();
	for (i = 0; i < NB_FAULTS; i++)
		faults[i].schedule.every = 10 + i;
	for (i = 0; i < BURSTS; i++)
		pass_burst();
	faults_work(&lane, none, 0, none, &nb_none);
	CHECK(faults_lost_packets() > BURSTS / 4);
	CHECK_EQ(rte_mempool_in_use_count(lane.packets) - packets, faults_lost_packets());
}

static void
test_parse(void)
{
	static const char *const bad[] = { "", ":1/5", "clon", "clones", "clone:", "clone:1/",
		"clone:1/0", "clone:2/5", "clone:1/2147483649", "clone:once:once", "clone:1/5:once",
		"Clone", "clone 1/5" };
	unsigned int i;

	forget_faults();
	for (i = 0; i < RTE_DIM(bad); i++) {
		CHECK(!faults_parse(bad[i]));
		CHECK_EQ(faults[FAULT_CLONE].schedule.every, 0);
	}
	CHECK(faults_parse("clone"));
	CHECK_EQ(faults[FAULT_CLONE].schedule.every, 1);
	CHECK(faults_parse("clone:1/2147483648"));
	CHECK_EQ(faults[FAULT_CLONE].schedule.every, SCHEDULE_MAX);
	CHECK(faults_parse("tx-reject:once"));
	CHECK(faults[FAULT_TX_REJECT].schedule.once);
	CHECK(!faults[FAULT_CLONE].schedule.once);
}

static void
open_lane(void)
{
	const unsigned int flags = RING_F_SP_ENQ | RING_F_SC_DEQ;

	lane.packets = rte_pktmbuf_pool_create("packets", 4095, 64, 0, 512, (int)rte_socket_id());
	lane.clones = rte_pktmbuf_pool_create("clones", 1023, 64, 0, 0, (int)rte_socket_id());
	lane.unacked = rte_ring_create("unacked", 64, (int)rte_socket_id(), flags);
	lane.stuck = rte_ring_create("stuck", 2, (int)rte_socket_id(), flags);
	CHECK(lane.packets != NULL && lane.clones != NULL);
	CHECK(lane.unacked != NULL && lane.stuck != NULL);
	CHECK_EQ(rte_ring_sp_enqueue(lane.stuck, &lane), 0);
}

int
main(void)
{
	static const char *const names[] = { "ring-overflow", "off-by-one", "early-return", "clone",
		"segment", "double-queue", "double-free" };
	unsigned int i;

	test_eal_start();
	open_lane();
	test_parse();
	for (i = 0; i < RTE_DIM(names); i++) {
		test_fault(":1/7", names[i], BURSTS / EVERY);
		test_fault(":once", names[i], 1);
		test_fault("", names[i], BURSTS);
	}
	test_all_at_once();
	rte_eal_cleanup();
	return 0;
}
