/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "leak_app.h"
#include "pmdscope.h"

#ifdef PMDSCOPE_TRACE_H
#define NAME(name) leak_traced_##name
#else
#define NAME(name) leak_plain_##name
#endif

/* The line of the statement is that of this kind. */
/* Carry out a call, and note its line. */
#define AT(kind, call) (lines[kind] = __LINE__, (call))

static unsigned int lines[LEAK_KINDS];

static void
lose_clone(struct leak_app *app, struct rte_mbuf *m)
{
	app->lost = AT(LEAK_CLONE, rte_pktmbuf_clone(m, app->clones));
}

static void
lose_tail(struct leak_app *app, struct rte_mbuf *m)
{
	struct rte_mbuf *tail = AT(LEAK_TAIL, rte_pktmbuf_alloc(app->pool));

	if (tail == NULL)
		return;
	m->next = tail;
	m->nb_segs = 2;
	/* The bug. */
	m->next = NULL;
	m->nb_segs = 1;
	app->lost = tail;
}

static void
lose_unsent(struct leak_app *app, struct rte_mbuf *m)
{
	if (AT(LEAK_UNSENT, rte_eth_tx_burst(app->full_port, 0, &m, 1)) == 0)
		app->lost = m;
}

static void
free_twice(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
	AT(LEAK_DOUBLE_FREE, rte_pktmbuf_free(m));
}

static void
send_freed(struct leak_app *app, struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
	AT(LEAK_USE_AFTER_FREE, rte_eth_tx_burst(app->full_port, 0, &m, 1));
}

/* Handle the rest of the burst. */
static uint16_t
misbehave(struct leak_app *app, enum leak_kind kind, struct rte_mbuf **pkts, uint16_t nb)
{
	struct rte_mbuf *m = pkts[nb - 1];

	switch (kind) {
	case LEAK_RX:
		app->lost = m;
		if (app->kept != NULL)
			app->kept[app->nb_kept++] = m;
		return nb - 1;
	case LEAK_CLONE:
		lose_clone(app, m);
		return nb;
	case LEAK_TAIL:
		lose_tail(app, m);
		return nb;
	case LEAK_UNSENT:
		lose_unsent(app, m);
		return nb - 1;
	case LEAK_OVERFLOW:
		if (rte_ring_enqueue(app->ring, m) != 0)
			app->lost = m;
		return nb - 1;
	case LEAK_MARKED:
		pmdscope_mark(m, app->stage);
		app->lost = m;
		return nb - 1;
	case LEAK_DOUBLE_FREE:
		free_twice(m);
		return nb - 1;
	case LEAK_USE_AFTER_FREE:
		send_freed(app, m);
		return nb - 1;
	default:
		return nb;
	}
}

uint16_t
NAME(poll)(struct leak_app *app, enum leak_kind kind)
{
	struct rte_mbuf *pkts[LEAK_BURST];
	uint16_t nb_rx, nb, nb_tx;

	nb_rx = AT(LEAK_RX, rte_eth_rx_burst(app->port, 0, pkts, LEAK_BURST));
	nb = nb_rx == 0 ? 0 : misbehave(app, kind, pkts, nb_rx);
	nb_tx = rte_eth_tx_burst(app->port, 0, pkts, nb);
	if (nb_tx < nb)
		rte_pktmbuf_free_bulk(pkts + nb_tx, nb - nb_tx);
	app->packets += nb_rx;
	return nb_rx;
}

unsigned int
NAME(line)(enum leak_kind kind)
{
	return lines[kind == LEAK_OVERFLOW ? LEAK_RX : kind];
}

const char *
NAME(file)(void)
{
	const char *file = __FILE__;

	while (strncmp(file, "../", 3) == 0)
		file += 3;
	return file;
}
