/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The content of a ring, packet by packet. One thread: the main lcore produces and consumes. */

#include <limits.h>
#include <unistd.h>

#include <linux/mempolicy.h>
#include <sys/syscall.h>

#include <rte_eal.h>
#include <rte_random.h>

#include "filter.h"
#include "capture.h"
#include "capture_test.h"

#define BURST 8

static void
offer(uint16_t port, uint16_t queue, uint8_t dir, struct rte_mbuf *pkt)
{
	pmdscope_capture_burst(port, queue, dir, &pkt, 1);
	rte_pktmbuf_free(pkt);
}

static void
check_bytes(const struct pmdscope_record *rec, uint32_t len, uint32_t caplen, uint8_t seed)
{
	const uint8_t *bytes = (const uint8_t *)(rec + 1);
	uint32_t i;

	CHECK(rec->len == len && rec->caplen == caplen);
	for (i = 0; i < caplen; i++)
		CHECK(bytes[i] == (uint8_t)(seed + i));
}

/* Ten times the size of the ring, with random sizes and segmentations: every byte arrives. */
static void
test_wrap(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct reader r;
	uint32_t len, n = 0;
	uint64_t tsc = 0;
	uint16_t seg;
	const int fd = test_attach(&req, &r);

	for (; r.pos < 10 * (uint64_t)PMDSCOPE_RING_MIN_SIZE; n++) {
		len = 1 + (uint32_t)rte_rand_max(9000);
		/* At least 8 bytes a segment: the pool has 2047 mbufs. */
		seg = 8 + (uint16_t)rte_rand_max(2041);
		offer(3, 7, PMDSCOPE_DIR_RX, test_packet(len, (uint8_t)n, seg));
		rec = test_next(&r);
		CHECK(rec != NULL);
		check_bytes(rec, len, len, (uint8_t)n);
		CHECK(rec->port == 3 && rec->queue == 7 && rec->dir == PMDSCOPE_DIR_RX);
		CHECK(rec->flags == 0 && rec->gap == 0 && rec->tsc > tsc);
		tsc = rec->tsc;
		CHECK(test_next(&r) == NULL);
		test_release(&r);
	}
	CHECK(r.hdr->records == n && r.hdr->dropped == 0);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* Two ports overflow a ring: gaps and totals are exact. */
static void
test_overflow(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *burst[BURST];
	uint64_t got[2] = { 0 }, gaps[2] = { 0 }, sent[2] = { 0 };
	struct reader r;
	unsigned int i, round;
	const int fd = test_attach(&req, &r);

	for (i = 0; i < BURST; i++)
		burst[i] = test_packet(1000, 0, 2048);
	for (round = 0; round < 400; round++) {
		const uint16_t port = round % 3 == 0;

		pmdscope_capture_burst(port, 0, PMDSCOPE_DIR_TX, burst, BURST);
		sent[port] += BURST;
		if (round % 40 != 39)
			continue;
		while ((rec = test_next(&r)) != NULL) {
			CHECK(rec->flags == PMDSCOPE_RECORD_F_ATTEMPT &&
					rec->dir == PMDSCOPE_DIR_TX);
			got[rec->port]++;
			gaps[rec->port] += rec->gap;
		}
		test_release(&r);
	}
	/* One more packet of each port reports the last gaps. */
	for (i = 0; i < 2; i++) {
		pmdscope_capture_burst((uint16_t)i, 0, PMDSCOPE_DIR_TX, burst, 1);
		sent[i]++;
		rec = test_next(&r);
		CHECK(rec != NULL && rec->port == i);
		got[i]++;
		gaps[i] += rec->gap;
	}
	for (i = 0; i < 2; i++) {
		CHECK(gaps[i] > 0 && got[i] + gaps[i] == sent[i]);
		CHECK(r.hdr->port_dropped[i] == gaps[i]);
	}
	CHECK(r.hdr->records == got[0] + got[1]);
	CHECK(r.hdr->dropped == gaps[0] + gaps[1]);
	rte_pktmbuf_free_bulk(burst, BURST);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

static void
test_sample(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct reader r;
	uint8_t number, last = UINT8_MAX;
	unsigned int i, n = 0;
	int fd;

	req.hdr.sample = 7;
	fd = test_attach(&req, &r);
	for (i = 0; i < 100; i++)
		offer(0, 0, PMDSCOPE_DIR_RX, test_packet(60, (uint8_t)i, 2048));
	for (; (rec = test_next(&r)) != NULL; n++) {
		number = *(const uint8_t *)(rec + 1);
		check_bytes(rec, 60, 60, number);
		CHECK((uint8_t)(number - last) >= 1 && (uint8_t)(number - last) < 14);
		last = number;
	}
	CHECK(last > 99 - 13 && r.hdr->dropped == 0);
	CHECK(n >= 100 / 13 && r.hdr->records == n && r.hdr->sampled_out == 100 - n);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* Snap length from the request, from the filter's return value, and from the size of the ring. */
static void
test_snaplen(void)
{
	const struct pmdscope_insn keep_50 = { .code = 0x06, .k = 50 };
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct reader r;
	int fd;

	req.hdr.snaplen = 33;
	fd = test_attach(&req, &r);
	CHECK(r.hdr->snaplen == 33);
	offer(0, 0, PMDSCOPE_DIR_RX, test_packet(100, 5, 20));
	rec = test_next(&r);
	CHECK(rec != NULL);
	check_bytes(rec, 100, 33, 5);
	close(fd);
	test_unmap(&r);

	req.hdr.snaplen = 0;
	req.hdr.nb_insns = 1;
	req.insns[0] = keep_50;
	fd = test_attach(&req, &r);
	CHECK(r.hdr->snaplen == PMDSCOPE_RING_MIN_SIZE / 2 - sizeof(*rec));
	offer(0, 0, PMDSCOPE_DIR_RX, test_packet(100, 5, 2048));
	rec = test_next(&r);
	CHECK(rec != NULL);
	check_bytes(rec, 100, 50, 5);
	close(fd);
	test_unmap(&r);

	/* A packet larger than the ring is cut at any position of head, and never blocks it. */
	req.hdr.nb_insns = 0;
	fd = test_attach(&req, &r);
	for (int i = 0; i < 20; i++) {
		offer(0, 0, PMDSCOPE_DIR_TX, test_packet(70000 + 16 * (uint32_t)i, 1, 2048));
		rec = test_next(&r);
		CHECK(rec != NULL);
		check_bytes(rec, 70000 + 16 * (uint32_t)i, r.hdr->snaplen, 1);
		test_release(&r);
		offer(0, 0, PMDSCOPE_DIR_TX, test_packet(1 + 500 * (uint32_t)i, 1, 2048));
		CHECK(test_next(&r) != NULL);
		test_release(&r);
	}
	CHECK(r.hdr->dropped == 0);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* Stripped tags are back in the copy, and count as packet bytes. */
static void
test_vlan(void)
{
	static const uint8_t qinq[] = { 0x88, 0xa8, 0x0b, 0xcd, 0x81, 0x00, 0xe1, 0x23 };
	struct request req = test_request();
	const struct pmdscope_record *rec;
	const uint8_t *bytes;
	struct rte_mbuf *pkt;
	struct reader r;
	uint16_t seg;
	uint8_t i;
	const int fd = test_attach(&req, &r);

	for (seg = 5; seg <= 100; seg += 5) {
		pkt = test_packet(80, 0, seg);
		pkt->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
		pkt->vlan_tci = 0xe123;
		offer(0, 0, PMDSCOPE_DIR_RX, pkt);
		rec = test_next(&r);
		CHECK(rec != NULL && rec->len == 84 && rec->caplen == 84);
		CHECK(rec->flags == PMDSCOPE_RECORD_F_VLAN);
		bytes = (const uint8_t *)(rec + 1);
		for (i = 0; i < 84; i++)
			CHECK(bytes[i] == (i < 12 ? i : i < 16 ? qinq[i - 8] : i - 4));

		pkt = test_packet(80, 0, seg);
		pkt->ol_flags |= RTE_MBUF_F_TX_QINQ;
		pkt->vlan_tci = 0xe123;
		pkt->vlan_tci_outer = 0x0bcd;
		offer(0, 0, PMDSCOPE_DIR_TX, pkt);
		rec = test_next(&r);
		CHECK(rec != NULL && rec->len == 88 && rec->caplen == 88);
		CHECK(rec->flags == (PMDSCOPE_RECORD_F_VLAN | PMDSCOPE_RECORD_F_ATTEMPT));
		bytes = (const uint8_t *)(rec + 1);
		for (i = 0; i < 88; i++)
			CHECK(bytes[i] == (i < 12 ? i : i < 20 ? qinq[i - 12] : i - 8));

		/* The flag of the other direction has no effect. */
		pkt = test_packet(80, 9, seg);
		pkt->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
		offer(0, 0, PMDSCOPE_DIR_TX, pkt);
		rec = test_next(&r);
		CHECK(rec != NULL);
		check_bytes(rec, 80, 80, 9);
		test_release(&r);
	}
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

static void
test_selects(void)
{
	static const struct {
		uint16_t port, queue;
		uint8_t dir;
		int hit;
	} bursts[] = {
		{ 2, 5, PMDSCOPE_DIR_RX, 1 },
		{ 2, 5, PMDSCOPE_DIR_TX, 0 },
		{ 2, 4, PMDSCOPE_DIR_RX, 0 },
		{ 3, 5, PMDSCOPE_DIR_RX, 0 },
		{ RTE_MAX_ETHPORTS - 1, 9, PMDSCOPE_DIR_TX, 0 },
	};
	struct request req = test_request();
	struct reader r;
	unsigned int i;
	int fd;

	req.select = (struct pmdscope_tee_select){ .port = 2, .queue = 5, .dirs = PMDSCOPE_DIR_RX };
	fd = test_attach(&req, &r);
	for (i = 0; i < RTE_DIM(bursts); i++) {
		offer(bursts[i].port, bursts[i].queue, bursts[i].dir, test_packet(60, 0, 60));
		CHECK((test_next(&r) != NULL) == bursts[i].hit);
	}
	close(fd);
	test_unmap(&r);

	req.select = (struct pmdscope_tee_select){
		.port = PMDSCOPE_TEE_ANY, .queue = 9, .dirs = PMDSCOPE_DIR_TX
	};
	fd = test_attach(&req, &r);
	for (i = 0; i < RTE_DIM(bursts); i++) {
		offer(bursts[i].port, bursts[i].queue, bursts[i].dir, test_packet(60, 0, 60));
		CHECK((test_next(&r) != NULL) == (bursts[i].queue == 9));
	}
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* A chain that is shorter than its pkt_len is copied to its end. */
static void
test_short_chain(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *pkt;
	struct reader r;
	const int fd = test_attach(&req, &r);

	pkt = test_packet(100, 3, 60);
	pkt->pkt_len = 5000;
	offer(0, 0, PMDSCOPE_DIR_TX, pkt);
	rec = test_next(&r);
	CHECK(rec != NULL);
	check_bytes(rec, 5000, 100, 3);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* Only headers of packets, and everything up to the snap length of what may be a tunnel. */
static void
test_headers_only(void)
{
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_GRE };
	static const uint32_t lengths[] = { 96, 512 };
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *pkt;
	struct reader r;
	unsigned int i;
	uint8_t *data;
	int fd;

	req.hdr.flags = PMDSCOPE_TEE_F_HEADERS;
	req.hdr.snaplen = 512;
	fd = test_attach(&req, &r);
	for (i = 0; i < RTE_DIM(protocols); i++) {
		pkt = test_packet(1000, 0, 1000);
		data = rte_pktmbuf_mtod(pkt, uint8_t *);
		data[12] = 0x08;
		data[13] = 0x00;
		data[14] = 0x45;
		data[23] = protocols[i];
		offer(0, 0, PMDSCOPE_DIR_RX, pkt);
		rec = test_next(&r);
		CHECK(rec != NULL && rec->len == 1000 && rec->caplen == lengths[i]);
	}
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

/* One time for a burst, or one for each of its packets. */
static void
test_packet_tsc(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *burst[BURST];
	struct reader each, once;
	unsigned int i;
	uint64_t tsc;
	int fds[2];

	fds[0] = test_attach(&req, &once);
	req.hdr.flags = PMDSCOPE_TEE_F_PACKET_TSC;
	fds[1] = test_attach(&req, &each);
	CHECK(once.hdr->features ==
			(PMDSCOPE_RING_F_GAPS | PMDSCOPE_RING_F_RESAMPLE |
					PMDSCOPE_RING_F_IN_BURST | PMDSCOPE_RING_F_MAPPED));
	CHECK(each.hdr->features == (once.hdr->features | PMDSCOPE_RING_F_PACKET_TSC));
	for (i = 0; i < BURST; i++)
		burst[i] = test_packet(60, 0, 60);
	tsc = rte_rdtsc();
	pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, burst, BURST);
	for (i = 0; i < BURST; i++) {
		rec = test_next(&each);
		CHECK(rec != NULL && rec->tsc > tsc);
		tsc = rec->tsc;
	}
	CHECK(tsc < rte_rdtsc());
	rec = test_next(&once);
	CHECK(rec != NULL);
	tsc = rec->tsc;
	for (i = 1; i < BURST; i++) {
		rec = test_next(&once);
		CHECK(rec != NULL && rec->tsc == tsc);
	}
	rte_pktmbuf_free_bulk(burst, BURST);
	close(fds[0]);
	close(fds[1]);
	test_unmap(&each);
	test_unmap(&once);
	test_pump(10);
}

/* Ring memory is on the node of its lcore, if the kernel permits this. */
static void
test_node(void)
{
	const struct request req = test_request();
	unsigned long mask = 0;
	struct reader r;
	long ret;
	int mode = 0;
	const int fd = test_attach(&req, &r);

	ret = syscall(SYS_get_mempolicy, &mode, &mask, sizeof(mask) * CHAR_BIT, r.hdr, MPOL_F_ADDR);
	if (ret != 0 || mode == MPOL_DEFAULT)
		printf("memory policies are not to be had here: %s\n", strerror(errno));
	else
		CHECK(mode == MPOL_PREFERRED && mask == 1UL << rte_socket_id());
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

static void
test_filter_counts(void)
{
	struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *pkts[100];
	struct reader r;
	unsigned int i;
	int fd;

	/* ldb [0]; jset #1; ret #0 or #262144: keeps odd seeds. */
	req.insns[0] = (struct pmdscope_insn){ .code = 0x30, .k = 0 };
	req.insns[1] = (struct pmdscope_insn){ .code = 0x45, .k = 1, .jt = 1 };
	req.insns[2] = (struct pmdscope_insn){ .code = 0x06, .k = 0 };
	req.insns[3] = (struct pmdscope_insn){ .code = 0x06, .k = 262144 };
	req.hdr.nb_insns = 4;
	fd = test_attach(&req, &r);
	for (i = 0; i < 21; i++)
		offer(0, 0, PMDSCOPE_DIR_RX, test_packet(60, (uint8_t)i, 60));
	CHECK(r.hdr->records == 10 && r.hdr->filtered == 11 && r.hdr->dropped == 0);
	/* A burst larger than the filter takes at a time, with an incomplete last part. */
	for (i = 0; i < RTE_DIM(pkts); i++)
		pkts[i] = test_packet(60, (uint8_t)i, 60);
	pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, pkts, RTE_DIM(pkts));
	rte_pktmbuf_free_bulk(pkts, RTE_DIM(pkts));
	CHECK(r.hdr->records == 60 && r.hdr->filtered == 61 && r.hdr->dropped == 0);
	for (i = 0; (rec = test_next(&r)) != NULL; i++)
		CHECK(*(const uint8_t *)(rec + 1) == 2 * (i < 10 ? i : i - 10) + 1);
	CHECK(i == 60);
	close(fd);
	test_unmap(&r);
	test_pump(10);
}

int
main(void)
{
	test_capture_eal(1);
	test_capture_start(4, 64);
	test_wrap();
	test_overflow();
	test_sample();
	test_snaplen();
	test_vlan();
	test_selects();
	test_short_chain();
	test_headers_only();
	test_packet_tsc();
	test_node();
	test_filter_counts();
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_abandoned_bytes() == 0);
	test_capture_stop();
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
