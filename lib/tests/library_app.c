/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_distributor.h>
#include <rte_ethdev.h>
#include <rte_gro.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_ip_frag.h>
#include <rte_mbuf.h>
#include <rte_reorder.h>
#include <rte_tcp.h>

#include "library_app.h"
#include "library_state.h"

#ifdef PMDSCOPE_TRACE_NO_LIBS
#define NAME(name) library_opaque_##name
#else
#define NAME(name) library_traced_##name
#endif

/* Carry out a call, and note its line. */
#define AT(kind, call) (lines[kind] = __LINE__, (call))

#define FRAGMENTS LIBRARY_FRAGMENTS
#define PAYLOAD 1200
#define MTU (sizeof(struct rte_ipv4_hdr) + 400)
#define HEADERS \
	(sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_tcp_hdr))

/* Calls that do not fit a line. */
#define FRAGMENT(app, m, out) \
	rte_ipv4_fragment_packet(m, out, FRAGMENTS, MTU, (app)->pool, (app)->clones)
#if RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0)
#define FRAGMENT_COPY(app, m, out) \
	rte_ipv4_fragment_copy_nonseg_packet(m, out, FRAGMENTS, MTU, (app)->pool)
#else /* There is no such call, and its tests are not run. */
#define FRAGMENT_COPY(app, m, out) FRAGMENT(app, m, out)
#endif
#define REASSEMBLE(state, m) \
	rte_ipv4_frag_reassemble_packet((state)->table, &(state)->death_row, m, rte_rdtsc(), \
			rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *))
#define FLUSH(gro, out) rte_gro_timeout_flush(gro, 0, RTE_GRO_TCP_IPV4, out, LEAK_BURST)

static unsigned int lines[LIBRARY_KINDS], rx_line;

static void
send_out(struct leak_app *app, struct rte_mbuf **pkts, uint16_t nb)
{
	const uint16_t sent = rte_eth_tx_burst(app->port, 0, pkts, nb);

	rte_pktmbuf_free_bulk(pkts + sent, nb - sent);
}

/* Make the packet an IPv4 packet without an Ethernet header. */
static void
write_ip(struct rte_mbuf *m)
{
	struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *);

	m->data_len = sizeof(*ip) + PAYLOAD;
	m->pkt_len = m->data_len;
	m->l2_len = 0;
	m->l3_len = sizeof(*ip);
	*ip = (struct rte_ipv4_hdr){
		.version_ihl = RTE_IPV4_VHL_DEF,
		.total_length = rte_cpu_to_be_16(m->data_len),
		.packet_id = rte_cpu_to_be_16(library_state.next++),
		.time_to_live = 64,
		.next_proto_id = IPPROTO_UDP,
		.src_addr = rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 1)),
		.dst_addr = rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 2)),
	};
}

/* Make the packet part i of a TCP stream. */
static void
write_tcp(struct rte_mbuf *m, unsigned int i)
{
	struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(ip + 1);

	m->data_len = HEADERS + PAYLOAD;
	m->pkt_len = m->data_len;
	m->l2_len = sizeof(*ether);
	m->l3_len = sizeof(*ip);
	m->l4_len = sizeof(*tcp);
	m->tso_segsz = 400;
	m->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_TCP;
	m->ol_flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4;
	memset(ether, 0, HEADERS);
	ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	ip->version_ihl = RTE_IPV4_VHL_DEF;
	ip->total_length = rte_cpu_to_be_16(m->data_len - sizeof(*ether));
	ip->packet_id = rte_cpu_to_be_16((uint16_t)i);
	ip->next_proto_id = IPPROTO_TCP;
	ip->src_addr = rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 1));
	tcp->sent_seq = rte_cpu_to_be_32(i * PAYLOAD);
	tcp->data_off = sizeof(*tcp) << 2;
	tcp->tcp_flags = RTE_TCP_ACK_FLAG;
}

static void
fragment(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct rte_mbuf *out[FRAGMENTS];
	int32_t nb;

	write_ip(m);
	nb = AT(LIBRARY_FRAGMENT, FRAGMENT(app, m, out));
	rte_pktmbuf_free(m);
	if (nb > 0)
		send_out(app, out, (uint16_t)(lose ? nb - 1 : nb));
}

static void
fragment_always(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct rte_mbuf *out[FRAGMENTS];

	write_ip(m);
	if (lose)
		AT(LIBRARY_FRAGMENT_ALWAYS, FRAGMENT_COPY(app, m, out));
	send_out(app, &m, 1);
}

static void
reassemble(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct library_state *state = &library_state;
	struct rte_mbuf *out[FRAGMENTS], *whole = NULL;
	int32_t i, nb;

	write_ip(m);
	nb = FRAGMENT(app, m, out);
	rte_pktmbuf_free(m);
	for (i = 0; i < nb; i++) {
		out[i]->l2_len = 0;
		out[i]->l3_len = sizeof(struct rte_ipv4_hdr);
		whole = AT(LIBRARY_REASSEMBLE, REASSEMBLE(state, out[i]));
	}
	rte_ip_frag_free_death_row(&state->death_row, 0);
	if (whole != NULL && !lose)
		send_out(app, &whole, 1);
}

static void
reorder(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct rte_mbuf *out[LEAK_BURST];
	unsigned int nb;

	*rte_reorder_seqn(m) = library_state.sequence++;
	if (rte_reorder_insert(library_state.reorder, m) != 0)
		rte_pktmbuf_free(m);
	nb = AT(LIBRARY_REORDER, rte_reorder_drain(library_state.reorder, out, LEAK_BURST));
	if (nb > 0)
		send_out(app, out, (uint16_t)(lose ? nb - 1 : nb));
}

void
NAME(work)(const volatile bool *stop)
{
	struct rte_distributor *d = library_state.distributor;
	struct rte_mbuf *pkts[8];
	unsigned int keep = 0;
	int nb = 0;

	while (!*stop) {
		rte_distributor_request_pkt(d, 0, nb > 0 ? pkts : NULL, keep);
		do
			nb = AT(LIBRARY_DISTRIBUTE, rte_distributor_poll_pkt(d, 0, pkts));
		while (nb < 0 && !*stop);
		keep = nb > 0 ? (unsigned int)nb : 0;
		if (keep > 0 && library_state.lose) {
			library_state.lose = false;
			keep--;
		}
	}
}

static void
distribute(struct leak_app *app, struct rte_mbuf **pkts, uint16_t nb, bool lose)
{
	struct rte_mbuf *out[LEAK_BURST];
	int nb_taken, nb_out;

	library_state.lose |= lose;
	/* Without its worker the distributor would wait for it. */
	if (library_state.stopping) {
		send_out(app, pkts, nb);
		nb = 0;
	}
	/* It takes no packets before its worker has asked for the first, which may take long. */
	nb_taken = rte_distributor_process(library_state.distributor, pkts, nb);
	send_out(app, pkts + nb_taken, (uint16_t)(nb - nb_taken));
	do {
		nb_out = rte_distributor_returned_pkts(library_state.distributor, out, LEAK_BURST);
		send_out(app, out, (uint16_t)nb_out);
	} while (nb_out > 0);
}

static void
merge(struct leak_app *app, struct rte_mbuf **pkts, uint16_t nb, bool lose)
{
	uint16_t i;

	if (nb > LIBRARY_MERGED) {
		send_out(app, pkts + LIBRARY_MERGED, nb - LIBRARY_MERGED);
		nb = LIBRARY_MERGED;
	}
	for (i = 0; i < nb; i++)
		write_tcp(pkts[i], i);
	nb = rte_gro_reassemble(pkts, nb, library_state.gro);
	send_out(app, pkts, nb);
	nb = AT(LIBRARY_GRO, FLUSH(library_state.gro, pkts));
	send_out(app, pkts, (uint16_t)(lose && nb > 0 ? nb - 1 : nb));
}

static void
segment(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	const struct rte_gso_ctx ctx = {
		.direct_pool = app->pool,
		.indirect_pool = app->clones,
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO,
		.gso_size = 500,
	};
	struct rte_mbuf *out[FRAGMENTS];
	int nb;

	write_tcp(m, 0);
	nb = AT(LIBRARY_GSO, rte_gso_segment(m, &ctx, out, FRAGMENTS));
	rte_pktmbuf_free(m);
	if (nb > 0)
		send_out(app, out, (uint16_t)(lose ? nb - 1 : nb));
}

static void
multicast(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct rte_mbuf *out[2];
	unsigned int i;

	for (i = 0; i < RTE_DIM(out); i++) {
		out[i] = AT(LIBRARY_MULTICAST, rte_pktmbuf_clone(m, app->clones));
		if (out[i] == NULL)
			break;
	}
	rte_pktmbuf_free(m);
	if (i > 0)
		send_out(app, out, (uint16_t)(lose ? i - 1 : i));
}

static void
multicast_copy(struct leak_app *app, struct rte_mbuf *m, bool lose)
{
	struct rte_mbuf *out[FRAGMENTS];

	write_ip(m);
	if (lose)
		AT(LIBRARY_MULTICAST_COPY, FRAGMENT_COPY(app, m, out));
	multicast(app, m, false);
}

static void
pass(struct leak_app *app, enum library_kind kind, struct rte_mbuf *m, bool lose)
{
	switch (kind) {
	case LIBRARY_FRAGMENT:
		fragment(app, m, lose);
		break;
	case LIBRARY_FRAGMENT_ALWAYS:
		fragment_always(app, m, lose);
		break;
	case LIBRARY_REASSEMBLE:
		reassemble(app, m, lose);
		break;
	case LIBRARY_REORDER:
		reorder(app, m, lose);
		break;
	case LIBRARY_GSO:
		segment(app, m, lose);
		break;
	case LIBRARY_MULTICAST:
		multicast(app, m, lose);
		break;
	default:
		multicast_copy(app, m, lose);
		break;
	}
}

uint16_t
NAME(poll)(struct leak_app *app, enum library_kind kind, bool lose)
{
	struct rte_mbuf *pkts[LEAK_BURST];
	uint16_t i, nb;

	rx_line = __LINE__, nb = rte_eth_rx_burst(app->port, 0, pkts, LEAK_BURST);
	if (kind == LIBRARY_DISTRIBUTE)
		distribute(app, pkts, nb, lose && nb > 0);
	else if (kind == LIBRARY_GRO)
		merge(app, pkts, nb, lose);
	else
		for (i = 0; i < nb; i++)
			pass(app, kind, pkts[i], lose && i == 0);
	app->packets += nb;
	return nb;
}

unsigned int
NAME(line)(enum library_kind kind)
{
	return lines[kind];
}

unsigned int
NAME(rx_line)(void)
{
	return rx_line;
}
