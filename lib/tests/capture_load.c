/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_load.h"

/* State of the workers, and their results once they were stopped. */
static int running;
static uint64_t offered[RTE_MAX_LCORE];

static int
produce(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	struct rte_mbuf *pkts[LOAD_BURST];
	uint64_t total = 0;
	unsigned int i, n;

	for (i = 0; i < LOAD_BURST; i++)
		pkts[i] = test_packet(60 + i * 40, (uint8_t)i, i % 4 == 3 ? 100 : 2048);
	for (n = 0; __atomic_load_n(&running, __ATOMIC_ACQUIRE); n++) {
		pmdscope_capture_burst((uint16_t)(lcore % 2), 0,
				n % 2 == 0 ? PMDSCOPE_DIR_RX : PMDSCOPE_DIR_TX, pkts, LOAD_BURST);
		total += LOAD_BURST;
	}
	__atomic_store_n(&offered[lcore], total, __ATOMIC_RELEASE);
	rte_pktmbuf_free_bulk(pkts, LOAD_BURST);
	(void)arg;
	return 0;
}

void
load_start(void)
{
	__atomic_store_n(&running, 1, __ATOMIC_RELEASE);
	rte_eal_mp_remote_launch(produce, NULL, SKIP_MAIN);
}

void
load_stop(void)
{
	__atomic_store_n(&running, 0, __ATOMIC_RELEASE);
	rte_eal_mp_wait_lcore();
}

uint64_t
load_offered(unsigned int lcore)
{
	return __atomic_load_n(&offered[lcore], __ATOMIC_ACQUIRE);
}

/* Attach and map the rings of main lcore and workers. */
int
load_attach(const struct request *req, struct reader readers[1 + LOAD_WORKERS])
{
	struct pmdscope_tee_message message;
	const int fd = test_connect();
	unsigned int i;
	int fds[2];

	test_send(fd, req);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	for (i = 0; i <= LOAD_WORKERS; i++) {
		message = test_receive(fd, fds);
		CHECK(message.kind == PMDSCOPE_TEE_RING && message.value <= LOAD_WORKERS);
		test_map(&readers[message.value], fds);
		test_confirm(fd, message.value);
	}
	return fd;
}

void
load_detach(int fd, struct reader readers[1 + LOAD_WORKERS])
{
	unsigned int i;

	close(fd);
	for (i = 0; i <= LOAD_WORKERS; i++)
		test_unmap(&readers[i]);
}

void
load_wait_until_freed(void)
{
	unsigned int i;

	for (i = 0; i < 3000 && (pmdscope_capture_retired_bytes() != 0 ||
						pmdscope_capture_nb_sessions() != 0);
			i++)
		test_pump(10);
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_retired_bytes() == 0);
	CHECK(pmdscope_capture_abandoned_bytes() == 0);
}

void
load_check_packet(const struct pmdscope_record *rec)
{
	const uint8_t *bytes = (const uint8_t *)(rec + 1);
	uint32_t i, seed = (rec->len - 60) / 40;

	CHECK(seed < LOAD_BURST && rec->len == 60 + seed * 40 && rec->caplen == rec->len);
	for (i = 0; i < rec->caplen; i++)
		CHECK(bytes[i] == (uint8_t)(seed + i));
}
