/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * LOOP is the name of the function; LOOP_POLLS and LOOP_HISTORY add the code of their
 * variants. The rest is the same source, so that the compiler gets the same application.
 */

#include <rte_ethdev.h>
#include <rte_ether.h>

#include <pmdscope.h>

#include "loop.h"

static inline void
swap_macs(struct rte_mbuf *m)
{
	struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	const struct rte_ether_addr held = eth->src_addr;

	eth->src_addr = eth->dst_addr;
	eth->dst_addr = held;
}

uint64_t
LOOP(struct nic *nic, uint32_t bursts)
{
	struct rte_mbuf *pkts[NIC_BURST];
	uint16_t nb_rx, nb_tx, i;
	uint64_t packets = 0;

	while (bursts-- > 0) {
		nic_step(nic);
		nb_rx = rte_eth_rx_burst(nic->port, 0, pkts, NIC_BURST);
#ifdef LOOP_HISTORY
		history_mark_bulk(pkts, nb_rx, HISTORY_RX);
#endif
		for (i = 0; i < nb_rx; i++)
			swap_macs(pkts[i]);
#ifdef LOOP_HISTORY
		history_mark_bulk(pkts, nb_rx, HISTORY_TX);
#endif
		nb_tx = rte_eth_tx_burst(nic->port, 0, pkts, nb_rx);
		if (unlikely(nb_tx < nb_rx))
			rte_pktmbuf_free_bulk(&pkts[nb_tx], nb_rx - nb_tx);
#ifdef LOOP_POLLS
		pmdscope_poll(nb_rx);
#endif
		packets += nb_rx;
	}
	return packets;
}
