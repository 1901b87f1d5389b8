/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Sampling, also where it changes while armed. One thread: the main lcore produces and consumes. */

#include <unistd.h>

#include <rte_eal.h>
#include <rte_random.h>

#include "capture.h"
#include "capture_sampling.h"
#include "capture_slots.h"
#include "capture_test.h"

/* Bytes of a packet that contains its number. */
#define LEN 96

static uint32_t nb_offered;

/* Packets that each have the next number. */
static void
offer_numbered(unsigned int n)
{
	struct rte_mbuf *pkt = test_packet(LEN, 0, LEN);

	while (n-- > 0) {
		memcpy(rte_pktmbuf_mtod(pkt, void *), &nb_offered, sizeof(nb_offered));
		nb_offered++;
		pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, &pkt, 1);
	}
	rte_pktmbuf_free(pkt);
}

static uint32_t
number_of(const struct pmdscope_record *rec)
{
	uint32_t number;

	CHECK(rec->caplen == LEN);
	memcpy(&number, rec + 1, sizeof(number));
	return number;
}

static int
attach(uint32_t sample, struct reader *r)
{
	struct request req = test_request();

	req.hdr.sample = sample;
	nb_offered = 0;
	return test_attach(&req, r);
}

/* This many records follow, with this distance between packet numbers. */
static void
expect_steps(struct reader *r, uint32_t first, uint32_t step, unsigned int n)
{
	const struct pmdscope_record *rec;

	for (; n-- > 0; first += step) {
		rec = test_next(r);
		CHECK(rec != NULL);
		CHECK_U64(number_of(rec), first);
	}
}

/*
 * 1 in `sample` of each step-th packet after `last` is in the rest of the ring, at distances
 * below twice that. Returns the number of the last one.
 */
static uint32_t
expect_sampled(struct reader *r, uint32_t last, uint32_t step, uint32_t sample)
{
	const struct pmdscope_record *rec;
	uint32_t distance;

	while ((rec = test_next(r)) != NULL) {
		distance = number_of(rec) - last;
		CHECK(distance % step == 0);
		CHECK(distance / step >= 1 && distance / step < 2 * sample);
		last += distance;
	}
	return last;
}

/* As above, for all offered packets; none is missing after the last one. */
static void
expect_all_sampled(struct reader *r, uint32_t first, uint32_t sample)
{
	CHECK(nb_offered - expect_sampled(r, first - 1, 1, sample) < 2 * sample);
}

/* The marker is where the new rate begins, and is not repeated. */
static void
test_marker(void)
{
	struct reader r;
	const int fd = attach(4, &r);

	offer_numbered(10);
	expect_all_sampled(&r, 0, 4);
	CHECK(r.nb_markers == 0);
	test_resample(fd, 16);
	CHECK(test_next(&r) == NULL && r.nb_markers == 0);
	offer_numbered(60);
	expect_all_sampled(&r, 10, 16);
	CHECK(r.nb_markers == 1 && r.sample == 16);
	test_resample(fd, 3);
	offer_numbered(30);
	expect_all_sampled(&r, 70, 3);
	CHECK(r.nb_markers == 2 && r.sample == 3);
	/* The same rate again writes no marker, nor does one that was replaced before a burst. */
	test_resample(fd, 3);
	offer_numbered(1);
	test_resample(fd, 9);
	test_resample(fd, 3);
	offer_numbered(1);
	while (test_next(&r) != NULL)
		;
	CHECK(r.nb_markers == 2);
	/* 0 keeps all, as in a request. */
	test_resample(fd, 0);
	offer_numbered(5);
	expect_steps(&r, 102, 1, 5);
	CHECK(r.nb_markers == 3 && r.sample == 1);
	/* To and from the largest rate. */
	test_resample(fd, UINT32_MAX);
	test_seed(1);
	offer_numbered(1000);
	CHECK(test_next(&r) == NULL && r.sample == UINT32_MAX);
	test_resample(fd, 1);
	offer_numbered(2);
	expect_steps(&r, 1107, 1, 2);
	CHECK_U64(r.hdr->records + r.hdr->sampled_out, nb_offered);
	CHECK(r.hdr->dropped == 0);
	test_detach(fd, &r);
}

/* From the beginning, all packets have the same probability. */
static void
test_chances(void)
{
	static const uint32_t rates[] = { 1, 2, 3, 7, 64 };
	const unsigned int trials = 200000;
	struct pmdscope_sampling s = { .random = 1 };
	unsigned int kept[4 * 64];
	uint64_t place;
	unsigned int i, j;
	double error;

	for (i = 0; i < RTE_DIM(rates); i++) {
		memset(kept, 0, sizeof(kept));
		for (j = 0; j < trials; j++) {
			pmdscope_sampling_begin(&s, rates[i]);
			for (place = s.skip; place < 4 * rates[i]; place += 1 + s.skip) {
				kept[place]++;
				pmdscope_sampling_next(&s, rates[i]);
				CHECK(s.skip < 2 * rates[i] - 1);
			}
		}
		for (j = 0; j < 4 * rates[i]; j++) {
			error = kept[j] - (double)trials / rates[i];
			CHECK(error * error <=
					16.0 * trials * (rates[i] - 1) / rates[i] / rates[i]);
		}
	}
}

/* Distances of the largest rate have the right average length. */
static void
test_longest(void)
{
	const double longest = 2.0 * UINT32_MAX - 2;
	const unsigned int trials = 100000;
	struct pmdscope_sampling s = { .random = 1 };
	double first = 0, next = 0;
	unsigned int i;

	for (i = 0; i < trials; i++) {
		pmdscope_sampling_begin(&s, UINT32_MAX);
		first += (double)s.skip / longest / trials;
		pmdscope_sampling_next(&s, UINT32_MAX);
		next += (double)s.skip / longest / trials;
	}
	/* Four standard errors of means of the smaller of two, and of one. */
	CHECK(first > 1.0 / 3 - 4 * 0.236 / 316 && first < 1.0 / 3 + 4 * 0.236 / 316);
	CHECK(next > 0.5 - 4 * 0.289 / 316 && next < 0.5 + 4 * 0.289 / 316);
}

/* Alternating bursts of RX and TX, as from an app that reflects. */
static void
check_directions(uint32_t sample, uint16_t burst)
{
	uint64_t kept[PMDSCOPE_DIR_TX + 1] = { 0 };
	struct rte_mbuf *pkts[32], *pkt = test_packet(LEN, 0, LEN);
	const struct pmdscope_record *rec;
	struct reader r;
	const int fd = attach(sample, &r);
	unsigned int i;
	uint8_t dir;
	double error;

	test_seed(1);
	for (i = 0; i < burst; i++)
		pkts[i] = pkt;
	for (i = 0; i < 40000; i += burst) {
		for (dir = PMDSCOPE_DIR_RX; dir <= PMDSCOPE_DIR_TX; dir++)
			pmdscope_capture_burst(0, 0, dir, pkts, burst);
		while ((rec = test_next(&r)) != NULL)
			kept[rec->dir]++;
		test_release(&r);
	}
	for (dir = PMDSCOPE_DIR_RX; dir <= PMDSCOPE_DIR_TX; dir++) {
		error = (double)kept[dir] * sample - i;
		printf("1 in %u, bursts of %u, direction %u: %u packets, estimated %.0f too many\n",
				sample, burst, dir, i, error);
		CHECK(error * error < 16.0 * kept[dir] * sample * (sample - 1));
	}
	CHECK(r.hdr->dropped == 0);
	rte_pktmbuf_free(pkt);
	test_detach(fd, &r);
}

static void
test_directions(void)
{
	static const uint16_t bursts[] = { 1, 2, 4, 5, 32 };
	unsigned int i;

	for (i = 0; i < RTE_DIM(bursts); i++) {
		check_directions(2, bursts[i]);
		check_directions(4, bursts[i]);
		check_directions(64, bursts[i]);
	}
}

/* The records represent the right total number of packets, for any changes of the rate. */
static void
test_weights(void)
{
	double offered = 0, estimate = 0, variance = 0;
	const struct pmdscope_record *rec;
	unsigned int session, change;
	struct reader r;
	int fd;

	for (session = 0; session < 8; session++) {
		fd = attach(1, &r);
		r.sample = 1;
		for (change = 0; change < 150; change++) {
			test_resample(fd, 1U << rte_rand_max(8));
			offer_numbered((unsigned int)rte_rand_max(300));
			while ((rec = test_next(&r)) != NULL) {
				estimate += r.sample;
				variance += (double)r.sample * (r.sample - 1);
			}
			test_release(&r);
		}
		CHECK(r.hdr->dropped == 0 && r.nb_markers > 100);
		offered += nb_offered;
		test_detach(fd, &r);
	}
	printf("%.0f packets estimated at %.0f, variance %.0f\n", offered, estimate, variance);
	CHECK((estimate - offered) * (estimate - offered) < 25 * variance);
	CHECK(variance < offered * offered / 2500);
}

/* The old rate stays until a marker fits, so that every packet counts with its rate. */
static void
test_full(void)
{
	const uint64_t fit = PMDSCOPE_RING_MIN_SIZE / (sizeof(struct pmdscope_record) + LEN);
	const struct pmdscope_record *rec;
	struct reader r;
	const int fd = attach(2, &r);
	uint64_t lost;

	test_seed(1);
	offer_numbered(2000);
	CHECK_U64(r.hdr->head, r.hdr->data_size);
	test_resample(fd, 10);
	offer_numbered(1000);
	lost = r.hdr->dropped;
	CHECK(r.hdr->records == fit && fit + lost + r.hdr->sampled_out == 3000);
	/* Four standard errors of what 1 in 2 are of 3000. */
	CHECK(fit + lost > 1500 - 4 * 16 && fit + lost < 1500 + 4 * 16);
	expect_sampled(&r, UINT32_MAX, 1, 2);
	CHECK(r.nb_markers == 0);
	test_release(&r);
	offer_numbered(100);
	rec = test_next(&r);
	CHECK(rec != NULL && r.nb_markers == 1 && r.sample == 10 && rec->gap == lost);
	CHECK(number_of(rec) >= 3000 && number_of(rec) < 3000 + 19);
	expect_all_sampled(&r, number_of(rec) + 1, 10);
	test_detach(fd, &r);
}

/* A ring created after a change begins with the new rate. */
static void
test_late_ring(void)
{
	const struct request req = test_request();
	const unsigned int lcore = rte_lcore_id();
	struct reader r;
	int fds[2], fd;

	nb_offered = 0;
	pmdscope_lcores[lcore].polls = 0;
	pmdscope_capture_slots.seen[lcore] = 0;
	fd = test_connect();
	test_send(fd, &req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	test_resample(fd, 8);
	offer_numbered(20);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_RING);
	test_map(&r, fds);
	test_confirm(fd, lcore);
	CHECK(r.hdr->head == 0);
	offer_numbered(20);
	/* Without a ring all packets are dropped. */
	expect_all_sampled(&r, 20, 8);
	CHECK(r.nb_markers == 1 && r.sample == 8);
	CHECK_U64(r.hdr->dropped, 20);
	pmdscope_lcores[lcore].polls = 1;
	test_detach(fd, &r);
}

/* A change applies to its own session only, also if one has a filter. */
static void
test_apart(void)
{
	struct request req = test_request();
	struct reader r[2];
	int fds[2];

	fds[0] = attach(5, &r[0]);
	/* ldb [0]; jset #1; ret #0 or #262144: keeps odd numbers. */
	req.insns[0] = (struct pmdscope_insn){ .code = 0x30, .k = 0 };
	req.insns[1] = (struct pmdscope_insn){ .code = 0x45, .k = 1, .jt = 1 };
	req.insns[2] = (struct pmdscope_insn){ .code = 0x06, .k = 0 };
	req.insns[3] = (struct pmdscope_insn){ .code = 0x06, .k = 262144 };
	req.hdr.nb_insns = 4;
	fds[1] = test_attach(&req, &r[1]);
	offer_numbered(10);
	test_resample(fds[1], 4);
	offer_numbered(40);
	expect_all_sampled(&r[0], 0, 5);
	CHECK(r[0].nb_markers == 0);
	expect_steps(&r[1], 1, 2, 5);
	CHECK(r[1].nb_markers == 0);
	CHECK(49 - expect_sampled(&r[1], 9, 2, 4) < 2 * 7);
	CHECK(r[1].nb_markers == 1 && r[1].sample == 4 && r[1].hdr->filtered == 25);
	CHECK_U64(r[1].hdr->records + r[1].hdr->sampled_out, 25);
	close(fds[0]);
	test_unmap(&r[0]);
	test_detach(fds[1], &r[1]);
}

int
main(void)
{
	test_capture_eal(1);
	test_capture_start(4, 64);
	test_marker();
	test_chances();
	test_longest();
	test_directions();
	test_weights();
	test_full();
	test_late_ring();
	test_apart();
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_abandoned_bytes() == 0);
	test_capture_stop();
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
