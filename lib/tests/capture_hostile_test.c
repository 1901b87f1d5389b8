/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * A hostile consumer next to one that only reads: it floods the socket, overwrites the tails,
 * passes descriptors, and disconnects at any time, while two lcores produce at full speed.
 */

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_random.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_load.h"

#define CONNECTIONS 500
#define PASSED_FDS 5
/* Timeouts for an answer that must come, and for one that may come, milliseconds. */
#define ANSWER_MS 1000
#define MORE_MS 5

static int finished;
/* Counters of the hostile thread, which alone uses them until it has ended. */
static unsigned int nb_accepted, nb_refused, nb_rings, nb_ended;

/* Random bytes of any length, also longer than a valid message. */
static void
send_garbage(int fd)
{
	static uint8_t bytes[1 << 17];
	const size_t len = rte_rand_max(2) ? rte_rand_max(64) : rte_rand_max(sizeof(bytes));
	size_t i;

	for (i = 0; i < len; i++)
		bytes[i] = (uint8_t)rte_rand();
	send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A request that is valid, cut, too long, or has some changed bytes. */
static void
send_request(int fd, bool spoilt)
{
	struct {
		struct request req;
		uint8_t more[8192];
	} message = { .req = test_request() };
	size_t len = offsetof(struct request, insns);
	unsigned int i;

	message.req.hdr.lease_ms = (uint32_t)rte_rand_max(200);
	if (spoilt && rte_rand_max(2))
		len = rte_rand_max(sizeof(message));
	for (i = 0; spoilt && i < rte_rand_max(4); i++)
		((uint8_t *)&message)[rte_rand_max(len + 1)] = (uint8_t)rte_rand();
	send(fd, &message, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Unexpected descriptors, with a request or without data. */
static void
send_fds(int fd)
{
	struct request req = test_request();
	struct iovec iov = { .iov_base = &req,
		.iov_len = rte_rand_max(2) ? offsetof(struct request, insns) : 1 };
	union {
		char buf[CMSG_SPACE(PASSED_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int fds[PASSED_FDS];
	unsigned int i;

	for (i = 0; i < PASSED_FDS; i++)
		fds[i] = dup(fd);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cmsg), fds, sizeof(fds));
	sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	for (i = 0; i < PASSED_FDS; i++)
		close(fds[i]);
}

/* A change of the sampling, or similar bytes, more often than is useful. */
static void
send_changes(int fd)
{
	struct pmdscope_tee_change change = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_SAMPLE,
	};
	unsigned int i;

	for (i = 0; i < rte_rand_max(200); i++) {
		change.value = (uint32_t)(rte_rand() >> rte_rand_max(64));
		if (rte_rand_max(100) == 0)
			((uint8_t *)&change)[rte_rand_max(sizeof(change))] = (uint8_t)rte_rand();
		send(fd, &change, sizeof(change), MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

static void
confirm(int fd, uint32_t lcore)
{
	const struct pmdscope_tee_change mapped = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_MAPPED,
		.value = lcore,
	};

	send(fd, &mapped, sizeof(mapped), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void
scribble(int tail_fd)
{
	uint64_t *tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, tail_fd, 0);
	unsigned int i;

	/* Not if it was confirmed before. */
	if (tail == MAP_FAILED)
		return;
	for (i = 0; i < 2000; i++)
		__atomic_store_n(&tail[i % 64 == 0 ? rte_rand_max(512) : 0],
				rte_rand() >> rte_rand_max(64), __ATOMIC_RELAXED);
	if (rte_rand_max(4) == 0)
		fallocate(tail_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
	CHECK(ftruncate(tail_fd, 0) < 0);
	munmap(tail, 4096);
}

/* Receive all waiting messages; false at the end. */
static bool
receive(int fd, int timeout_ms)
{
	struct pmdscope_tee_message message;
	struct iovec iov = { .iov_base = &message, .iov_len = sizeof(message) };
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf) };
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int fds[2];

	if (poll(&pfd, 1, timeout_ms) != 1 ||
			recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(message))
		return false;
	nb_accepted += message.kind == PMDSCOPE_TEE_ACCEPT;
	nb_refused += message.kind == PMDSCOPE_TEE_REFUSE;
	nb_ended += message.kind == PMDSCOPE_TEE_END;
	if (message.kind == PMDSCOPE_TEE_RING) {
		nb_rings++;
		CHECK(CMSG_FIRSTHDR(&msg) != NULL);
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
		if (rte_rand_max(2) == 0)
			confirm(fd, rte_rand_max(16) == 0 ? (uint32_t)rte_rand() : message.value);
		scribble(fds[1]);
		close(fds[0]);
		close(fds[1]);
	}
	return true;
}

static void
misbehave(int fd)
{
	int timeout_ms = MORE_MS;
	unsigned int i;

	switch (rte_rand_max(16)) {
	case 0 ... 7:
		return;
	case 8:
		for (i = 0; i < 32; i++)
			send_garbage(fd);
		break;
	case 9:
		send_fds(fd);
		break;
	case 10:
		send_request(fd, true);
		break;
	case 11:
		send_request(fd, false);
		shutdown(fd, rte_rand_max(2) ? SHUT_WR : SHUT_RD);
		break;
	case 12:
		send_request(fd, false);
		return;
	default:
		send_request(fd, false);
		timeout_ms = ANSWER_MS;
		break;
	}
	for (i = 0; i < 8 && receive(fd, timeout_ms); i++, timeout_ms = MORE_MS)
		switch (rte_rand_max(16)) {
		case 0:
			send_garbage(fd);
			break;
		case 1 ... 4:
			send_changes(fd);
			break;
		}
}

static void *
be_hostile(void *arg)
{
	int held[4], fd;
	unsigned int i;

	memset(held, -1, sizeof(held));
	for (i = 0; i < CONNECTIONS; i++) {
		while (!test_try_connect(&fd))
			usleep(1000);
		misbehave(fd);
		/* Some connections stay open for a while. */
		if (held[i % RTE_DIM(held)] >= 0)
			close(held[i % RTE_DIM(held)]);
		held[i % RTE_DIM(held)] = rte_rand_max(8) == 0 ? fd : -1;
		if (held[i % RTE_DIM(held)] < 0)
			close(fd);
	}
	for (i = 0; i < RTE_DIM(held); i++)
		if (held[i] >= 0)
			close(held[i]);
	__atomic_store_n(&finished, 1, __ATOMIC_RELEASE);
	return arg;
}

/* Read what the lcores have published for the honest consumer. */
static void
read_all(struct reader readers[1 + LOAD_WORKERS], uint64_t got[1 + LOAD_WORKERS])
{
	const struct pmdscope_record *rec;
	unsigned int i;

	for (i = 1; i <= LOAD_WORKERS; i++) {
		while ((rec = test_next(&readers[i])) != NULL) {
			load_check_packet(rec);
			got[i]++;
		}
		test_release(&readers[i]);
	}
}

static void
check_harmless(void)
{
	const struct request req = test_request();
	struct reader readers[1 + LOAD_WORKERS];
	uint64_t got[1 + LOAD_WORKERS] = { 0 };
	pthread_t thread;
	unsigned int i;
	int fd;

	fd = load_attach(&req, readers);
	load_start();
	CHECK(pthread_create(&thread, NULL, be_hostile, NULL) == 0);
	while (!__atomic_load_n(&finished, __ATOMIC_ACQUIRE)) {
		test_pump(1);
		read_all(readers, got);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	load_stop();
	read_all(readers, got);
	for (i = 1; i <= LOAD_WORKERS; i++) {
		CHECK(got[i] > 0 && got[i] == readers[i].hdr->records);
		CHECK(got[i] + readers[i].hdr->dropped == load_offered(i));
	}
	load_detach(fd, readers);
	load_wait_until_freed();
	printf("%u accepted with %u rings, %u refused, %u ended\n", nb_accepted, nb_rings,
			nb_refused, nb_ended);
	/* Some attempts of each kind succeeded, as far as the connections were accepted in time. */
	CHECK(nb_accepted > CONNECTIONS / 40 && nb_rings > CONNECTIONS / 40);
	CHECK(nb_refused > 0 && nb_ended > 0);
}

int
main(void)
{
	unsigned int i, fds;

	test_capture_eal(1 + LOAD_WORKERS);
	fds = test_open_fds();
	test_capture_start(4, 64);
	for (i = 1; i <= LOAD_WORKERS; i++)
		pmdscope_lcores[i].polls = 1;
	check_harmless();
	CHECK(pmdscope_tee_armed == NULL);
	test_capture_stop();
	CHECK(test_open_fds() == fds);
	CHECK(rte_mempool_avail_count(test_pool) == 2047);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
