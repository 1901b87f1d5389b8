/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-pdump with a real app: argv is the app and the program. */

#include <fcntl.h>
#include <sys/mman.h>

#include "captured_app.h"
#include "locks.h"
#include "test.h"

/* All packets, in order, byte by byte; all missing ones are counted. */
static void
test_packets(uint32_t snaplen)
{
	uint64_t n = 0, next = 0, missing = 0;
	struct capture c;
	unsigned int i;

	start(&c, PMDSCOPE_DIR_TX, snaplen);
	expect_ring(&c);
	for (i = 0; i < 100 || (n < 1000 && i < 5000); i++) {
		n += check_records(&c, snaplen, &next, &missing);
		sleep_ms(2);
	}
	CHECK(n >= 1000);
	CHECK_U64(c.hdr->records >= n, 1);
	CHECK(missing <= c.hdr->dropped);
	CHECK_U64(c.hdr->dropped, c.hdr->port_dropped[0]);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* Read until a record announces that 1 in `sample` is kept from there. */
static bool
find_sample(struct capture *c, uint32_t sample)
{
	const uint64_t head = __atomic_load_n(&c->hdr->head, __ATOMIC_ACQUIRE);
	const uint8_t *data = (const uint8_t *)c->hdr + PMDSCOPE_RING_HDR_SIZE;
	const struct pmdscope_record *r;
	bool found = false;

	while (c->at < head && !found) {
		r = (const void *)(data + (c->at & (c->hdr->data_size - 1)));
		found = r->type == PMDSCOPE_RECORD_SAMPLE && r->len == sample;
		c->at += r->size;
	}
	__atomic_store_n(&c->tail->tail, c->at, __ATOMIC_RELEASE);
	return found;
}

/* After the consumer's change, 1 packet in 8. */
static void
test_sample(void)
{
	const struct pmdscope_tee_change change = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_SAMPLE,
		.value = 8,
	};
	uint64_t n = 0, next = 0, missing = 0;
	struct capture c;
	unsigned int i;

	start(&c, PMDSCOPE_DIR_TX, 262144);
	expect_ring(&c);
	CHECK((c.hdr->features & PMDSCOPE_RING_F_RESAMPLE) != 0);
	CHECK((c.hdr->features & PMDSCOPE_RING_F_IN_BURST) != 0);
	CHECK(send(c.fd, &change, sizeof(change), 0) == sizeof(change));
	for (i = 0; !find_sample(&c, 8); i++) {
		CHECK(i < 5000);
		sleep_ms(2);
	}
	for (i = 0; n < 2000 && i < 5000; i++) {
		n += check_records(&c, 262144, &next, &missing);
		sleep_ms(2);
	}
	CHECK(n >= 2000);
	/* Which packets is random. */
	CHECK(missing > 6 * n && missing < 8 * n + c.hdr->dropped);
	CHECK(missing <= c.hdr->sampled_out + c.hdr->dropped);
	CHECK_U64((unsigned int)stop(&c), 0);
}

static void
test_cycles(void)
{
	const struct report before = ask();
	struct report after;
	struct capture c;
	unsigned int i;

	for (i = 0; i < 20; i++) {
		start(&c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
		expect_ring(&c);
		CHECK_U64((unsigned int)stop(&c), 0);
	}
	after = ask();
	CHECK(after.sent > before.sent);
	/* The callback structs of both directions, which DPDK never frees. */
	CHECK_U64(after.allocs, before.allocs + 2 * i);
	CHECK_U64(after.zones, before.zones);
}

/* Callbacks of a queue that the app gave up are called again once it has the queue back. */
static void
test_queues(void)
{
	const struct report before = say("2\n");
	struct report back, after;
	struct capture c;

	start_on("0,2,2,net_null0", &c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	say("1\n");
	CHECK_U64((unsigned int)stop(&c), 1);
	back = say("2\n");
	CHECK(back.zones == before.zones);
	WAIT_FOR(ask().sent > back.sent);
	start_on("0,2,2,net_null0", &c, PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	/* This time the queues are back before the end. */
	say("1\n");
	say("2\n");
	CHECK_U64((unsigned int)stop(&c), 0);
	after = ask();
	CHECK_U64(after.allocs, before.allocs + 8);
	CHECK_U64(after.zones, before.zones);
	say("1\n");
}

/* The app can add and remove devices; it exits if it cannot. */
static void
test_hotplug(void)
{
	struct capture c;

	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	say("h\n");
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* A device that the app does not have. */
static void
test_refusal(void)
{
	struct pmdscope_tee_message m = { 0 };
	struct capture c, second;
	int fds[2];

	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	start(&second, PMDSCOPE_DIR_TX, 0);
	CHECK(receive(&second, &m, fds) && m.kind == PMDSCOPE_TEE_REFUSE);
	CHECK_U64(m.value, EBUSY);
	CHECK(strstr(m.text, "captures from the app") != NULL);
	stop(&second);
	/* The first capture continues. */
	CHECK(send(c.fd, "x", 1, 0) == 1);
	CHECK(receive(&c, &m, fds) && m.kind == PMDSCOPE_TEE_END && m.value == EPROTO);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* An app of another update of our release. */
static void
test_update(void)
{
	struct locks_config *config;
	char path[PATH_MAX + 16];
	struct capture c;
	int fd;

	snprintf(path, sizeof(path), "%s/config", pdump_app.runtime_dir);
	fd = open(path, O_RDWR);
	config = mmap(NULL, sizeof(*config), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && config != MAP_FAILED);
	config->version ^= 3 << 8;
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	CHECK_U64((unsigned int)stop(&c), 0);
	/* And one whose memory has another layout. */
	config->memzones.elt_sz++;
	if (locks_tested_release(RTE_VERSION)) {
		start(&c, PMDSCOPE_DIR_TX, 0);
		expect_refusal(&c, "is laid out otherwise");
		CHECK_U64((unsigned int)stop(&c), 1);
	}
	config->memzones.elt_sz--;
	config->version ^= 3 << 8;
	munmap(config, sizeof(*config));
	close(fd);
}

/* The app has a pool whose caches are smaller than ours would be. */
static void
test_pools(void)
{
	const struct report before = ask();
	struct report after;
	struct capture c;

	say("p\n");
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_refusal(&c, "mempool odd has");
	CHECK_U64((unsigned int)stop(&c), 1);
	after = say("p\n");
	CHECK_U64(after.allocs, before.allocs);
	CHECK_U64(after.zones, before.zones);
}

/* The rte_pdump of the app has other counters than ours: no memory is known to be unused. */
static void
test_other_counters(void)
{
	const struct report before = ask();
	struct report after;
	struct capture c;

	say("l\n");
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_refusal(&c, "the app's rte_pdump counts otherwise");
	CHECK_U64((unsigned int)stop(&c), 1);
	after = say("l\n");
	CHECK_U64(after.allocs, before.allocs);
	CHECK_U64(after.zones, before.zones);
	test_packets(262144);
}

/* New devices get ids whose counters are memory of the capture. */
static void
test_new_ports(void)
{
	struct pmdscope_tee_message m = { 0 };
	struct capture c;
	unsigned int i;
	int fds[2];

	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_ring(&c);
	for (i = 0; i < 5; i++)
		say("d\n");
	CHECK(receive(&c, &m, fds) && m.kind == PMDSCOPE_TEE_END && m.value == EBUSY);
	CHECK(strstr(m.text, "has a new port 5") != NULL);
	CHECK_U64((unsigned int)stop(&c), 0);
	/* Further ids are free, until there are too many devices. */
	test_packets(262144);
	for (; i < 28; i++)
		say("d\n");
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_refusal(&c, "ports up to 28 of 32");
	CHECK_U64((unsigned int)stop(&c), 1);
}

int
main(int argc, char **argv)
{
	begin_test(argc, argv);
	test_packets(262144);
	test_packets(100);
	test_sample();
	test_cycles();
	test_queues();
	test_hotplug();
	test_refusal();
	test_update();
	test_pools();
	test_other_counters();
	test_new_ports();
	return 0;
}
