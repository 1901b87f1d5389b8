/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The cost of a filter, in TSC cycles per packet: the interpreter for one packet after the other,
 * and the tests for whole bursts of 32. Short windows of both are interleaved; the time to read the
 * TSC is measured in the same way, and subtracted.
 *
 *   pattern   1 % of UDP packets match, in fixed order
 *   mixed     TCP, UDP, ARP, IPv6 and short packets at random
 *   received  what a driver has just copied into one of 256 mbufs
 *   cold      of 16,383 mbufs, of which only the mbuf itself was just written
 *
 * Then the cost of single instructions and tests, in programs that repeat them, beside the weights
 * by which lib/src/capture/filter_cost.c judges programs.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/filter.h>
#include <pcap.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_random.h>

#include "filter.h"

#define BURST 32
#define ROUNDS 31
#define WINDOW_BURSTS 2000
#define POOL_SIZE 16383
#define WARM 256
#define MIXED_PACKETS 4096
/* Instructions of the shorter and of the longer program that repeat one. */
#define FEW 20
#define MANY 420

enum variant { EMPTY, SINGLE, WHOLE, NB_VARIANTS };

struct traffic {
	const char *name;
	uint8_t (*packets)[64]; /* Their first bytes. */
	unsigned int nb_packets;
};

static struct rte_mbuf *mbufs[POOL_SIZE];
static uint8_t pattern[100][64], mixed[MIXED_PACKETS][64];
static uint8_t payload[2048];
static uint32_t kept;

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "filter: %s: %s\n", what, why);
	exit(1);
}

static void
put_ipv4(uint8_t *p, uint8_t proto, uint16_t port)
{
	memset(p, 0, 64);
	p[12] = 0x08;
	p[14] = 0x45;
	p[23] = proto;
	memcpy(p + 26, (const uint8_t[]){ 10, 0, 0, 1, 10, 0, 0, 2 }, 8);
	p[36] = (uint8_t)(port >> 8);
	p[37] = (uint8_t)port;
}

static void
put_mixed(uint8_t *p)
{
	static const uint16_t ports[] = { 7, 9, 53, 80, 443, 443 };
	const uint64_t kind = rte_rand_max(10);

	put_ipv4(p, kind < 5 ? 6 : 17, ports[rte_rand_max(RTE_DIM(ports))]);
	if (kind == 8) {
		p[13] = 0x06;
	} else if (kind == 9) {
		p[12] = 0x86;
		p[13] = 0xdd;
		p[20] = rte_rand_max(2) ? 6 : 17;
	}
}

static void
load(struct pmdscope_filter *filter, const char *expression)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 262144);
	struct bpf_program bpf;
	char why[112];

	if (pcap == NULL || pcap_compile(pcap, &bpf, expression, 1, PCAP_NETMASK_UNKNOWN) != 0)
		fail(expression, "libpcap does not compile it");
	if (pmdscope_filter_load(filter, bpf.bf_insns, bpf.bf_len, why, sizeof(why)) != 0)
		fail(expression, why);
	pcap_freecode(&bpf);
	pcap_close(pcap);
}

static void
receive(struct rte_mbuf **pkts, const struct traffic *t, unsigned int *next, uint16_t size,
		unsigned int nb_mbufs)
{
	static unsigned int place;
	unsigned int i;

	for (i = 0; i < BURST; i++) {
		struct rte_mbuf *m = mbufs[place++ % nb_mbufs];

		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->data_len = size;
		m->pkt_len = size;
		m->ol_flags = 0;
		if (nb_mbufs == WARM) {
			rte_memcpy(rte_pktmbuf_mtod(m, void *), payload, size);
			memcpy(rte_pktmbuf_mtod(m, void *), t->packets[(*next)++ % t->nb_packets],
					60);
		}
		pkts[i] = m;
	}
}

static uint32_t
filter_single(const struct pmdscope_filter *filter, struct rte_mbuf **pkts, uint32_t *keep)
{
	struct pmdscope_packet pkt;
	uint32_t found = 0;
	unsigned int i;

	for (i = 0; i < BURST; i++) {
		if (i + 1 < BURST)
			rte_prefetch0(rte_pktmbuf_mtod(pkts[i + 1], void *));
		pmdscope_packet_init(&pkt, pkts[i], PMDSCOPE_DIR_RX);
		keep[i] = pmdscope_filter_run(filter, &pkt);
		found |= (uint32_t)(keep[i] != 0) << i;
	}
	return found;
}

static double
measure(enum variant variant, const struct pmdscope_filter *filter, const struct traffic *t,
		uint16_t size, unsigned int nb_mbufs)
{
	static unsigned int next;
	struct rte_mbuf *pkts[BURST];
	uint32_t keep[BURST];
	uint64_t start, cycles = 0;
	unsigned int i;

	for (i = 0; i < WINDOW_BURSTS; i++) {
		receive(pkts, t, &next, size, nb_mbufs);
		start = rte_rdtsc_precise();
		if (variant == SINGLE)
			kept += (uint32_t)__builtin_popcount(filter_single(filter, pkts, keep));
		else if (variant == WHOLE)
			kept += (uint32_t)__builtin_popcount(pmdscope_filter_burst(
					filter, PMDSCOPE_DIR_RX, pkts, BURST, keep));
		cycles += rte_rdtsc_precise() - start;
	}
	return (double)cycles / (WINDOW_BURSTS * BURST);
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Fill the parts that are not rewritten for each burst. */
static void
fill(const struct traffic *t, uint16_t size)
{
	unsigned int i;

	for (i = 0; i < POOL_SIZE; i++) {
		uint8_t *p = (uint8_t *)mbufs[i]->buf_addr + RTE_PKTMBUF_HEADROOM;

		memset(p, 0, size);
		memcpy(p, t->packets[i % t->nb_packets], 60);
	}
}

static void
compare(const char *expression, const struct traffic *t, uint16_t size, unsigned int nb_mbufs)
{
	static struct pmdscope_filter filter;
	double cycles[NB_VARIANTS][ROUNDS];
	enum variant v;
	unsigned int i;

	load(&filter, expression);
	fill(t, size);
	for (i = 0; i < ROUNDS; i++)
		for (v = 0; v < NB_VARIANTS; v++)
			cycles[v][i] = measure(v, &filter, t, size, nb_mbufs);
	for (v = SINGLE; v < NB_VARIANTS; v++) {
		for (i = 0; i < ROUNDS; i++)
			cycles[v][i] -= cycles[EMPTY][i];
		qsort(cycles[v], ROUNDS, sizeof(double), by_value);
	}
	printf("%-34s %-8s %4u B %-9s %6.1f (%.1f to %.1f) %6.1f (%.1f to %.1f)\n", expression,
			t->name, size, nb_mbufs == WARM ? "received" : "cold",
			cycles[SINGLE][ROUNDS / 2], cycles[SINGLE][ROUNDS / 4],
			cycles[SINGLE][ROUNDS * 3 / 4], cycles[WHOLE][ROUNDS / 2],
			cycles[WHOLE][ROUNDS / 4], cycles[WHOLE][ROUNDS * 3 / 4]);
}

/* A program that repeats some instructions, after X and A were set. */
static void
load_repeated(struct pmdscope_filter *filter, const struct pmdscope_insn *insns, unsigned int n,
		unsigned int times)
{
	struct pmdscope_insn program[PMDSCOPE_TEE_MAX_INSNS];
	unsigned int i, end = 0;
	char why[112];

	program[end++] = (struct pmdscope_insn){ .code = BPF_LDX | BPF_B | BPF_MSH, .k = 14 };
	for (i = 0; i < times * n; i++)
		program[end++] = insns[i % n];
	program[end++] = (struct pmdscope_insn){ .code = BPF_RET | BPF_K, .k = 1 };
	if (pmdscope_filter_load(filter, program, end, why, sizeof(why)) != 0)
		fail("program", why);
}

/* The fastest window, as others were disturbed. */
static double
fastest(enum variant variant, const struct pmdscope_filter *filter, const struct traffic *t)
{
	double cycles, least = 1e9;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		cycles = measure(variant, filter, t, 60, WARM);
		least = RTE_MIN(least, cycles);
	}
	return least;
}

static void
weigh(const char *name, enum variant variant, const struct pmdscope_insn *insns, unsigned int n,
		const struct traffic *t)
{
	static struct pmdscope_filter few, many;

	load_repeated(&few, insns, n, FEW / n);
	load_repeated(&many, insns, n, MANY / n);
	if (variant == WHOLE && many.tests.nb_tests == 0)
		fail(name, "not written as tests");
	printf("%-34s %6.2f cycles, weight %.1f\n", name,
			(fastest(variant, &many, t) - fastest(variant, &few, t)) * n / (MANY - FEW),
			(double)(many.cost - few.cost) * n / (MANY - FEW));
}

static void
weigh_all(const struct traffic *t)
{
	static const struct {
		const char *name;
		struct pmdscope_insn insn;
	} singles[] = {
		{ "tax", { .code = BPF_MISC | BPF_TAX } },
		{ "st", { .code = BPF_ST } },
		{ "ldb [k]", { .code = BPF_LD | BPF_B | BPF_ABS, .k = 20 } },
		{ "ldh [k]", { .code = BPF_LD | BPF_H | BPF_ABS, .k = 20 } },
		{ "ld [k]", { .code = BPF_LD | BPF_W | BPF_ABS, .k = 20 } },
		{ "ld [x+k]", { .code = BPF_LD | BPF_W | BPF_IND, .k = 20 } },
		{ "ldxb 4*([k]&0xf)", { .code = BPF_LDX | BPF_B | BPF_MSH, .k = 14 } },
		{ "add #k", { .code = BPF_ALU | BPF_ADD | BPF_K, .k = 3 } },
		{ "rsh x", { .code = BPF_ALU | BPF_RSH | BPF_X } },
		{ "mul #k", { .code = BPF_ALU | BPF_MUL | BPF_K, .k = 3 } },
		{ "div #k", { .code = BPF_ALU | BPF_DIV | BPF_K, .k = 3 } },
		{ "mod x", { .code = BPF_ALU | BPF_MOD | BPF_X } },
		{ "jeq #k", { .code = BPF_JMP | BPF_JEQ | BPF_K, .k = 3 } },
		{ "jgt x", { .code = BPF_JMP | BPF_JGT | BPF_X } },
		{ "ja", { .code = BPF_JMP | BPF_JA } },
	};
	static const struct pmdscope_insn test[] = {
		{ .code = BPF_LD | BPF_H | BPF_ABS, .k = 12 },
		{ .code = BPF_JMP | BPF_JEQ | BPF_K, .k = 0xdead },
	}, behind[] = {
		{ .code = BPF_LD | BPF_H | BPF_IND, .k = 16 },
		{ .code = BPF_JMP | BPF_JEQ | BPF_K, .k = 0xdead },
	};
	unsigned int i;

	for (i = 0; i < RTE_DIM(singles); i++)
		weigh(singles[i].name, SINGLE, &singles[i].insn, 1, t);
	weigh("test behind an IPv4 header", WHOLE, behind, RTE_DIM(behind), t);
	weigh("ldh [x+k] and jeq, one by one", SINGLE, behind, RTE_DIM(behind), t);
	weigh("ldh [k] and jeq, one by one", SINGLE, test, RTE_DIM(test), t);
}

int
main(int argc, char **argv)
{
	static const char *const expressions[] = { "udp dst port 7", "port 53",
		"host 10.0.0.1 and tcp port 80", "net 192.168.0.0/16 or arp",
		"tcp[tcpflags] & tcp-syn != 0", "greater 1000", "ip[2:2] - 20 > 1000" };
	const struct traffic traffics[] = { { "pattern", pattern, RTE_DIM(pattern) },
		{ "mixed", mixed, RTE_DIM(mixed) } };
	struct rte_mempool *pool;
	unsigned int i, t;

	if (rte_eal_init(argc, argv) < 0)
		fail("rte_eal_init", rte_strerror(rte_errno));
	pool = rte_pktmbuf_pool_create(
			"bench", POOL_SIZE, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
	if (pool == NULL || rte_pktmbuf_alloc_bulk(pool, mbufs, POOL_SIZE) != 0)
		fail("mbuf pool", rte_strerror(rte_errno));
	for (i = 0; i < RTE_DIM(pattern); i++)
		put_ipv4(pattern[i], 17, i == 50 ? 7 : 9);
	for (i = 0; i < RTE_DIM(mixed); i++)
		put_mixed(mixed[i]);

	printf("%-70s %s\n", "", "one by one, whole bursts: cycles per packet");
	for (i = 0; i < RTE_DIM(expressions); i++)
		for (t = 0; t < RTE_DIM(traffics); t++) {
			compare(expressions[i], &traffics[t], 60, WARM);
			if (i > 0)
				continue;
			compare(expressions[i], &traffics[t], 1500, WARM);
			compare(expressions[i], &traffics[t], 60, POOL_SIZE);
			compare(expressions[i], &traffics[t], 1500, POOL_SIZE);
		}
	weigh_all(&traffics[0]);
	printf("%u packets kept\n", kept);
	rte_eal_cleanup();
	return 0;
}
