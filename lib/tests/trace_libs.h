/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The calls of DPDK's packet libraries, for trace_calls.h; library_app.c makes the others. */

static struct rte_mbuf *
make_ip(struct rte_mempool *pool, uint16_t len, uint8_t version)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint8_t *ip = (uint8_t *)rte_pktmbuf_append(m, len);
	static uint8_t id;

	if (ip == NULL)
		exit(1);
	memset(ip, 0, 40);
	ip[0] = version == 4 ? 0x45 : 0x60;
	/* The total length in IPv4, the payload length in IPv6. */
	ip[2] = (uint8_t)(len >> 8);
	ip[3] = (uint8_t)len;
	if (version == 6) {
		ip[4] = (uint8_t)((len - 40) >> 8);
		ip[5] = (uint8_t)(len - 40);
	} else {
		ip[5] = ++id;
		ip[15] = 1;
	}
	m->l3_len = version == 4 ? 20 : 40;
	return m;
}

CALL(ipv4_fragment)
{
	struct rte_mbuf *m = make_ip(env->pool, 820, 4), *out[4];
	struct rte_mempool *mp = env->pool;

	HERE("ipv4_fragment", APP), rte_ipv4_fragment_packet(m, out, 4, 420, mp, mp);
	r->m = out[1];
}

/* Attached, so it has a copy of the packet's stamp, as the library leaves it. */
CALL(ipv4_fragment_data)
{
	struct rte_mbuf *m = make_ip(env->pool, 820, 4), *out[4];
	struct rte_mempool *mp = env->pool;

	HERE("ipv4_fragment", APP), rte_ipv4_fragment_packet(m, out, 4, 420, mp, mp);
	r->m = out[1]->next;
}

#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
CALL(ipv4_fragment_copy)
{
	struct rte_mbuf *m = make_ip(env->pool, 820, 4), *out[4];
	struct rte_mempool *mp = env->pool;

	HERE("ipv4_fragment_copy", APP), rte_ipv4_fragment_copy_nonseg_packet(m, out, 4, 420, mp);
	r->m = out[1];
}
#endif

CALL(ipv6_fragment)
{
	struct rte_mbuf *m = make_ip(env->pool, 1640, 6), *out[4];
	struct rte_mempool *mp = env->pool;

	HERE("ipv6_fragment", APP), rte_ipv6_fragment_packet(m, out, 4, 1280, mp, mp);
	r->m = out[1];
}

CALL(ip_frag_table)
{
	static struct rte_ip_frag_tbl *tbl;
	struct rte_ip_frag_death_row dr;
	struct rte_mbuf *m = make_ip(env->pool, 820, 4), *out[4];
	struct rte_mempool *mp = env->pool;
	struct rte_ipv4_hdr *ip;

	dr.cnt = 0;
	if (tbl == NULL)
		tbl = rte_ip_frag_table_create(16, 4, 64, UINT32_MAX, SOCKET_ID_ANY);
	rte_ipv4_fragment_packet(m, out, 4, 420, mp, mp);
	r->m = m = out[0];
	m->l3_len = 20;
	ip = rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *);
	HERE("ip_frag_table", APP), rte_ipv4_frag_reassemble_packet(tbl, &dr, m, 1, ip);
}

CALL(free_death_row)
{
	struct rte_ip_frag_death_row dr;

	dr.cnt = 1;
	r->m = dr.row[0] = rte_pktmbuf_alloc(env->pool);
	HERE("free_death_row", FREE), rte_ip_frag_free_death_row(&dr, 0);
}

/* One for each language, as two would have the same name. */
static struct rte_reorder_buffer *
make_reorder(void)
{
	static struct rte_reorder_buffer *b;
	char name[32];

	snprintf(name, sizeof(name), "trace_%p", (void *)&b);
	if (b == NULL)
		b = rte_reorder_create(name, 0, 16);
	rte_reorder_reset(b);
	return b;
}

CALL(reorder_buffer)
{
	struct rte_reorder_buffer *b = make_reorder();

	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("reorder_buffer", APP), rte_reorder_insert(b, r->m);
}

CALL(reorder_insert)
{
	struct rte_reorder_buffer *b = make_reorder();
	struct rte_mbuf *m = rte_pktmbuf_alloc(env->pool);

	rte_reorder_insert(b, m);
	r->m = rte_pktmbuf_alloc(env->pool);
	*rte_reorder_seqn(r->m) = *rte_reorder_seqn(m) + 100000;
	HERE("reorder_insert", APP), rte_reorder_insert(b, r->m);
}

/* Packets other than TCP are not changed. */
CALL(gro_burst)
{
	struct rte_gro_param param;

	memset(&param, 0, sizeof(param));
	param.gro_types = RTE_GRO_TCP_IPV4;
	param.max_flow_num = param.max_item_per_flow = 4;
	r->m = rte_pktmbuf_alloc(env->pool);
	HERE("gro_burst", APP), rte_gro_reassemble_burst(&r->m, 1, &param);
}

/* Compiled but not called: these wait for others, or library_app.c calls them. */
static inline void
compile_only(const struct trace_env *env, struct rte_mbuf **pkts, void *p)
{
	struct rte_distributor *d = (struct rte_distributor *)p;
	struct rte_ip_frag_tbl *tbl = (struct rte_ip_frag_tbl *)p;
	struct rte_ip_frag_death_row *dr = (struct rte_ip_frag_death_row *)p;
	struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)p;
	struct rte_ipv6_fragment_ext *ext = (struct rte_ipv6_fragment_ext *)p;

	rte_distributor_process(d, pkts, 1);
	rte_distributor_returned_pkts(d, pkts, 1);
	rte_distributor_request_pkt(d, 0, pkts, 1);
	rte_distributor_poll_pkt(d, 0, pkts);
	rte_distributor_return_pkt(d, 0, pkts, 1);
	rte_distributor_get_pkt(d, 0, pkts, NULL, 0);
	rte_ipv6_frag_reassemble_packet(tbl, dr, pkts[0], 0, ip, ext);
	rte_gro_reassemble(pkts, env->port, p);
	rte_gro_timeout_flush(p, 0, 0, pkts, 1);
	rte_gso_segment(pkts[0], (struct rte_gso_ctx *)p, pkts, 1);
	rte_reorder_drain((struct rte_reorder_buffer *)p, pkts, 1);
}
