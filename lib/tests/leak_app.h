/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEAK_APP_H
#define LEAK_APP_H

/*
 * A forwarder that loses mbufs on request. Built twice: with pmdscope_trace.h, as leak_traced_*,
 * and without, as leak_plain_*.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#define LEAK_BURST 32

enum leak_kind {
	LEAK_NONE,
	LEAK_RX,       /* One received packet is forgotten. */
	LEAK_CLONE,    /* A clone is forgotten. */
	LEAK_TAIL,     /* The second segment of a chain is cut off. */
	LEAK_UNSENT,   /* Packets that the NIC did not take are forgotten. */
	LEAK_OVERFLOW, /* A packet that a full ring did not take is forgotten. */
	LEAK_MARKED,   /* One packet is forgotten in a stage. */
	LEAK_DOUBLE_FREE,
	LEAK_USE_AFTER_FREE,
	LEAK_KINDS,
};

struct leak_app {
	uint16_t port;
	uint16_t full_port; /* Takes no packets. */
	int stage;
	struct rte_mempool *pool;
	struct rte_mempool *clones;
	struct rte_ring *ring;	/* Full. */
	struct rte_mbuf *lost;	/* The last one. */
	struct rte_mbuf **kept; /* Room for those lost by LEAK_RX, or NULL. */
	unsigned int nb_kept;
	uint64_t packets;
};

/*
 * Receive a burst, commit the bug unless kind is LEAK_NONE, send it. Returns the packets received.
 */
uint16_t leak_traced_poll(struct leak_app *app, enum leak_kind kind);
uint16_t leak_plain_poll(struct leak_app *app, enum leak_kind kind);

/* The line of the traced call that had the mbuf last. */
unsigned int leak_traced_line(enum leak_kind kind);
unsigned int leak_plain_line(enum leak_kind kind);

/* The file of these lines, as in the ledger. */
const char *leak_traced_file(void);
const char *leak_plain_file(void);

#endif /* LEAK_APP_H */
