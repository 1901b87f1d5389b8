/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PORT_H
#define PMDSCOPE_PORT_H

/* Events of ethdev ports: starts, stops, changes of the link. */

#include <stdbool.h>
#include <stdint.h>

#include "page.h"

/* /pmdscope/ports. */
extern const struct pmdscope_table pmdscope_port_table;

/* State lock held in all of these. */
void pmdscope_port_start(void);
void pmdscope_port_stop(void);
/* A port with this name exists; it may be the same as before or another one. */
void pmdscope_port_see(uint16_t id, const char *device);
/* The port was removed. */
void pmdscope_port_forget(uint16_t id);
/* Count changes since the last call. Calls no driver. */
void pmdscope_port_sample(void);

/*
 * On the lcore that polls a started port: whether its driver counts the packets that wait in a queue.
 * From DPDK 26.07 on, rte_eth_rx_queue_count() returns 0 and no error if it does not.
 */
bool pmdscope_port_counts_waiting(uint16_t id);

#endif /* PMDSCOPE_PORT_H */
