/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Captures come, go and misbehave while two lcores produce at full speed. */

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

#include "tee.h"
#include "tee_capture.h"
#include "tee_test.h"

#define WORKERS 2
#define BURST 32

/* What the workers do, and what they have done once they were stopped. */
static int running;
static uint64_t offered[RTE_MAX_LCORE];

static int
produce(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	struct rte_mbuf *pkts[BURST];
	uint64_t total = 0;
	unsigned int i, n;

	for (i = 0; i < BURST; i++)
		pkts[i] = test_packet(60 + i * 40, (uint8_t)i, i % 4 == 3 ? 100 : 2048);
	for (n = 0; __atomic_load_n(&running, __ATOMIC_ACQUIRE); n++) {
		pmdscope_tee_burst((uint16_t)(lcore % 2), 0,
				n % 2 == 0 ? PMDSCOPE_DIR_RX : PMDSCOPE_DIR_TX, pkts, BURST);
		total += BURST;
	}
	__atomic_store_n(&offered[lcore], total, __ATOMIC_RELEASE);
	rte_pktmbuf_free_bulk(pkts, BURST);
	(void)arg;
	return 0;
}

static void
start_workers(void)
{
	__atomic_store_n(&running, 1, __ATOMIC_RELEASE);
	rte_eal_mp_remote_launch(produce, NULL, SKIP_MAIN);
}

static void
stop_workers(void)
{
	__atomic_store_n(&running, 0, __ATOMIC_RELEASE);
	rte_eal_mp_wait_lcore();
}

static uint64_t
nb_offered(unsigned int lcore)
{
	return __atomic_load_n(&offered[lcore], __ATOMIC_ACQUIRE);
}

/* Attach and map the rings of main lcore and workers. */
static int
attach_all(const struct request *req, struct reader readers[1 + WORKERS])
{
	struct pmdscope_tee_message message;
	const int fd = test_connect();
	unsigned int i;
	int fds[2];

	test_send(fd, req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	for (i = 0; i <= WORKERS; i++) {
		message = test_receive(fd, fds);
		CHECK(message.kind == PMDSCOPE_TEE_RING && message.value <= WORKERS);
		test_map(&readers[message.value], fds);
	}
	return fd;
}

static void
detach(int fd, struct reader readers[1 + WORKERS])
{
	unsigned int i;

	close(fd);
	for (i = 0; i <= WORKERS; i++)
		test_unmap(&readers[i]);
}

static void
wait_until_freed(void)
{
	unsigned int i;

	for (i = 0; i < 200 &&
			(pmdscope_tee_retired_bytes() != 0 || pmdscope_tee_nb_sessions() != 0);
			i++)
		test_pump(10);
	CHECK(pmdscope_tee_nb_sessions() == 0 && pmdscope_tee_retired_bytes() == 0);
	CHECK(pmdscope_tee_abandoned_bytes() == 0);
}

static void
check_packet(const struct pmdscope_record *rec)
{
	const uint8_t *bytes = (const uint8_t *)(rec + 1);
	uint32_t i, seed = (rec->len - 60) / 40;

	CHECK(seed < BURST && rec->len == 60 + seed * 40 && rec->caplen == rec->len);
	for (i = 0; i < rec->caplen; i++)
		CHECK(bytes[i] == (uint8_t)(seed + i));
}

/* A reader at work: every byte is right, and what is missing is counted, to the packet. */
static void
test_accounting(void)
{
	const struct request req = test_request();
	const struct pmdscope_record *rec;
	struct reader r[1 + WORKERS];
	uint64_t got[1 + WORKERS] = { 0 }, gaps[1 + WORKERS] = { 0 };
	const uint64_t end = pmdscope_tee_now_ms() + 1000;
	bool last = false;
	unsigned int i;
	int fd;

	fd = attach_all(&req, r);
	start_workers();
	do {
		if (pmdscope_tee_now_ms() >= end) {
			stop_workers();
			last = true;
		}
		for (i = 1; i <= WORKERS; i++) {
			while ((rec = test_next(&r[i])) != NULL) {
				check_packet(rec);
				CHECK(rec->port == i % 2);
				got[i]++;
				gaps[i] += rec->gap;
				if (got[i] % 64 == 0)
					test_release(&r[i]);
			}
			test_release(&r[i]);
		}
		pmdscope_tee_tick();
	} while (!last);
	for (i = 1; i <= WORKERS; i++) {
		CHECK(got[i] > 0 && got[i] == r[i].hdr->records);
		CHECK(got[i] + r[i].hdr->dropped == nb_offered(i));
		CHECK(r[i].hdr->port_dropped[i % 2] == r[i].hdr->dropped);
		CHECK(gaps[i] <= r[i].hdr->dropped);
		printf("lcore %u: %" PRIu64 " offered, %" PRIu64 " read\n", i, nb_offered(i),
				got[i]);
	}
	detach(fd, r);
	wait_until_freed();
}

/* Rings come and go under the feet of the producers. */
static void
test_cycles(void)
{
	const struct request req = test_request();
	struct reader r[1 + WORKERS];
	unsigned int i, fds;
	int fd;

	start_workers();
	wait_until_freed();
	fds = test_open_fds();
	for (i = 0; i < 200; i++) {
		fd = attach_all(&req, r);
		detach(fd, r);
		test_pump_events(20);
	}
	wait_until_freed();
	CHECK(test_open_fds() == fds);
	stop_workers();
}

/* Random tails, now and then valid ones, until the session is ended for it. */
static void
test_hostile_tails(void)
{
	const struct request req = test_request();
	struct reader r[1 + WORKERS];
	unsigned int i, j, lcore;
	uint64_t end;
	int fd;

	start_workers();
	for (i = 0; i < 30; i++) {
		fd = attach_all(&req, r);
		end = pmdscope_tee_now_ms() + 4000;
		for (j = 0; pmdscope_tee_nb_sessions() != 0; j++) {
			CHECK(j % 1024 != 0 || pmdscope_tee_now_ms() < end);
			lcore = 1 + j % WORKERS;
			__atomic_store_n(&r[lcore].tail->tail, rte_rand() >> rte_rand_max(64),
					__ATOMIC_RELAXED);
			if (j % 64 == 0)
				pmdscope_tee_tick();
		}
		CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
		detach(fd, r);
		test_pump_events(20);
	}
	wait_until_freed();
	stop_workers();
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

	start_workers();
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
	wait_until_freed();
	CHECK(pmdscope_tee_armed == NULL);
	stop_workers();
}

static void
test_many(void)
{
	struct request req = test_request();
	struct reader r[4][1 + WORKERS];
	unsigned int i, j;
	int fds[4];

	for (i = 0; i < 4; i++) {
		req.select.dirs = (uint16_t)(1 + i % 3);
		req.hdr.sample = i;
		req.hdr.snaplen = 64 << i;
		fds[i] = attach_all(&req, r[i]);
	}
	start_workers();
	test_pump(200);
	stop_workers();
	for (i = 0; i < 4; i++)
		for (j = 1; j <= WORKERS; j++) {
			const struct pmdscope_ring_hdr *hdr = r[i][j].hdr;
			const uint64_t seen = hdr->records + hdr->dropped + hdr->sampled_out;

			CHECK(hdr->records > 0);
			/* RX, TX, both: the bursts take turns. */
			CHECK(i % 3 == 2 ? seen == nb_offered(j)
					 : seen >= nb_offered(j) / 2 - BURST &&
									seen <= nb_offered(j) / 2 + BURST);
			while (test_next(&r[i][j]) != NULL)
				;
		}
	for (i = 0; i < 4; i++)
		detach(fds[i], r[i]);
	wait_until_freed();
}

/* Memory of an lcore that never leaves is kept and reported, and freed when it leaves after all. */
static void
test_stuck(void)
{
	const struct request req = test_request();
	uint32_t *seq = &pmdscope_lcores[RTE_MAX_LCORE - 1].tee_seq;
	struct reader r[1 + WORKERS];
	const int fd = attach_all(&req, r);

	__atomic_store_n(seq, 1, __ATOMIC_RELEASE);
	detach(fd, r);
	test_pump(50);
	CHECK(pmdscope_tee_nb_sessions() == 0 && pmdscope_tee_armed == NULL);
	CHECK(pmdscope_tee_retired_bytes() > (1 + WORKERS) * PMDSCOPE_RING_MIN_SIZE);
	CHECK(pmdscope_tee_abandoned_bytes() == 0);
	test_pump(1200);
	CHECK(pmdscope_tee_abandoned_bytes() == pmdscope_tee_retired_bytes());
	__atomic_store_n(seq, 2, __ATOMIC_RELEASE);
	wait_until_freed();
}

int
main(void)
{
	unsigned int i;

	test_tee_eal(1 + WORKERS);
	test_tee_start(4, 64);
	for (i = 1; i <= WORKERS; i++)
		pmdscope_lcores[i].polls = 1;
	test_accounting();
	test_many();
	test_cycles();
	test_hostile_tails();
	test_killed();
	test_stuck();
	test_tee_stop();
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
