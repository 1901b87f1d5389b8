/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>

#include <rte_ethdev.h>

#include "burst.h"
#include "lcore.h"
#include "port.h"
#include "stamp.h"
#include "capture.h"
#include "window.h"

/*
 * One of this many bursts with packets is sampled: some of its lengths are summed, and the driver
 * is queried for the depth if the burst is full or has a sample number that is a multiple of
 * DEPTH_EVERY. Powers of two.
 */
#define SAMPLE_EVERY 16
#define DEPTH_EVERY 4
/* Packets of a sampled burst whose lengths are summed; a power of two. */
#define LENGTHS_SUMMED 8
/*
 * The driver is asked for values that rarely change once in this many empty polls, and samples;
 * powers of two.
 */
#define ASK_EVERY_EMPTY (1U << 20)
#define ASK_EVERY_SAMPLE (ASK_EVERY_EMPTY / SAMPLE_EVERY)

void
pmdscope_counters_reset(struct pmdscope_queue *q)
{
	q->n = (struct pmdscope_counters){ .sample_left = 1 };
	q->polls_seen = 0;
	q->bytes = 0;
	q->turnover = (struct pmdscope_turnover){ 0 };
}

/* 1, 2, 3-4, 5-8, ... packets. */
static unsigned int
burst_bucket(unsigned int nb)
{
	const uint32_t n = (nb - 1) << 1 | 1;

	return RTE_MIN(31U - (unsigned int)__builtin_clz(n), PMDSCOPE_BURST_BUCKETS - 1U);
}

/* 1, 2-3, 4-7, ... packets. */
static inline unsigned int
depth_bucket(uint32_t depth)
{
	return RTE_MIN(32U - (unsigned int)__builtin_clz(depth), PMDSCOPE_DEPTH_BUCKETS - 1U);
}

static uint64_t
load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

struct pmdscope_burst_sums
pmdscope_queue_sums(const struct pmdscope_queue *q)
{
	struct pmdscope_burst_sums sums = { .empty = load(&q->n.sizes[0]) };
	unsigned int nb;

	sums.polls = sums.empty;
	for (nb = 1; nb < RTE_DIM(q->n.sizes); nb++) {
		const uint64_t bursts = load(&q->n.sizes[nb]);

		sums.polls += bursts;
		sums.bursts[burst_bucket(nb)] += bursts;
		if (nb <= PMDSCOPE_BURST_SIZES)
			sums.packets += nb * bursts;
	}
	sums.packets += load(&q->n.larger_packets);
	return sums;
}

/*
 * The app may not have read the mbufs yet, and may never do so: reading all of them would cost more
 * than everything else here. Of a long burst consecutive ones are read, from a random one on, and
 * stand for the burst.
 */
static void
sum_lengths(struct pmdscope_counters *n, struct rte_mbuf **pkts, uint16_t nb, uint32_t random)
{
	const uint32_t busy = n->lengths_seq | 1;
	uint64_t bytes = 0;
	uint32_t at = 0;
	uint16_t i;

	if (nb > LENGTHS_SUMMED)
		at = random * nb >> 16;
	for (i = 0; i < RTE_MIN(nb, LENGTHS_SUMMED); i++) {
		bytes += pkts[at]->pkt_len;
		at = at + 1 < nb ? at + 1 : 0;
	}
	if (nb > LENGTHS_SUMMED)
		bytes = bytes * nb / LENGTHS_SUMMED;
	__atomic_store_n(&n->lengths_seq, busy, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&n->sampled_packets, n->sampled_packets + nb, __ATOMIC_RELAXED);
	__atomic_store_n(&n->sampled_bytes, n->sampled_bytes + bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&n->lengths_seq, busy + 1, __ATOMIC_RELEASE);
}

/*
 * Of each SAMPLE_EVERY bursts a random one is sampled, so that periodic traffic is sampled evenly
 * and the share of sampled bursts stays constant.
 */
static void
sample(struct pmdscope_counters *n, struct rte_mbuf **pkts, uint16_t nb)
{
	uint32_t slot;

	n->sample_random = n->sample_random * 1664525 + 1013904223;
	slot = n->sample_random >> 16 & (SAMPLE_EVERY - 1);
	n->sample_left = SAMPLE_EVERY + slot - n->sample_slot;
	n->sample_slot = slot;
	n->samples++;
	sum_lengths(n, pkts, nb, n->sample_random >> 8 & UINT16_MAX);
}

/* False while the lcore updates them, which is rare and short. */
static bool
read_lengths(const struct pmdscope_counters *n, uint64_t *packets, uint64_t *bytes)
{
	const uint32_t seq = __atomic_load_n(&n->lengths_seq, __ATOMIC_ACQUIRE);

	*packets = load(&n->sampled_packets);
	*bytes = load(&n->sampled_bytes);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return (seq & 1) == 0 && __atomic_load_n(&n->lengths_seq, __ATOMIC_RELAXED) == seq;
}

uint64_t
pmdscope_queue_bytes(struct pmdscope_queue *q, uint64_t packets)
{
	uint64_t sampled, bytes, estimate;

	if (!read_lengths(&q->n, &sampled, &bytes) || sampled == 0)
		return q->bytes;
	estimate = (uint64_t)((unsigned __int128)packets * bytes / sampled);
	/* Short packets after long ones lower the mean, but a counter must not decrease. */
	q->bytes = RTE_MAX(q->bytes, estimate);
	return q->bytes;
}

/* Not on the control thread: only the lcore that polls a queue knows that it exists. */
static __rte_noinline void
ask_rx(struct pmdscope_queue *q)
{
	struct rte_eth_rxq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_rx_queue_info_get(q->port, q->queue, &info) == 0) {
		q->n.descriptors = info.nb_desc;
		__atomic_store_n(&q->n.pool, info.mp, __ATOMIC_RELAXED);
	}
}

static __rte_noinline void
ask_tx(struct pmdscope_queue *q)
{
	struct rte_eth_txq_info info;

	pmdscope_lcore_bursts();
	if (rte_eth_tx_queue_info_get(q->port, q->queue, &info) == 0)
		q->n.descriptors = info.nb_desc;
}

/*
 * On the polling lcore as well: vhost counts under a lock that its data path only tries to take,
 * so a count on another thread would cost the app a burst.
 */
static __rte_noinline void
sample_depth(struct pmdscope_queue *q, uint16_t nb_rx)
{
	struct pmdscope_counters *n = &q->n;
	int left = -ENOTSUP;

	if (pmdscope_port_counts_waiting(q->port))
		left = rte_eth_rx_queue_count(q->port, q->queue);
	if (left < 0) {
		if (left == -ENOTSUP)
			n->depth_state = PMDSCOPE_DEPTH_UNSUPPORTED;
		return;
	}
	n->depth_state = PMDSCOPE_DEPTH_SUPPORTED;
	n->depth = (uint32_t)left + nb_rx;
	n->depths[depth_bucket(n->depth)]++;
	if (n->depth > n->depth_max)
		n->depth_max = n->depth;
	pmdscope_window_note(&n->depth_window, n->depth);
}

/* Counts a burst; true if it is to be sampled. */
static inline bool
count_burst(struct pmdscope_counters *n, uint16_t nb)
{
	if (likely(nb <= PMDSCOPE_BURST_SIZES)) {
		n->sizes[nb]++;
	} else {
		n->sizes[PMDSCOPE_BURST_SIZES + 1]++;
		n->larger_packets += nb;
	}
	return --n->sample_left == 0;
}

static inline bool
is_watched(void)
{
	return pmdscope_stamp_now() != 0 || pmdscope_capture_is_armed();
}

/* What few bursts need. A function of its own, so that the callback saves no registers. */
static __rte_noinline uint16_t
watch_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_rx, uint16_t max_pkts,
		struct pmdscope_queue *q)
{
	struct pmdscope_counters *n = &q->n;

	if (n->sample_left == 0) {
		if ((n->samples & (ASK_EVERY_SAMPLE - 1)) == 0) {
			ask_rx(q);
			__atomic_store_n(&n->seen_pool, pkts[0]->pool, __ATOMIC_RELAXED);
		}
		if (n->depth_state != PMDSCOPE_DEPTH_UNSUPPORTED &&
				(nb_rx == max_pkts || (n->samples & (DEPTH_EVERY - 1)) == 0))
			sample_depth(q, nb_rx);
		sample(n, pkts, nb_rx);
	}
	pmdscope_stamp_rx(port, queue, pkts, nb_rx);
	pmdscope_capture_burst(port, queue, PMDSCOPE_DIR_RX, pkts, nb_rx);
	return nb_rx;
}

static __rte_noinline uint16_t
watch_tx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct pmdscope_queue *q)
{
	struct pmdscope_counters *n = &q->n;

	if (n->sample_left == 0) {
		if ((n->samples & (ASK_EVERY_SAMPLE - 1)) == 0)
			ask_tx(q);
		sample(n, pkts, nb_pkts);
	}
	pmdscope_stamp_tx(port, queue, pkts, nb_pkts);
	pmdscope_capture_burst(port, queue, PMDSCOPE_DIR_TX, pkts, nb_pkts);
	return nb_pkts;
}

uint16_t
pmdscope_burst_rx(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_rx,
		uint16_t max_pkts, void *arg)
{
	struct pmdscope_queue *q = arg;

	if (nb_rx == 0) {
		if (unlikely((q->n.sizes[0]++ & (ASK_EVERY_EMPTY - 1)) == 0))
			ask_rx(q);
		q->n.depth = 0;
		return 0;
	}
	if (likely(!count_burst(&q->n, nb_rx) && !is_watched()))
		return nb_rx;
	return watch_rx(port, queue, pkts, nb_rx, max_pkts, q);
}

uint16_t
pmdscope_burst_tx(
		uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg)
{
	struct pmdscope_queue *q = arg;

	if (nb_pkts == 0) {
		if (unlikely((q->n.sizes[0]++ & (ASK_EVERY_EMPTY - 1)) == 0))
			ask_tx(q);
		return 0;
	}
	if (likely(!count_burst(&q->n, nb_pkts) && !is_watched()))
		return nb_pkts;
	return watch_tx(port, queue, pkts, nb_pkts, q);
}
