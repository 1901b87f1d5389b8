/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Random programs on bursts of random packets: the verdicts are those of the interpreter. Takes the
 * number of programs and a seed; AddressSanitizer also checks that only buffers are read.
 */

#include <linux/filter.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "filter.h"
#include "test.h"

#define PROGRAMS 100000
#define INSNS_MAX 40
#define SEGMENTS 3
#define JUMBO 9000U

struct packet {
	struct rte_mbuf segs[SEGMENTS];
	uint32_t nb_segs;
};

/* Not rte_rand(), which from DPDK 24.11 on may need the EAL, which is not started here. */
static unsigned int
under(unsigned int n)
{
	return (unsigned int)lrand48() % n;
}

#define PICK(...) \
	((const uint16_t[]){ __VA_ARGS__ })[under(RTE_DIM(((const uint16_t[]){ __VA_ARGS__ })))]

/* Few different bytes, so that comparisons often match. */
static uint8_t
random_byte(void)
{
	return (uint8_t)PICK(0, 0, 1, 2, 3, 0x45, 0x46, 0x4f, 0x80);
}

static struct pmdscope_insn
random_jump(unsigned int left)
{
	struct pmdscope_insn insn = {
		.code = BPF_JMP | PICK(BPF_JEQ, BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET),
		.jt = (uint8_t)under(RTE_MIN(left, 9U)),
		.jf = (uint8_t)under(RTE_MIN(left, 9U)),
		.k = random_byte(),
	};

	if (under(3) == 0)
		insn.k |= (uint32_t)random_byte() << 8;
	return insn;
}

/* Offsets around the ends of tests and packets. */
static uint32_t
far_offset(void)
{
	switch (under(4)) {
	case 0:
		return PMDSCOPE_FILTER_REACH - 8 + under(16);
	case 1:
		return JUMBO - 100 + under(120);
	case 2:
		return UINT16_MAX - 70 + under(80);
	default:
		return under(400);
	}
}

static struct pmdscope_insn
random_load(void)
{
	switch (under(8)) {
	case 0:
		return (struct pmdscope_insn){ .code = BPF_LD | BPF_W | BPF_LEN };
	case 1:
	case 2:
		return (struct pmdscope_insn){ .code = BPF_LD | PICK(BPF_B, BPF_H, BPF_W) | BPF_IND,
			.k = under(8) == 0 ? far_offset() : under(30) };
	default:
		return (struct pmdscope_insn){ .code = BPF_LD | PICK(BPF_B, BPF_H, BPF_W) | BPF_ABS,
			.k = under(40) == 0 ? far_offset() : under(40) };
	}
}

/* Mostly instructions that cannot be written as tests. */
static struct pmdscope_insn
random_other(unsigned int left)
{
	switch (under(6)) {
	case 0:
		return (struct pmdscope_insn){ .code = BPF_ALU | BPF_K |
						       PICK(BPF_ADD, BPF_SUB, BPF_OR, BPF_RSH),
			.k = under(8) };
	case 1:
		return (struct pmdscope_insn){ .code = BPF_MISC | PICK(BPF_TAX, BPF_TXA) };
	case 2:
		return (struct pmdscope_insn){ .code = PICK(BPF_ST, BPF_STX, BPF_LD | BPF_MEM,
							       BPF_LDX | BPF_MEM),
			.k = under(3) };
	case 3:
		return (struct pmdscope_insn){ .code = BPF_RET | PICK(BPF_K, BPF_A),
			.k = under(3) };
	default:
		return (struct pmdscope_insn){ .code = BPF_JMP | BPF_JA,
			.k = under(RTE_MIN(left, 4U)) };
	}
}

static unsigned int
random_program(struct pmdscope_insn *insns)
{
	const unsigned int n = 2 + under(INSNS_MAX - 2), others = PICK(1, 40, 40, 400);
	unsigned int i;
	struct pmdscope_insn *insn;

	for (i = 0; i < n; i++) {
		insn = &insns[i];
		*insn = (struct pmdscope_insn){ .code = BPF_RET | BPF_K, .k = under(4) };
		if (i >= n - 2 || under(12) == 0)
			continue;
		if (under(others) == 0)
			*insn = random_other(n - i - 1);
		else if (i > 0 && (BPF_CLASS(insn[-1].code) == BPF_LD || under(3) == 0))
			*insn = under(4) == 0 ? (struct pmdscope_insn){ .code = BPF_ALU | BPF_AND,
				.k = random_byte() }
					      : random_jump(n - i - 1);
		else if (i == 0 || under(6) == 0)
			*insn = (struct pmdscope_insn){ .code = BPF_LDX | BPF_B | BPF_MSH,
				.k = under(20) == 0 ? far_offset() : under(20) };
		else
			*insn = random_load();
	}
	return n;
}

static uint16_t
random_length(void)
{
	switch (under(64)) {
	case 0:
	case 1:
		return 0;
	case 2:
		return (uint16_t)(JUMBO - under(40));
	case 3:
		return UINT16_MAX - 500;
	default:
		return (uint16_t)(under(4) == 0 ? under(64) : 40 + under(400));
	}
}

/* Up to three segments, each in its own buffer with or without room left. */
static void
make_packet(struct packet *pkt)
{
	const uint64_t flags[] = { 0, 0, 0, RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_TX_VLAN,
		RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_RX_QINQ_STRIPPED, RTE_MBUF_F_TX_QINQ };
	struct rte_mbuf *seg;
	unsigned int i, j;
	uint8_t *bytes;

	memset(pkt, 0, sizeof(*pkt));
	pkt->nb_segs = under(4) == 0 ? SEGMENTS : 1;
	for (i = 0; i < pkt->nb_segs; i++) {
		seg = &pkt->segs[i];
		seg->data_len = random_length();
		seg->data_off = (uint16_t)under(16);
		seg->buf_len = (uint16_t)(seg->data_off + seg->data_len + PICK(0, 0, 20, 400));
		seg->buf_addr = malloc(RTE_MAX(seg->buf_len, 1));
		CHECK(seg->buf_addr != NULL);
		bytes = seg->buf_addr;
		for (j = 0; j < seg->buf_len; j++)
			bytes[j] = random_byte();
		seg->next = i + 1 < pkt->nb_segs ? seg + 1 : NULL;
		pkt->segs[0].pkt_len += seg->data_len;
	}
	pkt->segs[0].nb_segs = (uint16_t)pkt->nb_segs;
	/* It is not always true. */
	if (under(16) == 0)
		pkt->segs[0].pkt_len = under(100);
	pkt->segs[0].ol_flags = flags[under(RTE_DIM(flags))];
	pkt->segs[0].vlan_tci = random_byte();
}

static void
free_packet(struct packet *pkt)
{
	unsigned int i;

	for (i = 0; i < pkt->nb_segs; i++)
		free(pkt->segs[i].buf_addr);
}

/* Packets that match, for bursts of any length. */
static unsigned int
compare(const struct pmdscope_filter *filter, struct packet *packets, unsigned int n)
{
	uint32_t keep[PMDSCOPE_FILTER_BURST], kept, expected, seen = 0;
	const uint8_t dir = (uint8_t)PICK(PMDSCOPE_DIR_RX, PMDSCOPE_DIR_TX);
	struct rte_mbuf *pkts[PMDSCOPE_FILTER_BURST];
	struct pmdscope_packet view;
	unsigned int i;

	for (i = 0; i < n; i++)
		pkts[i] = packets[i].segs;
	kept = pmdscope_filter_burst(filter, dir, pkts, n, keep);
	for (i = 0; i < n; i++) {
		pmdscope_packet_init(&view, pkts[i], dir);
		expected = pmdscope_filter_run(filter, &view);
		CHECK(((kept >> i & 1) != 0) == (expected != 0));
		CHECK(expected == 0 || keep[i] == expected);
		seen |= (uint32_t)(expected != 0) << i;
	}
	CHECK(kept == seen);
	return (unsigned int)__builtin_popcount(kept);
}

int
main(int argc, char **argv)
{
	const unsigned int programs = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 0) : PROGRAMS;
	const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : rte_rdtsc();
	static struct packet packets[PMDSCOPE_FILTER_BURST];
	static struct pmdscope_filter filter;
	struct pmdscope_insn insns[INSNS_MAX];
	unsigned int i, n, translated = 0;
	uint64_t offered = 0, matches = 0;
	char why[112];

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	srand48((long)seed);
	for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
		make_packet(&packets[i]);
	for (i = 0; i < programs; i++) {
		/* All packets are new after 32 programs. */
		free_packet(&packets[i % PMDSCOPE_FILTER_BURST]);
		make_packet(&packets[i % PMDSCOPE_FILTER_BURST]);
		n = random_program(insns);
		CHECK(pmdscope_filter_load(&filter, insns, n, why, sizeof(why)) == 0);
		translated += filter.tests.nb_tests != 0;
		n = 1 + under(PMDSCOPE_FILTER_BURST);
		offered += n;
		matches += compare(&filter, packets, n);
	}
	for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
		free_packet(&packets[i]);
	printf("%u programs, %u of them as tests; %" PRIu64 " of %" PRIu64 " packets match\n",
			programs, translated, matches, offered);
	CHECK(translated > programs / 20 && translated < programs);
	CHECK(matches > offered / 20 && matches < offered);
	return EXIT_SUCCESS;
}
