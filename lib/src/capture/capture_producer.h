/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_PRODUCER_H
#define PMDSCOPE_CAPTURE_PRODUCER_H

/* Reserves space in a capture ring for its producer. Fast path. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>

#include "capture_instance.h"

/* Read the consumer's tail. False when nothing may be written (any more). */
static inline bool
pmdscope_capture_accept_tail(
		struct pmdscope_capture_producer *p, const struct pmdscope_capture_ring *ring)
{
	uint64_t tail;

	if (ring == NULL || unlikely(p->broken))
		return false;
	tail = pmdscope_capture_ring_tail(ring);
	if (unlikely(tail < p->tail || tail > p->head)) {
		__atomic_store_n(&p->broken, 1, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_store_n(&p->tail, tail, __ATOMIC_RELAXED);
	return true;
}

/* Room for a contiguous record of this size behind *head; NULL when the ring is full. */
static inline struct pmdscope_record *
pmdscope_capture_reserve(const struct pmdscope_capture_ring *ring, uint64_t tail, uint64_t *head,
		uint32_t size)
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

#endif /* PMDSCOPE_CAPTURE_PRODUCER_H */
