/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TRACE_LIBS_H
#define PMDSCOPE_TRACE_LIBS_H

/**
 * @file
 * The part of pmdscope_trace.h for DPDK's libraries that allocate, hold or free mbufs:
 * librte_ip_frag, librte_reorder, librte_distributor, librte_gro and librte_gso, as far as their
 * headers are installed. Nothing of a library is linked unless the app calls it.
 *
 * Packets that wait inside a library count as held and are never reported as lost there; an mbuf
 * that a call returns is stamped with the line of that call.
 */

#ifndef PMDSCOPE_TRACE_H
#error "include pmdscope_trace.h"
#endif

static inline void
pmdscope_trace_take_all(struct rte_mbuf **pkts, int nb, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && nb > 0)
		pmdscope_trace_stamp_all(pkts, (unsigned int)nb,
				pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						PMDSCOPE_STAMP_NOWHERE);
}

#ifdef PMDSCOPE_TRACE_IP_FRAG

typedef int32_t (*pmdscope_trace_fragment)(struct rte_mbuf *, struct rte_mbuf **, uint16_t,
		uint16_t, struct rte_mempool *, struct rte_mempool *);

/* The fragments are new. The packet stays the caller's. */
static __rte_always_inline int32_t
pmdscope_trace_fragment_by(pmdscope_trace_fragment fragment, struct rte_mbuf *pkt_in,
		struct rte_mbuf **pkts_out, uint16_t nb_pkts_out, uint16_t mtu_size,
		struct rte_mempool *pool_direct, struct rte_mempool *pool_indirect,
		struct pmdscope_site *site)
{
	const int32_t nb = fragment(
			pkt_in, pkts_out, nb_pkts_out, mtu_size, pool_direct, pool_indirect);

	pmdscope_trace_take_all(pkts_out, nb, site);
	return nb;
}

static inline int32_t
pmdscope_trace_ipv4_fragment(struct rte_mbuf *pkt_in, struct rte_mbuf **pkts_out,
		uint16_t nb_pkts_out, uint16_t mtu_size, struct rte_mempool *pool_direct,
		struct rte_mempool *pool_indirect, struct pmdscope_site *site)
{
	return pmdscope_trace_fragment_by(rte_ipv4_fragment_packet, pkt_in, pkts_out, nb_pkts_out,
			mtu_size, pool_direct, pool_indirect, site);
}

static inline int32_t
pmdscope_trace_ipv6_fragment(struct rte_mbuf *pkt_in, struct rte_mbuf **pkts_out,
		uint16_t nb_pkts_out, uint16_t mtu_size, struct rte_mempool *pool_direct,
		struct rte_mempool *pool_indirect, struct pmdscope_site *site)
{
	return pmdscope_trace_fragment_by(rte_ipv6_fragment_packet, pkt_in, pkts_out, nb_pkts_out,
			mtu_size, pool_direct, pool_indirect, site);
}

#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
static inline int32_t
pmdscope_trace_ipv4_fragment_copy(struct rte_mbuf *pkt_in, struct rte_mbuf **pkts_out,
		uint16_t nb_pkts_out, uint16_t mtu_size, struct rte_mempool *pool_direct,
		struct pmdscope_site *site)
{
	const int32_t nb = rte_ipv4_fragment_copy_nonseg_packet(
			pkt_in, pkts_out, nb_pkts_out, mtu_size, pool_direct);

	pmdscope_trace_take_all(pkts_out, nb, site);
	return nb;
}
#endif

/* The fragment waits in the table, or on the death row, until the packet is complete. */
static inline struct rte_mbuf *
pmdscope_trace_ipv4_reassemble(struct rte_ip_frag_tbl *tbl, struct rte_ip_frag_death_row *dr,
		struct rte_mbuf *mb, uint64_t tms, struct rte_ipv4_hdr *ip_hdr,
		struct pmdscope_site *hold, struct pmdscope_site *site)
{
	struct rte_mbuf *m;

	pmdscope_trace_take(mb, hold);
	m = rte_ipv4_frag_reassemble_packet(tbl, dr, mb, tms, ip_hdr);
	pmdscope_trace_take(m, site);
	return m;
}

static inline struct rte_mbuf *
pmdscope_trace_ipv6_reassemble(struct rte_ip_frag_tbl *tbl, struct rte_ip_frag_death_row *dr,
		struct rte_mbuf *mb, uint64_t tms, struct rte_ipv6_hdr *ip_hdr,
		struct rte_ipv6_fragment_ext *frag_hdr, struct pmdscope_site *hold,
		struct pmdscope_site *site)
{
	struct rte_mbuf *m;

	pmdscope_trace_take(mb, hold);
	m = rte_ipv6_frag_reassemble_packet(tbl, dr, mb, tms, ip_hdr, frag_hdr);
	pmdscope_trace_take(m, site);
	return m;
}

static inline void
pmdscope_trace_free_death_row(
		struct rte_ip_frag_death_row *dr, uint32_t prefetch, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();
	uint64_t stamp;
	uint32_t i;

	if (unlikely(now != 0) && dr->cnt != 0) {
		stamp = pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE);
		for (i = 0; i < dr->cnt; i++)
			pmdscope_trace_release_chain(dr->row[i], stamp);
	}
	rte_ip_frag_free_death_row(dr, prefetch);
}

#define rte_ipv4_fragment_packet(in, out, nb, mtu, direct, indirect) \
	pmdscope_trace_ipv4_fragment( \
			in, out, nb, mtu, direct, indirect, PMDSCOPE_SITE("ipv4_fragment"))
#define rte_ipv6_fragment_packet(in, out, nb, mtu, direct, indirect) \
	pmdscope_trace_ipv6_fragment( \
			in, out, nb, mtu, direct, indirect, PMDSCOPE_SITE("ipv6_fragment"))
#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
#define rte_ipv4_fragment_copy_nonseg_packet(in, out, nb, mtu, direct) \
	pmdscope_trace_ipv4_fragment_copy( \
			in, out, nb, mtu, direct, PMDSCOPE_SITE("ipv4_fragment_copy"))
#endif
#define rte_ipv4_frag_reassemble_packet(tbl, dr, mb, tms, ip) \
	pmdscope_trace_ipv4_reassemble(tbl, dr, mb, tms, ip, PMDSCOPE_SITE("ip_frag_table"), \
			PMDSCOPE_SITE("ipv4_reassemble"))
#define rte_ipv6_frag_reassemble_packet(tbl, dr, mb, tms, ip, frag) \
	pmdscope_trace_ipv6_reassemble(tbl, dr, mb, tms, ip, frag, PMDSCOPE_SITE("ip_frag_table"), \
			PMDSCOPE_SITE("ipv6_reassemble"))
#define rte_ip_frag_free_death_row(dr, prefetch) \
	pmdscope_trace_free_death_row(dr, prefetch, PMDSCOPE_SITE("free_death_row"))

#endif /* PMDSCOPE_TRACE_IP_FRAG */

#ifdef PMDSCOPE_TRACE_REORDER

/* A packet that is refused stays the caller's. */
static inline int
pmdscope_trace_reorder_insert(struct rte_reorder_buffer *b, struct rte_mbuf *mbuf,
		struct pmdscope_site *hold, struct pmdscope_site *site)
{
	int ret;

	pmdscope_trace_take(mbuf, hold);
	ret = rte_reorder_insert(b, mbuf);
	if (unlikely(ret != 0))
		pmdscope_trace_take(mbuf, site);
	return ret;
}

static inline unsigned int
pmdscope_trace_reorder_drain(struct rte_reorder_buffer *b, struct rte_mbuf **mbufs,
		unsigned int max_mbufs, struct pmdscope_site *site)
{
	const unsigned int nb = rte_reorder_drain(b, mbufs, max_mbufs);

	pmdscope_trace_take_all(mbufs, (int)nb, site);
	return nb;
}

#define rte_reorder_insert(b, mbuf) \
	pmdscope_trace_reorder_insert( \
			b, mbuf, PMDSCOPE_SITE("reorder_buffer"), PMDSCOPE_SITE("reorder_insert"))
#define rte_reorder_drain(b, mbufs, max) \
	pmdscope_trace_reorder_drain(b, mbufs, max, PMDSCOPE_SITE("reorder_drain"))

#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
static inline unsigned int
pmdscope_trace_reorder_drain_up_to(struct rte_reorder_buffer *b, struct rte_mbuf **mbufs,
		unsigned int max_mbufs, rte_reorder_seqn_t seqn, struct pmdscope_site *site)
{
	const unsigned int nb = rte_reorder_drain_up_to_seqn(b, mbufs, max_mbufs, seqn);

	pmdscope_trace_take_all(mbufs, (int)nb, site);
	return nb;
}

#define rte_reorder_drain_up_to_seqn(b, mbufs, max, seqn) \
	pmdscope_trace_reorder_drain_up_to(b, mbufs, max, seqn, PMDSCOPE_SITE("reorder_drain"))
#endif

#endif /* PMDSCOPE_TRACE_REORDER */

#ifdef PMDSCOPE_TRACE_DISTRIBUTOR

/* Stamped before the call: a worker may have the packets when it returns. */
static inline int
pmdscope_trace_distributor_process(struct rte_distributor *d, struct rte_mbuf **mbufs,
		unsigned int num_mbufs, struct pmdscope_site *hold)
{
	pmdscope_trace_take_all(mbufs, (int)num_mbufs, hold);
	return rte_distributor_process(d, mbufs, num_mbufs);
}

static inline int
pmdscope_trace_distributor_returned(struct rte_distributor *d, struct rte_mbuf **mbufs,
		unsigned int max_mbufs, struct pmdscope_site *site)
{
	const int nb = rte_distributor_returned_pkts(d, mbufs, max_mbufs);

	pmdscope_trace_take_all(mbufs, nb, site);
	return nb;
}

static inline int
pmdscope_trace_distributor_get(struct rte_distributor *d, unsigned int worker_id,
		struct rte_mbuf **pkts, struct rte_mbuf **oldpkt, unsigned int retcount,
		struct pmdscope_site *hold, struct pmdscope_site *site)
{
	int nb;

	if (oldpkt != NULL)
		pmdscope_trace_take_all(oldpkt, (int)retcount, hold);
	nb = rte_distributor_get_pkt(d, worker_id, pkts, oldpkt, retcount);
	pmdscope_trace_take_all(pkts, nb, site);
	return nb;
}

static inline int
pmdscope_trace_distributor_return(struct rte_distributor *d, unsigned int worker_id,
		struct rte_mbuf **oldpkt, int num, struct pmdscope_site *hold)
{
	if (oldpkt != NULL)
		pmdscope_trace_take_all(oldpkt, num, hold);
	return rte_distributor_return_pkt(d, worker_id, oldpkt, num);
}

static inline void
pmdscope_trace_distributor_request(struct rte_distributor *d, unsigned int worker_id,
		struct rte_mbuf **oldpkt, unsigned int count, struct pmdscope_site *hold)
{
	if (oldpkt != NULL)
		pmdscope_trace_take_all(oldpkt, (int)count, hold);
	rte_distributor_request_pkt(d, worker_id, oldpkt, count);
}

static inline int
pmdscope_trace_distributor_poll(struct rte_distributor *d, unsigned int worker_id,
		struct rte_mbuf **mbufs, struct pmdscope_site *site)
{
	const int nb = rte_distributor_poll_pkt(d, worker_id, mbufs);

	pmdscope_trace_take_all(mbufs, nb, site);
	return nb;
}

#define rte_distributor_process(d, mbufs, num) \
	pmdscope_trace_distributor_process(d, mbufs, num, PMDSCOPE_SITE("distributor"))
#define rte_distributor_returned_pkts(d, mbufs, max) \
	pmdscope_trace_distributor_returned(d, mbufs, max, PMDSCOPE_SITE("returned_pkts"))
#define rte_distributor_get_pkt(d, worker, pkts, old, count) \
	pmdscope_trace_distributor_get(d, worker, pkts, old, count, PMDSCOPE_SITE("distributor"), \
			PMDSCOPE_SITE("get_pkt"))
#define rte_distributor_return_pkt(d, worker, old, num) \
	pmdscope_trace_distributor_return(d, worker, old, num, PMDSCOPE_SITE("distributor"))
#define rte_distributor_request_pkt(d, worker, old, count) \
	pmdscope_trace_distributor_request(d, worker, old, count, PMDSCOPE_SITE("distributor"))
#define rte_distributor_poll_pkt(d, worker, mbufs) \
	pmdscope_trace_distributor_poll(d, worker, mbufs, PMDSCOPE_SITE("poll_pkt"))

#endif /* PMDSCOPE_TRACE_DISTRIBUTOR */

#ifdef PMDSCOPE_TRACE_GRO

/* The library keeps nothing: merged packets are attached to those that are returned. */
static inline uint16_t
pmdscope_trace_gro_burst(struct rte_mbuf **pkts, uint16_t nb_pkts,
		const struct rte_gro_param *param, struct pmdscope_site *site)
{
	const uint16_t nb = rte_gro_reassemble_burst(pkts, nb_pkts, param);

	pmdscope_trace_take_all(pkts, nb, site);
	return nb;
}

static inline uint16_t
pmdscope_trace_gro_reassemble(struct rte_mbuf **pkts, uint16_t nb_pkts, void *ctx,
		struct pmdscope_site *hold, struct pmdscope_site *site)
{
	uint16_t nb;

	pmdscope_trace_take_all(pkts, nb_pkts, hold);
	nb = rte_gro_reassemble(pkts, nb_pkts, ctx);
	pmdscope_trace_take_all(pkts, nb, site);
	return nb;
}

static inline uint16_t
pmdscope_trace_gro_flush(void *ctx, uint64_t timeout_cycles, uint64_t gro_types,
		struct rte_mbuf **out, uint16_t max_nb_out, struct pmdscope_site *site)
{
	const uint16_t nb = rte_gro_timeout_flush(ctx, timeout_cycles, gro_types, out, max_nb_out);

	pmdscope_trace_take_all(out, nb, site);
	return nb;
}

#define rte_gro_reassemble_burst(pkts, nb, param) \
	pmdscope_trace_gro_burst(pkts, nb, param, PMDSCOPE_SITE("gro_burst"))
#define rte_gro_reassemble(pkts, nb, ctx) \
	pmdscope_trace_gro_reassemble(pkts, nb, ctx, PMDSCOPE_SITE("gro_table"), \
			PMDSCOPE_SITE("gro_reassemble"))
#define rte_gro_timeout_flush(ctx, timeout, types, out, max) \
	pmdscope_trace_gro_flush(ctx, timeout, types, out, max, PMDSCOPE_SITE("gro_flush"))

#endif /* PMDSCOPE_TRACE_GRO */

#ifdef PMDSCOPE_TRACE_GSO

/* The segments are new. The packet stays the caller's. */
static inline int
pmdscope_trace_gso_segment(struct rte_mbuf *pkt, const struct rte_gso_ctx *ctx,
		struct rte_mbuf **pkts_out, uint16_t nb_pkts_out, struct pmdscope_site *site)
{
	const int nb = rte_gso_segment(pkt, ctx, pkts_out, nb_pkts_out);

	pmdscope_trace_take_all(pkts_out, nb, site);
	return nb;
}

#define rte_gso_segment(pkt, ctx, out, nb) \
	pmdscope_trace_gso_segment(pkt, ctx, out, nb, PMDSCOPE_SITE("gso_segment"))

#endif /* PMDSCOPE_TRACE_GSO */

#endif /* PMDSCOPE_TRACE_LIBS_H */
