/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_RING_H
#define PMDSCOPE_CAPTURE_RING_H

/*
 * The shared memory of one capture ring: a data memfd that the consumer can only read and a
 * one-page tail memfd that it writes. The state that the producer relies on is elsewhere (struct
 * pmdscope_capture_producer in capture_instance.h).
 *
 * A consumer can punch holes into the tail memfd until that is sealed, which takes a writable
 * mapping of the consumer first. Until then no lcore reads the page, where a hole would be a page
 * fault: the control thread takes the tail over by pread(2), which allocates nothing.
 */

#include <stddef.h>
#include <stdint.h>

#include "pmdscope_ring.h"

struct pmdscope_capture_ring {
	struct pmdscope_ring_hdr *hdr;
	uint8_t *data; /* Behind hdr, in the same mapping. */
	/* What the producer reads: taken_over, or, once it is sealed, the page of the consumer. */
	const uint64_t *tail;
	uint64_t taken_over;
	const struct pmdscope_ring_tail *page;
	uint64_t size; /* Of the data, a power of two. */
	uint32_t snaplen;
	int data_fd; /* To be sent to the consumer; -1 afterwards. */
	int tail_fd; /* -1 once the page is sealed. */
};

/* Longest packet that fits into a ring of this size at any position of its head. */
uint32_t pmdscope_capture_ring_snaplen(uint32_t size, uint32_t snaplen);

/* Bytes of memory of a ring with this data size. */
uint64_t pmdscope_capture_ring_bytes(uint32_t size);

/*
 * Make the ring of an lcore, with PMDSCOPE_RING_F_* features; NULL with errno set and the failed
 * step in *step.
 */
struct pmdscope_capture_ring *pmdscope_capture_ring_create(unsigned int lcore, uint32_t size,
		uint32_t snaplen, uint32_t features, const char **step);

/* Close the consumer's descriptor of the data in this process, after it was sent. */
void pmdscope_capture_ring_close_data(struct pmdscope_capture_ring *ring);

/*
 * The consumer has mapped the ring: seal the tail's page, and let the producer read it. 0 or a
 * negative errno: -EPROTO if that was not to be confirmed, or if the page has been taken away.
 */
int pmdscope_capture_ring_seal_tail(struct pmdscope_capture_ring *ring);

/* Take over the tail of a consumer that has not confirmed its mapping. Regularly. */
void pmdscope_capture_ring_take_tail(struct pmdscope_capture_ring *ring);

/* The tail, as the producer reads it. */
static inline uint64_t
pmdscope_capture_ring_tail(const struct pmdscope_capture_ring *ring)
{
	return __atomic_load_n(__atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE), __ATOMIC_ACQUIRE);
}

void pmdscope_capture_ring_free(struct pmdscope_capture_ring *ring);

/* Publish the clock's anchors. */
void pmdscope_capture_ring_anchor(struct pmdscope_capture_ring *ring);

#endif /* PMDSCOPE_CAPTURE_RING_H */
