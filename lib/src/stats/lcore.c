/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_launch.h>

#include "clock.h"
#include "lcore.h"
#include "state.h"
#include "window.h"

#define US_PER_SEC UINT64_C(1000000)
/* Number of stalls of an lcore that are reported, and that are kept: more, because the lcore may
 * add some while they are read.
 */
#define STALLS_TOLD 4U
#define STALLS_KEPT 8U
/* Kept stalls of an lcore that no later one exceeded. Of N stalls with equally distributed lengths
 * there are about ln(N).
 */
#define STALLS_LONGEST 8U
/* If there are more of them, the oldest is removed once it is older than this, seconds. */
#define STALL_OLD_S 60U

struct pmdscope_lcore pmdscope_lcores[RTE_MAX_LCORE];
uint64_t pmdscope_gap_min = UINT64_MAX;

/* Set before pmdscope_gap_min lets an lcore run the cold part. */
static uint64_t us_cycles;
static uint64_t us_reciprocal; /* 2^64 / us_cycles, rounded up. */
static uint64_t stall_cycles;
static uint64_t old_cycles;

struct noted_stall {
	uint64_t cycles;
	uint64_t end_tsc;
};

/*
 * The last stalls of each lcore, indexed by number, and the longest; written by that lcore alone.
 */
static struct __rte_cache_aligned stall_log {
	struct noted_stall stalls[STALLS_KEPT];
	uint32_t longest_seq; /* Odd while the members below change. */
	uint32_t nb_longest;
	struct noted_stall longest[STALLS_LONGEST]; /* Oldest and longest first. */
} stall_logs[RTE_MAX_LCORE];

static uint64_t foreign_polls;
/*
 * Lcores that have run ethdev callbacks, whether they call pmdscope_poll() or not; the last is for
 * threads without an lcore id.
 */
static uint8_t bursting[RTE_MAX_LCORE + 1];

/* Registered lcores, as of the last tick: rows must not appear within a page. */
static uint16_t rows[RTE_MAX_LCORE];
static unsigned int nb_rows;

/*
 * The first poll of a thread: the time before it is not a gap. tid is 0 when nothing
 * counted so far belongs to this run of the library.
 */
static void
adopt(struct pmdscope_lcore *lc, int32_t tid)
{
	if (lc->tid == 0) {
		if (lc->polls > 1) {
			lc->polls = 1;
			lc->busy_polls = 0;
			lc->packets = 0;
		}
		lc->gap_max = 0;
		lc->gap_max_tsc = 0;
		lc->stalls = 0;
		__atomic_store_n(&stall_logs[lc - pmdscope_lcores].nb_longest, 0, __ATOMIC_RELAXED);
		lc->gap_window = (struct pmdscope_window){ 0 };
		memset(lc->gaps, 0, sizeof(lc->gaps));
	}
	lc->gaps[0]++;
	__atomic_store_n(&lc->tid, tid, __ATOMIC_RELEASE);
}

/*
 * Bucket of a gap: 0 below 1 us, then by powers of two. Multiplies, as a division takes 40 cycles.
 */
static unsigned int
gap_bucket(uint64_t gap)
{
	const uint64_t us = (uint64_t)((unsigned __int128)gap * us_reciprocal >> 64);
	const unsigned int bucket = us == 0 ? 0 : 64 - (unsigned int)__builtin_clzll(us);

	return RTE_MIN(bucket, PMDSCOPE_GAP_BUCKETS - 1U);
}

static void
put_longest(struct stall_log *log, unsigned int i, struct noted_stall stall)
{
	__atomic_store_n(&log->longest[i].cycles, stall.cycles, __ATOMIC_RELAXED);
	__atomic_store_n(&log->longest[i].end_tsc, stall.end_tsc, __ATOMIC_RELAXED);
}

/* Puts a stall after the first n. If there is no room, it replaces the oldest if that is old
 * enough, or else the one before it, which frequent readers have seen.
 */
static void
push_longest(struct stall_log *log, unsigned int n, struct noted_stall stall)
{
	const uint32_t seq = log->longest_seq;
	unsigned int i;

	__atomic_store_n(&log->longest_seq, seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (n == STALLS_LONGEST) {
		n--;
		if (stall.end_tsc - log->longest[0].end_tsc > old_cycles)
			for (i = 0; i < n; i++)
				put_longest(log, i, log->longest[i + 1]);
	}
	put_longest(log, n, stall);
	__atomic_store_n(&log->nb_longest, n + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&log->longest_seq, seq + 2, __ATOMIC_RELEASE);
}

/* For any moment in the past, the longest stall since then is the first in the log after it. */
static void
note_longest(struct stall_log *log, uint64_t now, uint64_t gap)
{
	unsigned int n = log->nb_longest;

	while (n > 0 && log->longest[n - 1].cycles <= gap)
		n--;
	push_longest(log, n, (struct noted_stall){ .cycles = gap, .end_tsc = now });
}

static void
note_stall(struct pmdscope_lcore *lc, uint64_t now, uint64_t gap)
{
	struct stall_log *log = &stall_logs[lc - pmdscope_lcores];
	const unsigned int i = lc->stalls % STALLS_KEPT;

	/* A reader that sees a part of this stall also sees the number of those before. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&log->stalls[i].cycles, gap, __ATOMIC_RELAXED);
	__atomic_store_n(&log->stalls[i].end_tsc, now, __ATOMIC_RELAXED);
	note_longest(log, now, gap);
	__atomic_store_n(&lc->stalls, lc->stalls + 1, __ATOMIC_RELEASE);
}

void
pmdscope_poll_gap(struct pmdscope_lcore *lc, uint64_t now, uint64_t gap)
{
	const int32_t tid = rte_gettid();
	unsigned int bucket;

	if (unlikely(lc->tid != tid)) {
		adopt(lc, tid);
		return;
	}
	/* The thread moved to a CPU whose counter is behind: the gap is unknown. */
	if (unlikely((int64_t)gap < 0)) {
		lc->gaps[0]++;
		return;
	}
	bucket = gap_bucket(gap);
	if (bucket > 0)
		lc->gaps[bucket]++;
	if (gap > lc->gap_max) {
		lc->gap_max_tsc = now;
		lc->gap_max = gap;
	}
	if (gap >= stall_cycles)
		note_stall(lc, now, gap);
	pmdscope_window_note(&lc->gap_window, gap);
}

void
pmdscope_poll_foreign(void)
{
	__atomic_fetch_add(&foreign_polls, 1, __ATOMIC_RELAXED);
}

void
pmdscope_lcore_bursts(void)
{
	const unsigned int lcore = rte_lcore_id();

	__atomic_store_n(&bursting[RTE_MIN(lcore, (unsigned int)RTE_MAX_LCORE)], 1,
			__ATOMIC_RELAXED);
}

void
pmdscope_lcore_start(uint32_t stall_us)
{
	unsigned int i;

	us_cycles = RTE_MAX(rte_get_tsc_hz() / US_PER_SEC, UINT64_C(2));
	us_reciprocal = UINT64_MAX / us_cycles + 1;
	stall_cycles = stall_us * us_cycles;
	old_cycles = STALL_OLD_S * US_PER_SEC * us_cycles;
	nb_rows = 0;
	__atomic_store_n(&foreign_polls, 0, __ATOMIC_RELAXED);
	for (i = 0; i < RTE_MAX_LCORE; i++)
		__atomic_store_n(&pmdscope_lcores[i].tid, 0, __ATOMIC_RELAXED);
	/*
	 * An lcore that polls fast may never have a gap: every poll calls the cold half until the
	 * tick.
	 */
	__atomic_store_n(&pmdscope_gap_min, 0, __ATOMIC_RELEASE);
}

void
pmdscope_lcore_tick(void)
{
	unsigned int i, n = 0;

	__atomic_store_n(&pmdscope_gap_min, us_cycles, __ATOMIC_RELAXED);
	for (i = 0; i < RTE_MAX_LCORE; i++)
		if (__atomic_load_n(&pmdscope_lcores[i].tid, __ATOMIC_ACQUIRE) != 0)
			rows[n++] = (uint16_t)i;
	/* Lcores never unregister, so a changed number shows every change. */
	if (n != nb_rows) {
		nb_rows = n;
		pmdscope_rows_changed();
	}
}

void
pmdscope_lcore_stop(void)
{
	__atomic_store_n(&pmdscope_gap_min, UINT64_MAX, __ATOMIC_RELEASE);
}

uint64_t
pmdscope_foreign_polls(void)
{
	return __atomic_load_n(&foreign_polls, __ATOMIC_RELAXED);
}

bool
pmdscope_lcore_shares_cpu(void)
{
	cpu_set_t mine, theirs, common;
	unsigned int i;

	if (pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine) != 0)
		return false;
	for (i = 0; i < nb_rows; i++) {
		const pid_t tid = __atomic_load_n(&pmdscope_lcores[rows[i]].tid, __ATOMIC_RELAXED);

		if (sched_getaffinity(tid, sizeof(theirs), &theirs) != 0)
			continue;
		CPU_AND(&common, &mine, &theirs);
		if (CPU_COUNT(&common) != 0)
			return true;
	}
	return false;
}

void
pmdscope_grace_begin(struct pmdscope_grace *grace)
{
	unsigned int i;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (i = 0; i < RTE_MAX_LCORE; i++)
		grace->polls[i] = __atomic_load_n(&pmdscope_lcores[i].polls, __ATOMIC_RELAXED);
}

/* The lcore cannot be in a burst now, even if its poll counter has not changed. */
bool
pmdscope_lcore_is_idle(unsigned int lcore)
{
	const enum rte_lcore_role_t role = rte_eal_lcore_role(lcore);

	/* The lcore that waits for us to stop is not in a burst either. */
	if (lcore == rte_lcore_id() || role == ROLE_OFF ||
			lcore == __atomic_load_n(&pmdscope_state.stopping_lcore, __ATOMIC_RELAXED))
		return true;
	if (__atomic_load_n(&pmdscope_lcores[lcore].tid, __ATOMIC_RELAXED) == 0 &&
			__atomic_load_n(&bursting[lcore], __ATOMIC_RELAXED) == 0)
		return true;
	/* The EAL keeps a state only for threads that it launches functions on. */
	return role != ROLE_NON_EAL && lcore != rte_get_main_lcore() &&
	       rte_eal_get_lcore_state(lcore) == WAIT;
}

bool
pmdscope_grace_over(const struct pmdscope_grace *grace)
{
	unsigned int i;

	/* It cannot be known where a thread without an lcore id is. */
	if (pmdscope_foreign_polls() != 0 ||
			__atomic_load_n(&bursting[RTE_MAX_LCORE], __ATOMIC_RELAXED) != 0)
		return false;
	for (i = 0; i < RTE_MAX_LCORE; i++) {
		const uint64_t polls = __atomic_load_n(&pmdscope_lcores[i].polls, __ATOMIC_ACQUIRE);

		if (polls == grace->polls[i] && !pmdscope_lcore_is_idle(i))
			return false;
	}
	return true;
}

enum {
	COL_LCORE,
	COL_ROLE,
	COL_TID,
	COL_POLLS,
	COL_BUSY_POLLS,
	COL_PACKETS,
	COL_IDLE_US,
	COL_GAP_WINDOW_MAX_US,
	COL_GAP_MAX_US,
	COL_GAP_MAX_REALTIME_NS,
	COL_STALLS,
	COL_STALL_LAST_US,
	COL_STALL_LAST_REALTIME_NS,
	COL_STALL_LONGEST_US,
	COL_STALL_LONGEST_REALTIME_NS,
	COL_GAPS,
};

static const struct pmdscope_column columns[] = {
	[COL_LCORE] = { "lcore", PMDSCOPE_COLUMN_U64, 1 },
	[COL_ROLE] = { "role", PMDSCOPE_COLUMN_STR, 1 },
	[COL_TID] = { "tid", PMDSCOPE_COLUMN_U64, 1 },
	[COL_POLLS] = { "polls", PMDSCOPE_COLUMN_U64, 1 },
	[COL_BUSY_POLLS] = { "busy_polls", PMDSCOPE_COLUMN_U64, 1 },
	[COL_PACKETS] = { "packets", PMDSCOPE_COLUMN_U64, 1 },
	[COL_IDLE_US] = { "idle_us", PMDSCOPE_COLUMN_U64, 1 },
	[COL_GAP_WINDOW_MAX_US] = { "gap_window_max_us", PMDSCOPE_COLUMN_U64, 1 },
	[COL_GAP_MAX_US] = { "gap_max_us", PMDSCOPE_COLUMN_U64, 1 },
	[COL_GAP_MAX_REALTIME_NS] = { "gap_max_realtime_ns", PMDSCOPE_COLUMN_U64, 1 },
	[COL_STALLS] = { "stalls", PMDSCOPE_COLUMN_U64, 1 },
	[COL_STALL_LAST_US] = { "stall_last_us", PMDSCOPE_COLUMN_U64, STALLS_TOLD },
	[COL_STALL_LAST_REALTIME_NS] = { "stall_last_realtime_ns", PMDSCOPE_COLUMN_U64,
			STALLS_TOLD },
	[COL_STALL_LONGEST_US] = { "stall_longest_us", PMDSCOPE_COLUMN_U64, STALLS_LONGEST },
	[COL_STALL_LONGEST_REALTIME_NS] = { "stall_longest_realtime_ns", PMDSCOPE_COLUMN_U64,
			STALLS_LONGEST },
	[COL_GAPS] = { "gaps", PMDSCOPE_COLUMN_U64, PMDSCOPE_GAP_BUCKETS },
};

static unsigned int
lcore_count(void)
{
	return nb_rows;
}

static const char *
role_name(unsigned int lcore)
{
	if (lcore == rte_get_main_lcore())
		return "main";
	return rte_lcore_is_enabled(lcore) ? "worker" : "other";
}

/* polls is read after the buckets: it is counted before them, so bucket 0 is never negative. */
static void
fill_gaps(const struct pmdscope_lcore *lc, struct pmdscope_row *row)
{
	uint64_t others = __atomic_load_n(&lc->gaps[0], __ATOMIC_ACQUIRE);
	uint64_t polls;
	unsigned int i;

	for (i = 1; i < PMDSCOPE_GAP_BUCKETS; i++) {
		const uint64_t n = __atomic_load_n(&lc->gaps[i], __ATOMIC_ACQUIRE);

		pmdscope_row_u64(row, COL_GAPS, i, n);
		others += n;
	}
	polls = __atomic_load_n(&lc->polls, __ATOMIC_RELAXED);
	pmdscope_row_u64(row, COL_GAPS, 0, polls > others ? polls - others : 0);
	pmdscope_row_u64(row, COL_POLLS, 0, polls);
}

/* The number of stalls, and the last of them, newest first. */
static void
fill_stalls(const struct pmdscope_lcore *lc, struct pmdscope_row *row)
{
	const struct stall_log *log = &stall_logs[lc - pmdscope_lcores];
	const uint64_t count = __atomic_load_n(&lc->stalls, __ATOMIC_ACQUIRE);
	unsigned int i;

	pmdscope_row_u64(row, COL_STALLS, 0, count);
	for (i = 0; i < STALLS_TOLD; i++) {
		const unsigned int k = (unsigned int)(count - 1 - i) % STALLS_KEPT;
		uint64_t cycles = __atomic_load_n(&log->stalls[k].cycles, __ATOMIC_RELAXED);
		const uint64_t end = __atomic_load_n(&log->stalls[k].end_tsc, __ATOMIC_RELAXED);

		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		/* Does not exist, or was overwritten during the read. */
		if (i >= count || __atomic_load_n(&lc->stalls, __ATOMIC_RELAXED) - count >=
						  STALLS_KEPT - STALLS_TOLD)
			cycles = 0;
		pmdscope_row_u64(row, COL_STALL_LAST_US, i, pmdscope_clock_us(cycles));
		pmdscope_row_u64(row, COL_STALL_LAST_REALTIME_NS, i,
				cycles == 0 ? 0 : pmdscope_clock_realtime_ns(end));
	}
}

/* Returns their number; 0 as well if the lcore changed them during each try. */
static unsigned int
copy_longest(const struct stall_log *log, struct noted_stall stalls[STALLS_LONGEST])
{
	unsigned int tries, i;

	for (tries = 0; tries < 4; tries++) {
		const uint32_t seq = __atomic_load_n(&log->longest_seq, __ATOMIC_ACQUIRE);
		const uint32_t n = __atomic_load_n(&log->nb_longest, __ATOMIC_RELAXED);

		for (i = 0; i < STALLS_LONGEST; i++) {
			stalls[i].cycles =
					__atomic_load_n(&log->longest[i].cycles, __ATOMIC_RELAXED);
			stalls[i].end_tsc =
					__atomic_load_n(&log->longest[i].end_tsc, __ATOMIC_RELAXED);
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (seq % 2 == 0 && __atomic_load_n(&log->longest_seq, __ATOMIC_RELAXED) == seq)
			return n;
	}
	return 0;
}

static void
fill_longest(const struct pmdscope_lcore *lc, struct pmdscope_row *row)
{
	struct noted_stall stalls[STALLS_LONGEST];
	const unsigned int n = copy_longest(&stall_logs[lc - pmdscope_lcores], stalls);
	unsigned int i;

	for (i = 0; i < STALLS_LONGEST; i++) {
		const struct noted_stall *stall = i < n ? &stalls[n - 1 - i] : NULL;

		pmdscope_row_u64(row, COL_STALL_LONGEST_US, i,
				stall == NULL ? 0 : pmdscope_clock_us(stall->cycles));
		pmdscope_row_u64(row, COL_STALL_LONGEST_REALTIME_NS, i,
				stall == NULL ? 0 : pmdscope_clock_realtime_ns(stall->end_tsc));
	}
}

static void
lcore_fill(unsigned int i, struct pmdscope_row *row)
{
	const unsigned int lcore = rows[i];
	const struct pmdscope_lcore *lc = &pmdscope_lcores[lcore];
	const uint64_t gap_max = __atomic_load_n(&lc->gap_max, __ATOMIC_ACQUIRE);
	const uint64_t gap_max_tsc = __atomic_load_n(&lc->gap_max_tsc, __ATOMIC_RELAXED);
	const int64_t idle =
			(int64_t)(rte_rdtsc() - __atomic_load_n(&lc->last_tsc, __ATOMIC_RELAXED));

	pmdscope_row_u64(row, COL_LCORE, 0, lcore);
	pmdscope_row_str(row, COL_ROLE, role_name(lcore));
	pmdscope_row_u64(row, COL_TID, 0, (uint64_t)lc->tid);
	fill_gaps(lc, row);
	pmdscope_row_u64(
			row, COL_BUSY_POLLS, 0, __atomic_load_n(&lc->busy_polls, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_PACKETS, 0, __atomic_load_n(&lc->packets, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_IDLE_US, 0, idle > 0 ? pmdscope_clock_us((uint64_t)idle) : 0);
	pmdscope_row_u64(row, COL_GAP_WINDOW_MAX_US, 0,
			pmdscope_clock_us(pmdscope_window_last(&lc->gap_window)));
	pmdscope_row_u64(row, COL_GAP_MAX_US, 0, pmdscope_clock_us(gap_max));
	pmdscope_row_u64(row, COL_GAP_MAX_REALTIME_NS, 0,
			gap_max == 0 ? 0 : pmdscope_clock_realtime_ns(gap_max_tsc));
	fill_stalls(lc, row);
	fill_longest(lc, row);
}

const struct pmdscope_table pmdscope_lcore_table = {
	.name = "lcores",
	.help = "Polling lcores: gaps, stalls. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = lcore_count,
	.fill = lcore_fill,
};
