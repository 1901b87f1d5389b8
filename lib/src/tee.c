/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The fast path of the tee. Nothing in here allocates, locks, waits, logs or calls the kernel. */

#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "tee.h"
#include "tee_capture.h"
#include "tee_slots.h"

struct pmdscope_tee *pmdscope_tee_armed;
struct pmdscope_tee pmdscope_tee_slots;

/* Where a burst comes from. */
struct origin {
	uint64_t tsc;
	uint16_t port;
	uint16_t queue;
	uint8_t dir;
};

/* What one burst does to a producer; kept apart so that it is published once. */
struct delta {
	uint64_t head;
	uint32_t records, dropped, filtered, sampled_out;
};

static inline void
add_relaxed(uint64_t *counter, uint32_t n)
{
	if (n != 0)
		__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* Take note of what the consumer has read. False when nothing may be written (any more). */
static bool
accept_tail(struct pmdscope_tee_producer *p, const struct pmdscope_tee_ring *ring)
{
	uint64_t tail;

	if (ring == NULL || unlikely(p->broken))
		return false;
	tail = __atomic_load_n(&ring->tail->tail, __ATOMIC_ACQUIRE);
	if (unlikely(tail < p->tail || tail > p->head)) {
		__atomic_store_n(&p->broken, 1, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_store_n(&p->tail, tail, __ATOMIC_RELAXED);
	return true;
}

/* Room for a contiguous record of this size behind *head; NULL when the ring is full. */
static inline struct pmdscope_record *
reserve(const struct pmdscope_tee_ring *ring, uint64_t tail, uint64_t *head, uint32_t size)
{
	const uint64_t at = *head & (ring->size - 1);
	const uint64_t left = ring->size - at;
	const uint64_t pad = size > left ? left : 0;
	struct pmdscope_record *rec = (struct pmdscope_record *)(ring->data + at);

	if (unlikely(*head - tail + pad + size > ring->size))
		return NULL;
	if (likely(pad == 0))
		return rec;
	rec->size = (uint32_t)pad;
	rec->type = PMDSCOPE_RECORD_PAD;
	*head += pad;
	return (struct pmdscope_record *)ring->data;
}

static inline uint32_t
record_size(uint32_t caplen)
{
	return RTE_ALIGN_CEIL(
			(uint32_t)sizeof(struct pmdscope_record) + caplen, PMDSCOPE_RING_ALIGN);
}

/* Write a record of at most `keep` bytes; false when the ring is full. */
static inline bool
write_record(struct pmdscope_tee_producer *p, const struct pmdscope_tee_ring *ring,
		const struct origin *o, const struct pmdscope_packet *pkt, uint32_t keep,
		uint64_t *head)
{
	uint32_t caplen = RTE_MIN(pkt->len, RTE_MIN(keep, ring->snaplen));
	struct pmdscope_record *rec = reserve(ring, p->tail, head, record_size(caplen));

	if (rec == NULL)
		return false;
	/* A chain may hold less than its pkt_len says. */
	caplen = pmdscope_packet_copy(pkt, (uint8_t *)(rec + 1), caplen);
	rec->size = record_size(caplen);
	rec->type = PMDSCOPE_RECORD_PACKET;
	rec->dir = o->dir;
	rec->flags = (o->dir == PMDSCOPE_DIR_TX ? PMDSCOPE_RECORD_F_ATTEMPT : 0) |
		     (pkt->tag_len != 0 ? PMDSCOPE_RECORD_F_VLAN : 0);
	rec->caplen = caplen;
	rec->len = pkt->len;
	rec->port = o->port;
	rec->queue = o->queue;
	rec->gap = p->gap[o->port];
	rec->tsc = o->tsc;
	p->gap[o->port] = 0;
	*head += rec->size;
	return true;
}

static inline void
count_drop(struct pmdscope_tee_producer *p, struct delta *d, uint16_t port)
{
	d->dropped++;
	if (likely(p->gap[port] != UINT32_MAX))
		p->gap[port]++;
}

/* Of the packets that the filter passes, the first and then every spec.sample-th is kept. */
static inline bool
sampled_out(struct pmdscope_tee_producer *p, uint32_t sample)
{
	if (p->sample_skip > 0) {
		p->sample_skip--;
		return true;
	}
	p->sample_skip = sample - 1;
	return false;
}

static void
publish(struct pmdscope_tee_producer *p, const struct pmdscope_tee_ring *ring,
		const struct origin *o, const struct delta *d)
{
	struct pmdscope_ring_hdr *hdr;
	unsigned int i;

	add_relaxed(&p->records, d->records);
	add_relaxed(&p->dropped, d->dropped);
	add_relaxed(&p->filtered, d->filtered);
	add_relaxed(&p->sampled_out, d->sampled_out);
	if (o->port < PMDSCOPE_RING_PORTS)
		add_relaxed(&p->port_dropped[o->port], d->dropped);
	__atomic_store_n(&p->full, d->dropped != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&p->head, d->head, __ATOMIC_RELAXED);
	if (ring == NULL)
		return;

	hdr = ring->hdr;
	__atomic_store_n(&hdr->records, p->records, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->filtered, p->filtered, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->sampled_out, p->sampled_out, __ATOMIC_RELAXED);
	/* Also drops from before there was a ring. */
	if (unlikely(hdr->dropped != p->dropped)) {
		__atomic_store_n(&hdr->dropped, p->dropped, __ATOMIC_RELAXED);
		for (i = 0; i < PMDSCOPE_RING_PORTS; i++)
			__atomic_store_n(&hdr->port_dropped[i], p->port_dropped[i],
					__ATOMIC_RELAXED);
	}
	__atomic_store_n(&hdr->head, d->head, __ATOMIC_RELEASE);
}

static void
copy_burst(const struct pmdscope_tee_spec *spec, struct pmdscope_tee_producer *p,
		const struct origin *o, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	const struct pmdscope_tee_ring *ring = __atomic_load_n(&p->ring, __ATOMIC_ACQUIRE);
	const bool writable = accept_tail(p, ring);
	struct delta d = { .head = p->head };
	struct pmdscope_packet pkt;
	uint32_t keep = UINT32_MAX;
	uint16_t i;

	__atomic_store_n(&p->wanted, 1, __ATOMIC_RELAXED);
	for (i = 0; i < nb_pkts; i++) {
		if (i + 1 < nb_pkts)
			rte_prefetch0(rte_pktmbuf_mtod(pkts[i + 1], void *));
		pmdscope_packet_init(&pkt, pkts[i], o->dir);
		if (spec->filter.nb_insns != 0)
			keep = pmdscope_filter_run(&spec->filter, &pkt);
		if (keep == 0)
			d.filtered++;
		else if (sampled_out(p, spec->sample))
			d.sampled_out++;
		else if (writable && write_record(p, ring, o, &pkt, keep, &d.head))
			d.records++;
		else
			count_drop(p, &d, o->port);
	}
	publish(p, ring, o, &d);
}

void
pmdscope_tee_copy(uint16_t port, uint16_t queue, uint8_t dir, struct rte_mbuf **pkts,
		uint16_t nb_pkts)
{
	const unsigned int lcore = rte_lcore_id();
	struct origin origin = { .port = port, .queue = queue, .dir = dir };
	struct pmdscope_tee_capture *capture;
	unsigned int i;

	if (unlikely(lcore >= RTE_MAX_LCORE)) {
		__atomic_fetch_add(&pmdscope_tee_slots.foreign_bursts, 1, __ATOMIC_RELAXED);
		return;
	}
	if (pmdscope_tee_slots.seen[lcore] == 0)
		__atomic_store_n(&pmdscope_tee_slots.seen[lcore], 1, __ATOMIC_RELAXED);
	if (nb_pkts == 0)
		return;

	pmdscope_tee_enter(lcore);
	origin.tsc = rte_rdtsc();
	for (i = 0; i < PMDSCOPE_TEE_SLOTS; i++) {
		capture = __atomic_load_n(&pmdscope_tee_slots.captures[i], __ATOMIC_ACQUIRE);
		if (capture != NULL && (capture->spec.dirs[port][queue] & dir) != 0)
			copy_burst(&capture->spec, &capture->producers[lcore], &origin, pkts,
					nb_pkts);
	}
	pmdscope_tee_leave(lcore);
}
