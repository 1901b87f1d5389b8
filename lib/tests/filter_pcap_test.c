/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Compares the filter with libpcap, whose programs and verdicts count as right. Packets are used
 * whole, in random segments, and with their VLAN tag moved to the mbuf.
 */

#include <pcap.h>
#include <rte_eal.h>
#include <rte_random.h>

#include "filter.h"
#include "filter_expressions.h"
#include "capture_test.h"

#define PACKETS 40000
#define SNAPLEN 262144
/* Mask of 10.0.0.0/24, for "ip broadcast". */
#define NETMASK 0xffffff00
#define FORMS_MAX 4

struct packet {
	uint32_t len;
	uint8_t bytes[1600];
};

/* An expression compiled by libpcap, optimised or not. */
struct program {
	const char *expression;
	struct bpf_program bpf;
	struct pmdscope_filter filter;
	unsigned int hits;
};

/* A form in which an app may have a packet. */
struct form {
	const char *name;
	struct rte_mbuf *mbuf;
	uint8_t dir;
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
put32(uint8_t *p, unsigned int v)
{
	return put16(put16(p, v >> 16), v & 0xffff);
}

static void
put_tcp(uint8_t *p)
{
	const unsigned int words = PICK(5, 5, 8);

	put16(p, PICK(22, 53, 80, 443, 8080, 1024, 450));
	put16(p + 2, PICK(22, 53, 80, 443, 8080, 1023, 55));
	p[12] = (uint8_t)(words << 4);
	p[13] = (uint8_t)PICK(2, 18, 1, 16, 4, 24, 0x30, 0xc2);
	put16(p + 14, PICK(0, 512, 65535));
	put32(p + 4 * words, PICK(0x47455420, 0x16030100, 0x01020304));
}

static void
put_udp(uint8_t *p)
{
	const unsigned int port = PICK(53, 53, 80, 443, 6081, 6081, 1023);

	put16(p, PICK(53, 53, 22, 1024, 8080));
	put16(p + 2, port);
	put16(p + 4, PICK(60, 61, 8, 200));
	p += 8;
	if (port == 6081) {
		p = put16(p, 0);
		p = put16(p, PICK(0x6558, 0x0800));
		p = put32(p, PICK(100, 200) << 8);
		if (p[-6] == 0x65)
			p = put16(p + 12, 0x0800);
		p[0] = 0x45;
		p[9] = (uint8_t)PICK(6, 17);
	} else {
		put32(p, PICK(0x01020304, 0x47455420));
	}
}

/* The part after an IP header of any version. */
static void
put_transport(uint8_t *p, unsigned int proto)
{
	switch (proto) {
	case 6:
		put_tcp(p);
		break;
	case 17:
		put_udp(p);
		break;
	case 1:
		put16(p, PICK(0x0800, 0x0000, 0x0304, 0x0300, 0x0b00, 0x0501));
		break;
	case 58:
		put16(p, PICK(0x8000, 0x8100, 0x8700, 0x8800, 0x0104));
		break;
	case 132:
		put32(p, PICK(3868 << 16 | 1024, 1024 << 16 | 3868, 80 << 16 | 80));
		break;
	}
}

static void
put_ipv4(uint8_t *p)
{
	const unsigned int options = PICK(0, 0, 0, 1, 3);
	const unsigned int proto =
			PICK(6, 6, 6, 6, 6, 17, 17, 17, 1, 1, 1, 2, 47, 50, 51, 89, 103, 112, 132);

	p[0] = (uint8_t)(0x45 + options);
	p[1] = (uint8_t)PICK(0, 0, 8, 0xb8);
	put16(p + 2, PICK(60, 61, 62, 150, 40));
	put16(p + 6, PICK(0, 0, 0, 0x4000, 0x2000, 0x2001, 0x10));
	p[8] = (uint8_t)PICK(1, 20, 63, 64, 65, 255);
	p[9] = (uint8_t)proto;
	put32(p + 12, 0x0a000000 | PICK(1, 2, 3, 9));
	put32(p + 16, PICK(0x0a000001, 0x0a000002, 0x0a000007, 0x0b000001, 0xe0000005, 0x0a0000ff));
	put_transport(p + 20 + 4 * options, proto);
}

static void
put_ipv6(uint8_t *p)
{
	const unsigned int proto = PICK(6, 6, 17, 17, 58, 58, 44, 0, 132);

	memset(p, 0, 40);
	p[0] = 0x60;
	put16(p + 4, PICK(20, 60, 150));
	p[6] = (uint8_t)proto;
	p[7] = (uint8_t)PICK(1, 64, 255);
	put16(p + 8, 0xfd00);
	p[15] = (uint8_t)PICK(0, 1);
	p[17] = p[15];
	p[23] = (uint8_t)PICK(1, 2);
	put16(p + 24, PICK(0xfd00, 0xfd00, 0xff02));
	p[39] = (uint8_t)PICK(1, 3);
	p += 40;
	if (proto != 44 && proto != 0) {
		put_transport(p, proto);
		return;
	}
	p[0] = 17;
	p[1] = 0;
	put_transport(p + 8, 17);
}

static void
put_arp(uint8_t *p)
{
	p = put32(p, 0x00010800);
	p = put32(p, 0x06040000 | PICK(1, 2));
	put32(p + 6, 0x0a000000 | PICK(1, 2, 9));
	put32(p + 16, 0x0a000000 | PICK(1, 2, 7));
}

/* The part after an Ethernet type, or a length. */
static void
put_ether_payload(uint8_t *p, unsigned int type)
{
	unsigned int labels;

	switch (type) {
	case 0x0800:
		put_ipv4(p);
		break;
	case 0x86dd:
		put_ipv6(p);
		break;
	case 0x0806:
	case 0x8035:
		put_arp(p);
		break;
	case 0x8847:
		for (labels = PICK(0, 1, 1); labels > 0; labels--)
			p = put32(p, PICK(1024, 3000) << 12 | 64);
		p = put32(p, PICK(1024, 2048) << 12 | 0x100 | 64);
		put_ipv4(p);
		break;
	case 0x8864:
		p = put32(put16(p, 0x1100), PICK(7, 8) << 16 | 100);
		put_ipv4(put16(p, PICK(0x0021, 0x0021, 0xc021)));
		break;
	case 0x0026:
		put32(p, PICK(0x42420300, 0xfefe0383, 0xaaaa0300, 0xf0f10101));
		break;
	}
}

/* A packet as on real links, or damaged, or noise; some are shorter than their headers state. */
static void
make_packet(struct packet *pkt)
{
	uint8_t *p = pkt->bytes;
	unsigned int tags, type;
	size_t i;

	for (i = 0; i < sizeof(pkt->bytes); i++)
		pkt->bytes[i] = (uint8_t)rte_rand();
	pkt->len = PICK(0, 0, 60, 60, 1514);
	if (pkt->len == 0)
		pkt->len = 1 + (uint32_t)rte_rand_max(PICK(120, 300, sizeof(pkt->bytes)));
	if (rte_rand_max(16) == 0)
		return;
	put32(p, PICK(0x02000000, 0x02000000, 0x02000000, 0xffffffff, 0x01005e00, 0x0180c200));
	put16(p + 4, p[0] == 0xff ? 0xffff : p[1] == 0x80 ? 0x000e : PICK(1, 2));
	put32(p + 6, 0x02000000);
	put16(p + 10, PICK(1, 2, 3));
	p += 12;
	for (tags = PICK(0, 0, 0, 1, 1, 2); tags > 0; tags--) {
		p = put16(p, PICK(0x8100, 0x8100, 0x8100, 0x88a8));
		p = put16(p, PICK(100, 200, 0x2064));
	}
	type = PICK(0x0800, 0x0800, 0x0800, 0x0800, 0x0800, 0x0800, 0x0800, 0x0800, 0x0800, 0x0800,
			0x0800, 0x86dd, 0x86dd, 0x86dd, 0x0806, 0x0806, 0x8035, 0x8847, 0x8847,
			0x8863, 0x8864, 0x8864, 0x88cc, 0x9000, 0x0026);
	put_ether_payload(put16(p, type), type);
}

/* An mbuf with segments of random length. */
static struct rte_mbuf *
to_mbuf(const uint8_t *bytes, uint32_t len, bool whole)
{
	struct rte_mbuf *pkt = test_packet(
			len, 0, whole ? 2048 : (uint16_t)(1 + len / 200 + rte_rand_max(40)));
	struct rte_mbuf *seg;
	uint32_t done = 0;

	for (seg = pkt; seg != NULL; done += seg->data_len, seg = seg->next)
		memcpy(rte_pktmbuf_mtod(seg, void *), bytes + done, seg->data_len);
	return pkt;
}

/* As from a NIC with VLAN stripping, or from an app that leaves the tag to the NIC. */
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

static unsigned int
make_forms(const struct packet *pkt, struct form forms[FORMS_MAX])
{
	unsigned int n = 0;

	forms[n++] = (struct form){ "whole", to_mbuf(pkt->bytes, pkt->len, true), PMDSCOPE_DIR_RX };
	forms[n++] = (struct form){ "in segments", to_mbuf(pkt->bytes, pkt->len, false),
		PMDSCOPE_DIR_TX };
	if (pkt->len <= 16 || pkt->bytes[12] != 0x81 || pkt->bytes[13] != 0)
		return n;
	forms[n++] = (struct form){ "tag stripped", to_stripped_mbuf(pkt, PMDSCOPE_DIR_RX, true),
		PMDSCOPE_DIR_RX };
	forms[n++] = (struct form){ "tag to be inserted, in segments",
		to_stripped_mbuf(pkt, PMDSCOPE_DIR_TX, false), PMDSCOPE_DIR_TX };
	return n;
}

/* As one packet of a burst: few packets are tested in another way than many. */
static uint32_t
burst_verdict(const struct pmdscope_filter *filter, const struct form *form, bool many)
{
	struct rte_mbuf *pkts[PMDSCOPE_FILTER_BURST];
	uint32_t keep[PMDSCOPE_FILTER_BURST], kept;
	const unsigned int n = many ? PMDSCOPE_FILTER_BURST : 1;
	unsigned int i;

	for (i = 0; i < n; i++)
		pkts[i] = form->mbuf;
	kept = pmdscope_filter_burst(filter, form->dir, pkts, n, keep);
	CHECK(kept == 0 || kept == UINT32_MAX >> (PMDSCOPE_FILTER_BURST - n));
	for (i = 0; kept != 0 && i < n; i++)
		CHECK(keep[i] == keep[0]);
	return kept == 0 ? 0 : keep[0];
}

/* libpcap's verdict, which all forms must get from our filter. */
static uint32_t
verdict(const struct program *program, const struct packet *pkt, const struct form *forms,
		unsigned int nb_forms)
{
	const uint32_t expected = bpf_filter(program->bpf.bf_insns, pkt->bytes, pkt->len, pkt->len);
	struct pmdscope_packet view;
	unsigned int i;
	uint32_t got;

	for (i = 0; i < nb_forms; i++) {
		pmdscope_packet_init(&view, forms[i].mbuf, forms[i].dir);
		got = pmdscope_filter_run(&program->filter, &view);
		if (got == expected &&
				burst_verdict(&program->filter, &forms[i], i % 2 == 0) == expected)
			continue;
		fprintf(stderr, "\"%s\" on %u bytes, %s: %u, libpcap says %u\n",
				program->expression, view.len, forms[i].name, got, expected);
		exit(EXIT_FAILURE);
	}
	return expected;
}

static void
load(struct program *program, const char *expression, int optimize)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, SNAPLEN);
	char why[112];

	CHECK(pcap != NULL);
	_Static_assert(sizeof(struct bpf_insn) == sizeof(struct pmdscope_insn),
			"instruction layout");
	program->expression = expression;
	if (pcap_compile(pcap, &program->bpf, expression, optimize, NETMASK) != 0) {
		fprintf(stderr, "\"%s\": %s\n", expression, pcap_geterr(pcap));
		exit(EXIT_FAILURE);
	}
	if (pmdscope_filter_load(&program->filter, program->bpf.bf_insns, program->bpf.bf_len, why,
			    sizeof(why)) != 0) {
		fprintf(stderr, "\"%s\": %s\n", expression, why);
		exit(EXIT_FAILURE);
	}
	pcap_close(pcap);
}

/* A loop is refused with a message that names its origin. */
static void
test_loop(void)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, SNAPLEN);
	struct pmdscope_filter filter;
	struct bpf_program bpf;
	char why[112] = "";

	CHECK(pcap != NULL && pcap_compile(pcap, &bpf, "ip6 protochain 17", 1, NETMASK) == 0);
	CHECK(pmdscope_filter_load(&filter, bpf.bf_insns, bpf.bf_len, why, sizeof(why)) < 0);
	CHECK(strstr(why, "protochain") != NULL);
	pcap_freecode(&bpf);
	pcap_close(pcap);
}

/* Programs 2i and 2i + 1 belong to expression i, optimised and not. */
static void
test_expressions(struct program *programs, unsigned int nb_programs)
{
	struct form forms[FORMS_MAX];
	struct packet pkt;
	unsigned int i, n, nb_forms;

	for (n = 0; n < PACKETS; n++) {
		make_packet(&pkt);
		nb_forms = make_forms(&pkt, forms);
		for (i = 0; i < nb_programs; i++)
			programs[i].hits += verdict(&programs[i], &pkt, forms, nb_forms) != 0;
		while (nb_forms > 0)
			rte_pktmbuf_free(forms[--nb_forms].mbuf);
	}
	/* libpcap's optimiser changes the verdict on some packets that are cut short. */
	for (i = 0; i < nb_programs; i++) {
		printf("%-72s %5u of %u\n", programs[i].expression, programs[i].hits, PACKETS);
		CHECK(programs[i].hits > 0 && programs[i].hits < PACKETS);
	}
}

/* Random valid arithmetic, which libpcap's compiler never generates. */
static void
test_arithmetic(struct program *program)
{
	static const uint16_t ops[] = { 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90,
		0xa0 };
	struct form forms[FORMS_MAX];
	static struct bpf_insn insns[6];
	struct packet pkt;
	char why[112];
	unsigned int i, nb_forms;

	program->expression = "arithmetic";
	program->bpf.bf_insns = insns;
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
		CHECK(pmdscope_filter_load(&program->filter, insns, RTE_DIM(insns), why,
				      sizeof(why)) == 0);
		make_packet(&pkt);
		nb_forms = make_forms(&pkt, forms);
		verdict(program, &pkt, forms, nb_forms);
		while (nb_forms > 0)
			rte_pktmbuf_free(forms[--nb_forms].mbuf);
	}
}

int
main(void)
{
	static struct program programs[2 * RTE_DIM(expressions)], arithmetic;
	unsigned int i;

	test_capture_eal(1);
	for (i = 0; i < RTE_DIM(programs); i++)
		load(&programs[i], expressions[i / 2], i % 2 == 0);
	test_expressions(programs, RTE_DIM(programs));
	test_arithmetic(&arithmetic);
	test_loop();
	for (i = 0; i < RTE_DIM(programs); i++)
		pcap_freecode(&programs[i].bpf);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
