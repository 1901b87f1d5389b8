/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEAK_BED_H
#define LEAK_BED_H

/* What the tests of the leak ledger share: the app under test and questions to the library. */

#include <stdbool.h>
#include <stdint.h>

#include "leak_app.h"
#include "pmdscope.h"

#define POOL_SIZE 8191

/* Stamps from the start, and soon sure. */
extern const struct pmdscope_conf always;

extern struct leak_app app;
/* The lcore that runs it. */
extern unsigned int worker;

/* Orders to the worker. */
struct leak_orders {
	bool stop, idle, plain, paused;
	enum leak_kind kind;
	uint16_t (*poll)(struct leak_app *app, bool lose); /* Instead of its own. */
	unsigned int nb_leaks; /* Still to be made, one every so many bursts. */
	unsigned int every;
	unsigned int per_second; /* If it is set, so many a second. */
	uint64_t bursts;	 /* The worker's: that it has been through. */
};
extern volatile struct leak_orders orders;

void start_app(void);
void stop_app(void);

/* A table of the library. */
const char *ask(const char *table);
uint64_t ledger(const char *pool, const char *column);
/* The parts add up to the pool, and no more than that is lost. */
void check_sum(const char *pool);
/* Of the app's pool: what is lost for sure, and at least, besides. */
uint64_t lost(void);
/* Lost or misused mbufs at a site, 0 when there is no such row. */
uint64_t site(const char *pool, const char *name, const char *what, const char *column);
bool has_site(const char *pool, const char *name, const char *what, uint64_t nb);
uint64_t all_leaked(void);
/* Where the traced app lost it, as the ledger names it. */
const char *line_of(enum leak_kind k);

/* Have the app lose so many, and wait until it has. */
void lose(enum leak_kind k, unsigned int nb);
/*
 * Lose mbufs until none is received. A few are left: DPDK 21.11 takes a burst from the cache or from
 * the ring of a pool, not from both.
 */
void lose_all(void);
void restart(const struct pmdscope_conf *conf);
/* So many walks more, by the ledger of the app's pool. */
void await_walks(unsigned int nb);
/* The worker has seen the orders, and is through with what it did before. */
void await_bursts(unsigned int nb);
/* Run clean for so long. */
void expect_no_leak(unsigned int ms);

/* leak_dump.c: the bytes of what was lost. */
void test_dump(void);

/* leaks_auto.c: stamps by need. */
void test_auto(void);
void test_arm(void);
void test_auto_single(void);
void test_auto_exhausted(void);
void test_auto_halves(void);
void test_auto_fast(void);
void test_auto_at_once(void);
void test_auto_late(void);
void test_auto_long_missing(void);

#endif /* LEAK_BED_H */
