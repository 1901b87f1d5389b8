/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_H
#define PMDSCOPE_H

/**
 * @file
 * libpmdscope: observe a DPDK application from the inside.
 *
 * Call pmdscope_init() once after rte_eal_init(), pmdscope_poll() once per
 * iteration of every poll loop, and pmdscope_fini() before rte_eal_cleanup().
 * Ports, queues, mempools and rings are found without further calls. The
 * results are served on the DPDK telemetry socket under /pmdscope, and packets
 * on a socket of their own; see docs/telemetry.md and docs/ring.md.
 *
 * The fast path (pmdscope_poll() and the ethdev callbacks) allocates nothing,
 * takes no lock, makes no system call and logs nothing.
 */

#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_lcore.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden symbols; what this header declares is its interface. */
#pragma GCC visibility push(default)

/** Version of the library, as "major.minor.patch". */
#define PMDSCOPE_VERSION "0.1.0"

/** Do not offer packets to capture tools: no socket, no copying. */
#define PMDSCOPE_F_NO_TEE (1U << 0)

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
	/** Most memory that the rings of one capture session may take, MiB, 1 to 1024. Default 64. */
	uint32_t tee_session_mb;
	/** Name of a group whose members may capture; NULL admits only the app's own user and root. */
	const char *tee_group;
	/** PMDSCOPE_F_* flags. */
	uint32_t flags;
};

/** Buckets of the poll-gap histogram: under 1 us, then [2^(i-1), 2^i) us, the last open-ended. */
#define PMDSCOPE_GAP_BUCKETS 24

/** A high-water mark over fixed windows, with one writer. */
struct pmdscope_window {
	uint64_t id;   /**< Number of the window that max belongs to. */
	uint64_t max;  /**< Highest value in that window. */
	uint64_t prev; /**< Highest value in the window before it. */
};

/** What one polling lcore has seen. Written by that lcore alone; read by the control thread. */
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
};

/** Per-lcore state, indexed by rte_lcore_id(). For pmdscope_poll(); not for applications. */
extern struct pmdscope_lcore pmdscope_lcores[RTE_MAX_LCORE];

/**
 * Shortest gap that the cold half of pmdscope_poll() sees, TSC cycles: 1 us while the library
 * runs, 0 in its first moment so that every polling lcore registers, UINT64_MAX otherwise.
 */
extern uint64_t pmdscope_gap_min;

/** Cold half of pmdscope_poll(): registers the lcore, files a gap. Not for applications. */
void pmdscope_poll_gap(struct pmdscope_lcore *lc, uint64_t now, uint64_t gap);

/** Cold half of pmdscope_poll(): counts a poll of a thread without an lcore id. */
void pmdscope_poll_foreign(void);

/**
 * Start observing this process.
 *
 * Call it once, on any thread, after rte_eal_init(). Ports may be configured
 * before or after. Costs one control thread, placed by the EAL off the lcores
 * where it can.
 *
 * @param conf
 *   Settings, or NULL for the defaults. Copied.
 * @return
 *   0 on success, otherwise:
 *   - -EALREADY: already started.
 *   - -EINVAL: a setting is out of range.
 *   - -ENOTSUP: this is a DPDK secondary process.
 *   - -ENOMEM: no memory.
 *   - another negative errno when the control thread could not start.
 *   A missing telemetry socket or capture socket is logged, not an error.
 */
int pmdscope_init(const struct pmdscope_conf *conf);

/**
 * Stop observing: close captures, remove the ethdev callbacks, stop the thread.
 *
 * Call it on the thread that called pmdscope_init(), before rte_eal_cleanup()
 * and preferably after the poll loops have ended. Safe to call while lcores
 * still poll, and when the library was never started. Memory that a stuck lcore
 * may still use is abandoned rather than waited for.
 */
void pmdscope_fini(void);

/**
 * Tell the library that this lcore has gone once round its poll loop.
 *
 * Thread-safe: every lcore writes only its own state. Does nothing before
 * pmdscope_init(). Calls from a thread without an lcore id are only counted.
 *
 * @param nb_rx
 *   Packets received in this iteration, over all queues.
 */
static inline void
pmdscope_poll(uint16_t nb_rx)
{
	const unsigned int lcore = rte_lcore_id();
	struct pmdscope_lcore *lc;
	uint64_t now, gap;

	if (unlikely(lcore >= RTE_MAX_LCORE)) {
		pmdscope_poll_foreign();
		return;
	}

	lc = &pmdscope_lcores[lcore];
	now = rte_rdtsc();
	gap = now - lc->last_tsc;
	lc->last_tsc = now;
	lc->polls++;
	lc->busy_polls += nb_rx != 0;
	lc->packets += nb_rx;
	if (gap >= pmdscope_gap_min)
		pmdscope_poll_gap(lc, now, gap);
}

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* PMDSCOPE_H */
