/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The fast path of captures. Nothing in here allocates, locks, waits, logs or calls the kernel. */

#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_prefetch.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_producer.h"
#include "capture_slots.h"
#include "capture_write.h"

struct pmdscope_tee *pmdscope_tee_armed;
struct pmdscope_tee pmdscope_capture_slots;

/*
 * Packets of a burst that can be pending until the NIC accepts them; longer bursts are sent in
 * parts.
 */
#define PART 256

/* Records of one capture behind its head, until the NIC has reported how many packets it took. */
struct pending {
	struct pmdscope_capture_producer *p;
	const struct pmdscope_capture_ring *ring;
	/* State of the producer before these records. */
	struct pmdscope_sampling sampling;
	uint32_t gap;
	struct delta all;
	uint8_t fates[PART];
};

/* A call of pmdscope_tx_burst(), on its stack. Its burst is copied inside of rte_eth_tx_burst(). */
struct pmdscope_tee_offer {
	uint16_t port;
	uint16_t queue;
	bool seen; /* The callback of that queue has run. */
	uint16_t nb_pkts;
	unsigned int nb_pending;
	struct pending pending[PMDSCOPE_CAPTURE_SLOTS];
};

/* A burst on its way into a ring. */
struct copy {
	const struct pmdscope_capture_spec *spec;
	struct pmdscope_capture_producer *p;
	const struct pmdscope_capture_ring *ring;
	const struct origin *origin;
	uint8_t *fates; /* To be filled in, or NULL. */
	struct delta d;
};

static inline void
copy_one(struct copy *c, struct rte_mbuf **pkts, uint16_t i, uint32_t keep)
{
	const enum fate fate =
			copy_packet(c->spec, c->p, c->ring, c->origin, pkts[i], keep, &c->d.head);

	settle_fate(c->p, c->p->sample, c->origin->port, fate, &c->d);
	if (c->fates != NULL)
		c->fates[i] = (uint8_t)fate;
}

static inline void
copy_all(struct copy *c, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		if (i + 1 < nb_pkts)
			rte_prefetch0(rte_pktmbuf_mtod(pkts[i + 1], void *));
		copy_one(c, pkts, i, UINT32_MAX);
	}
}

/* What the filter rejects costs nothing more. */
static void
copy_matches(struct copy *c, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	uint32_t keep[PMDSCOPE_FILTER_BURST], left;
	uint16_t first, i, n;

	for (first = 0; first < nb_pkts; first += n) {
		n = RTE_MIN(nb_pkts - first, PMDSCOPE_FILTER_BURST);
		left = pmdscope_filter_burst(
				&c->spec->filter, c->origin->dir, pkts + first, n, keep);
		c->d.count[FILTERED] += n - (uint32_t)__builtin_popcount(left);
		if (c->fates != NULL)
			memset(c->fates + first, FILTERED, n);
		for (; left != 0; left &= left - 1) {
			i = (uint16_t)__builtin_ctz(left);
			copy_one(c, pkts, first + i, keep[i]);
		}
	}
}

/* Published immediately, unless the burst is pending. */
static void
copy_burst(const struct pmdscope_capture *capture, struct pmdscope_capture_producer *p,
		struct origin *o, struct rte_mbuf **pkts, uint16_t nb_pkts, struct pending *pending)
{
	const uint32_t sample = __atomic_load_n(&capture->sample, __ATOMIC_RELAXED);
	const struct pmdscope_capture_ring *ring = __atomic_load_n(&p->ring, __ATOMIC_ACQUIRE);
	const struct pmdscope_capture_ring *writable =
			pmdscope_capture_accept_tail(p, ring) ? ring : NULL;
	struct copy c = { .spec = &capture->spec, .p = p, .ring = writable, .origin = o };

	if (unlikely(p->sample != sample) && writable != NULL)
		resample(p, writable, sample);
	begin_burst(ring);
	o->tsc = rte_rdtsc();
	c.d.head = p->head;
	if (pending != NULL) {
		pending->p = p;
		pending->ring = ring;
		pending->gap = p->gap[o->port];
		pending->sampling = p->sampling;
		c.fates = pending->fates;
	}
	if (capture->spec.filter.nb_insns == 0)
		copy_all(&c, pkts, nb_pkts);
	else
		copy_matches(&c, pkts, nb_pkts);
	if (pending != NULL)
		pending->all = c.d;
	else
		publish(p, ring, o->port, &c.d);
}

static struct pmdscope_record *
record_at(const struct pmdscope_capture_ring *ring, uint64_t at)
{
	return (struct pmdscope_record *)(ring->data + (at & (ring->size - 1)));
}

/* Position after the record at head, and after the PAD record that may precede it. */
static uint64_t
behind_record(const struct pmdscope_capture_ring *ring, uint64_t head)
{
	if (record_at(ring, head)->type == PMDSCOPE_RECORD_PAD)
		head += record_at(ring, head)->size;
	return head + record_at(ring, head)->size;
}

/* Publish the first so many of the pending packets, as if the others had never been seen. */
static void
commit(struct pending *w, uint16_t port, uint16_t sent)
{
	struct pmdscope_capture_producer *p = w->p;
	struct delta d = { .head = p->head };
	uint16_t i;

	p->gap[port] = w->gap;
	/* Repeat the same draws, to get the same fates. */
	p->sampling = w->sampling;
	for (i = 0; i < sent; i++) {
		settle_fate(p, p->sample, port, w->fates[i], &d);
		if (w->fates[i] == RECORDED)
			d.head = behind_record(w->ring, d.head);
	}
	publish(p, w->ring, port, &d);
}

static void
close_pending(struct pending *w, uint16_t port, uint16_t nb_pkts, uint16_t sent)
{
	if (w->p == NULL)
		return;
	if (sent == nb_pkts)
		publish(w->p, w->ring, port, &w->all);
	else
		commit(w, port, sent);
	w->p = NULL;
}

/*
 * The same producer gets another burst while one is pending, as a bonding port passes its packets
 * to its members. Records between others cannot be removed, so the pending ones are published as
 * attempts, as without pmdscope_tx_burst().
 */
static void
give_up_pending(struct pmdscope_tee_offer *offer, const struct pmdscope_capture_producer *p)
{
	unsigned int i;
	uint64_t at;

	for (i = 0; i < offer->nb_pending; i++) {
		struct pending *w = &offer->pending[i];

		if (w->p != p)
			continue;
		for (at = p->head; at < w->all.head; at += record_at(w->ring, at)->size)
			if (record_at(w->ring, at)->type == PMDSCOPE_RECORD_PACKET)
				record_at(w->ring, at)->flags |= PMDSCOPE_RECORD_F_ATTEMPT;
		close_pending(w, offer->port, offer->nb_pkts, offer->nb_pkts);
	}
}

/* The first callback for the burst of an offer: the result of the NIC will be known. */
static bool
take_up(struct pmdscope_tee_offer *offer, const struct origin *o, uint16_t nb_pkts)
{
	if (offer == NULL || offer->seen || o->dir != PMDSCOPE_DIR_TX || o->port != offer->port ||
			o->queue != offer->queue || nb_pkts > PART)
		return false;
	offer->seen = true;
	offer->nb_pkts = nb_pkts;
	return true;
}

static void
copy_to_all(unsigned int lcore, struct pmdscope_tee_offer *offer, struct origin *o,
		struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	const bool waits = take_up(offer, o, nb_pkts);
	struct pmdscope_capture *capture;
	struct pmdscope_capture_producer *p;
	unsigned int i;

	o->flags = o->dir == PMDSCOPE_DIR_TX && !waits ? PMDSCOPE_RECORD_F_ATTEMPT : 0;
	for (i = 0; i < PMDSCOPE_CAPTURE_SLOTS; i++) {
		capture = __atomic_load_n(&pmdscope_capture_slots.captures[i], __ATOMIC_ACQUIRE);
		if (capture == NULL || (capture->spec.dirs[o->port][o->queue] & o->dir) == 0)
			continue;
		p = &capture->producers[lcore];
		if (offer != NULL && !waits)
			give_up_pending(offer, p);
		copy_burst(capture, p, o, pkts, nb_pkts,
				waits ? &offer->pending[offer->nb_pending++] : NULL);
	}
}

void
pmdscope_capture_copy(uint16_t port, uint16_t queue, uint8_t dir, struct rte_mbuf **pkts,
		uint16_t nb_pkts)
{
	const unsigned int lcore = rte_lcore_id();
	struct origin origin = { .port = port, .queue = queue, .dir = dir };
	struct pmdscope_tee_offer *offer;

	if (unlikely(lcore >= RTE_MAX_LCORE)) {
		__atomic_fetch_add(&pmdscope_capture_slots.foreign_bursts, 1, __ATOMIC_RELAXED);
		return;
	}
	if (pmdscope_capture_slots.seen[lcore] == 0)
		__atomic_store_n(&pmdscope_capture_slots.seen[lcore], 1, __ATOMIC_RELAXED);
	if (nb_pkts == 0)
		return;

	offer = pmdscope_lcores[lcore].tee_offer;
	if (offer == NULL)
		pmdscope_capture_enter(lcore);
	copy_to_all(lcore, offer, &origin, pkts, nb_pkts);
	if (offer == NULL)
		pmdscope_capture_leave(lcore);
}

/* Captures stay in use from the callback until the NIC has taken the packets. */
static uint16_t
send_part(unsigned int lcore, uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb)
{
	struct pmdscope_tee_offer offer;
	unsigned int i;
	uint16_t sent;

	offer.port = port;
	offer.queue = queue;
	offer.seen = false;
	offer.nb_pending = 0;
	pmdscope_capture_enter(lcore);
	pmdscope_lcores[lcore].tee_offer = &offer;
	sent = rte_eth_tx_burst(port, queue, pkts, nb);
	pmdscope_lcores[lcore].tee_offer = NULL;
	for (i = 0; i < offer.nb_pending; i++)
		close_pending(&offer.pending[i], port, offer.nb_pkts, RTE_MIN(sent, offer.nb_pkts));
	pmdscope_capture_leave(lcore);
	return sent;
}

uint16_t
pmdscope_tx_captured(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	const unsigned int lcore = rte_lcore_id();
	uint16_t part, sent, done = 0;

	if (lcore >= RTE_MAX_LCORE || pmdscope_lcores[lcore].tee_offer != NULL)
		return rte_eth_tx_burst(port, queue, pkts, nb_pkts);
	do {
		part = RTE_MIN(nb_pkts - done, PART);
		sent = send_part(lcore, port, queue, pkts + done, part);
		done += sent;
	} while (sent == part && done < nb_pkts);
	return done;
}
