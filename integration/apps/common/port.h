/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PORT_H
#define PORT_H

/* Starts and stops ports. Each error is printed with advice. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

/* Device name of a port, for messages. */
const char *port_name(uint16_t port);

/* Configure and start a port with this many queues. 0 or a negative errno, reported. */
int port_start(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t descriptors,
		struct rte_mempool *pool);

bool port_link_up(uint16_t port);

void port_stop(uint16_t port);
void port_close(uint16_t port);

#endif /* PORT_H */
