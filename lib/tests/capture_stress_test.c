/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Captures begin, end and misbehave while two lcores produce at full speed. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_random.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_load.h"

/* Each worker has had time to do something. */
static bool
have_produced(const struct reader readers[1 + LOAD_WORKERS])
{
	unsigned int i;

	for (i = 1; i <= LOAD_WORKERS; i++)
		if (__atomic_load_n(&readers[i].hdr->records, __ATOMIC_RELAXED) == 0)
			return false;
	return true;
}

/* A consumer: every byte is right, and the missing packets are counted exactly. */
static void
test_accounting(void)
{
	const struct request req = test_request();
	const struct pmdscope_record *rec;
	struct reader r[1 + LOAD_WORKERS];
	uint64_t got[1 + LOAD_WORKERS] = { 0 }, gaps[1 + LOAD_WORKERS] = { 0 };
	const uint64_t end = pmdscope_capture_now_ms() + 1000;
	bool last = false;
	unsigned int i;
	int fd;

	fd = load_attach(&req, r);
	load_start();
	do {
		if (pmdscope_capture_now_ms() >= end && have_produced(r)) {
			load_stop();
			last = true;
		}
		for (i = 1; i <= LOAD_WORKERS; i++) {
			while ((rec = test_next(&r[i])) != NULL) {
				load_check_packet(rec);
				CHECK(rec->port == i % 2);
				got[i]++;
				gaps[i] += rec->gap;
				if (got[i] % 64 == 0)
					test_release(&r[i]);
			}
			test_release(&r[i]);
		}
		pmdscope_capture_tick();
	} while (!last);
	for (i = 1; i <= LOAD_WORKERS; i++) {
		CHECK(got[i] > 0 && got[i] == r[i].hdr->records);
		CHECK(got[i] + r[i].hdr->dropped == load_offered(i));
		CHECK(r[i].hdr->port_dropped[i % 2] == r[i].hdr->dropped);
		CHECK(gaps[i] <= r[i].hdr->dropped);
		printf("lcore %u: %" PRIu64 " offered, %" PRIu64 " read\n", i, load_offered(i),
				got[i]);
	}
	load_detach(fd, r);
	load_wait_until_freed();
}

/* Rings are created and freed while the lcores produce. */
static void
test_cycles(void)
{
	const struct request req = test_request();
	struct reader r[1 + LOAD_WORKERS];
	unsigned int i, fds;
	int fd;

	load_start();
	load_wait_until_freed();
	fds = test_open_fds();
	for (i = 0; i < 200; i++) {
		fd = load_attach(&req, r);
		load_detach(fd, r);
		test_pump_events(20);
	}
	load_wait_until_freed();
	CHECK(test_open_fds() == fds);
	load_stop();
}

/* Random tails, some of them valid, until the session is ended because of one. */
static void
test_hostile_tails(void)
{
	const struct request req = test_request();
	struct reader r[1 + LOAD_WORKERS];
	unsigned int i, j, lcore;
	uint64_t end;
	int fd;

	load_start();
	for (i = 0; i < 30; i++) {
		fd = load_attach(&req, r);
		end = pmdscope_capture_now_ms() + 60000;
		for (j = 0; pmdscope_capture_nb_sessions() != 0; j++) {
			CHECK(j % 1024 != 0 || pmdscope_capture_now_ms() < end);
			lcore = 1 + j % LOAD_WORKERS;
			__atomic_store_n(&r[lcore].tail->tail, rte_rand() >> rte_rand_max(64),
					__ATOMIC_RELAXED);
			if (j % 64 == 0)
				pmdscope_capture_tick();
		}
		CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
		load_detach(fd, r);
		test_pump_events(20);
	}
	load_wait_until_freed();
	load_stop();
}

/* Consumers that die at any moment. */
static void
test_killed(void)
{
	const struct request req = test_request();
	struct pmdscope_tee_message message;
	unsigned int i;
	pid_t pid;
	int fd;

	load_start();
	for (i = 0; i < 40; i++) {
		fd = test_connect();
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			test_send(fd, &req);
			while (recv(fd, &message, sizeof(message), 0) > 0)
				;
			_exit(0);
		}
		close(fd);
		test_pump(1 + (unsigned int)rte_rand_max(10));
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	}
	load_wait_until_freed();
	CHECK(pmdscope_tee_armed == NULL);
	load_stop();
}

/* Each worker has applied this many changes. */
static bool
have_markers(const struct reader readers[1 + LOAD_WORKERS], unsigned int nb)
{
	unsigned int i;

	for (i = 1; i <= LOAD_WORKERS; i++)
		if (readers[i].nb_markers < nb)
			return false;
	return true;
}

/* Rates change while the lcores produce: the records represent the right total. */
static void
test_resampled(void)
{
	struct request req = test_request();
	struct reader r[1 + LOAD_WORKERS];
	uint64_t estimates[1 + LOAD_WORKERS] = { 0 };
	double variances[1 + LOAD_WORKERS] = { 0 };
	const struct pmdscope_record *rec;
	bool last = false;
	unsigned int i, j;
	double error;
	int fd;

	req.hdr.sample = 256;
	req.hdr.ring_size = 8 << 20;
	fd = load_attach(&req, r);
	for (i = 1; i <= LOAD_WORKERS; i++)
		r[i].sample = 256;
	load_start();
	for (j = 0; !last; j++) {
		CHECK(j < 100000);
		test_resample(fd, 256U << j % 5);
		last = j >= 300 && have_markers(r, 31);
		if (last)
			load_stop();
		for (i = 1; i <= LOAD_WORKERS; i++) {
			while ((rec = test_next(&r[i])) != NULL) {
				CHECK(rte_is_power_of_2(r[i].sample));
				CHECK(r[i].sample >= 256 && r[i].sample <= 256 << 4);
				load_check_packet(rec);
				estimates[i] += r[i].sample;
				variances[i] += (double)r[i].sample * (r[i].sample - 1);
			}
			test_release(&r[i]);
		}
	}
	for (i = 1; i <= LOAD_WORKERS; i++) {
		const struct pmdscope_ring_hdr *hdr = r[i].hdr;

		CHECK(r[i].nb_markers > 30 && r[i].nb_markers <= j);
		CHECK(hdr->records + hdr->dropped + hdr->sampled_out == load_offered(i));
		printf("lcore %u: %" PRIu64 " offered, %" PRIu64 " estimated, %" PRIu64
		       " dropped, %u markers\n",
				i, load_offered(i), estimates[i], hdr->dropped, r[i].nb_markers);
		error = (double)estimates[i] - (double)load_offered(i);
		CHECK(error <= 0 || error * error < 25 * variances[i]);
		error += (double)(hdr->dropped << 12);
		CHECK(error >= 0 || error * error < 25 * variances[i]);
	}
	load_detach(fd, r);
	load_wait_until_freed();
}

static void
test_many(void)
{
	struct request req = test_request();
	struct reader r[4][1 + LOAD_WORKERS];
	unsigned int i, j;
	int fds[4];

	for (i = 0; i < 4; i++) {
		req.select.dirs = (uint16_t)(1 + i % 3);
		req.hdr.sample = i;
		req.hdr.snaplen = 64 << i;
		fds[i] = load_attach(&req, r[i]);
	}
	load_start();
	test_pump(200);
	for (i = 0; i < 4; i++)
		WAIT_FOR(have_produced(r[i]));
	load_stop();
	for (i = 0; i < 4; i++)
		for (j = 1; j <= LOAD_WORKERS; j++) {
			const struct pmdscope_ring_hdr *hdr = r[i][j].hdr;
			const uint64_t seen = hdr->records + hdr->dropped + hdr->sampled_out;

			CHECK(hdr->records > 0);
			/* RX, TX, both: the bursts alternate. */
			CHECK(i % 3 == 2 ? seen == load_offered(j)
					 : seen >= load_offered(j) / 2 - LOAD_BURST &&
									seen <= load_offered(j) / 2 + LOAD_BURST);
			while (test_next(&r[i][j]) != NULL)
				;
		}
	for (i = 0; i < 4; i++)
		load_detach(fds[i], r[i]);
	load_wait_until_freed();
}

/* Memory of an lcore that does not leave is kept and reported, and freed when it leaves. */
static void
test_stuck(void)
{
	const struct request req = test_request();
	uint32_t *seq = &pmdscope_lcores[RTE_MAX_LCORE - 1].tee_seq;
	struct reader r[1 + LOAD_WORKERS];
	const int fd = load_attach(&req, r);
	const uint64_t start = pmdscope_capture_now_ms();

	__atomic_store_n(seq, 1, __ATOMIC_RELEASE);
	load_detach(fd, r);
	test_pump(50);
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_tee_armed == NULL);
	CHECK(pmdscope_capture_retired_bytes() > (1 + LOAD_WORKERS) * PMDSCOPE_RING_MIN_SIZE);
	CHECK(pmdscope_capture_abandoned_bytes() == 0 || pmdscope_capture_now_ms() - start >= 1000);
	test_pump(1200);
	CHECK(pmdscope_capture_abandoned_bytes() == pmdscope_capture_retired_bytes());
	__atomic_store_n(seq, 2, __ATOMIC_RELEASE);
	load_wait_until_freed();
}

int
main(void)
{
	unsigned int i;

	test_capture_eal(1 + LOAD_WORKERS);
	test_capture_start(4, 64);
	for (i = 1; i <= LOAD_WORKERS; i++)
		pmdscope_lcores[i].polls = 1;
	test_accounting();
	test_many();
	test_resampled();
	test_cycles();
	test_hostile_tails();
	test_killed();
	test_stuck();
	test_capture_stop();
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
