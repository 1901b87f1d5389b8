/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TRACE_H
#define PMDSCOPE_TRACE_H

/**
 * @file
 * Source lines for the leak ledger: compile an application, or parts of it, with `-include
 * pmdscope_trace.h`, and every call that takes, gives or passes on mbufs notes its line in them
 * while stamps are armed. While they are not, each call costs one load and one branch more. The
 * behaviour of DPDK does not change.
 *
 * Calls through pointers, and of libraries built without this header, are not traced. The ledger
 * detects them, and names no line if one of them may have used the mbuf since. Mbufs
 * in an rte_ring need no call to be found there; pmdscope_mark() names other places.
 *
 * A wrapped call cannot be used in the initializer of a global variable. With
 * -DPMDSCOPE_TRACE_NO_LIBS the calls of pmdscope_trace_libs.h are not wrapped.
 */

/*
 * This header is included before the source defines its own feature macros. These must still have
 * their effect, so the widest set is used here and undefined afterwards.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#define PMDSCOPE_TRACE_UNDEF_GNU_SOURCE
#endif
#ifndef ALLOW_EXPERIMENTAL_API
#define ALLOW_EXPERIMENTAL_API
#define PMDSCOPE_TRACE_UNDEF_EXPERIMENTAL
#endif

#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#if defined(__has_include) && !defined(PMDSCOPE_TRACE_NO_LIBS)
#if __has_include(<rte_ip_frag.h>)
#include <rte_ip_frag.h>
#define PMDSCOPE_TRACE_IP_FRAG
#endif
#if __has_include(<rte_reorder.h>)
#include <rte_reorder.h>
#define PMDSCOPE_TRACE_REORDER
#endif
#if __has_include(<rte_distributor.h>)
#include <rte_distributor.h>
#define PMDSCOPE_TRACE_DISTRIBUTOR
#endif
#if __has_include(<rte_gro.h>)
#include <rte_gro.h>
#define PMDSCOPE_TRACE_GRO
#endif
#if __has_include(<rte_gso.h>)
#include <rte_gso.h>
#define PMDSCOPE_TRACE_GSO
#endif
#endif

#include "pmdscope.h"

#ifdef PMDSCOPE_TRACE_UNDEF_GNU_SOURCE
#undef _GNU_SOURCE
#undef PMDSCOPE_TRACE_UNDEF_GNU_SOURCE
#endif
#ifdef PMDSCOPE_TRACE_UNDEF_EXPERIMENTAL
#undef ALLOW_EXPERIMENTAL_API
#undef PMDSCOPE_TRACE_UNDEF_EXPERIMENTAL
#endif

/* Not in a linker section: compilers put those of inline functions and templates elsewhere. */
#define PMDSCOPE_SITE(op) \
	(__extension__({ \
		static struct pmdscope_site pmdscope_site_ = { __FILE__, __func__, op, __LINE__, \
			0 }; \
		&pmdscope_site_; \
	}))

/* A stamp of this site without its origin. */
static inline uint64_t
pmdscope_trace_stamp(struct pmdscope_site *site, uint64_t now, uint64_t stamp_class)
{
	uint64_t id = __atomic_load_n(&site->id, __ATOMIC_RELAXED);

	if (unlikely(id == 0))
		id = pmdscope_site_register(site);
	return now | stamp_class | id << PMDSCOPE_STAMP_SITE_SHIFT;
}

static inline void
pmdscope_trace_stamp_all(struct rte_mbuf **pkts, unsigned int nb, uint64_t stamp)
{
	unsigned int i;

	for (i = 0; i < nb; i++)
		pmdscope_stamp_packet(pkts[i], stamp);
}

/* The packet or segment was created here, or has a new owner. */
static inline void
pmdscope_trace_take(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && m != NULL)
		pmdscope_stamp_packet(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
							 PMDSCOPE_STAMP_NOWHERE);
}

/* A segment whose stamp says FREE, and not because it was shared. */
static inline int
pmdscope_trace_is_free(uint64_t stamp)
{
	return unlikely((stamp & PMDSCOPE_STAMP_CLASS) == PMDSCOPE_STAMP_FREE) &&
	       (stamp & PMDSCOPE_STAMP_ORIGIN) != PMDSCOPE_STAMP_SHARED;
}

/* One reference to a segment is released, the last one or another. */
static inline void
pmdscope_trace_release(struct rte_mbuf *m, uint64_t stamp)
{
	struct rte_mbuf *direct;

	if (unlikely(rte_mbuf_refcnt_read(m) != 1)) {
		pmdscope_stamp_seg(m, stamp | PMDSCOPE_STAMP_SHARED);
		return;
	}
	if (pmdscope_trace_is_free(pmdscope_stamp_get(m)))
		pmdscope_trace_misuse(m, stamp, PMDSCOPE_MISUSE_FREE);
	if (unlikely(RTE_MBUF_CLONED(m))) {
		direct = rte_mbuf_from_indirect(m);
		pmdscope_stamp_seg(direct,
				stamp | (rte_mbuf_refcnt_read(direct) == 1
									? PMDSCOPE_STAMP_NOWHERE
									: PMDSCOPE_STAMP_SHARED));
	}
	pmdscope_stamp_seg(m, stamp | PMDSCOPE_STAMP_NOWHERE);
}

static inline void
pmdscope_trace_release_chain(struct rte_mbuf *m, uint64_t stamp)
{
	for (; m != NULL; m = m->next)
		pmdscope_trace_release(m, stamp);
}

static inline struct rte_mbuf *
pmdscope_trace_alloc(struct rte_mempool *mp, struct pmdscope_site *site)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(mp);

	pmdscope_trace_take(m, site);
	return m;
}

/* Raw mbufs have no valid nb_segs. */
static inline struct rte_mbuf *
pmdscope_trace_raw_alloc(struct rte_mempool *mp, struct pmdscope_site *site)
{
	struct rte_mbuf *m = rte_mbuf_raw_alloc(mp);
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && m != NULL)
		pmdscope_stamp_seg(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						      PMDSCOPE_STAMP_NOWHERE);
	return m;
}

static inline int
pmdscope_trace_alloc_bulk(struct rte_mempool *mp, struct rte_mbuf **mbufs, unsigned int count,
		struct pmdscope_site *site)
{
	const int ret = rte_pktmbuf_alloc_bulk(mp, mbufs, count);
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && ret == 0)
		pmdscope_trace_stamp_all(mbufs, count,
				pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						PMDSCOPE_STAMP_NOWHERE);
	return ret;
}

static inline struct rte_mbuf *
pmdscope_trace_clone(struct rte_mbuf *md, struct rte_mempool *mp, struct pmdscope_site *site)
{
	struct rte_mbuf *m = rte_pktmbuf_clone(md, mp);

	pmdscope_trace_take(m, site);
	return m;
}

static inline struct rte_mbuf *
pmdscope_trace_copy(const struct rte_mbuf *from, struct rte_mempool *mp, uint32_t offset,
		uint32_t length, struct pmdscope_site *site)
{
	struct rte_mbuf *m = rte_pktmbuf_copy(from, mp, offset, length);

	pmdscope_trace_take(m, site);
	return m;
}

static inline int
pmdscope_trace_chain(struct rte_mbuf *head, struct rte_mbuf *tail, struct pmdscope_site *site)
{
	const int ret = rte_pktmbuf_chain(head, tail);
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && ret == 0)
		for (; tail != NULL; tail = tail->next)
			pmdscope_stamp_seg(
					tail, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
							      PMDSCOPE_STAMP_NOWHERE);
	return ret;
}

/* Attaching copies the stamp of the other mbuf. */
static inline void
pmdscope_trace_attach(struct rte_mbuf *mi, struct rte_mbuf *m, struct pmdscope_site *site)
{
	rte_pktmbuf_attach(mi, m);
	pmdscope_trace_take(mi, site);
}

static inline void
pmdscope_trace_attach_extbuf(struct rte_mbuf *m, void *buf_addr, rte_iova_t buf_iova,
		uint16_t buf_len, struct rte_mbuf_ext_shared_info *shinfo,
		struct pmdscope_site *site)
{
	rte_pktmbuf_attach_extbuf(m, buf_addr, buf_iova, buf_len, shinfo);
	pmdscope_trace_take(m, site);
}

/* Releases the mbuf that the data belonged to. */
static inline void
pmdscope_trace_detach(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();
	struct rte_mbuf *direct;

	if (unlikely(now != 0)) {
		if (RTE_MBUF_CLONED(m)) {
			direct = rte_mbuf_from_indirect(m);
			pmdscope_stamp_seg(direct,
					pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE) |
							(rte_mbuf_refcnt_read(direct) == 1
											? PMDSCOPE_STAMP_NOWHERE
											: PMDSCOPE_STAMP_SHARED));
		}
		pmdscope_stamp_seg(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						      PMDSCOPE_STAMP_NOWHERE);
	}
	rte_pktmbuf_detach(m);
}

/* The caller passes what is returned to rte_mbuf_raw_free() or directly to the mempool. */
static inline struct rte_mbuf *
pmdscope_trace_prefree_seg(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0))
		pmdscope_trace_release(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE));
	return rte_pktmbuf_prefree_seg(m);
}

static inline void
pmdscope_trace_raw_free(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0))
		pmdscope_stamp_seg(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE) |
						      PMDSCOPE_STAMP_NOWHERE);
	rte_mbuf_raw_free(m);
}

static inline void
pmdscope_trace_free_seg(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0))
		pmdscope_trace_release(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE));
	rte_pktmbuf_free_seg(m);
}

static inline void
pmdscope_trace_free(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0))
		pmdscope_trace_release_chain(
				m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE));
	rte_pktmbuf_free(m);
}

static inline void
pmdscope_trace_free_bulk(struct rte_mbuf **mbufs, unsigned int count, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();
	unsigned int i;
	uint64_t stamp;

	if (unlikely(now != 0)) {
		stamp = pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE);
		for (i = 0; i < count; i++)
			pmdscope_trace_release_chain(mbufs[i], stamp);
	}
	rte_pktmbuf_free_bulk(mbufs, count);
}

/* The segments behind the first are freed, unless there is no room for their data. */
static inline int
pmdscope_trace_linearize(struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();
	int ret;

	if (unlikely(now != 0))
		pmdscope_trace_release_chain(
				m->next, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_FREE));
	ret = rte_pktmbuf_linearize(m);
	if (unlikely(now != 0))
		pmdscope_trace_take(m, site);
	return ret;
}

static inline uint16_t
pmdscope_trace_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct pmdscope_site *site)
{
	const uint16_t nb = rte_eth_rx_burst(port, queue, pkts, nb_pkts);
	const uint64_t now = pmdscope_stamp_now();

	if (unlikely(now != 0) && nb != 0)
		pmdscope_trace_stamp_all(pkts, nb,
				pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						pmdscope_stamp_origin(port, queue));
	return nb;
}

/* Called before the NIC has the mbufs: afterwards they may have another owner. */
static inline void
pmdscope_trace_offer(struct rte_mbuf **pkts, uint16_t nb_pkts, uint64_t stamp)
{
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		/* TX or FREE: used after that, or taken from its pool by untraced code. */
		if (unlikely((pmdscope_stamp_get(pkts[i]) & PMDSCOPE_STAMP_TX) != 0))
			pmdscope_trace_misuse(pkts[i], stamp, PMDSCOPE_MISUSE_TX);
		pmdscope_stamp_packet(pkts[i], stamp);
	}
}

/* rte_eth_tx_burst() or pmdscope_tx_burst(). */
typedef uint16_t (*pmdscope_trace_send)(uint16_t, uint16_t, struct rte_mbuf **, uint16_t);

static __rte_always_inline uint16_t
pmdscope_trace_tx_by(pmdscope_trace_send tx, uint16_t port, uint16_t queue, struct rte_mbuf **pkts,
		uint16_t nb_pkts, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();
	uint64_t origin;
	uint16_t nb;

	if (likely(now == 0))
		return tx(port, queue, pkts, nb_pkts);
	origin = pmdscope_stamp_origin(port, queue);
	pmdscope_trace_offer(
			pkts, nb_pkts, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_TX) | origin);
	nb = tx(port, queue, pkts, nb_pkts);
	if (unlikely(nb < nb_pkts))
		pmdscope_trace_stamp_all(pkts + nb, nb_pkts - nb,
				pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) | origin);
	return nb;
}

static inline uint16_t
pmdscope_trace_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct pmdscope_site *site)
{
	return pmdscope_trace_tx_by(rte_eth_tx_burst, port, queue, pkts, nb_pkts, site);
}

static inline uint16_t
pmdscope_trace_tx_burst_sent(uint16_t port, uint16_t queue, struct rte_mbuf **pkts,
		uint16_t nb_pkts, struct pmdscope_site *site)
{
	return pmdscope_trace_tx_by(pmdscope_tx_burst, port, queue, pkts, nb_pkts, site);
}

/*
 * As rte_eth_tx_buffer_flush(), but with a traced call in place of its own burst, which only the
 * ethdev callbacks would stamp. The error callback of the buffer thus gets packets with the app's
 * stamp.
 */
static inline uint16_t
pmdscope_trace_tx_buffer_flush(uint16_t port, uint16_t queue, struct rte_eth_dev_tx_buffer *buffer,
		struct pmdscope_site *site)
{
	const uint16_t length = buffer->length;
	uint16_t nb;

	if (likely(pmdscope_stamp_now() == 0))
		return rte_eth_tx_buffer_flush(port, queue, buffer);
	if (length == 0)
		return 0;
	nb = pmdscope_trace_tx_burst(port, queue, buffer->pkts, length, site);
	buffer->length = 0;
	if (unlikely(nb != length))
		buffer->error_callback(
				&buffer->pkts[nb], (uint16_t)(length - nb), buffer->error_userdata);
	return nb;
}

/* Buffered packets may wait for any time: sites of this operation may hold them. */
static inline uint16_t
pmdscope_trace_tx_buffer(uint16_t port, uint16_t queue, struct rte_eth_dev_tx_buffer *buffer,
		struct rte_mbuf *m, struct pmdscope_site *site)
{
	const uint64_t now = pmdscope_stamp_now();

	if (likely(now == 0))
		return rte_eth_tx_buffer(port, queue, buffer, m);
	pmdscope_stamp_packet(m, pmdscope_trace_stamp(site, now, PMDSCOPE_STAMP_APP) |
						 pmdscope_stamp_origin(port, queue));
	buffer->pkts[buffer->length++] = m;
	if (buffer->length < buffer->size)
		return 0;
	return pmdscope_trace_tx_buffer_flush(port, queue, buffer, site);
}

#include "pmdscope_trace_libs.h"

#define rte_pktmbuf_alloc(mp) pmdscope_trace_alloc(mp, PMDSCOPE_SITE("alloc"))
#define rte_mbuf_raw_alloc(mp) pmdscope_trace_raw_alloc(mp, PMDSCOPE_SITE("raw_alloc"))
#define rte_pktmbuf_alloc_bulk(mp, mbufs, count) \
	pmdscope_trace_alloc_bulk(mp, mbufs, count, PMDSCOPE_SITE("alloc_bulk"))
#define rte_pktmbuf_clone(md, mp) pmdscope_trace_clone(md, mp, PMDSCOPE_SITE("clone"))
#define rte_pktmbuf_copy(m, mp, offset, length) \
	pmdscope_trace_copy(m, mp, offset, length, PMDSCOPE_SITE("copy"))
#define rte_pktmbuf_chain(head, tail) pmdscope_trace_chain(head, tail, PMDSCOPE_SITE("chain"))
#define rte_pktmbuf_attach(mi, m) pmdscope_trace_attach(mi, m, PMDSCOPE_SITE("attach"))
#define rte_pktmbuf_attach_extbuf(m, addr, iova, len, shinfo) \
	pmdscope_trace_attach_extbuf(m, addr, iova, len, shinfo, PMDSCOPE_SITE("attach_extbuf"))
#define rte_pktmbuf_detach(m) pmdscope_trace_detach(m, PMDSCOPE_SITE("detach"))
#define rte_pktmbuf_prefree_seg(m) pmdscope_trace_prefree_seg(m, PMDSCOPE_SITE("prefree_seg"))
#define rte_mbuf_raw_free(m) pmdscope_trace_raw_free(m, PMDSCOPE_SITE("raw_free"))
#define rte_pktmbuf_free_seg(m) pmdscope_trace_free_seg(m, PMDSCOPE_SITE("free_seg"))
#define rte_pktmbuf_free(m) pmdscope_trace_free(m, PMDSCOPE_SITE("free"))
#define rte_pktmbuf_free_bulk(mbufs, count) \
	pmdscope_trace_free_bulk(mbufs, count, PMDSCOPE_SITE("free_bulk"))
#define rte_pktmbuf_linearize(m) pmdscope_trace_linearize(m, PMDSCOPE_SITE("linearize"))
#define rte_eth_rx_burst(port, queue, pkts, nb_pkts) \
	pmdscope_trace_rx_burst(port, queue, pkts, nb_pkts, PMDSCOPE_SITE("rx_burst"))
#define rte_eth_tx_burst(port, queue, pkts, nb_pkts) \
	pmdscope_trace_tx_burst(port, queue, pkts, nb_pkts, PMDSCOPE_SITE("tx_burst"))
#define pmdscope_tx_burst(port, queue, pkts, nb_pkts) \
	pmdscope_trace_tx_burst_sent(port, queue, pkts, nb_pkts, PMDSCOPE_SITE("tx_burst"))
#define rte_eth_tx_buffer(port, queue, buffer, m) \
	pmdscope_trace_tx_buffer(port, queue, buffer, m, PMDSCOPE_SITE("tx_buffer"))
#define rte_eth_tx_buffer_flush(port, queue, buffer) \
	pmdscope_trace_tx_buffer_flush(port, queue, buffer, PMDSCOPE_SITE("tx_buffer_flush"))

/*
 * Shows the tools that this app has call sites. Weak: a program that shares the compiler's options
 * and does not link libpmdscope, such as a probe of a configure script, still links.
 */
#ifdef __cplusplus
extern "C" {
#endif
extern unsigned int pmdscope_traced_units __attribute__((weak));
#ifdef __cplusplus
}
#endif

static void __attribute__((constructor, used)) pmdscope_trace_count_unit(void)
{
	if (&pmdscope_traced_units != NULL)
		__atomic_fetch_add(&pmdscope_traced_units, 1, __ATOMIC_RELAXED);
}

#endif /* PMDSCOPE_TRACE_H */
