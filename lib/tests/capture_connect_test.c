/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* A consumer that connects without a pause: the control thread takes some of it, no more. */

#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"

#define FLOOD 500
/* What is accepted at once, what waits in the socket, and some that were accepted together. */
#define AT_ONCE (50 + 17 + 8)
/* Connections a second that are accepted, at most. */
#define RATE 200

/* Connect and disconnect; returns how often that worked. */
static unsigned int
flood(unsigned int tries)
{
	unsigned int i, n = 0;
	int fd;

	for (i = 0; i < tries; i++) {
		if (test_try_connect(&fd)) {
			n++;
			close(fd);
		}
		test_pump_events(0);
		test_pump_events(0);
	}
	return n;
}

static void
test_flood(void)
{
	const uint64_t begin = pmdscope_capture_now_ms();
	unsigned int n = flood(FLOOD), rounds;

	CHECK(n >= 20 && n <= AT_ONCE);
	/* Ticks permit more, in proportion to the time. */
	for (rounds = 0; rounds < 10; rounds++) {
		pmdscope_capture_tick();
		n += flood(FLOOD / 5);
	}
	CHECK(n <= AT_ONCE + RATE * (pmdscope_capture_now_ms() - begin + 1000) / 1000);
}

/* A consumer that begins after that waits, and is served. */
static void
test_served(void)
{
	const struct request req = test_request();
	struct reader r;
	int fd, fds[2];

	flood(FLOOD);
	fd = test_connect();
	test_send(fd, &req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_RING);
	test_map(&r, fds);
	/* A session that is open is served during a flood. */
	flood(FLOOD);
	test_resample(fd, 2);
	test_offer(100, 60);
	while (test_next(&r) != NULL)
		;
	CHECK(r.sample == 2);
	close(fd);
	test_unmap(&r);
	test_pump(100);
}

/* Requests count as well: rings are large. */
static void
test_requests(void)
{
	struct request req = test_request();
	struct pmdscope_tee_message message;
	unsigned int n, tries;
	int fd;

	req.hdr.ring_size = PMDSCOPE_RING_MAX_SIZE;
	for (n = 0, tries = 0; tries < 100; tries++) {
		if (test_try_connect(&fd)) {
			test_send(fd, &req);
			test_pump_events(0);
			test_pump_events(0);
			n += recv(fd, &message, sizeof(message), MSG_DONTWAIT) > 0;
			close(fd);
		}
		test_pump_events(0);
	}
	CHECK(n >= 1 && n < 40);
	test_pump(100);
}

int
main(void)
{
	unsigned int fds;

	test_capture_eal(1);
	fds = test_open_fds();
	test_capture_start(4, 64);
	test_flood();
	test_served();
	test_requests();
	CHECK(pmdscope_capture_nb_sessions() == 0);
	test_capture_stop();
	CHECK(test_open_fds() == fds);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
