/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_REQUEST_H
#define PMDSCOPE_CAPTURE_REQUEST_H

/* Requests of consumers: untrusted input, every field is validated. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>

#include "filter.h"
#include "pmdscope_ring.h"

/* Largest valid request, bytes. */
#define PMDSCOPE_CAPTURE_REQUEST_MAX \
	(sizeof(struct pmdscope_tee_request) + \
			PMDSCOPE_TEE_MAX_SELECTS * sizeof(struct pmdscope_tee_select) + \
			PMDSCOPE_TEE_MAX_INSNS * sizeof(struct pmdscope_insn))

/* A checked request with its defaults filled in. */
struct pmdscope_capture_spec {
	uint32_t snaplen;
	uint32_t sample;    /* Keep 1 packet in this many; or lost mbufs per site. At least 1. */
	uint32_t ring_size; /* Bytes, a power of two. */
	uint32_t lease_ms;
	bool leaked;	 /* Lost mbufs instead of traffic. */
	bool packet_tsc; /* One TSC per packet, not per burst. */
	bool headers;	 /* Of each packet only pmdscope_header_length(). */
	struct pmdscope_filter filter;
	/* PMDSCOPE_DIR_* selected, by port and queue, so that one load is enough. */
	uint8_t dirs[RTE_MAX_ETHPORTS][RTE_MAX_QUEUES_PER_PORT];
};

/* 0, or a negative errno with a human-readable reason in why, which names the field. */
int pmdscope_capture_request_parse(const void *buf, size_t len, struct pmdscope_capture_spec *spec,
		char *why, size_t why_size);

/* True, with a copy in *change, when this is a valid struct pmdscope_tee_change. */
bool pmdscope_capture_change_parse(const void *buf, size_t len, struct pmdscope_tee_change *change);

#endif /* PMDSCOPE_CAPTURE_REQUEST_H */
