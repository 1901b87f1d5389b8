/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The page of the tail, which the consumer writes: no burst touches it while the consumer can take
 * it away.
 */

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_lcore.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define HOLES 200
#define PAGE 4096

/* As an older consumer, which does not confirm its mapping. */
static int
attach_unconfirmed(struct reader *reader)
{
	const struct request req = test_request();
	const int fd = test_connect();
	int fds[2];

	test_send(fd, &req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_RING);
	test_map(reader, fds);
	return fd;
}

static bool
punch(const struct reader *reader)
{
	return fallocate(reader->tail_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0;
}

static uint64_t
page_faults(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
	return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static void
read_all(struct reader *reader)
{
	while (test_next(reader) != NULL)
		;
	test_release(reader);
}

/* Holes before the confirmation cause no page fault in a burst. */
static void
test_holes(void)
{
	struct rte_mbuf *pkt = test_packet(60, 0, 60);
	uint64_t before, faults = 0;
	unsigned int i, holes = 0;
	struct reader r;
	const int fd = attach_unconfirmed(&r);

	for (i = 0; i < HOLES; i++) {
		holes += punch(&r);
		before = page_faults();
		pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, &pkt, 1);
		faults += page_faults() - before;
	}
	CHECK(holes == HOLES);
	CHECK_U64(faults, 0);
	/* The tail was 0, and still is. */
	test_pump(1);
	CHECK(r.hdr->records == HOLES && pmdscope_capture_nb_sessions() == 1);
	/* Otherwise a hole is a tail that went back. */
	read_all(&r);
	test_pump(1);
	pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, &pkt, 1);
	CHECK(punch(&r));
	pmdscope_capture_tick();
	pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, &pkt, 1);
	pmdscope_capture_tick();
	CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
	rte_pktmbuf_free(pkt);
	test_detach(fd, &r);
}

/* The tail of a consumer that confirms nothing is taken over by each tick. */
static void
test_older_consumer(void)
{
	struct reader r;
	const int fd = attach_unconfirmed(&r);

	test_offer(100, 1000);
	CHECK(r.hdr->dropped > 0);
	read_all(&r);
	test_offer(1, 1000);
	CHECK(r.hdr->dropped + r.hdr->records == 101 && test_next(&r) == NULL);
	pmdscope_capture_tick();
	test_offer(10, 1000);
	CHECK(test_next(&r) != NULL);
	test_detach(fd, &r);
}

/* Nothing takes a page away that was confirmed, and each burst reads it. */
static void
test_confirmed(void)
{
	struct reader r;
	const int fd = attach_unconfirmed(&r);
	const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	uint64_t before;
	unsigned int i;

	CHECK((fcntl(r.tail_fd, F_GET_SEALS) & seals) == (F_SEAL_SHRINK | F_SEAL_GROW));
	test_confirm(fd, rte_lcore_id());
	CHECK((fcntl(r.tail_fd, F_GET_SEALS) & seals) == seals);
	CHECK(!punch(&r) && errno == EPERM);
	CHECK(madvise(r.tail, PAGE, MADV_REMOVE) < 0 && errno == EPERM);
	CHECK(ftruncate(r.tail_fd, 0) < 0);
	CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r.tail_fd, 0) == MAP_FAILED);
	for (i = 0; i < 200; i++) {
		before = page_faults();
		test_offer(10, 1000);
		CHECK_U64(page_faults(), before);
		read_all(&r);
	}
	CHECK(r.hdr->records == 2000 && r.hdr->dropped == 0);
	test_detach(fd, &r);
}

/* Each of these confirmations ends the session, and without a page fault in a burst. */
static void
test_refused(void)
{
	static const struct {
		const char *name;
		bool hole, sealed, twice;
		uint32_t lcore;
		int error;
	} cases[] = {
		{ "a hole", .hole = true, .error = EPROTO },
		{ "no more seals", .sealed = true, .error = EPERM },
		{ "twice", .twice = true, .error = EPROTO },
		{ "another lcore", .lcore = 1, .error = EPROTO },
		{ "no lcore", .lcore = UINT32_MAX, .error = EPROTO },
	};
	struct pmdscope_tee_message message;
	struct reader r;
	uint64_t before;
	unsigned int i;
	int fd;

	for (i = 0; i < RTE_DIM(cases); i++) {
		fd = attach_unconfirmed(&r);
		if (cases[i].hole)
			CHECK(punch(&r));
		if (cases[i].sealed)
			CHECK(fcntl(r.tail_fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
		if (cases[i].twice)
			test_confirm(fd, rte_lcore_id());
		test_confirm(fd, rte_lcore_id() + cases[i].lcore);
		before = page_faults();
		test_offer(5, 100);
		CHECK_U64(page_faults(), before);
		message = test_expect(fd, PMDSCOPE_TEE_END);
		if (message.value != (uint32_t)cases[i].error)
			fprintf(stderr, "%s: %u \"%s\"\n", cases[i].name, message.value,
					message.text);
		CHECK(message.value == (uint32_t)cases[i].error);
		test_detach(fd, &r);
	}
}

int
main(void)
{
	unsigned int fds;

	test_capture_eal(1);
	fds = test_open_fds();
	test_capture_start(4, 64);
	/* So that no page of the test itself is touched for the first time later. */
	test_offer(100, 1000);
	test_older_consumer();
	test_holes();
	test_confirmed();
	test_refused();
	test_capture_stop();
	CHECK(test_open_fds() == fds);
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
