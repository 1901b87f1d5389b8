/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_H
#define PMDSCOPE_CAPTURE_H

/*
 * Copies packets of a burst into the capture rings of the armed sessions.
 *
 * Fast path: pmdscope_capture_burst(), from the ethdev callbacks, and pmdscope_tx_captured().
 * Everything else runs on the control thread (or a telemetry thread) with the state lock held.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include "page.h"
#include "pmdscope.h"
#include "pmdscope_ring.h"

/* Copy a burst into every session that selects it. Out of line: captures are rare. */
void pmdscope_capture_copy(uint16_t port, uint16_t queue, uint8_t dir, struct rte_mbuf **pkts,
		uint16_t nb_pkts);

static inline bool
pmdscope_capture_is_armed(void)
{
	return __atomic_load_n(&pmdscope_tee_armed, __ATOMIC_RELAXED) != NULL;
}

static inline void
pmdscope_capture_burst(uint16_t port, uint16_t queue, uint8_t dir, struct rte_mbuf **pkts,
		uint16_t nb_pkts)
{
	if (likely(!pmdscope_capture_is_armed()))
		return;
	pmdscope_capture_copy(port, queue, dir, pkts, nb_pkts);
}

/* The rest is not for lcores. conf has its defaults filled in. */

/*
 * Open the capture socket in the runtime directory and add it to the epoll set of
 * the control thread, with a non-NULL data.ptr. 0, or a negative errno (already logged):
 * the library then runs without captures.
 */
int pmdscope_capture_start(const struct pmdscope_conf *conf, int epfd);

/* An event on a descriptor of ours. Never blocks. */
void pmdscope_capture_event(void *ptr, uint32_t events);

/* Once per sample: leases, broken rings, rings for lcores that began to poll, anchors. */
void pmdscope_capture_tick(void);

/* End every session, close and remove the socket. */
void pmdscope_capture_stop(void);

/* Path of the socket, for /pmdscope. */
const char *pmdscope_capture_socket_path(void);
unsigned int pmdscope_capture_nb_sessions(void);
uint64_t pmdscope_capture_foreign_bursts(void);
uint64_t pmdscope_capture_abandoned_bytes(void);

/* /pmdscope/tee. */
extern const struct pmdscope_table pmdscope_capture_table;

#endif /* PMDSCOPE_CAPTURE_H */
