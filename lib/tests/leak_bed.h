/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEAK_BED_H
#define LEAK_BED_H

/* Shared by the tests of the leak ledger: the app under test, and queries to the library. */

#include <stdbool.h>
#include <stdint.h>

#include "leak_app.h"
#include "pmdscope.h"

#define POOL_SIZE 8191

/* Stamps from the start, and short times until a leak is confirmed. */
extern const struct pmdscope_conf always;

extern struct leak_app app;
/* The lcore that runs it. */
extern unsigned int worker;

/* Orders to the worker. */
struct leak_orders {
	bool stop, idle, plain, paused;
	enum leak_kind kind;
	uint16_t (*poll)(struct leak_app *app, bool lose); /* Replaces its own function. */
	unsigned int nb_leaks; /* Still to be made, one in `every` bursts. */
	unsigned int every;
	unsigned int per_second; /* If set, leaks per second. */
	uint64_t bursts;	 /* Completed by the worker. */
};
extern volatile struct leak_orders orders;

void start_app(void);
void stop_app(void);

/* A table of the library. */
const char *ask(const char *table);
uint64_t ledger(const char *pool, const char *column);
/* The parts add up to the pool, and its losses are not larger than that. */
void check_sum(const char *pool);
/* Losses of the app's pool: the confirmed ones, and those counted as a minimum. */
uint64_t lost(void);
/* Lost or misused mbufs at a site, 0 when there is no such row. */
uint64_t site(const char *pool, const char *name, const char *what, const char *column);
bool has_site(const char *pool, const char *name, const char *what, uint64_t nb);
uint64_t all_leaked(void);
/* Line at which the traced app lost it, as in the ledger. */
const char *line_of(enum leak_kind k);

/* Have the app lose nb mbufs, and wait until it has. */
void lose(enum leak_kind k, unsigned int nb);
/*
 * Lose mbufs until none is received. A few are left: DPDK 21.11 takes a burst from the cache or from
 * the ring of a pool, not from both.
 */
void lose_all(void);
void restart(const struct pmdscope_conf *conf);
/* Wait for nb more walks by the ledger of the app's pool. */
void await_walks(unsigned int nb);
/* Wait until the worker has read the orders, and completed what it did before. */
void await_bursts(unsigned int nb);
/* Run without leaks for this time. */
void expect_no_leak(unsigned int ms);

/* leak_dump.c: the bytes of lost mbufs. */
void test_dump(void);

/* leaks_auto.c: stamps on demand. */
void test_auto(void);
void test_arm(void);
void test_auto_single(void);
void test_auto_unread(void);
void test_auto_exhausted(void);
void test_auto_halves(void);
void test_auto_fast(void);
void test_auto_at_once(void);
void test_auto_late(void);
void test_auto_long_missing(void);

#endif /* LEAK_BED_H */
