/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The filter against libpcap: what libpcap compiles and decides is right. Packets come whole, in
 * random segments, and with their VLAN tag taken out into the mbuf.
 */

#include <pcap.h>
#include <rte_eal.h>
#include <rte_random.h>

#include "filter.h"
#include "tee_test.h"

#define PACKETS 3000
#define SNAPLEN 262144

static const char *const expressions[] = {
	"ip",
	"ip6",
	"arp",
	"rarp",
	"tcp",
	"udp",
	"icmp",
	"icmp6",
	"vlan",
	"vlan 100",
	"mpls",
	"host 10.0.0.1",
	"src host 10.0.0.2",
	"dst net 10.0.0.0/30",
	"net 10",
	"not net 10.0.0.0/29",
	"ip6 host fd00::1",
	"src net fd00::/64",
	"port 53",
	"udp port 53",
	"tcp port 80",
	"src port 443",
	"dst portrange 1-1023",
	"not port 22",
	"tcp[tcpflags] & tcp-syn != 0",
	"tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
	"tcp[13] == 18",
	"icmp[icmptype] == icmp-echo",
	"ip[8] < 64",
	"ip[6:2] & 0x1fff != 0",
	"ip[6:2] & 0x2000 != 0",
	"udp[8:4] = 0x01020304",
	"tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
	"ether host 02:00:00:00:00:01",
	"ether broadcast",
	"ether multicast",
	"ether proto 0x88cc",
	"ether[0] & 1 = 1",
	"len > 100",
	"less 64",
	"greater 500",
	"ip proto 47",
	"ip6 proto 17",
	"vlan and tcp port 80",
	"vlan 100 and vlan 200",
	"vlan and host 10.0.0.1 and udp",
	"not vlan and udp",
	"ip host 10.0.0.1 and (tcp port 80 or tcp port 443) and not src port 22",
	"(udp and port 53) or (tcp and (port 80 or port 8080 or port 443)) or icmp or arp",
	"ip[2:2] - ((ip[0] & 0xf) << 2) > 100",
	"ip[2:2] / 3 = 20",
	"ip[2:2] % 7 = 3",
	"ip[8] * 2 = 128",
	"ip[8] ^ 64 = 0",
	"ip[1] << 3 = 0",
	"udp[4:2] | 1 = 61",
	"ip[-1 + 10] = 6",
	"ether[14 + (ether[14] & 0xf) * 4] = 0",
	"ip[ip[8]] = 0",
	"1500 - len > 1000",
	"sctp port 3868",
	"pppoes and ip",
	"llc",
	"geneve",
	"portrange 8000-8100 or portrange 50-60",
};

struct packet {
	uint32_t len;
	uint8_t bytes[600];
};

static uint8_t *
put16(uint8_t *p, unsigned int v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

static unsigned int
pick(const unsigned int *from, unsigned int n)
{
	return from[rte_rand_max(n)];
}

#define PICK(...) \
	pick((const unsigned int[]){ __VA_ARGS__ }, \
			RTE_DIM(((const unsigned int[]){ __VA_ARGS__ })))

static uint8_t *
put_ipv4(uint8_t *p, unsigned int proto)
{
	const unsigned int options = PICK(0, 0, 0, 1, 3);

	p[0] = (uint8_t)(0x45 + options);
	p[1] = (uint8_t)PICK(0, 0, 8);
	put16(p + 2, PICK(60, 61, 62, 150, 40));
	put16(p + 6, PICK(0, 0, 0, 0x4000, 0x2000, 0x2001, 0x10));
	p[8] = (uint8_t)PICK(1, 63, 64, 65, 255);
	p[9] = (uint8_t)proto;
	memcpy(p + 12, (uint8_t[]){ 10, 0, 0, (uint8_t)PICK(1, 2, 3, 9) }, 4);
	memcpy(p + 16, (uint8_t[]){ (uint8_t)PICK(10, 10, 11), 0, 0, (uint8_t)PICK(1, 2, 7) }, 4);
	return p + 20 + 4 * options;
}

static uint8_t *
put_ipv6(uint8_t *p, unsigned int proto)
{
	memset(p, 0, 40);
	p[0] = 0x60;
	p[6] = (uint8_t)proto;
	p[7] = 64;
	p[8] = p[24] = 0xfd;
	p[15] = (uint8_t)PICK(0, 1);
	p[23] = (uint8_t)PICK(1, 2);
	p[39] = (uint8_t)PICK(1, 3);
	return p + 40;
}

static void
put_l4(uint8_t *p)
{
	put16(p, PICK(22, 53, 80, 443, 8080, 1024, 3868));
	put16(p + 2, PICK(22, 53, 80, 443, 8080, 1023, 55));
	if (rte_rand_max(2))
		put16(p + 4, PICK(60, 61, 8));
	p[12] = (uint8_t)PICK(0x50, 0x50, 0x80);
	p[13] = (uint8_t)PICK(2, 18, 1, 16, 4);
	memcpy(p + PICK(8, 20, 32), rte_rand_max(2) ? "GET " : "\1\2\3\4", 4);
	if (rte_rand_max(4) == 0)
		p[0] = 8;
}

/* A packet like those of real links, or damaged, or noise; often too short for what it says. */
static void
make_packet(struct packet *pkt)
{
	uint8_t *p = pkt->bytes;
	unsigned int tags, type;
	size_t i;

	for (i = 0; i < sizeof(pkt->bytes); i++)
		pkt->bytes[i] = (uint8_t)rte_rand();
	pkt->len = 1 + (uint32_t)rte_rand_max(rte_rand_max(3) ? 120 : sizeof(pkt->bytes));
	if (rte_rand_max(16) == 0)
		return;
	memset(p, rte_rand_max(8) == 0 ? 0xff : 2, 6);
	memcpy(p + 6, (uint8_t[]){ 2, 0, 0, 0, 0, (uint8_t)PICK(1, 2) }, 6);
	p += 12;
	for (tags = PICK(0, 0, 0, 1, 1, 2); tags > 0; tags--) {
		p = put16(p, PICK(0x8100, 0x8100, 0x88a8));
		p = put16(p, PICK(100, 200, 0x2064));
	}
	type = PICK(0x0800, 0x0800, 0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8847, 0x88cc, 0x0026);
	p = put16(p, type);
	if (type == 0x0800)
		put_l4(put_ipv4(p, PICK(6, 6, 17, 17, 1, 47, 132)));
	else if (type == 0x86dd)
		put_l4(put_ipv6(p, PICK(6, 17, 58, 44)));
}

/* As an mbuf in segments of random length. */
static struct rte_mbuf *
to_mbuf(const uint8_t *bytes, uint32_t len, bool whole)
{
	struct rte_mbuf *pkt = test_packet(len, 0, whole ? 2048 : (uint16_t)(1 + rte_rand_max(40)));
	struct rte_mbuf *seg;
	uint32_t done = 0;

	for (seg = pkt; seg != NULL; done += seg->data_len, seg = seg->next)
		memcpy(rte_pktmbuf_mtod(seg, void *), bytes + done, seg->data_len);
	return pkt;
}

/* As a NIC with VLAN stripping, or an app that leaves the tag to the NIC, would have it. */
static struct rte_mbuf *
to_stripped_mbuf(const struct packet *pkt, uint8_t dir, bool whole)
{
	struct packet rest;
	struct rte_mbuf *m;

	memcpy(rest.bytes, pkt->bytes, 12);
	memcpy(rest.bytes + 12, pkt->bytes + 16, sizeof(rest.bytes) - 16);
	m = to_mbuf(rest.bytes, pkt->len - 4, whole);
	m->vlan_tci = (uint16_t)(pkt->bytes[14] << 8 | pkt->bytes[15]);
	m->ol_flags |= dir == PMDSCOPE_DIR_RX ? RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED
					      : RTE_MBUF_F_TX_VLAN;
	return m;
}

static void
compare(const char *expression, const struct pmdscope_filter *filter, struct rte_mbuf *m,
		uint8_t dir, uint32_t expected, const char *form)
{
	struct pmdscope_packet view;
	uint32_t got;

	pmdscope_packet_init(&view, m, dir);
	got = pmdscope_filter_run(filter, &view);
	if (got != expected)
		fprintf(stderr, "\"%s\" on %u bytes, %s: %u, libpcap says %u\n", expression,
				view.len, form, got, expected);
	CHECK(got == expected);
	rte_pktmbuf_free(m);
}

static unsigned int
compare_forms(const char *expression, const struct pmdscope_filter *filter,
		const struct bpf_insn *insns, const struct packet *pkt)
{
	const uint32_t expected = bpf_filter(insns, pkt->bytes, pkt->len, pkt->len);

	compare(expression, filter, to_mbuf(pkt->bytes, pkt->len, true), PMDSCOPE_DIR_RX, expected,
			"whole");
	compare(expression, filter, to_mbuf(pkt->bytes, pkt->len, false), PMDSCOPE_DIR_RX, expected,
			"in segments");
	if (pkt->len > 16 && pkt->bytes[12] == 0x81 && pkt->bytes[13] == 0) {
		compare(expression, filter, to_stripped_mbuf(pkt, PMDSCOPE_DIR_RX, true),
				PMDSCOPE_DIR_RX, expected, "tag stripped");
		compare(expression, filter, to_stripped_mbuf(pkt, PMDSCOPE_DIR_TX, false),
				PMDSCOPE_DIR_TX, expected, "tag to be inserted, in segments");
	}
	return expected != 0;
}

static void
test_expression(const char *expression, const struct packet *packets, int optimize)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, SNAPLEN);
	struct pmdscope_filter filter;
	struct bpf_program program;
	unsigned int i, hits = 0;
	char why[112];

	CHECK(pcap != NULL);
	if (pcap_compile(pcap, &program, expression, optimize, PCAP_NETMASK_UNKNOWN) != 0) {
		fprintf(stderr, "\"%s\": %s\n", expression, pcap_geterr(pcap));
		exit(EXIT_FAILURE);
	}
	_Static_assert(sizeof(struct bpf_insn) == sizeof(struct pmdscope_insn),
			"instruction layout");
	if (pmdscope_filter_load(&filter, program.bf_insns, program.bf_len, why, sizeof(why)) !=
			0) {
		fprintf(stderr, "\"%s\": %s\n", expression, why);
		exit(EXIT_FAILURE);
	}
	for (i = 0; i < PACKETS; i++)
		hits += compare_forms(expression, &filter, program.bf_insns, &packets[i]);
	printf("%-72s %4u of %u\n", expression, hits, PACKETS);
	pcap_freecode(&program);
	pcap_close(pcap);
}

/* Random valid arithmetic, which libpcap's compiler never writes. */
static void
test_arithmetic(const struct packet *packets)
{
	static const uint16_t ops[] = { 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90,
		0xa0 };
	struct pmdscope_filter filter;
	struct bpf_insn insns[6];
	char why[112];
	unsigned int i;

	for (i = 0; i < PACKETS; i++) {
		const uint16_t op = ops[rte_rand_max(RTE_DIM(ops))];
		const bool by_x = rte_rand_max(2);

		insns[0] = (struct bpf_insn){ 0x30, 0, 0, (bpf_u_int32)rte_rand_max(8) }; /* ldb */
		insns[1] = (struct bpf_insn){ 0x07, 0, 0, 0 };				  /* tax */
		insns[2] = (struct bpf_insn){ 0x20, 0, 0, 0 }; /* ld [0] */
		insns[3] = (struct bpf_insn){ (u_short)(0x04 | op | (by_x ? 8 : 0)), 0, 0,
			(bpf_u_int32)(1 + rte_rand_max(31)) };
		insns[4] = (struct bpf_insn){ rte_rand_max(2) ? 0x84 : 0x04, 0, 0,
			0 };				       /* neg, add #0 */
		insns[5] = (struct bpf_insn){ 0x16, 0, 0, 0 }; /* ret a */
		CHECK(pmdscope_filter_load(&filter, insns, RTE_DIM(insns), why, sizeof(why)) == 0);
		compare_forms("arithmetic", &filter, insns, &packets[i]);
	}
}

int
main(void)
{
	static struct packet packets[PACKETS];
	unsigned int i;

	test_tee_eal(1);
	for (i = 0; i < PACKETS; i++)
		make_packet(&packets[i]);
	for (i = 0; i < RTE_DIM(expressions); i++) {
		test_expression(expressions[i], packets, 1);
		test_expression(expressions[i], packets, 0);
	}
	test_arithmetic(packets);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
