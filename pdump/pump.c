/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "clock.h"
#include "pump.h"
#include "capture_ring.h"
#include "capture_write.h"

#define BURST 256
/*
 * How many packets ahead data is prefetched: the app's core has written these cache lines last, so
 * a miss takes as long as many packets.
 */
#define AHEAD_MBUF 16U
#define AHEAD_DATA 8U

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int
pump_open(struct pump *pump, struct pmdscope_capture_spec *spec, struct state *state,
		struct failure *failure)
{
	const char *step;

	pump->spec = spec;
	pump->state = state;
	pump->sample = spec->sample;
	pump->producer.sample = spec->sample;
	pump->producer.sampling.random = rte_rdtsc();
	pmdscope_sampling_begin(&pump->producer.sampling, spec->sample);
	pmdscope_clock_start();
	pump->producer.ring = pmdscope_capture_ring_create(PUMP_LCORE, spec->ring_size,
			spec->snaplen,
			PMDSCOPE_RING_F_GAPS | PMDSCOPE_RING_F_RESAMPLE | PMDSCOPE_RING_F_IN_BURST |
					PMDSCOPE_RING_F_MAPPED |
					(spec->packet_tsc ? PMDSCOPE_RING_F_PACKET_TSC : 0),
			&step);
	if (pump->producer.ring == NULL)
		return failure_set(failure, errno, "capture ring: %s: %s", step, strerror(errno));
	return 0;
}

static uint64_t
lost_so_far(const struct pump *pump, const struct state_tap *tap)
{
	const struct rte_pdump_stats *stats;

	stats = tap->dir == PMDSCOPE_DIR_RX ? &pump->counts->rx[tap->port][tap->queue]
					    : &pump->counts->tx[tap->port][tap->queue];
	return __atomic_load_n(&stats->nombuf, __ATOMIC_RELAXED) +
	       __atomic_load_n(&stats->ringfull, __ATOMIC_RELAXED);
}

/* The app resets its counts to zero when it enables a tap. */
int
pump_start(struct pump *pump, struct failure *failure)
{
	unsigned int i;

	for (i = 0; i < state_nb_taps(pump->state); i++) {
		pump->taps[i] = pump->state->taps[i];
		if (!state_tap_valid(&pump->taps[i]))
			return failure_set(failure, EINVAL, "the state file was changed");
		pump->losses[i].seen = lost_so_far(pump, &pump->taps[i]);
	}
	pump->nb_taps = i;
	return 0;
}

/* Count packets for which the app had no mbuf as drops before the next packet of their port. */
static void
take_losses(struct pump *pump, unsigned int i)
{
	const struct state_tap *tap = &pump->taps[i];
	struct pmdscope_capture_producer *p = &pump->producer;
	const uint64_t lost = lost_so_far(pump, tap);
	const uint64_t n = lost - pump->losses[i].seen;
	struct delta d = { .head = p->head };
	const uint8_t full = p->full;

	pump->losses[i].seen = lost;
	/* Less than before: another tool has restarted the counts of this queue. */
	if (n == 0 || n > UINT32_MAX || !tap->armed)
		return;
	d.count[DROPPED] = (uint32_t)n;
	p->gap[tap->port] = (uint32_t)RTE_MIN(p->gap[tap->port] + n, UINT32_MAX);
	publish(p, p->ring, tap->port, &d);
	p->full = full; /* The app's pool was empty, not this ring. */
}

/* Prefetch what is needed soon of later packets, if all of them are read. */
static inline void
prefetch(struct rte_mbuf **pkts, unsigned int i, unsigned int n)
{
	if (i + AHEAD_MBUF < n)
		rte_prefetch0(pkts[i + AHEAD_MBUF]);
	if (i + AHEAD_DATA < n)
		rte_prefetch0(rte_pktmbuf_mtod(pkts[i + AHEAD_DATA], void *));
}

static inline void
prefetch_first(struct rte_mbuf **pkts, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < RTE_MIN(n, AHEAD_MBUF); i++)
		rte_prefetch0(pkts[i]);
	for (i = 0; i < RTE_MIN(n, AHEAD_DATA); i++)
		rte_prefetch0(rte_pktmbuf_mtod(pkts[i], void *));
}

/* Without a filter, packets that sampling leaves out need not be read. */
static inline unsigned int
leave_out(const struct pump *pump, struct pmdscope_capture_producer *p, unsigned int n,
		struct delta *d)
{
	const unsigned int left_out = (unsigned int)RTE_MIN(p->sampling.skip, (uint64_t)n);

	if (pump->spec->filter.nb_insns != 0)
		return 0;
	p->sampling.skip -= left_out;
	d->count[SAMPLED_OUT] += left_out;
	return left_out;
}

static void
copy_burst(struct pump *pump, const struct state_tap *tap, struct rte_mbuf **pkts, unsigned int n)
{
	struct pmdscope_capture_producer *p = &pump->producer;
	const struct pmdscope_capture_ring *ring =
			pmdscope_capture_accept_tail(p, p->ring) ? p->ring : NULL;
	struct origin o = {
		.port = tap->port,
		.queue = tap->queue,
		.dir = tap->dir,
		.flags = tap->dir == PMDSCOPE_DIR_TX ? PMDSCOPE_RECORD_F_ATTEMPT : 0,
	};
	const struct pmdscope_filter *filter = &pump->spec->filter;
	struct pmdscope_packet pkt;
	struct delta d = { 0 };
	enum fate fate;
	uint32_t keep;
	unsigned int i;
	bool all;

	if (p->sample != pump->sample && ring != NULL)
		resample(p, ring, pump->sample);
	begin_burst(p->ring);
	o.tsc = rte_rdtsc();
	all = p->sample <= 1 || pump->spec->filter.nb_insns != 0;
	d.head = p->head;
	for (i = leave_out(pump, p, n, &d); i < n; i += 1 + leave_out(pump, p, n - i - 1, &d)) {
		if (all)
			prefetch(pkts, i, n);
		keep = UINT32_MAX;
		if (filter->nb_insns != 0) {
			pmdscope_packet_init(&pkt, pkts[i], o.dir);
			keep = pmdscope_filter_run(filter, &pkt);
		}
		fate = keep == 0 ? FILTERED
				 : copy_packet(pump->spec, p, ring, &o, pkts[i], keep, &d.head);
		settle_fate(p, p->sample, o.port, fate, &d);
	}
	publish(p, p->ring, o.port, &d);
}

unsigned int
pump_round(struct pump *pump)
{
	struct rte_mbuf *pkts[BURST];
	unsigned int i, n, sum = 0;

	arena_put_held(&pump->arena);
	for (i = 0; i < pump->nb_taps; i++) {
		/* The rings are marked as having several consumers, but this is the only one. */
		n = rte_ring_sc_dequeue_burst(
				arena_ring(&pump->arena, i), (void **)pkts, BURST, NULL);
		if (n == 0)
			continue;
		take_losses(pump, i);
		if (pump->taps[i].armed) {
			prefetch_first(pkts, n);
			copy_burst(pump, &pump->taps[i], pkts, n);
		}
		arena_put(&pump->arena, pkts, n);
		sum += n;
	}
	return sum;
}

/* A full ring whose tail has not moved. */
static bool
lease_expired(struct pump *pump)
{
	const struct pmdscope_capture_producer *p = &pump->producer;
	const uint64_t tail = pmdscope_capture_ring_tail(p->ring);
	const uint64_t now = now_ms();

	if (!p->full || tail != pump->still_tail || tail == p->head) {
		pump->still_tail = tail;
		pump->still_since_ms = 0;
		return false;
	}
	if (pump->still_since_ms == 0)
		pump->still_since_ms = now;
	return now - pump->still_since_ms >= pump->spec->lease_ms;
}

int
pump_tick(struct pump *pump, struct failure *failure)
{
	unsigned int i;

	for (i = 0; i < pump->nb_taps; i++)
		take_losses(pump, i);
	pmdscope_clock_tick();
	pmdscope_capture_ring_take_tail(pump->producer.ring);
	pmdscope_capture_ring_anchor(pump->producer.ring);
	if (pump->producer.broken)
		return failure_set(failure, EPROTO, "the consumer's tail went back or beyond head");
	if (lease_expired(pump))
		return failure_set(failure, ETIMEDOUT, "a full ring was not read for %u ms",
				pump->spec->lease_ms);
	return 0;
}
