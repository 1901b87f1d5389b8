/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Records of pmdscope_tx_burst() if the NIC takes all, some or none of a burst. */

#include <pthread.h>

#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_random.h>

#include "callback.h"
#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"

#define NIC_SLOTS 64
#define BURST_MAX 600
#define SESSIONS 4
/* A port that exists only for captures. */
#define SHADOW 9

static struct rte_ring *nic[2];
static uint16_t ports[2];

static uint16_t
start_port(const char *name, struct rte_ring **ring)
{
	const struct rte_eth_conf conf = { 0 };
	struct pmdscope_queue *queue;
	uint16_t port;
	int ret;

	*ring = rte_ring_create(name, NIC_SLOTS, SOCKET_ID_ANY, RING_F_EXACT_SZ);
	CHECK(*ring != NULL);
	ret = rte_eth_from_rings(name, ring, 1, ring, 1, SOCKET_ID_ANY);
	CHECK(ret >= 0);
	port = (uint16_t)ret;
	CHECK(rte_eth_dev_configure(port, 1, 1, &conf) == 0);
	CHECK(rte_eth_rx_queue_setup(port, 0, NIC_SLOTS, SOCKET_ID_ANY, NULL, test_pool) == 0);
	CHECK(rte_eth_tx_queue_setup(port, 0, NIC_SLOTS, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start(port) == 0);
	queue = pmdscope_queue_create(port, PMDSCOPE_TX, 0);
	CHECK(queue != NULL && pmdscope_callback_add(queue));
	return port;
}

/* The NIC sends this many of the packets that it has taken. */
static void
nic_sends(unsigned int i, unsigned int n)
{
	struct rte_mbuf *m = NULL;

	while (n-- > 0 && rte_ring_dequeue(nic[i], (void **)&m) == 0)
		rte_pktmbuf_free(m);
}

static struct request
request_of_port(uint16_t port)
{
	struct request req = test_request();

	req.select.port = port;
	return req;
}

static void
check_bytes(const struct pmdscope_record *rec, uint32_t len, uint8_t seed, uint16_t flags)
{
	const uint8_t *bytes = (const uint8_t *)(rec + 1);
	uint32_t i;

	CHECK(rec->len == len && rec->caplen == len && rec->flags == flags);
	CHECK(rec->dir == PMDSCOPE_DIR_TX && rec->queue == 0);
	for (i = 0; i < len; i++)
		CHECK(bytes[i] == (uint8_t)(seed + i));
}

/* An app that retries is recorded as sending each packet once. */
static void
test_retry(void)
{
	const struct request req = test_request();
	const struct pmdscope_record *rec;
	struct rte_mbuf *pkts[100];
	uint16_t sent = 0, n, i;
	struct reader r;
	const int fd = test_attach(&req, &r);

	for (i = 0; i < RTE_DIM(pkts); i++)
		pkts[i] = test_packet(60 + i, (uint8_t)i, i % 3 == 0 ? 17 : 2048);
	while (sent < RTE_DIM(pkts)) {
		n = pmdscope_tx_burst(ports[0], 0, pkts + sent, (uint16_t)(RTE_DIM(pkts) - sent));
		CHECK(n > 0 && n <= NIC_SLOTS);
		sent += n;
		CHECK(r.hdr->records == sent);
		/* If nothing is taken, nothing is recorded. */
		CHECK(sent == RTE_DIM(pkts) || pmdscope_tx_burst(ports[0], 0, pkts + sent, 1) == 0);
		CHECK(r.hdr->records == sent && r.hdr->dropped == 0);
		nic_sends(0, 7);
	}
	for (i = 0; (rec = test_next(&r)) != NULL; i++)
		check_bytes(rec, 60 + i, (uint8_t)i, 0);
	CHECK(i == RTE_DIM(pkts));
	CHECK(pmdscope_tx_burst(ports[0], 0, NULL, 0) == 0);
	nic_sends(0, NIC_SLOTS);
	test_detach(fd, &r);
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
}

/* The sessions of one port: all packets, filtered, sampled, and cut. */
static void
attach_sessions(uint16_t port, int fds[SESSIONS], struct reader readers[SESSIONS])
{
	struct request req = request_of_port(port);

	fds[0] = test_attach(&req, &readers[0]);
	req.hdr.sample = 5;
	fds[1] = test_attach(&req, &readers[1]);
	/* ldb [0]; jset #1; ret #0 or #262144: keeps odd seeds, and samples them. */
	req.insns[0] = (struct pmdscope_insn){ .code = 0x30, .k = 0 };
	req.insns[1] = (struct pmdscope_insn){ .code = 0x45, .k = 1, .jt = 1 };
	req.insns[2] = (struct pmdscope_insn){ .code = 0x06, .k = 0 };
	req.insns[3] = (struct pmdscope_insn){ .code = 0x06, .k = 262144 };
	req.hdr.nb_insns = 4;
	req.hdr.sample = 3;
	fds[2] = test_attach(&req, &readers[2]);
	req = request_of_port(port);
	req.hdr.snaplen = 40;
	fds[3] = test_attach(&req, &readers[3]);
}

/* The records of one session equal those of another, whose packets were copied after sending. */
static void
compare_sessions(struct reader *got, struct reader *expected)
{
	const struct pmdscope_record *a, *b;
	unsigned int i;

	CHECK_U64(got->hdr->head, expected->hdr->head);
	CHECK_U64(got->hdr->records, expected->hdr->records);
	CHECK_U64(got->hdr->dropped, expected->hdr->dropped);
	CHECK_U64(got->hdr->filtered, expected->hdr->filtered);
	CHECK_U64(got->hdr->sampled_out, expected->hdr->sampled_out);
	CHECK_U64(got->hdr->port_dropped[ports[0]], expected->hdr->port_dropped[SHADOW]);
	for (i = 0; i < PMDSCOPE_RING_PORTS; i++)
		CHECK(i == ports[0] || got->hdr->port_dropped[i] == 0);
	while ((a = test_next(got)) != NULL) {
		b = test_next(expected);
		CHECK(got->nb_markers == expected->nb_markers && got->sample == expected->sample);
		CHECK(b != NULL && a->size == b->size && a->caplen == b->caplen);
		CHECK(a->len == b->len && a->gap == b->gap && a->dir == b->dir);
		CHECK(a->port == ports[0] && b->port == SHADOW);
		CHECK(a->flags == 0 && b->flags == PMDSCOPE_RECORD_F_ATTEMPT);
		CHECK(memcmp(a + 1, b + 1, a->caplen) == 0);
	}
	CHECK(test_next(expected) == NULL);
}

/*
 * Bursts of all sizes, a NIC that takes random numbers of packets, consumers that sometimes do not
 * read and sometimes change the sampling.
 */
static void
test_as_if_sent(void)
{
	struct reader got[SESSIONS], expected[SESSIONS];
	int got_fds[SESSIONS], expected_fds[SESSIONS];
	struct rte_mbuf *pkts[BURST_MAX], *copies[BURST_MAX];
	unsigned int round, i, partial = 0;
	uint32_t sample;
	uint64_t dropped = 0;
	uint16_t nb, sent;

	attach_sessions(ports[0], got_fds, got);
	attach_sessions(SHADOW, expected_fds, expected);
	test_seed(rte_rand());
	for (round = 0; round < 4000; round++) {
		nb = (uint16_t)rte_rand_max(round % 50 == 0 ? BURST_MAX : 48);
		for (i = 0; i < nb; i++) {
			pkts[i] = test_packet(1 + (uint32_t)rte_rand_max(300), (uint8_t)rte_rand(),
					(uint16_t)(100 + rte_rand_max(400)));
			copies[i] = pkts[i];
			rte_pktmbuf_refcnt_update(copies[i], 1);
		}
		if (round % 100 == 99) {
			sample = 1U << rte_rand_max(5);
			i = (unsigned int)rte_rand_max(SESSIONS);
			test_resample(got_fds[i], sample);
			test_resample(expected_fds[i], sample);
		}
		sent = pmdscope_tx_burst(ports[0], 0, pkts, nb);
		pmdscope_capture_burst(SHADOW, 0, PMDSCOPE_DIR_TX, copies, sent);
		partial += sent > 0 && sent < nb;
		for (i = 0; i < nb; i++) {
			rte_pktmbuf_free(copies[i]);
			if (i >= sent)
				rte_pktmbuf_free(pkts[i]);
		}
		nic_sends(0, (unsigned int)rte_rand_max(NIC_SLOTS / 2));
		/* A marker is written for a burst that is offered, even if none of it is sent. */
		for (i = 0; i < SESSIONS && sent > 0; i++) {
			compare_sessions(&got[i], &expected[i]);
			if (rte_rand_max(32) != 0)
				continue;
			test_release(&got[i]);
			test_release(&expected[i]);
		}
	}
	for (i = 0; i < SESSIONS; i++) {
		dropped += got[i].hdr->dropped;
		CHECK(got[i].hdr->records > 1000 && got[i].nb_markers > 1);
		close(expected_fds[i]);
		test_unmap(&expected[i]);
		close(got_fds[i]);
		test_unmap(&got[i]);
	}
	CHECK(partial > 500 && dropped > 500);
	printf("%u bursts in part, %" PRIu64 " drops\n", partial, dropped);
	test_pump(5);
	nic_sends(0, NIC_SLOTS);
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
}

/* As a bonding port: a burst for one port is sent by another. */
static uint16_t
send_by_member(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg)
{
	uint16_t (*const *send)(uint16_t, uint16_t, struct rte_mbuf **, uint16_t) = arg;
	uint16_t i;

	for (i = 0; i < nb_pkts; i++)
		rte_pktmbuf_refcnt_update(pkts[i], 1);
	CHECK(port == ports[0] && (*send)(ports[1], queue, pkts, nb_pkts) == nb_pkts);
	return nb_pkts;
}

static uint16_t
send_plainly(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	return rte_eth_tx_burst(port, queue, pkts, nb_pkts);
}

static uint16_t
send_captured(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	return pmdscope_tx_burst(port, queue, pkts, nb_pkts);
}

/*
 * A burst within a burst: a session that selects both records them as attempts, one that selects a
 * single one does not.
 */
static void
test_nested(void)
{
	uint16_t (*const sends[])(uint16_t, uint16_t, struct rte_mbuf **,
			uint16_t) = { send_plainly, send_captured };
	const struct request both = test_request(), outer = request_of_port(ports[0]);
	const struct rte_eth_rxtx_callback *callback;
	const struct pmdscope_record *rec;
	struct rte_mbuf *pkts[8];
	struct reader r, alone;
	unsigned int s, i;
	int fd, fd_alone;

	for (s = 0; s < RTE_DIM(sends); s++) {
		callback = rte_eth_add_tx_callback(
				ports[0], 0, send_by_member, (void *)(uintptr_t)&sends[s]);
		CHECK(callback != NULL);
		fd = test_attach(&both, &r);
		fd_alone = test_attach(&outer, &alone);
		nic_sends(0, NIC_SLOTS);
		/* Room for three of eight packets. */
		for (i = 0; i < NIC_SLOTS - 3; i++)
			CHECK(rte_ring_enqueue(nic[0], test_packet(60, 0, 60)) == 0);
		for (i = 0; i < RTE_DIM(pkts); i++)
			pkts[i] = test_packet(60, (uint8_t)i, 2048);
		CHECK(pmdscope_tx_burst(ports[0], 0, pkts, RTE_DIM(pkts)) == 3);
		for (i = 0; i < 2 * RTE_DIM(pkts); i++) {
			rec = test_next(&r);
			CHECK(rec != NULL && rec->port == ports[i / RTE_DIM(pkts)]);
			check_bytes(rec, 60, (uint8_t)(i % RTE_DIM(pkts)),
					PMDSCOPE_RECORD_F_ATTEMPT);
		}
		CHECK(test_next(&r) == NULL && r.hdr->records == 2 * RTE_DIM(pkts));
		for (i = 0; i < 3; i++) {
			rec = test_next(&alone);
			CHECK(rec != NULL);
			check_bytes(rec, 60, (uint8_t)i, 0);
		}
		CHECK(test_next(&alone) == NULL && alone.hdr->records == 3);
		rte_pktmbuf_free_bulk(pkts + 3, RTE_DIM(pkts) - 3);
		nic_sends(0, NIC_SLOTS);
		nic_sends(1, NIC_SLOTS);
		CHECK(rte_eth_remove_tx_callback(ports[0], 0, callback) == 0);
		close(fd_alone);
		test_unmap(&alone);
		test_detach(fd, &r);
	}
}

static uint16_t
keep_last(uint16_t port __rte_unused, uint16_t queue __rte_unused,
		struct rte_mbuf **pkts __rte_unused, uint16_t nb_pkts, void *arg __rte_unused)
{
	return nb_pkts - 1;
}

/* The burst has its time stamp, and no record that the consumer can see. */
static uint16_t
check_in_burst(uint16_t port __rte_unused, uint16_t queue __rte_unused,
		struct rte_mbuf **pkts __rte_unused, uint16_t nb_pkts, void *arg)
{
	const struct reader *r = arg;

	CHECK(r->hdr->in_burst != 0 && r->hdr->records == 0);
	return nb_pkts;
}

/* The consumer is told to wait for a burst until its records are published. */
static void
test_in_burst(void)
{
	const struct rte_eth_rxtx_callback *callback;
	const struct request req = test_request();
	struct rte_mbuf *pkts[4];
	struct reader r;
	unsigned int i;
	int fd;

	fd = test_attach(&req, &r);
	CHECK(r.hdr->in_burst == 0);
	callback = rte_eth_add_tx_callback(ports[0], 0, check_in_burst, &r);
	CHECK(callback != NULL);
	for (i = 0; i < RTE_DIM(pkts); i++)
		pkts[i] = test_packet(60, 0, 2048);
	CHECK(pmdscope_tx_burst(ports[0], 0, pkts, RTE_DIM(pkts)) == RTE_DIM(pkts));
	CHECK(r.hdr->in_burst == 0 && r.hdr->records == RTE_DIM(pkts));
	CHECK(rte_eth_remove_tx_callback(ports[0], 0, callback) == 0);
	nic_sends(0, NIC_SLOTS);
	test_detach(fd, &r);
}

static int closing_fd;

/* The consumer ends while its records wait for the NIC. */
static uint16_t
close_session(uint16_t port __rte_unused, uint16_t queue __rte_unused,
		struct rte_mbuf **pkts __rte_unused, uint16_t nb_pkts, void *arg __rte_unused)
{
	close(closing_fd);
	test_pump_events(5);
	CHECK(pmdscope_tee_armed == NULL && pmdscope_capture_retired_bytes() > 0);
	return nb_pkts;
}

/* Callbacks of the app after ours: one refuses a packet, one ends the capture. */
static void
test_callbacks(void)
{
	const struct rte_eth_rxtx_callback *callback;
	const struct request req = test_request();
	struct rte_mbuf *pkts[8];
	struct reader r;
	unsigned int i;

	callback = rte_eth_add_tx_callback(ports[0], 0, keep_last, NULL);
	closing_fd = test_attach(&req, &r);
	for (i = 0; i < RTE_DIM(pkts); i++)
		pkts[i] = test_packet(60, (uint8_t)i, 2048);
	CHECK(pmdscope_tx_burst(ports[0], 0, pkts, RTE_DIM(pkts)) == RTE_DIM(pkts) - 1);
	for (i = 0; i < RTE_DIM(pkts) - 1; i++)
		check_bytes(test_next(&r), 60, (uint8_t)i, 0);
	CHECK(test_next(&r) == NULL && r.hdr->records == RTE_DIM(pkts) - 1);
	CHECK(rte_eth_remove_tx_callback(ports[0], 0, callback) == 0);
	test_release(&r);

	callback = rte_eth_add_tx_callback(ports[0], 0, close_session, NULL);
	CHECK(pmdscope_tx_burst(ports[0], 0, pkts + RTE_DIM(pkts) - 1, 1) == 1);
	CHECK(rte_eth_remove_tx_callback(ports[0], 0, callback) == 0);
	/* Published in a ring that will not be read, and may be freed now. */
	check_bytes(test_next(&r), 60, RTE_DIM(pkts) - 1, 0);
	test_pump(5);
	CHECK(pmdscope_capture_retired_bytes() == 0);
	test_unmap(&r);
	nic_sends(0, NIC_SLOTS);
}

static void *
send_foreign(void *arg)
{
	struct rte_mbuf *m = test_packet(60, 0, 60);

	CHECK(pmdscope_tx_burst(ports[0], 0, &m, 1) == 1);
	return arg;
}

/* Without an lcore id, and without a capture, packets are sent all the same. */
static void
test_plain(void)
{
	const uint64_t before = pmdscope_capture_foreign_bursts();
	const struct request req = test_request();
	pthread_t thread;
	struct reader r;
	int fd;

	send_foreign(NULL);
	fd = test_attach(&req, &r);
	CHECK(pthread_create(&thread, NULL, send_foreign, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pmdscope_capture_foreign_bursts() == before + 1 && r.hdr->records == 0);
	CHECK(rte_ring_count(nic[0]) == 2);
	nic_sends(0, NIC_SLOTS);
	test_detach(fd, &r);
}

int
main(void)
{
	test_capture_eal(1);
	ports[0] = start_port("nic0", &nic[0]);
	ports[1] = start_port("nic1", &nic[1]);
	test_capture_start(2 * SESSIONS, 64);
	test_retry();
	test_as_if_sent();
	test_in_burst();
	test_nested();
	test_callbacks();
	test_plain();
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_abandoned_bytes() == 0);
	test_capture_stop();
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
