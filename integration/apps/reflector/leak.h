/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEAK_H
#define LEAK_H

/* A packet leak on demand, of the kind that real applications have. */

#include <stdint.h>

#include <rte_mbuf.h>

/*
 * Send a burst and free what TX refuses, except the first refused packet. Returns the number
 * sent; one of the others, if there are any, is lost.
 */
uint16_t leak_send(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts);

/* Its faulty half: free the packets from first up to nb_pkts, except the first of them. */
void leak_free_unsent(struct rte_mbuf **pkts, uint16_t first, uint16_t nb_pkts);

#endif /* LEAK_H */
