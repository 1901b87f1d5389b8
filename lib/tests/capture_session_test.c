/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* A session in progress: its memory, its tail, its lease, its clock, its end. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>

#include "clock.h"
#include "capture.h"
#include "capture_slots.h"
#include "capture_test.h"

static void
test_descriptors(void)
{
	const struct request req = test_request();
	struct reader r;
	char path[64];
	int fd, again;
	size_t size;

	fd = test_attach(&req, &r);
	size = PMDSCOPE_RING_HDR_SIZE + r.hdr->data_size;
	CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, r.data_fd, 0) == MAP_FAILED);
	CHECK(mprotect((void *)(uintptr_t)r.hdr, size, PROT_READ | PROT_WRITE) < 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", r.data_fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
		CHECK(pwrite(again, "x", 1, 0) < 0 && ftruncate(again, 0) < 0);
		CHECK(ftruncate(again, 1 << 30) < 0);
		CHECK(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
		close(again);
	}
	CHECK(pwrite(r.data_fd, "x", 1, 0) < 0 && ftruncate(r.data_fd, 0) < 0);
	CHECK(fcntl(r.data_fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK(ftruncate(r.tail_fd, 0) < 0 && ftruncate(r.tail_fd, 1 << 20) < 0);
	CHECK(fcntl(r.tail_fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	CHECK((fcntl(r.data_fd, F_GETFL) & O_ACCMODE) == O_RDONLY);

	close(fd);
	test_unmap(&r);
	test_pump(5);
}

/* Invalid tails stop the ring permanently and end the session. */
static void
test_hostile_tail(void)
{
	const struct request req = test_request();
	struct pmdscope_tee_message message;
	struct reader r;
	uint64_t head, step;
	int fd;

	for (step = 0; step < 3; step++) {
		fd = test_attach(&req, &r);
		test_offer(10, 100);
		head = r.hdr->head;
		while (test_next(&r) != NULL)
			;
		test_release(&r);
		test_offer(1, 100);
		r.tail->tail = step == 0 ? head - 16 : step == 1 ? head + 100000 : UINT64_MAX;
		test_offer(5, 100);
		r.tail->tail = head;
		test_offer(5, 100);
		CHECK(r.hdr->records == 11 && r.hdr->dropped == 10);
		CHECK(pmdscope_capture_nb_sessions() == 1);
		pmdscope_capture_tick();
		CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_table.count() == 1);
		message = test_expect(fd, PMDSCOPE_TEE_END);
		CHECK(message.value == EPROTO && strstr(message.text, "tail") != NULL);
		close(fd);
		test_unmap(&r);
		test_pump(5);
		CHECK(pmdscope_capture_table.count() == 0);
	}
}

#define LEASE_MS 600

static void
end_leased(int fd, struct reader *r, uint64_t full_ms)
{
	CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == ETIMEDOUT);
	CHECK(pmdscope_capture_now_ms() - full_ms >= LEASE_MS);
	CHECK(pmdscope_capture_nb_sessions() == 0);
	test_offer(1, 1000);
	close(fd);
	test_unmap(r);
	test_pump(5);
}

/* False if this process paused for longer than the lease, so that the test is incomplete. */
static bool
try_lease(void)
{
	struct request req = test_request();
	struct reader r;
	uint64_t full_ms;
	int fd;

	req.hdr.lease_ms = LEASE_MS;
	fd = test_attach(&req, &r);
	/* Read, or not full: the session remains. */
	test_offer(10, 1000);
	test_pump(LEASE_MS + 100);
	CHECK(pmdscope_capture_nb_sessions() == 1);
	full_ms = pmdscope_capture_now_ms();
	test_offer(100, 1000);
	CHECK(r.hdr->dropped > 0);
	test_pump(200);
	if (pmdscope_capture_nb_sessions() == 0) {
		end_leased(fd, &r, full_ms);
		return false;
	}
	full_ms = pmdscope_capture_now_ms();
	CHECK(test_next(&r) != NULL);
	test_release(&r);
	test_offer(100, 1000);
	end_leased(fd, &r, full_ms);
	return true;
}

static void
test_lease(void)
{
	unsigned int tries = 0;

	while (!try_lease())
		CHECK(++tries < 50);
}

/* An lcore that begins late gets its ring at a tick; what it dropped until then is counted. */
static void
test_late_lcore(void)
{
	const struct request req = test_request();
	const struct pmdscope_record *rec;
	struct pmdscope_tee_message message;
	struct reader r;
	int fds[2], fd;

	/* As if no lcore had polled or been seen yet. */
	pmdscope_lcores[rte_lcore_id()].polls = 0;
	pmdscope_capture_slots.seen[rte_lcore_id()] = 0;
	fd = test_connect();
	test_send(fd, &req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	test_offer(13, 100);
	message = test_receive(fd, fds);
	CHECK(message.kind == PMDSCOPE_TEE_RING);
	test_map(&r, fds);
	test_confirm(fd, message.value);
	test_offer(1, 100);
	rec = test_next(&r);
	CHECK(rec != NULL && rec->gap == 13);
	CHECK(r.hdr->records == 1 && r.hdr->dropped == 13 && r.hdr->port_dropped[0] == 13);
	pmdscope_lcores[rte_lcore_id()].polls = 1;
	close(fd);
	test_unmap(&r);
	test_pump(5);
}

/* A VM that was migrated to another host has another TSC. */
static void
test_jumps(void)
{
	const uint64_t hz = 2600000000, s = 1000000000;
	const struct pmdscope_anchor from = { .tsc = 50 * hz, .raw_ns = 7 * s };
	struct pmdscope_anchor to = { .tsc = 51 * hz, .raw_ns = 8 * s };

	CHECK(!pmdscope_clock_jumped(&from, &to, hz));
	CHECK(!pmdscope_clock_jumped(&from, &to, 0));
	/* Read 5 us late. */
	to.tsc += hz / 200000;
	CHECK(!pmdscope_clock_jumped(&from, &to, hz));
	/* A faster clock, a reset one, one that has run for longer. */
	to.tsc = 50 * hz + hz / 26 * 27;
	CHECK(pmdscope_clock_jumped(&from, &to, hz));
	to.tsc = 50 * hz;
	CHECK(pmdscope_clock_jumped(&from, &to, hz) && pmdscope_clock_jumped(&from, &to, 0));
	to.tsc = 2 * hz;
	CHECK(pmdscope_clock_jumped(&from, &to, hz));
	to.tsc = 5000 * hz;
	CHECK(pmdscope_clock_jumped(&from, &to, hz));
	/* After a pause of the control thread. */
	to = (struct pmdscope_anchor){ .tsc = 350 * hz, .raw_ns = 307 * s };
	CHECK(!pmdscope_clock_jumped(&from, &to, hz));
}

static void
test_anchors(void)
{
	const struct request req = test_request();
	struct reader r;
	uint64_t tsc;
	const int fd = test_attach(&req, &r);

	CHECK(r.hdr->anchor_seq != 0 && r.hdr->anchor_seq % 2 == 0);
	CHECK(r.hdr->first.tsc != 0 && r.hdr->first.realtime_ns != 0 && r.hdr->first.raw_ns != 0);
	tsc = r.hdr->last.tsc;
	usleep(1100000);
	CHECK(pmdscope_clock_tick());
	pmdscope_capture_tick();
	CHECK(r.hdr->last.tsc > tsc && r.hdr->last.tsc == pmdscope_clock_last()->tsc);
	CHECK(r.hdr->anchor_seq % 2 == 0);
	close(fd);
	test_unmap(&r);
	test_pump(5);
}

static void *
foreign(void *arg)
{
	test_offer(3, 60);
	return arg;
}

static void
test_foreign(void)
{
	const struct request req = test_request();
	const uint64_t before = pmdscope_capture_foreign_bursts();
	struct reader r;
	pthread_t thread;
	const int fd = test_attach(&req, &r);

	CHECK(pthread_create(&thread, NULL, foreign, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pmdscope_capture_foreign_bursts() == before + 3 && r.hdr->records == 0);
	close(fd);
	test_unmap(&r);
	test_pump(5);
}

/* Stopping notifies consumers; published records remain readable. */
static void
test_shutdown(void)
{
	const struct request req = test_request();
	struct reader r;
	unsigned int n = 0;
	int fds[2];
	const int fd = test_attach(&req, &r);

	test_offer(20, 100);
	test_capture_stop();
	CHECK(pmdscope_tee_armed == NULL);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_END);
	CHECK(test_receive(fd, fds).kind == 0);
	while (test_next(&r) != NULL)
		n++;
	CHECK(n == 20);
	close(fd);
	test_unmap(&r);
}

int
main(void)
{
	unsigned int fds;

	test_capture_eal(1);
	fds = test_open_fds();
	test_capture_start(3, 8);
	test_descriptors();
	test_hostile_tail();
	test_lease();
	test_late_lcore();
	test_jumps();
	test_anchors();
	test_foreign();
	test_shutdown();
	CHECK(pmdscope_capture_abandoned_bytes() == 0);
	CHECK(test_open_fds() == fds);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
