/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* What filters cost at worst, and that an app refuses those that cost too much. */

#include <errno.h>
#include <unistd.h>

#include <linux/filter.h>

#include <pcap.h>
#include <rte_eal.h>
#include <rte_random.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"
#include "filter.h"
#include "filter_expressions.h"

#define LEN 12

static struct pmdscope_filter filter;

static uint32_t
load(const struct pmdscope_insn *insns, unsigned int n)
{
	char why[112];

	CHECK(pmdscope_filter_load(&filter, insns, n, why, sizeof(why)) == 0);
	return filter.cost;
}

/* The default admits all common filters. */
static void
test_expressions(void)
{
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 262144);
	const char *dearest = NULL;
	struct bpf_program bpf;
	uint32_t most = 0;
	unsigned int i;

	CHECK(pcap != NULL);
	for (i = 0; i < RTE_DIM(expressions); i++) {
		CHECK(pcap_compile(pcap, &bpf, expressions[i], 1, 0xffffff) == 0);
		load((const struct pmdscope_insn *)bpf.bf_insns, bpf.bf_len);
		pcap_freecode(&bpf);
		if (filter.cost > TEST_FILTER_CYCLES)
			fprintf(stderr, "%s: %u\n", expressions[i], filter.cost);
		CHECK(filter.cost > 0 && filter.cost <= TEST_FILTER_CYCLES);
		if (filter.cost > most) {
			most = filter.cost;
			dearest = expressions[i];
		}
	}
	printf("at most %u: %s\n", most, dearest);
	pcap_close(pcap);
}

/* Cost of one way through a program, by the costs of its instructions in a program of their own. */
static uint32_t
follow(const struct pmdscope_insn *insns, unsigned int at, const uint32_t *own)
{
	const struct pmdscope_insn *insn = &insns[at];

	if (BPF_CLASS(insn->code) == BPF_RET)
		return own[at];
	if (BPF_CLASS(insn->code) != BPF_JMP)
		return own[at] + follow(insns, at + 1, own);
	if (BPF_OP(insn->code) == BPF_JA)
		return own[at] + follow(insns, at + 1 + insn->k, own);
	return own[at] + RTE_MAX(follow(insns, at + 1 + insn->jt, own),
					 follow(insns, at + 1 + insn->jf, own));
}

/* The dearest of all ways, tried one by one. X keeps the programs from being written as tests. */
static void
test_ways(void)
{
	static const uint16_t codes[] = { BPF_LD | BPF_W | BPF_ABS, BPF_LD | BPF_B | BPF_IND,
		BPF_LD | BPF_IMM, BPF_ALU | BPF_ADD | BPF_X, BPF_ALU | BPF_DIV | BPF_X,
		BPF_JMP | BPF_JEQ | BPF_X, BPF_JMP | BPF_JGT | BPF_X, BPF_JMP | BPF_JA,
		BPF_RET | BPF_A };
	struct pmdscope_insn insns[LEN], alone[2] = { 0 };
	const struct pmdscope_insn ret = { .code = BPF_RET | BPF_A };
	const uint32_t nothing = load(&ret, 1);
	uint32_t own[LEN];
	unsigned int round, i;

	for (round = 0; round < 2000; round++) {
		for (i = 0; i < LEN; i++) {
			const unsigned int left = LEN - i - 1;

			insns[i] = (struct pmdscope_insn){
				.code = codes[rte_rand_max(RTE_DIM(codes))]
			};
			if (left == 0)
				insns[i].code = BPF_RET | BPF_A;
			if (insns[i].code == (BPF_JMP | BPF_JA)) {
				insns[i].k = (uint32_t)rte_rand_max(left);
			} else if (BPF_CLASS(insns[i].code) == BPF_JMP) {
				insns[i].jt = (uint8_t)rte_rand_max(left);
				insns[i].jf = (uint8_t)rte_rand_max(left);
			}
			alone[0] = (struct pmdscope_insn){ .code = insns[i].code };
			alone[1] = ret;
			own[i] = load(alone, 2) -
				 (BPF_CLASS(insns[i].code) == BPF_RET ? 0 : nothing);
		}
		/* The first instruction is not a test. */
		insns[0] = (struct pmdscope_insn){ .code = BPF_ALU | BPF_ADD | BPF_X };
		alone[0] = insns[0];
		own[0] = load(alone, 2) - nothing;
		for (i = 0; i < LEN; i++)
			if (BPF_CLASS(insns[i].code) == BPF_RET)
				own[i] = nothing;
		CHECK_U64(load(insns, LEN), follow(insns, 0, own));
	}
}

/* As many of one instruction as a program may have. */
static struct request
all_of(struct pmdscope_insn insn, unsigned int n)
{
	struct request req = test_request();
	unsigned int i;

	for (i = 0; i < n; i++)
		req.insns[i] = insn;
	req.insns[n] = (struct pmdscope_insn){ .code = BPF_RET | BPF_K, .k = 1 };
	req.hdr.nb_insns = (uint16_t)(n + 1);
	return req;
}

static void
test_hostile(void)
{
	static const struct pmdscope_insn hostile[] = {
		{ .code = BPF_ALU | BPF_DIV | BPF_K, .k = 3 },
		{ .code = BPF_ALU | BPF_DIV | BPF_X },
		{ .code = BPF_ALU | BPF_MOD | BPF_K, .k = 7 },
		{ .code = BPF_ALU | BPF_MUL | BPF_X },
		{ .code = BPF_LD | BPF_W | BPF_IND, .k = 1 },
		{ .code = BPF_LD | BPF_IMM },
		{ .code = BPF_STX },
		{ .code = BPF_MISC | BPF_TAX },
		{ .code = BPF_JMP | BPF_JSET | BPF_K, .k = 1 },
		{ .code = BPF_JMP | BPF_JA },
	};
	struct pmdscope_tee_message message;
	struct request req;
	unsigned int i;
	int fd;

	for (i = 0; i < RTE_DIM(hostile); i++) {
		req = all_of(hostile[i], PMDSCOPE_TEE_MAX_INSNS - 1);
		fd = test_connect();
		test_send(fd, &req);
		message = test_expect(fd, PMDSCOPE_TEE_REFUSE);
		CHECK(message.value == E2BIG && strstr(message.text, "tee_filter_cycles") != NULL);
		CHECK(strtoul(message.text + strlen("filter: up to "), NULL, 10) >=
				4 * (PMDSCOPE_TEE_MAX_INSNS - 1));
		close(fd);
		test_pump(5);
	}
	printf("%s\n", message.text);
}

/* The limit is that of all sessions together; each gives its part back when it ends. */
static void
test_sum(void)
{
	const struct request req = all_of(
			(struct pmdscope_insn){ .code = BPF_ALU | BPF_DIV | BPF_K, .k = 3 }, 4);
	const struct request none = test_request();
	const uint32_t cost = load(req.insns, req.hdr.nb_insns);
	struct pmdscope_tee_message message;
	struct reader r[3], all;
	int fds[3], fd;
	unsigned int n;
	char part[64];

	CHECK(TEST_FILTER_CYCLES / cost == 2);
	for (n = 0; n < 2; n++)
		fds[n] = test_attach(&req, &r[n]);
	fd = test_connect();
	test_send(fd, &req);
	message = test_expect(fd, PMDSCOPE_TEE_REFUSE);
	snprintf(part, sizeof(part), "up to %u cycles a packet, and %u of %u", cost, 2 * cost,
			TEST_FILTER_CYCLES);
	CHECK(strstr(message.text, part) != NULL);
	close(fd);
	/* Without a filter nothing is taken. */
	fd = test_attach(&none, &all);
	close(fd);
	test_unmap(&all);
	close(fds[0]);
	test_unmap(&r[0]);
	test_pump(5);
	fds[2] = test_attach(&req, &r[2]);
	for (n = 1; n < 3; n++) {
		close(fds[n]);
		test_unmap(&r[n]);
	}
	test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 0);
}

int
main(void)
{
	test_capture_eal(1);
	test_capture_start(4, 64);
	test_expressions();
	test_ways();
	test_hostile();
	test_sum();
	test_capture_stop();
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
