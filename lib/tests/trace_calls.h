/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The calls of trace.h, for C and C++. The including file defines the function name, and the
 * head of each call: CALL(name) opens a function of (env, r) that returns nothing.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HERE(op, cl) \
	(r->file = __FILE__, r->line = __LINE__, r->operation = (op), \
			r->stamp_class = PMDSCOPE_STAMP_##cl)

CALL(alloc)
{
	HERE("alloc", APP), r->m = rte_pktmbuf_alloc(env->pool);
}

CALL(raw_alloc)
{
	HERE("raw_alloc", APP), r->m = rte_mbuf_raw_alloc(env->pool);
}

CALL(alloc_bulk)
{
	struct rte_mbuf *m[4];

	HERE("alloc_bulk", APP), rte_pktmbuf_alloc_bulk(env->pool, m, 4);
	r->m = m[3];
}

CALL(clone)
{
	HERE("clone", APP), r->m = rte_pktmbuf_clone(rte_pktmbuf_alloc(env->pool), env->pool);
}

CALL(copy)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(env->pool);

	rte_pktmbuf_append(m, 60);
	HERE("copy", APP), r->m = rte_pktmbuf_copy(m, env->pool, 0, UINT32_MAX);
}

CALL(chain)
{
	struct rte_mbuf *head = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("chain", APP), rte_pktmbuf_chain(head, r->m);
}

CALL(attach)
{
	struct rte_mbuf *direct = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("attach", APP), rte_pktmbuf_attach(r->m, direct);
}

CALL(detach)
{
	struct rte_mbuf *direct = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	rte_pktmbuf_attach(r->m, direct);
	HERE("detach", APP), rte_pktmbuf_detach(r->m);
}

CALL(detach_direct)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	rte_pktmbuf_attach(m, r->m);
	rte_pktmbuf_free(r->m);
	HERE("detach", FREE), rte_pktmbuf_detach(m);
}

CALL(prefree_seg)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("prefree_seg", FREE), rte_pktmbuf_prefree_seg(r->m);
}

CALL(raw_free)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("raw_free", FREE), rte_mbuf_raw_free(r->m);
}

CALL(free_seg)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("free_seg", FREE), rte_pktmbuf_free_seg(r->m);
}

CALL(free_packet)
{
	struct rte_mbuf *head = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	rte_pktmbuf_chain(head, r->m);
	HERE("free", FREE), rte_pktmbuf_free(head);
	rte_pktmbuf_free(NULL);
}

CALL(free_clone)
{
	struct rte_mbuf *clone;

	r->m = rte_pktmbuf_alloc(env->pool);
	clone = rte_pktmbuf_clone(r->m, env->pool);
	rte_pktmbuf_free(r->m);
	HERE("free", FREE), rte_pktmbuf_free(clone);
}

CALL(free_bulk)
{
	struct rte_mbuf *m[2] = { NULL, rte_pktmbuf_alloc(env->pool) };

	r->m = m[1];
	HERE("free_bulk", FREE), rte_pktmbuf_free_bulk(m, 2);
}

CALL(linearize)
{
	struct rte_mbuf *tail = rte_pktmbuf_alloc(env->pool);

	r->m = rte_pktmbuf_alloc(env->pool);
	rte_pktmbuf_append(tail, 10);
	rte_pktmbuf_chain(r->m, tail);
	HERE("linearize", APP), rte_pktmbuf_linearize(r->m);
}

CALL(rx)
{
	HERE("rx_burst", APP), rte_eth_rx_burst(env->port, 0, &r->m, 1);
}

CALL(tx)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("tx_burst", TX), rte_eth_tx_burst(env->port, 0, &r->m, 1);
}

CALL(tx_captured)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("tx_burst", TX), pmdscope_tx_burst(env->port, 0, &r->m, 1);
}

CALL(unsent)
{
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("tx_burst", APP), rte_eth_tx_burst(env->full_port, 0, &r->m, 1);
}

static struct rte_eth_dev_tx_buffer *
make_buffer(void)
{
	static struct rte_mbuf *space[RTE_ETH_TX_BUFFER_SIZE(8) / sizeof(struct rte_mbuf *) + 1];
	struct rte_eth_dev_tx_buffer *buffer = (struct rte_eth_dev_tx_buffer *)space;

	rte_eth_tx_buffer_init(buffer, 8);
	return buffer;
}

CALL(tx_buffer)
{
	struct rte_eth_dev_tx_buffer *buffer = make_buffer();

	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("tx_buffer", APP), rte_eth_tx_buffer(env->port, 0, buffer, r->m);
}

CALL(tx_buffer_flush)
{
	struct rte_eth_dev_tx_buffer *buffer = make_buffer();

	r->m = rte_pktmbuf_alloc(env->pool);
	rte_eth_tx_buffer(env->port, 0, buffer, r->m);
	HERE("tx_buffer_flush", TX), rte_eth_tx_buffer_flush(env->port, 0, buffer);
}

static void
free_ext(void *addr, void *opaque)
{
	(void)addr;
	(void)opaque;
}

CALL(attach_extbuf)
{
	static uint64_t space[64];
	uint16_t len = sizeof(space);
	struct rte_mbuf_ext_shared_info *shinfo =
			rte_pktmbuf_ext_shinfo_init_helper(space, &len, free_ext, NULL);

	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("attach_extbuf", APP), rte_pktmbuf_attach_extbuf(r->m, space, 0, len, shinfo);
}

#include "trace_libs.h"

typedef void (*call_fn)(const struct trace_env *env, struct trace_result *r);

static const call_fn calls[] = {
	NAME(alloc),
	NAME(raw_alloc),
	NAME(alloc_bulk),
	NAME(clone),
	NAME(copy),
	NAME(chain),
	NAME(attach),
	NAME(detach),
	NAME(detach_direct),
	NAME(prefree_seg),
	NAME(raw_free),
	NAME(free_seg),
	NAME(free_packet),
	NAME(free_clone),
	NAME(free_bulk),
	NAME(linearize),
	NAME(rx),
	NAME(tx),
	NAME(tx_captured),
	NAME(unsent),
	NAME(tx_buffer),
	NAME(tx_buffer_flush),
	NAME(attach_extbuf),
	NAME(ipv4_fragment),
	NAME(ipv4_fragment_data),
#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
	NAME(ipv4_fragment_copy),
#endif
	NAME(ipv6_fragment),
	NAME(ip_frag_table),
	NAME(free_death_row),
	NAME(reorder_buffer),
	NAME(reorder_insert),
	NAME(gro_burst),
};

bool
TRACE_CALL(unsigned int i, const struct trace_env *env, struct trace_result *result)
{
	if (i >= RTE_DIM(calls))
		return false;
	calls[i](env, result);
	return true;
}
