/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LIBRARY_APP_H
#define LIBRARY_APP_H

/*
 * An app that passes its packets to DPDK's libraries and loses some that they return. Built twice:
 * with the calls of these libraries traced, as library_traced_*, and with only those of the app
 * itself, as library_opaque_*.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "leak_app.h"

enum library_kind {
	LIBRARY_FRAGMENT,	 /* One of the fragments is forgotten. */
	LIBRARY_FRAGMENT_ALWAYS, /* Packets are forwarded; fragments are forgotten. */
	LIBRARY_REASSEMBLE,	 /* A reassembled packet is forgotten. */
	LIBRARY_REORDER,	 /* A packet that came back in order is forgotten. */
	LIBRARY_DISTRIBUTE,	 /* A packet is forgotten by the worker of a distributor. */
	LIBRARY_GRO,		 /* A merged packet is forgotten. */
	LIBRARY_GSO,		 /* A segment is forgotten. */
	LIBRARY_MULTICAST,	 /* A clone is forgotten. */
	LIBRARY_MULTICAST_COPY,	 /* Packets are cloned and sent; a copied fragment is forgotten. */
	LIBRARY_KINDS,
};

/* Fragments, or segments, of a packet. */
#define LIBRARY_FRAGMENTS 3
/* Packets that are merged into one; later releases of DPDK merge 20 at most. */
#define LIBRARY_MERGED 16

/* Receive a burst, pass it through the library, send it. Returns the packets received. */
uint16_t library_traced_poll(struct leak_app *app, enum library_kind kind, bool lose);
uint16_t library_opaque_poll(struct leak_app *app, enum library_kind kind, bool lose);

/* The worker of the distributor, until *stop. */
void library_traced_work(const volatile bool *stop);
void library_opaque_work(const volatile bool *stop);

/* Line of the call that returned the lost packet. */
unsigned int library_traced_line(enum library_kind kind);
unsigned int library_opaque_line(enum library_kind kind);
/* Line of the call that received it. */
unsigned int library_traced_rx_line(void);
unsigned int library_opaque_rx_line(void);

#endif /* LIBRARY_APP_H */
