/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Any bytes as a program and a packet: a program that the validator accepts runs to its end, within
 * bounds, and gives a burst of the packet the same verdict.
 */

#include <stdlib.h>
#include <string.h>

#include "filter.h"

#define SEGMENTS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * A chain whose segments are separate blocks, so that a sanitizer detects any access beyond them.
 */
static void
build_chain(struct rte_mbuf *chain, const uint8_t *data, size_t size, uint8_t seg_len)
{
	struct rte_mbuf *seg = chain;
	size_t done = 0, part;

	do {
		const bool last = seg == chain + SEGMENTS_MAX - 1;

		part = last || size - done < seg_len ? size - done : seg_len;
		memset(seg, 0, sizeof(*seg));
		seg->buf_addr = malloc(part);
		memcpy(seg->buf_addr, data + done, part);
		seg->data_len = (uint16_t)part;
		seg->buf_len = (uint16_t)part;
		done += part;
		seg->next = done < size ? seg + 1 : NULL;
		seg++;
	} while (done < size);
	chain->pkt_len = (uint32_t)size;
	chain->nb_segs = (uint16_t)(seg - chain);
}

/* As a burst of this many. */
static void
require_verdict(const struct pmdscope_filter *filter, uint8_t dir, struct rte_mbuf *pkt,
		unsigned int n, uint32_t verdict)
{
	struct rte_mbuf *pkts[PMDSCOPE_FILTER_BURST];
	uint32_t keep[PMDSCOPE_FILTER_BURST], kept;
	unsigned int i;

	for (i = 0; i < n; i++)
		pkts[i] = pkt;
	kept = pmdscope_filter_burst(filter, dir, pkts, n, keep);
	if (kept != (verdict == 0 ? 0 : UINT32_MAX >> (PMDSCOPE_FILTER_BURST - n)))
		abort();
	for (i = 0; verdict != 0 && i < n; i++)
		if (keep[i] != verdict)
			abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t flags[] = { 0, RTE_MBUF_F_RX_VLAN_STRIPPED, RTE_MBUF_F_TX_VLAN,
		RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_QINQ_STRIPPED };
	static struct pmdscope_filter filter;
	static uint8_t copy[4096 + 8];
	struct rte_mbuf chain[SEGMENTS_MAX], *seg;
	struct pmdscope_packet pkt;
	size_t insns_size;
	uint32_t copied, verdict;
	uint8_t dir;
	char why[112];

	if (size < 4)
		return 0;
	insns_size = RTE_MIN((size_t)data[0] * sizeof(struct pmdscope_insn), size - 4);
	insns_size -= insns_size % sizeof(struct pmdscope_insn);
	if (size - 4 - insns_size > 4096 || insns_size == 0 ||
			pmdscope_filter_load(&filter, data + 4,
					insns_size / sizeof(struct pmdscope_insn), why,
					sizeof(why)) < 0)
		return 0;

	build_chain(chain, data + 4 + insns_size, size - 4 - insns_size, RTE_MAX(data[1], 1));
	chain->ol_flags = flags[data[2] % RTE_DIM(flags)];
	dir = data[3] % 2 ? PMDSCOPE_DIR_RX : PMDSCOPE_DIR_TX;
	pmdscope_packet_init(&pkt, chain, dir);
	verdict = pmdscope_filter_run(&filter, &pkt);
	require_verdict(&filter, dir, chain, 1, verdict);
	require_verdict(&filter, dir, chain, PMDSCOPE_FILTER_BURST, verdict);
	copied = pmdscope_packet_copy(&pkt, copy, pkt.len);
	if (copied != pkt.len)
		abort();
	for (seg = chain; seg != NULL; seg = seg->next)
		free(seg->buf_addr);
	return 0;
}
