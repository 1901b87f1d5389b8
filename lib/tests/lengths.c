/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* What a queue counts: bursts, and the accuracy of the estimated bytes for difficult traffic. */

#include <stdlib.h>
#include <string.h>

#include "burst.h"
#include "test.h"

#define BURST 32
#define NB_BURSTS 200000

static struct pmdscope_queue queue;
static struct rte_mbuf mbufs[BURST];
static struct rte_mbuf *pkts[BURST];
static struct rte_mbuf *many[70];
static uint64_t packets, bytes, estimated;

static void
restart(void)
{
	unsigned int i;

	queue = (struct pmdscope_queue){ .dir = PMDSCOPE_TX };
	pmdscope_counters_reset(&queue);
	queue.n.depth_state = PMDSCOPE_DEPTH_UNSUPPORTED;
	/* There is no port to query at the first empty poll and sample. */
	queue.n.sizes[0] = 1;
	queue.n.samples = 1;
	for (i = 0; i < BURST; i++)
		pkts[i] = &mbufs[i];
	for (i = 0; i < RTE_DIM(many); i++)
		many[i] = &mbufs[0];
	packets = bytes = estimated = 0;
}

static uint64_t
estimate(void)
{
	return pmdscope_queue_bytes(&queue, pmdscope_queue_sums(&queue).packets);
}

/* Sends mbufs, and checks each time that the estimate does not decrease. */
static void
send_mbufs(uint16_t nb)
{
	uint64_t now;
	uint16_t i;

	CHECK(pmdscope_burst_tx(0, 0, pkts, nb, &queue) == nb);
	packets += nb;
	for (i = 0; i < nb; i++)
		bytes += mbufs[i].pkt_len;
	now = estimate();
	CHECK(now >= estimated);
	estimated = now;
}

static void
send_burst(uint16_t nb, uint32_t length)
{
	uint16_t i;

	for (i = 0; i < nb; i++)
		mbufs[i].pkt_len = length;
	send_mbufs(nb);
}

static void
check_error(uint64_t value, uint64_t truth, unsigned int percent)
{
	const uint64_t error = value > truth ? value - truth : truth - value;

	if (error * 100 > truth * percent) {
		fprintf(stderr, "estimated %" PRIu64 " bytes of %" PRIu64 "\n", value, truth);
		exit(1);
	}
}

static uint16_t
some_packets(void)
{
	return (uint16_t)(1 + rand() % BURST);
}

/* With one length the estimate is always exact, for any bursts. */
static void
test_constant(void)
{
	unsigned int i;

	restart();
	CHECK_U64(estimate(), 0);
	for (i = 0; i < NB_BURSTS; i++) {
		send_burst(i % 3 == 0 ? 0 : some_packets(), 100);
		CHECK_U64(estimated, packets * 100);
	}
	pmdscope_counters_reset(&queue);
	CHECK_U64(estimate(), 0);
}

/* Long packets in long bursts, and in every n-th burst; 16 is the distance of samples. */
static void
test_periodic(void)
{
	static const unsigned int periods[] = { 2, 3, 8, 16, 32 };
	unsigned int p, i;

	for (p = 0; p < RTE_DIM(periods); p++) {
		restart();
		for (i = 0; i < NB_BURSTS; i++)
			send_burst(i % periods[p] == 0 ? BURST : 4,
					i % periods[p] == 0 ? 1500 : 64);
		check_error(estimated, bytes, 5);
	}
}

static void
test_mixed(void)
{
	static const uint32_t lengths[] = { 64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518 };
	unsigned int i;

	restart();
	for (i = 0; i < NB_BURSTS; i++)
		send_burst(some_packets(), lengths[(unsigned int)rand() % RTE_DIM(lengths)]);
	check_error(estimated, bytes, 5);
}

/*
 * A few packets stand for a long burst. Their places are random: one long packet counts the same in
 * each place.
 */
static void
test_mixed_bursts(void)
{
	unsigned int place, i, k;

	for (place = 0; place < BURST; place++) {
		restart();
		for (k = 0; k < BURST; k++)
			mbufs[k].pkt_len = k == place ? 1500 : 64;
		for (i = 0; i < NB_BURSTS; i++)
			send_mbufs(BURST);
		check_error(estimated, bytes, 3);
	}
}

/* Each size up to 64 has a counter, longer bursts share one and are summed. */
static void
test_sums(void)
{
	static const uint64_t buckets[PMDSCOPE_BURST_BUCKETS] = { 1, 1, 2, 4, 8, 16, 32, 6 };
	struct pmdscope_burst_sums sums;
	uint16_t nb;

	restart();
	for (nb = 0; nb <= 70; nb++)
		CHECK(pmdscope_burst_rx(0, 0, many, nb, nb, &queue) == nb);
	sums = pmdscope_queue_sums(&queue);
	CHECK_U64(sums.polls, 72); /* One more by restart(). */
	CHECK_U64(sums.empty, 2);
	CHECK_U64(sums.packets, 70 * 71 / 2);
	CHECK(memcmp(sums.bursts, buckets, sizeof(buckets)) == 0);
}

/* Earlier traffic does not distort the estimate of later traffic. */
static void
test_change(void)
{
	uint64_t bytes_before, estimated_before;
	unsigned int i;

	restart();
	for (i = 0; i < NB_BURSTS; i++)
		send_burst(BURST, 1500);
	bytes_before = bytes;
	estimated_before = estimated;
	for (i = 0; i < NB_BURSTS; i++)
		send_burst(BURST, 64);
	check_error(estimated - estimated_before, bytes - bytes_before, 5);
	check_error(estimated, bytes, 1);
}

int
main(void)
{
	srand(1);
	test_constant();
	test_periodic();
	test_mixed();
	test_mixed_bursts();
	test_change();
	test_sums();
	return 0;
}
