/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_H
#define PMDSCOPE_H

/**
 * @file
 * libpmdscope: observe a DPDK application from the inside.
 *
 * Call pmdscope_init() once after rte_eal_init(), pmdscope_poll() once per iteration of every poll
 * loop, and pmdscope_fini() before the ports are closed. If the process ends in another way, the
 * library stops itself first: see pmdscope_init(). Ports, queues, mempools and rings are found
 * without further calls. The results are served on the DPDK telemetry socket under /pmdscope, and
 * packets on a separate socket; see docs/telemetry.md and docs/ring.md. docs/leaks.md describes how
 * lost mbufs are found; pmdscope_trace.h adds source lines.
 *
 * The fast path (pmdscope_poll() and the ethdev callbacks) allocates nothing,
 * takes no lock, makes no system call and logs nothing.
 */

#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; what this header declares is its interface. */
#pragma GCC visibility push(default)

/** Version of the library, as "major.minor.patch". */
#define PMDSCOPE_VERSION "0.2.0"

/** Do not offer packets to capture tools: no socket, no copying. */
#define PMDSCOPE_F_NO_TEE (1U << 0)

/**
 * The app calls pmdscope_fini() before each rte_eal_cleanup() and rte_exit(), in all of its paths.
 * Needed only where libpmdscope cannot see these calls: loaded by dlopen(), or linked behind DPDK's
 * libraries. pmdscope_fini() then shuts DPDK's telemetry down for good.
 */
#define PMDSCOPE_F_FINI_FIRST (1U << 1)

/**
 * Count the bursts of queues on demand: for 10 minutes after each request for a table, while a
 * capture is open, and while stamps are armed. At other times queues have no ethdev callbacks.
 * Queues are in tables from 200 ms after the first request on, and counted from 0 each time. Mbufs
 * are not walked while queues are not counted: stamps are then armed when the mbufs in use of a
 * pool grow, not for a few lost ones.
 */
#define PMDSCOPE_F_COUNT_ON_DEMAND (1U << 2)

/** When mbufs are stamped for the leak ledger. */
enum pmdscope_leak_mode {
	PMDSCOPE_LEAK_AUTO,   /**< When the counts of a pool make it suspicious, or on demand. */
	PMDSCOPE_LEAK_ALWAYS, /**< From pmdscope_init() to pmdscope_fini(). */
	PMDSCOPE_LEAK_NEVER,  /**< Counts only, and arming on demand is refused. */
};

/** Settings of pmdscope_init(). A field that is 0 (or NULL) takes its default. */
struct pmdscope_conf {
	/** Time between two samples of pools and rings, milliseconds, 10 to 10000. Default 100. */
	uint32_t sample_ms;
	/** Length of the window of high-water marks, milliseconds, 100 to 60000. Default 1000.
	 * Raised to sample_ms where that is longer: a window holds at least one sample.
	 */
	uint32_t window_ms;
	/** A gap between two polls of at least this many microseconds, 1 to 10000000, is a stall.
	 * Default 1000.
	 */
	uint32_t stall_us;
	/** Capture sessions that may be open at once, 1 to 8. Default 4. */
	uint32_t tee_sessions;
	/** Maximum memory of the rings of one capture session, MiB, 1 to 1024. Default 64. */
	uint32_t tee_session_mb;
	/** What the filters of all capture sessions together may take of a poll loop, at worst, TSC
	 * cycles a packet, 50 to 100000. Default 400. A filter beyond that is refused.
	 */
	uint32_t tee_filter_cycles;
	/** Name of a group whose members may capture; NULL admits only the app's own user and root. */
	const char *tee_group;
	/** PMDSCOPE_F_* flags. */
	uint32_t flags;
	/** When mbufs are stamped. Default PMDSCOPE_LEAK_AUTO. The environment variable
	 * PMDSCOPE_LEAK_MODE (auto, always or never) has precedence.
	 */
	enum pmdscope_leak_mode leak_mode;
	/** How long an mbuf may be held before it is suspect, milliseconds, 100 to 3600000; the
	 * limit of a stage that holds mbufs longer, and then passes them on, is raised. Default
	 * 1000.
	 */
	uint32_t leak_hold_ms;
	/** Time between two walks over the mbufs while they are stamped, milliseconds, 50 to 60000.
	 * Default 250. Raised to sample_ms where that is longer.
	 */
	uint32_t leak_walk_ms;
};

/** Buckets of the poll-gap histogram: under 1 us, then [2^(i-1), 2^i) us, the last open-ended. */
#define PMDSCOPE_GAP_BUCKETS 24

/** A high-water mark over fixed windows, with one writer. */
struct pmdscope_window {
	uint64_t id;   /**< Number of the window that max belongs to. */
	uint64_t max;  /**< Highest value in that window. */
	uint64_t prev; /**< Highest value in the window before it. */
};

struct pmdscope_tee;
struct pmdscope_tee_offer;

/** Counters of one polling lcore. Written by that lcore alone; read by the control thread. */
struct __rte_cache_aligned pmdscope_lcore {
	uint64_t last_tsc;		   /**< TSC at the last poll, 0 before the first. */
	uint64_t polls;			   /**< Calls of pmdscope_poll(). */
	uint64_t busy_polls;		   /**< Polls that received at least one packet. */
	uint64_t packets;		   /**< Sum of nb_rx over all polls. */
	uint64_t gap_max;		   /**< Longest gap between two polls, TSC cycles. */
	uint64_t gap_max_tsc;		   /**< TSC at the end of the longest gap. */
	uint64_t stalls;		   /**< Gaps of at least pmdscope_conf::stall_us. */
	struct pmdscope_window gap_window; /**< Longest gap by window, TSC cycles. */
	/** Histogram of gaps. Bucket 0 is derived from polls; gaps[0] counts polls without a gap. */
	uint64_t gaps[PMDSCOPE_GAP_BUCKETS];
	int32_t tid;	  /**< Kernel thread id, 0 before the first poll. */
	uint32_t tee_seq; /**< Odd while the lcore copies packets for a capture. */
	/**
	 * The burst that pmdscope_tx_burst() is sending while a capture is armed; only this lcore
	 * uses it.
	 */
	struct pmdscope_tee_offer *tee_offer;
};

/** Per-lcore state, indexed by rte_lcore_id(). For pmdscope_poll(); not for applications. */
extern struct pmdscope_lcore pmdscope_lcores[RTE_MAX_LCORE];

/**
 * Shortest gap for which pmdscope_poll() calls its cold half, TSC cycles: 1 us while the library
 * runs, 0 in its first moment so that every polling lcore registers, UINT64_MAX otherwise.
 */
extern uint64_t pmdscope_gap_min;

/** Source files of this process that were compiled with pmdscope_trace.h. Not for applications. */
extern unsigned int pmdscope_traced_units;

/** Cold half of pmdscope_poll(): registers the lcore, records a gap. Not for applications. */
void pmdscope_poll_gap(struct pmdscope_lcore *lc, uint64_t now, uint64_t gap);

/** Cold half of pmdscope_poll(): counts a poll of a thread without an lcore id. */
void pmdscope_poll_foreign(void);

/**
 * Take settings from the command line: --pmdscope=KEY=VALUE,... or --pmdscope KEY=VALUE,...
 *
 * Call it before rte_eal_init(), which refuses options that it does not know: the options that it
 * recognises are removed from argv. They may be anywhere before "--"; arguments after that are left
 * alone. Keys are leak_mode (auto, always or never), queue_counters (always or on_demand, see
 * PMDSCOPE_F_COUNT_ON_DEMAND) and the names of the numbers in struct pmdscope_conf.
 *
 * @param argc
 *   Number of arguments.
 * @param argv
 *   The arguments, beginning with the program's name. Modified.
 * @param conf
 *   Settings that the arguments change. Untouched on error.
 * @return
 *   Number of arguments left, or -EINVAL (logged) for an unknown key or value.
 */
int pmdscope_parse_args(int argc, char **argv, struct pmdscope_conf *conf);

/**
 * Start observing this process.
 *
 * Call it once, on any thread, after rte_eal_init(). Ports may be configured
 * before or after. Costs one control thread, placed by the EAL off the lcores
 * where it can. All signals but faults are blocked on it.
 *
 * After this call the process may end in any way, with or without pmdscope_fini(). The library is
 * called ahead of DPDK when the app calls rte_eal_cleanup() or rte_exit(): it stops observing and
 * shuts DPDK's telemetry down, so that no thread reads memory that is then unmapped. It does the
 * same at exit(). Each of the two waits at most 2 seconds. If a thread is stuck for longer,
 * rte_eal_cleanup() does nothing and returns -1 with rte_errno EBUSY: the app then ends without the
 * cleanup, and does not crash.
 *
 * @param conf
 *   Settings, or NULL for the defaults. Copied.
 * @return
 *   0 on success, otherwise:
 *   - -EALREADY: already started.
 *   - -EINVAL: a setting is out of range.
 *   - -ENOTSUP: this is a DPDK secondary process, or rte_eal_cleanup() and rte_exit() cannot be
 *     intercepted as libpmdscope is linked, and PMDSCOPE_F_FINI_FIRST is not set (logged, with
 *     what to do).
 *   - -ESHUTDOWN: rte_eal_cleanup() was called.
 *   - -ENOMEM: no memory.
 *   - another negative errno when the control thread could not start.
 *   A missing telemetry socket or capture socket is logged, not an error.
 */
int pmdscope_init(const struct pmdscope_conf *conf);

/**
 * Stop observing: close captures, remove the ethdev callbacks, stop the thread.
 *
 * Call it on the thread that called pmdscope_init(), preferably after the poll loops have ended and
 * before the ports are closed. Safe to call while lcores still poll, when the library was never
 * started, and in a forked child, where it does nothing. Memory that a stuck lcore may still use is
 * not freed; the call does not wait for that lcore. pmdscope_init() may be called again. DPDK's
 * telemetry keeps running until rte_eal_cleanup(), except with PMDSCOPE_F_FINI_FIRST where that is
 * needed.
 */
void pmdscope_fini(void);

/**
 * Tell the library that this lcore has completed one iteration of its poll loop, for apps that read
 * the TSC in each iteration anyway: another read would take most of the time of pmdscope_poll().
 *
 * Thread-safe: every lcore writes only its own state. Does nothing before
 * pmdscope_init(). Calls from a thread without an lcore id are only counted.
 *
 * @param nb_rx
 *   Packets received in this iteration, over all queues.
 * @param tsc
 *   rte_rdtsc(), read on this lcore at the same place of each iteration. Gaps between polls are
 *   the differences.
 */
static inline void
pmdscope_poll_tsc(uint16_t nb_rx, uint64_t tsc)
{
	const unsigned int lcore = rte_lcore_id();
	struct pmdscope_lcore *lc;
	uint64_t gap;

	if (unlikely(lcore >= RTE_MAX_LCORE)) {
		pmdscope_poll_foreign();
		return;
	}

	lc = &pmdscope_lcores[lcore];
	gap = tsc - lc->last_tsc;
	/* Atomic also so that they are not added as one vector, which takes longer. */
	__atomic_store_n(&lc->last_tsc, tsc, __ATOMIC_RELAXED);
	__atomic_store_n(&lc->polls, lc->polls + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&lc->busy_polls, lc->busy_polls + (nb_rx != 0), __ATOMIC_RELAXED);
	__atomic_store_n(&lc->packets, lc->packets + nb_rx, __ATOMIC_RELAXED);
	if (gap >= pmdscope_gap_min)
		pmdscope_poll_gap(lc, tsc, gap);
}

/**
 * Tell the library that this lcore has completed one iteration of its poll loop. Reads the TSC;
 * otherwise as pmdscope_poll_tsc().
 *
 * @param nb_rx
 *   Packets received in this iteration, over all queues.
 */
static inline void
pmdscope_poll(uint16_t nb_rx)
{
	pmdscope_poll_tsc(nb_rx, rte_rdtsc());
}

/** The armed captures, NULL while there are none. For pmdscope_tx_burst(); not for applications. */
extern struct pmdscope_tee *pmdscope_tee_armed;

/** pmdscope_tx_burst() while a capture is armed. Not for applications. */
uint16_t
pmdscope_tx_captured(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts);

/**
 * Send packets as rte_eth_tx_burst() does, and let captures record what was sent.
 *
 * A capture sees packets before the NIC does. With rte_eth_tx_burst() it records what the app
 * offers, as attempts. With this call it records what the NIC took; the rest is neither recorded
 * nor counted. Costs a load and a branch more while no capture is armed. While one is, bursts of
 * more than 256 packets are offered in parts.
 *
 * @param port
 *   Port id.
 * @param queue
 *   Transmit queue, as for rte_eth_tx_burst().
 * @param pkts
 *   Packets. The NIC owns those that it took.
 * @param nb_pkts
 *   Their number.
 * @return
 *   Number of packets that the NIC took, counted from the first.
 */
static inline uint16_t
pmdscope_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	if (likely(__atomic_load_n(&pmdscope_tee_armed, __ATOMIC_RELAXED) == NULL))
		return rte_eth_tx_burst(port, queue, pkts, nb_pkts);
	return pmdscope_tx_captured(port, queue, pkts, nb_pkts);
}

/**
 * @name Stamps
 * The last owner of an mbuf and the time, in 8 bytes of a dynamic field of every mbuf. From the
 * high bits: 32 bits of epoch, 2 of class, 14 of site, 6 of port, 10 of queue. Not for
 * applications, which use pmdscope_mark() and pmdscope_trace.h.
 * @{
 */
#define PMDSCOPE_STAMP_APP (UINT64_C(1) << 30)	 /**< The app has it. */
#define PMDSCOPE_STAMP_TX (UINT64_C(2) << 30)	 /**< Given to a NIC for sending. */
#define PMDSCOPE_STAMP_FREE (UINT64_C(3) << 30)	 /**< Freed. */
#define PMDSCOPE_STAMP_CLASS (UINT64_C(3) << 30) /**< Mask of the class. */
#define PMDSCOPE_STAMP_SITE_SHIFT 16 /**< Shift of the site; 0 if no line or stage is known. */
#define PMDSCOPE_STAMP_SITE (UINT64_C(0x3fff) << PMDSCOPE_STAMP_SITE_SHIFT) /**< Of the site. */
#define PMDSCOPE_STAMP_ORIGIN UINT64_C(0xffff)	/**< Mask of port and queue. */
#define PMDSCOPE_STAMP_NOWHERE UINT64_C(0xffff) /**< Origin: no port. */
/** Origin of a FREE stamp: one of several references was released. */
#define PMDSCOPE_STAMP_SHARED UINT64_C(0xfffe)

/** The values that every stamp needs, in one cache line that is rarely written. */
struct __rte_cache_aligned pmdscope_stamps {
	uint64_t now;	 /**< The epoch, shifted to its bits, while armed; otherwise 0. */
	uint64_t offset; /**< Offset of the stamp in struct rte_mbuf. */
};

/** The one instance. */
extern struct pmdscope_stamps pmdscope_stamps;

/** Origin of a stamp: port and queue, as far as they fit. Not for applications. */
static inline uint64_t
pmdscope_stamp_origin(uint16_t port, uint16_t queue)
{
	return ((uint64_t)(port & 0x3f) << 10) | (queue & 0x3ff);
}

/** The epoch, shifted to its bits; 0 while stamps are disarmed. */
static inline uint64_t
pmdscope_stamp_now(void)
{
	return __atomic_load_n(&pmdscope_stamps.now, __ATOMIC_RELAXED);
}

/** Address of the stamp of an mbuf; only while stamps are armed. */
static inline uint64_t *
pmdscope_stamp_of(struct rte_mbuf *m)
{
	return (uint64_t *)((uintptr_t)m + (uintptr_t)pmdscope_stamps.offset);
}

/** The last stamp of an mbuf; only while stamps are armed. */
static inline uint64_t
pmdscope_stamp_get(struct rte_mbuf *m)
{
	return __atomic_load_n(pmdscope_stamp_of(m), __ATOMIC_RELAXED);
}

/** Stamp one segment. */
static inline void
pmdscope_stamp_seg(struct rte_mbuf *m, uint64_t stamp)
{
	__atomic_store_n(pmdscope_stamp_of(m), stamp, __ATOMIC_RELAXED);
}

/** Stamp all segments of a packet. */
static inline void
pmdscope_stamp_packet(struct rte_mbuf *m, uint64_t stamp)
{
	pmdscope_stamp_seg(m, stamp);
	if (unlikely(m->nb_segs > 1))
		for (m = m->next; m != NULL; m = m->next)
			pmdscope_stamp_seg(m, stamp);
}

/** One wrapped call in the source. Static, so that it exists before the first packet. */
struct pmdscope_site {
	const char *file;
	const char *function;
	const char *operation; /**< Short name of the called function. */
	uint32_t line;
	uint32_t id; /**< Given at the first armed call; 0 before. */
};

/**
 * Assign a number to a site. Called once per site, on the thread that stamps there first;
 * lock-free. The strings are copied, so that the code may be unloaded.
 */
uint32_t pmdscope_site_register(struct pmdscope_site *site);

/** The attempted use of an mbuf whose stamp says that it is already free. */
enum pmdscope_misuse {
	PMDSCOPE_MISUSE_FREE,
	PMDSCOPE_MISUSE_TX,
};

/**
 * Called, rarely, for an mbuf whose stamp says that it is free or was sent. Counts a misuse if the
 * mbuf is indeed in its pool; otherwise notes that code without stamps takes mbufs from that pool.
 * Reads only; the work is bounded, and done only a few times per epoch.
 */
void pmdscope_trace_misuse(const struct rte_mbuf *m, uint64_t stamp, enum pmdscope_misuse misuse);
/** @} */

/**
 * Name a stage of the application: a place where it holds mbufs, such as a reassembly queue.
 *
 * Not for the fast path: call it once and keep the number.
 *
 * @param name
 *   Name of the stage, at most 63 bytes. Copied. The same name gives the same number.
 * @return
 *   The stage, above 0; otherwise -EINVAL for a name that is empty or too long, -ENOSPC when
 *   there are too many stages and call sites. Works before pmdscope_init() as well.
 */
int pmdscope_stage(const char *name);

/**
 * Let a stage keep mbufs for any time: they are never reported as leaked there.
 *
 * @param stage
 *   From pmdscope_stage().
 * @return
 *   0, or -EINVAL when there is no such stage.
 */
int pmdscope_stage_hold(int stage);

/**
 * Note that packets are in a stage now. Costs a load and a branch while stamps are disarmed.
 *
 * @param pkts
 *   Packets that the caller owns.
 * @param nb_pkts
 *   Their number.
 * @param stage
 *   From pmdscope_stage(); a negative one is ignored, so that its error need not be checked.
 */
static inline void
pmdscope_mark_bulk(struct rte_mbuf **pkts, unsigned int nb_pkts, int stage)
{
	const uint64_t now = pmdscope_stamp_now();
	unsigned int i;
	uint64_t stamp;

	if (likely(now == 0) || unlikely(stage <= 0))
		return;
	stamp = now | PMDSCOPE_STAMP_APP |
		(((uint64_t)stage << PMDSCOPE_STAMP_SITE_SHIFT) & PMDSCOPE_STAMP_SITE);
	for (i = 0; i < nb_pkts; i++)
		pmdscope_stamp_packet(pkts[i],
				stamp | (pmdscope_stamp_get(pkts[i]) & PMDSCOPE_STAMP_ORIGIN));
}

/** As pmdscope_mark_bulk() for one packet. */
static inline void
pmdscope_mark(struct rte_mbuf *m, int stage)
{
	pmdscope_mark_bulk(&m, 1, stage);
}

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* PMDSCOPE_H */
