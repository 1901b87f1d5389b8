/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf_dyn.h>
#include <rte_random.h>

#include "nic.h"

#define RING_SIZE 128
#define POOL_CACHE 256
#define FRAME 60

int history_offset;

static struct rte_mbuf **
slot(const struct nic *nic, struct rte_mbuf **ring, uint32_t at)
{
	return &ring[at & (nic->descriptors - 1U)];
}

/* The pool of an application that has run for long has no order. */
static int
shuffle(struct rte_mempool *pool)
{
	const unsigned int size = pool->size;
	void **objects = calloc(size, sizeof(*objects)), *held;
	unsigned int i, other;

	if (objects == NULL || rte_mempool_get_bulk(pool, objects, size) != 0) {
		free(objects);
		return -ENOMEM;
	}
	for (i = size - 1; i > 0; i--) {
		other = (unsigned int)rte_rand_max(i + 1);
		held = objects[i];
		objects[i] = objects[other];
		objects[other] = held;
	}
	rte_mempool_put_bulk(pool, objects, size);
	free(objects);
	return 0;
}

static int
start_port(struct nic *nic, const char *name)
{
	const struct rte_eth_conf conf = { 0 };
	const int socket = (int)rte_socket_id();
	int rc = rte_eth_from_rings(name, &nic->rx, 1, &nic->tx, 1, (unsigned int)socket);

	if (rc < 0)
		return -rte_errno;
	nic->port = (uint16_t)rc;
	rc = rte_eth_dev_configure(nic->port, 1, 1, &conf);
	if (rc == 0)
		rc = rte_eth_rx_queue_setup(nic->port, 0, nic->descriptors, (unsigned int)socket,
				NULL, nic->pool);
	if (rc == 0)
		rc = rte_eth_tx_queue_setup(
				nic->port, 0, nic->descriptors, (unsigned int)socket, NULL);
	if (rc == 0)
		rc = rte_eth_dev_start(nic->port);
	return rc;
}

int
nic_open(struct nic *nic, const char *name, uint16_t descriptors, unsigned int mbufs)
{
	const int socket = (int)rte_socket_id();
	char text[RTE_RING_NAMESIZE];

	*nic = (struct nic){ .descriptors = descriptors };
	nic->pool = rte_pktmbuf_pool_create(
			name, mbufs, POOL_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, socket);
	snprintf(text, sizeof(text), "%s_rx", name);
	nic->rx = rte_ring_create(text, RING_SIZE, socket, RING_F_SP_ENQ | RING_F_SC_DEQ);
	snprintf(text, sizeof(text), "%s_tx", name);
	nic->tx = rte_ring_create(text, RING_SIZE, socket, RING_F_SP_ENQ | RING_F_SC_DEQ);
	nic->posted = calloc(descriptors, sizeof(*nic->posted));
	nic->sent = calloc(descriptors, sizeof(*nic->sent));
	if (nic->pool == NULL || nic->rx == NULL || nic->tx == NULL)
		return -rte_errno;
	if (nic->posted == NULL || nic->sent == NULL || shuffle(nic->pool) != 0)
		return -ENOMEM;
	return start_port(nic, name);
}

/* Like drivers, write only the first cache line of a received packet. */
static void
receive(struct nic *nic)
{
	struct rte_mbuf *pkts[NIC_BURST], *m;
	unsigned int i;

	for (i = 0; i < NIC_BURST; i++) {
		m = *slot(nic, nic->posted, nic->posted_tail++);
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->nb_segs = 1;
		m->port = nic->port;
		m->ol_flags = 0;
		m->packet_type = 0;
		m->pkt_len = FRAME;
		m->data_len = FRAME;
		pkts[i] = m;
	}
	rte_ring_sp_enqueue_burst(nic->rx, (void **)pkts, NIC_BURST, NULL);
}

static void
post(struct nic *nic)
{
	struct rte_mbuf *pkts[NIC_BURST];
	unsigned int i;

	if (rte_mempool_get_bulk(nic->pool, (void **)pkts, NIC_BURST) != 0)
		return;
	if (nic->history)
		history_mark_bulk(pkts, NIC_BURST, HISTORY_ALLOC);
	for (i = 0; i < NIC_BURST; i++)
		*slot(nic, nic->posted, nic->posted_head++) = pkts[i];
}

static void
complete(struct nic *nic)
{
	struct rte_mbuf *pkts[NIC_BURST];
	unsigned int i;

	for (i = 0; i < NIC_BURST; i++)
		pkts[i] = rte_pktmbuf_prefree_seg(*slot(nic, nic->sent, nic->sent_tail++));
	if (nic->history)
		history_mark_bulk(pkts, NIC_BURST, HISTORY_FREE);
	rte_mempool_put_bulk(nic->pool, (void **)pkts, NIC_BURST);
}

void
nic_step(struct nic *nic)
{
	struct rte_mbuf *pkts[NIC_BURST];
	unsigned int i, nb;

	nb = rte_ring_sc_dequeue_burst(nic->tx, (void **)pkts, NIC_BURST, NULL);
	while (nic->sent_head - nic->sent_tail + nb > nic->descriptors)
		complete(nic);
	for (i = 0; i < nb; i++)
		*slot(nic, nic->sent, nic->sent_head++) = pkts[i];
	while (nic->posted_head - nic->posted_tail + NIC_BURST <= nic->descriptors) {
		nb = nic->posted_head;
		post(nic);
		if (nic->posted_head == nb)
			break;
	}
	if (nic->posted_head - nic->posted_tail >= NIC_BURST)
		receive(nic);
}
