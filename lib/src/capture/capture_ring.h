/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_RING_H
#define PMDSCOPE_CAPTURE_RING_H

/*
 * The shared memory of one capture ring: a data memfd that the consumer can only read and a
 * one-page tail memfd that it writes. The state that the producer relies on is elsewhere (struct
 * pmdscope_capture_producer in capture_instance.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "pmdscope_ring.h"

struct pmdscope_capture_ring {
	struct pmdscope_ring_hdr *hdr;
	uint8_t *data; /* Behind hdr, in the same mapping. */
	const struct pmdscope_ring_tail *tail;
	uint64_t size; /* Of the data, a power of two. */
	uint32_t snaplen;
	/* To be sent to the consumer; -1 afterwards. */
	int data_fd;
	int tail_fd;
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

/* Close the consumer's descriptors in this process. */
void pmdscope_capture_ring_close_fds(struct pmdscope_capture_ring *ring);

void pmdscope_capture_ring_free(struct pmdscope_capture_ring *ring);

/* Publish the clock's anchors. */
void pmdscope_capture_ring_anchor(struct pmdscope_capture_ring *ring);

#endif /* PMDSCOPE_CAPTURE_RING_H */
