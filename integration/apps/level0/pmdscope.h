/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEVEL0_PMDSCOPE_H
#define LEVEL0_PMDSCOPE_H

/*
 * Replaces libpmdscope's header in apps that are built without the library: the calls do nothing,
 * and the library is not linked.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#define PMDSCOPE_VERSION "none"

enum pmdscope_leak_mode {
	PMDSCOPE_LEAK_AUTO,
	PMDSCOPE_LEAK_ALWAYS,
	PMDSCOPE_LEAK_NEVER,
};

struct pmdscope_conf {
	enum pmdscope_leak_mode leak_mode;
};

static inline int
pmdscope_parse_args(int argc, char **argv, struct pmdscope_conf *conf)
{
	(void)argv;
	(void)conf;
	return argc;
}

static inline int
pmdscope_init(const struct pmdscope_conf *conf)
{
	(void)conf;
	return 0;
}

static inline void
pmdscope_fini(void)
{
}

static inline void
pmdscope_poll(uint16_t nb_rx)
{
	(void)nb_rx;
}

static inline void
pmdscope_poll_tsc(uint16_t nb_rx, uint64_t tsc)
{
	(void)nb_rx;
	(void)tsc;
}

static inline int
pmdscope_stage(const char *name)
{
	(void)name;
	return 0;
}

static inline int
pmdscope_stage_hold(int stage)
{
	(void)stage;
	return 0;
}

static inline void
pmdscope_mark_bulk(struct rte_mbuf **pkts, unsigned int nb_pkts, int stage)
{
	(void)pkts;
	(void)nb_pkts;
	(void)stage;
}

static inline void
pmdscope_mark(struct rte_mbuf *m, int stage)
{
	(void)m;
	(void)stage;
}

#endif /* LEVEL0_PMDSCOPE_H */
