/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_WRITE_H
#define PMDSCOPE_CAPTURE_WRITE_H

/* Packets into a capture ring: filter, sampling, copy, publication. Fast path. */

#include <rte_cycles.h>

#include "capture_instance.h"
#include "capture_producer.h"
#include "header_length.h"

/* Origin of a burst. */
struct origin {
	uint64_t tsc;
	uint16_t port;
	uint16_t queue;
	uint8_t dir;
	uint16_t flags; /* PMDSCOPE_RECORD_F_*. */
};

/* Fate of a packet. */
enum fate {
	RECORDED,
	DROPPED,
	FILTERED,
	SAMPLED_OUT,
	NB_FATES,
};

/* Changes that one burst makes to a producer; kept apart so that they are published once. */
struct delta {
	uint64_t head;
	uint32_t count[NB_FATES];
};

static inline void
add_relaxed(uint64_t *counter, uint32_t n)
{
	if (n != 0)
		__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline uint32_t
record_size(uint32_t caplen)
{
	return RTE_ALIGN_CEIL(
			(uint32_t)sizeof(struct pmdscope_record) + caplen, PMDSCOPE_RING_ALIGN);
}

/* Write a record of at most `keep` bytes; false when the ring is full. */
static inline bool
write_record(const struct pmdscope_capture_spec *spec, struct pmdscope_capture_producer *p,
		const struct pmdscope_capture_ring *ring, const struct origin *o,
		const struct pmdscope_packet *pkt, uint32_t keep, uint64_t *head)
{
	uint32_t caplen = RTE_MIN(pkt->len, RTE_MIN(keep, ring->snaplen));
	struct pmdscope_record *rec =
			pmdscope_capture_reserve(ring, p->tail, head, record_size(caplen));

	if (rec == NULL)
		return false;
	/* A chain may contain less than its pkt_len. */
	caplen = pmdscope_packet_copy(pkt, (uint8_t *)(rec + 1), caplen);
	rec->size = record_size(caplen);
	rec->type = PMDSCOPE_RECORD_PACKET;
	rec->dir = o->dir;
	rec->flags = o->flags | (pkt->tag_len != 0 ? PMDSCOPE_RECORD_F_VLAN : 0);
	rec->caplen = caplen;
	rec->len = pkt->len;
	rec->port = o->port;
	rec->queue = o->queue;
	rec->gap = p->gap[o->port];
	rec->tsc = unlikely(spec->packet_tsc) ? rte_rdtsc() : o->tsc;
	*head += rec->size;
	return true;
}

/* Count the fate of a packet. Of those that the filter passes, 1 in `sample` is kept. */
static inline void
settle_fate(struct pmdscope_capture_producer *p, uint32_t sample, uint16_t port, enum fate fate,
		struct delta *d)
{
	d->count[fate]++;
	if (fate == SAMPLED_OUT)
		p->sampling.skip--;
	else if (fate != FILTERED)
		pmdscope_sampling_next(&p->sampling, sample);
	if (fate == RECORDED)
		p->gap[port] = 0;
	else if (fate == DROPPED && likely(p->gap[port] != UINT32_MAX))
		p->gap[port]++;
}

/*
 * Keep 1 packet in `sample` after a record of this change is in the ring; if the ring has no room,
 * the old rate stays. The distance is drawn anew, so that every packet is kept with the probability
 * of its rate.
 */
static __rte_noinline __rte_unused __rte_cold void
resample(struct pmdscope_capture_producer *p, const struct pmdscope_capture_ring *ring,
		uint32_t sample)
{
	uint64_t head = p->head;
	struct pmdscope_record *rec = pmdscope_capture_reserve(
			ring, p->tail, &head, sizeof(struct pmdscope_record));

	if (rec == NULL)
		return;
	*rec = (struct pmdscope_record){
		.size = sizeof(*rec),
		.type = PMDSCOPE_RECORD_SAMPLE,
		.len = sample,
	};
	pmdscope_sampling_begin(&p->sampling, sample);
	p->sample = sample;
	head += sizeof(*rec);
	__atomic_store_n(&p->head, head, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->hdr->head, head, __ATOMIC_RELEASE);
}

/*
 * Make the consumer wait for the records of a burst, whose time stamp is read next. The store takes
 * effect within microseconds; the consumer allows for more.
 */
static inline void
begin_burst(const struct pmdscope_capture_ring *ring)
{
	if (ring != NULL)
		__atomic_store_n(&ring->hdr->in_burst, 1, __ATOMIC_RELAXED);
	rte_compiler_barrier();
}

static inline void
publish(struct pmdscope_capture_producer *p, const struct pmdscope_capture_ring *ring,
		uint16_t port, const struct delta *d)
{
	struct pmdscope_ring_hdr *hdr;
	unsigned int i;

	add_relaxed(&p->records, d->count[RECORDED]);
	add_relaxed(&p->dropped, d->count[DROPPED]);
	add_relaxed(&p->filtered, d->count[FILTERED]);
	add_relaxed(&p->sampled_out, d->count[SAMPLED_OUT]);
	if (port < PMDSCOPE_RING_PORTS)
		add_relaxed(&p->port_dropped[port], d->count[DROPPED]);
	/* Packets that are not wanted do not show that there is room. */
	if (d->count[RECORDED] + d->count[DROPPED] != 0)
		__atomic_store_n(&p->full, d->count[DROPPED] != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&p->head, d->head, __ATOMIC_RELAXED);
	if (ring == NULL)
		return;

	hdr = ring->hdr;
	__atomic_store_n(&hdr->records, p->records, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->filtered, p->filtered, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->sampled_out, p->sampled_out, __ATOMIC_RELAXED);
	/* Includes drops from before the ring existed. */
	if (unlikely(hdr->dropped != p->dropped)) {
		__atomic_store_n(&hdr->dropped, p->dropped, __ATOMIC_RELAXED);
		for (i = 0; i < PMDSCOPE_RING_PORTS; i++)
			__atomic_store_n(&hdr->port_dropped[i], p->port_dropped[i],
					__ATOMIC_RELAXED);
	}
	__atomic_store_n(&hdr->head, d->head, __ATOMIC_RELEASE);
	__atomic_store_n(&hdr->in_burst, 0, __ATOMIC_RELEASE);
}

/* A packet that the filter passes, which keeps this many bytes of it. */
static inline enum fate
copy_packet(const struct pmdscope_capture_spec *spec, struct pmdscope_capture_producer *p,
		const struct pmdscope_capture_ring *ring, const struct origin *o,
		const struct rte_mbuf *m, uint32_t keep, uint64_t *head)
{
	struct pmdscope_packet pkt;

	if (p->sampling.skip > 0)
		return SAMPLED_OUT;
	if (ring == NULL)
		return DROPPED;
	pmdscope_packet_init(&pkt, m, o->dir);
	if (spec->headers)
		keep = RTE_MIN(keep, pmdscope_header_length(&pkt));
	return write_record(spec, p, ring, o, &pkt, keep, head) ? RECORDED : DROPPED;
}

#endif /* PMDSCOPE_CAPTURE_WRITE_H */
