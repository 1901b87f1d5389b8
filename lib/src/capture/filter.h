/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_FILTER_H
#define PMDSCOPE_FILTER_H

/*
 * Classic BPF, as libpcap compiles it. A program is validated once on the control
 * thread; after that running it takes at most one step per instruction.
 */

#include <stddef.h>
#include <stdint.h>

#include "filter_translate.h"
#include "packet.h"
#include "pmdscope_ring.h"

struct pmdscope_filter {
	uint32_t nb_insns; /* 0 keeps everything. */
	bool uses_memory;  /* Reads the scratch memory, which then starts as zeros. */
	struct pmdscope_insn insns[PMDSCOPE_TEE_MAX_INSNS];
	struct pmdscope_filter_tests tests; /* The same program. */
};

/*
 * Validate a program and copy it. 0, or -EINVAL with the reason for people in why.
 * insns may be unaligned.
 */
int pmdscope_filter_load(struct pmdscope_filter *filter, const void *insns, unsigned int nb_insns,
		char *why, size_t why_size);

/* Bytes to keep of the packet; 0 refuses it. The filter has at least one instruction. */
uint32_t
pmdscope_filter_run(const struct pmdscope_filter *filter, const struct pmdscope_packet *pkt);

/* Packets that pmdscope_filter_burst() takes at once. */
#define PMDSCOPE_FILTER_BURST 32

/*
 * The same for each packet of a burst: those to keep as a bitmap, and how much of each of them in
 * keep. Reads of a packet nothing but its mbuf, and what the filter asks for.
 */
uint32_t pmdscope_filter_burst(const struct pmdscope_filter *filter, uint8_t dir,
		struct rte_mbuf **pkts, unsigned int nb_pkts, uint32_t *keep);

#endif /* PMDSCOPE_FILTER_H */
