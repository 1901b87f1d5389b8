/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Ports that a real app removes and adds during and between captures: argv is the app and the program. */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "captured_app.h"
#include "test.h"

/* What `a20` adds, as long as it is the only further port. */
#define EXTRA "1,1,1,net_null20"
#define BOTH (PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX)

/* Parked states in the app's directory. */
static unsigned int
nb_parked(void)
{
	DIR *dir = opendir(pdump_app.runtime_dir);
	const struct dirent *entry;
	unsigned int nb = 0;

	CHECK(dir != NULL);
	while ((entry = readdir(dir)) != NULL)
		nb += strncmp(entry->d_name, "pmdscope-pdump-parked.", 22) == 0;
	closedir(dir);
	return nb;
}

/* Read all waiting records; returns how many are of a port. */
static unsigned int
read_packets(struct capture *c, uint16_t port)
{
	const uint64_t head = __atomic_load_n(&c->hdr->head, __ATOMIC_ACQUIRE);
	const uint8_t *data = (const uint8_t *)c->hdr + PMDSCOPE_RING_HDR_SIZE;
	const struct pmdscope_record *r;
	unsigned int n = 0;

	for (; c->at < head; c->at += r->size) {
		r = (const void *)(data + (c->at & (c->hdr->data_size - 1)));
		n += r->type == PMDSCOPE_RECORD_PACKET && r->port == port;
	}
	__atomic_store_n(&c->tail->tail, c->at, __ATOMIC_RELEASE);
	return n;
}

/* A capture of one port that has packets and leaves nothing. */
static void
capture_port(const char *port, uint16_t id)
{
	struct capture c;

	start_on(port, &c, BOTH, 0);
	expect_ring(&c);
	WAIT_FOR(read_packets(&c, id) > 0);
	CHECK_U64((unsigned int)stop(&c), 0);
}

/* The capture says that its only port is lost, and ends. */
static void
expect_loss(struct capture *c)
{
	struct pmdscope_tee_message m = { 0 };
	int fds[2];

	CHECK(receive(c, &m, fds) && m.kind == PMDSCOPE_TEE_END);
	CHECK_U64(m.value, ENODEV);
	CHECK(strstr(m.text, "was removed by the app") != NULL);
	CHECK_U64((unsigned int)stop(c), 1);
}

/* Remove a port while it is captured. */
static void
lose(const char *port, uint16_t id, const char *removal)
{
	struct capture c;

	start_on(port, &c, BOTH, 0);
	expect_ring(&c);
	WAIT_FOR(read_packets(&c, id) > 0);
	say(removal);
	expect_loss(&c);
}

/* The next capture of the port that is back cleans up. */
static void
capture_once_back(void)
{
	say("a20\n");
	capture_port(EXTRA, 1);
	CHECK_U64(nb_parked(), 0);
	say("r20\n");
}

/* Other ports can be captured at once, and again; so can the port once it is back. */
static void
test_one(void)
{
	unsigned int round, i;

	for (round = 0; round < 2; round++) {
		say("a20\n");
		lose(EXTRA, 1, "r20\n");
		CHECK_U64(nb_parked(), 1);
		for (i = 0; i < 3; i++) {
			capture_port("0,1,1,net_null0", 0);
			CHECK_U64(nb_parked(), 1);
		}
		capture_once_back();
	}
}

/* The app calls what was left, until the next capture, and between captures of others. */
static void
test_called(void)
{
	struct report back;
	unsigned int i;

	say("a20\n");
	lose(EXTRA, 1, "r20\n");
	for (i = 0; i < 3; i++) {
		say("a20\n");
		back = ask();
		WAIT_FOR(ask().sent > back.sent + 1000);
		say("r20\n");
		capture_port("0,1,1,net_null0", 0);
		CHECK_U64(nb_parked(), 1);
	}
	say("a20\n");
	capture_port("0,1,1,net_null0", 0);
	CHECK_U64(nb_parked(), 0);
	say("r20\n");
}

/* Another device gets the id. */
static void
test_other_device(void)
{
	say("a20\n");
	lose(EXTRA, 1, "r20\n");
	say("a21\n");
	capture_port("1,1,1,net_null21", 1);
	CHECK_U64(nb_parked(), 0);
	say("r21\n");
}

/* A capture goes on with its other port, and with the first one once that is back. */
static void
test_goes_on(void)
{
	struct capture c;

	say("a20\n");
	start_on_two("0,1,1,net_null0", EXTRA, &c, BOTH, 0);
	expect_ring(&c);
	WAIT_FOR(read_packets(&c, 1) > 0);
	say("r20\n");
	sleep_ms(100);
	read_packets(&c, 0);
	WAIT_FOR(read_packets(&c, 0) > 0);
	CHECK_U64(read_packets(&c, 1), 0);
	say("a20\n");
	WAIT_FOR(read_packets(&c, 1) > 0);
	/* Packets of another device are not those of the lost one. */
	say("r20\n");
	say("a21\n");
	sleep_ms(100);
	read_packets(&c, 1);
	WAIT_FOR(read_packets(&c, 0) > 0);
	CHECK_U64(read_packets(&c, 1), 0);
	CHECK_U64((unsigned int)stop(&c), 0);
	CHECK_U64(nb_parked(), 0);
	say("r21\n");
}

/* The processes of the capture are killed before the port is removed. */
static void
test_killed(void)
{
	struct capture c;
	pid_t worker;

	say("a20\n");
	start_on(EXTRA, &c, BOTH, 0);
	expect_ring(&c);
	worker = worker_of(c.pid);
	CHECK(worker > 0);
	/* Otherwise the one that is left would clean up. */
	kill(c.pid, SIGSTOP);
	kill(worker, SIGKILL);
	kill(c.pid, SIGKILL);
	stop(&c);
	say("r20\n");
	capture_port("0,1,1,net_null0", 0);
	CHECK_U64(nb_parked(), 1);
	capture_once_back();
}

/* What is left of many captures is bounded, and goes once the ports are back. */
static void
test_many(void)
{
	char line[16], port[32];
	struct capture c;
	unsigned int i;

	for (i = 1; i <= STATE_MAX_PARKED + 1; i++) {
		snprintf(line, sizeof(line), "a%u\n", 30 + i);
		say(line);
	}
	for (i = 1; i <= STATE_MAX_PARKED + 1; i++) {
		snprintf(line, sizeof(line), "r%u\n", 30 + i);
		snprintf(port, sizeof(port), "%u,1,1,net_null%u", i, 30 + i);
		lose(port, (uint16_t)i, line);
		CHECK_U64(nb_parked(), RTE_MIN(i, STATE_MAX_PARKED));
	}
	start(&c, PMDSCOPE_DIR_TX, 0);
	expect_refusal(&c, "add them again, or restart it");
	CHECK_U64((unsigned int)stop(&c), 1);
	for (i = 1; i <= STATE_MAX_PARKED + 1; i++) {
		snprintf(line, sizeof(line), "a%u\n", 30 + i);
		say(line);
	}
	capture_port("0,1,1,net_null0", 0);
	CHECK_U64(nb_parked(), 0);
}

int
main(int argc, char **argv)
{
	begin_test(argc, argv);
	test_one();
	test_called();
	test_other_device();
	test_goes_on();
	test_killed();
	test_many();
	/* The app can free its counters as before. */
	CHECK(ask().zones == say("u\n").zones + 1);
	return 0;
}
