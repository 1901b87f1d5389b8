/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PACKET_H
#define PMDSCOPE_PACKET_H

/*
 * A packet as it looks on the wire: the segments of an mbuf, with the VLAN tags
 * that the NIC stripped, or is asked to insert, in their place. Fast path; the
 * data of an mbuf is trusted for its segment lengths only, never for pkt_len.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>

#include "pmdscope_ring.h"

/* Offset of the tags: behind the two MAC addresses. */
#define PMDSCOPE_TAG_OFFSET (2 * RTE_ETHER_ADDR_LEN)

struct pmdscope_packet {
	const struct rte_mbuf *mbuf;
	const uint8_t *data; /* Of the first segment. */
	uint32_t data_len;
	uint32_t len;	  /* With the tags. */
	uint32_t tag_len; /* 0, 4 or 8. */
	uint8_t tags[8];
};

static inline void
pmdscope_packet_tag(struct pmdscope_packet *pkt, uint16_t tpid, uint16_t tci)
{
	uint8_t *tag = pkt->tags + pkt->tag_len;

	tag[0] = tpid >> 8;
	tag[1] = tpid & 0xff;
	tag[2] = tci >> 8;
	tag[3] = tci & 0xff;
	pkt->tag_len += 4;
	pkt->len += 4;
}

/* Flags of mbufs whose VLAN tags are not in their data. */
static inline uint64_t
pmdscope_packet_vlan_flag(uint8_t dir)
{
	return dir == PMDSCOPE_DIR_RX ? RTE_MBUF_F_RX_VLAN_STRIPPED : RTE_MBUF_F_TX_VLAN;
}

static inline uint64_t
pmdscope_packet_qinq_flag(uint8_t dir)
{
	return dir == PMDSCOPE_DIR_RX ? RTE_MBUF_F_RX_QINQ_STRIPPED : RTE_MBUF_F_TX_QINQ;
}

static inline void
pmdscope_packet_init(struct pmdscope_packet *pkt, const struct rte_mbuf *mbuf, uint8_t dir)
{
	const uint64_t vlan = pmdscope_packet_vlan_flag(dir);
	const uint64_t qinq = pmdscope_packet_qinq_flag(dir);

	pkt->mbuf = mbuf;
	pkt->data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	pkt->data_len = mbuf->data_len;
	pkt->len = mbuf->pkt_len;
	pkt->tag_len = 0;
	if (likely((mbuf->ol_flags & (vlan | qinq)) == 0) || pkt->len < PMDSCOPE_TAG_OFFSET)
		return;
	if ((mbuf->ol_flags & qinq) == qinq)
		pmdscope_packet_tag(pkt, RTE_ETHER_TYPE_QINQ, mbuf->vlan_tci_outer);
	pmdscope_packet_tag(pkt, RTE_ETHER_TYPE_VLAN, mbuf->vlan_tci);
}

/* Copy up to len bytes from offset off of a segment chain; returns the number copied. */
static inline uint32_t
pmdscope_packet_segments(const struct rte_mbuf *seg, uint32_t off, uint8_t *dst, uint32_t len)
{
	uint32_t done = 0;

	while (seg != NULL && off >= seg->data_len) {
		off -= seg->data_len;
		seg = seg->next;
	}
	for (; seg != NULL && done < len; seg = seg->next) {
		const uint32_t part = RTE_MIN(len - done, seg->data_len - off);

		rte_memcpy(dst + done, rte_pktmbuf_mtod_offset(seg, const uint8_t *, off), part);
		done += part;
		off = 0;
	}
	return done;
}

/* Copy the first len bytes of the packet; returns the number copied. */
static inline uint32_t
pmdscope_packet_copy(const struct pmdscope_packet *pkt, uint8_t *dst, uint32_t len)
{
	uint32_t done, part;

	if (likely(pkt->tag_len == 0 && len <= pkt->data_len)) {
		rte_memcpy(dst, pkt->data, len);
		return len;
	}
	if (pkt->tag_len == 0 || len <= PMDSCOPE_TAG_OFFSET)
		return pmdscope_packet_segments(pkt->mbuf, 0, dst, len);

	done = pmdscope_packet_segments(pkt->mbuf, 0, dst, PMDSCOPE_TAG_OFFSET);
	if (unlikely(done < PMDSCOPE_TAG_OFFSET))
		return done;
	part = RTE_MIN(len - done, pkt->tag_len);
	memcpy(dst + done, pkt->tags, part);
	done += part;
	return done +
	       pmdscope_packet_segments(pkt->mbuf, PMDSCOPE_TAG_OFFSET, dst + done, len - done);
}

/* One byte of the packet; false beyond its end. */
static inline bool
pmdscope_packet_byte(const struct pmdscope_packet *pkt, uint64_t off, uint8_t *byte)
{
	const struct rte_mbuf *seg = pkt->mbuf;

	if (pkt->tag_len != 0 && off >= PMDSCOPE_TAG_OFFSET) {
		if (off - PMDSCOPE_TAG_OFFSET < pkt->tag_len) {
			*byte = pkt->tags[off - PMDSCOPE_TAG_OFFSET];
			return true;
		}
		off -= pkt->tag_len;
	}
	for (; seg != NULL; seg = seg->next) {
		if (off < seg->data_len) {
			*byte = *rte_pktmbuf_mtod_offset(seg, const uint8_t *, off);
			return true;
		}
		off -= seg->data_len;
	}
	return false;
}

static inline uint32_t
pmdscope_packet_number(const uint8_t *p, uint32_t width)
{
	return width == 1   ? p[0]
	       : width == 2 ? (uint32_t)p[0] << 8 | p[1]
			    : (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
					    p[3];
}

/* A big-endian number of 1, 2 or 4 bytes of the packet; false beyond its end. */
static inline bool
pmdscope_packet_load(
		const struct pmdscope_packet *pkt, uint64_t off, uint32_t width, uint32_t *value)
{
	const uint64_t end = off + width;
	uint32_t sum = 0;
	uint8_t byte;

	if (likely(end <= pkt->data_len && (pkt->tag_len == 0 || end <= PMDSCOPE_TAG_OFFSET))) {
		*value = pmdscope_packet_number(pkt->data + off, width);
		return true;
	}
	/* Behind the tags. */
	if (pkt->tag_len != 0 && off >= PMDSCOPE_TAG_OFFSET + pkt->tag_len &&
			end <= (uint64_t)pkt->data_len + pkt->tag_len) {
		*value = pmdscope_packet_number(pkt->data + off - pkt->tag_len, width);
		return true;
	}
	for (; off < end; off++) {
		if (!pmdscope_packet_byte(pkt, off, &byte))
			return false;
		sum = sum << 8 | byte;
	}
	*value = sum;
	return true;
}

#endif /* PMDSCOPE_PACKET_H */
