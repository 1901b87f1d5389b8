/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_FILTER_H
#define PMDSCOPE_FILTER_H

/*
 * Classic BPF, as libpcap generates it. A program is validated once on the control thread; after
 * that a run takes at most one step per instruction.
 */

#include <stddef.h>
#include <stdint.h>

#include "filter_translate.h"
#include "packet.h"
#include "pmdscope_ring.h"

struct pmdscope_filter {
	uint32_t nb_insns; /* 0 keeps everything. */
	bool uses_memory;  /* Reads the scratch memory, which then starts as zeros. */
	uint32_t cost;	   /* At worst, TSC cycles a packet; pmdscope_filter_cost(). */
	struct pmdscope_insn insns[PMDSCOPE_TEE_MAX_INSNS];
	struct pmdscope_filter_tests tests; /* The same program. */
};

/*
 * Validate a program and copy it. 0, or -EINVAL with a human-readable reason in why. insns may be
 * unaligned.
 */
int pmdscope_filter_load(struct pmdscope_filter *filter, const void *insns, unsigned int nb_insns,
		char *why, size_t why_size);

/* Number of bytes of the packet to keep; 0 refuses it. The filter has at least one instruction. */
uint32_t
pmdscope_filter_run(const struct pmdscope_filter *filter, const struct pmdscope_packet *pkt);

/* Packets that pmdscope_filter_burst() takes at once. */
#define PMDSCOPE_FILTER_BURST 32

/*
 * The same for each packet of a burst: returns a bitmap of those to keep, and in keep the number of
 * bytes of each. Reads only the mbuf of a packet and the fields that the filter tests.
 */
uint32_t pmdscope_filter_burst(const struct pmdscope_filter *filter, uint8_t dir,
		struct rte_mbuf **pkts, unsigned int nb_pkts, uint32_t *keep);

#endif /* PMDSCOPE_FILTER_H */
