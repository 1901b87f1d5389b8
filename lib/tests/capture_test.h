/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CAPTURE_TEST_H
#define CAPTURE_TEST_H

/* For the tests of captures: a consumer in C, and the part of the control thread. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "pmdscope_ring.h"
#include "test.h"

/* One ring, mapped by a consumer. */
struct reader {
	int data_fd, tail_fd;
	const struct pmdscope_ring_hdr *hdr;
	struct pmdscope_ring_tail *tail;
	uint64_t pos;
	uint32_t sample; /* Of the last marker; 0 before the first. */
	unsigned int nb_markers;
};

/* A request that selects everything. */
struct request {
	struct pmdscope_tee_request hdr;
	struct pmdscope_tee_select select;
	struct pmdscope_insn insns[PMDSCOPE_TEE_MAX_INSNS];
};

/* test_eal() with this many lcores (0, 1, ...), and a pool. */
void test_capture_eal(unsigned int nb_lcores);
extern struct rte_mempool *test_pool;

/* The default. */
#define TEST_FILTER_CYCLES 400

void test_capture_start(unsigned int sessions, unsigned int session_mb);
void test_capture_start_group(const char *group);
void test_capture_stop(void);
/* Serve the socket for about this time, and tick. */
void test_pump(unsigned int ms);
/* Serve the socket without a tick. */
void test_pump_events(unsigned int ms);

/* Connect; false when the socket has no room, as connections are accepted at a limited rate. */
bool test_try_connect(int *fd);
/* The same, and process events until there is room. Only in the thread that processes them. */
int test_connect(void);
struct request test_request(void);
/* Send the request with this many instructions. */
void test_send(int fd, const struct request *req);
/* Request 1 packet in `sample`, and have the change processed. */
void test_resample(int fd, uint32_t sample);
/* Restart the sampling of all armed captures, each producer with this seed. */
void test_seed(uint64_t seed);
/*
 * The next message, serving the socket meanwhile; kind 0 at end-of-file. fds is -1 without
 * descriptors.
 */
struct pmdscope_tee_message test_receive(int fd, int fds[2]);
/* Expect this kind of message. */
struct pmdscope_tee_message test_expect(int fd, uint16_t kind);

/* Tell the app that the ring of an lcore is mapped, and have the message processed. */
void test_confirm(int fd, unsigned int lcore);
/* Connect, request, map and confirm the ring of the main lcore, which polls. Returns the socket. */
int test_attach(const struct request *req, struct reader *reader);
/* Close the only session, and wait until its memory is freed. */
void test_detach(int fd, struct reader *reader);
void test_map(struct reader *reader, const int fds[2]);
void test_unmap(struct reader *reader);

/* The next packet record, or NULL; checks the rules of the ring. Valid until test_release(). */
const struct pmdscope_record *test_next(struct reader *reader);
/* Tell the producer how much was read. */
void test_release(struct reader *reader);

/* A packet of len bytes, byte i being (uint8_t)(seed + i), cut into segments of at most seg. */
struct rte_mbuf *test_packet(uint32_t len, uint8_t seed, uint16_t seg);

/* The lcore receives n packets of len bytes on port 0 and queue 0. */
void test_offer(unsigned int n, uint32_t len);

unsigned int test_open_fds(void);

#endif /* CAPTURE_TEST_H */
