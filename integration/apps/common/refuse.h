/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef REFUSE_H
#define REFUSE_H

/*
 * Makes TX queues look full on demand, also if the device accepts all packets. The last packet of a
 * burst is withheld from the driver, so rte_eth_tx_burst() itself returns one less, as it does
 * without a free descriptor.
 */

#include <stdbool.h>

#include "lane.h"

/* The next rte_eth_tx_burst() of this thread on an installed queue refuses its last packet. */
extern __thread bool refuse_next;

/* Each rte_eth_tx_burst() of this thread on an installed queue refuses all packets. */
extern __thread bool refuse_all;

/*
 * Call it when the ports run, and after pmdscope_init(): a full ring refuses packets
 * that callbacks have already seen. It is removed with the port. 0 or a negative errno.
 */
int refuse_install(const struct lanes *lanes);

#endif /* REFUSE_H */
