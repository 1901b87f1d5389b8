/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The bytes of lost mbufs, received from the capture socket. */

#include <sys/mman.h>

#include <rte_mbuf.h>

#include "leak_bed.h"
#include "pmdscope_ring.h"
#include "test.h"

static int
capture_connect(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	const char *path = json_get(tel_ask("/pmdscope", ""), "tee_socket");
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(path != NULL && fd >= 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.*s",
			(int)(json_string_end(path) - path - 2), path + 1);
	CHECK(connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0);
	return fd;
}

/* The next message, which must be of this kind; with its descriptors if it has some. */
static uint32_t
capture_receive(int fd, uint16_t expected, int fds[2])
{
	union {
		struct cmsghdr hdr;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct pmdscope_tee_message message;
	struct iovec iov = { .iov_base = &message, .iov_len = sizeof(message) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };

	CHECK(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) == sizeof(message));
	CHECK_U64(message.kind, expected);
	if (fds != NULL) {
		CHECK(CMSG_FIRSTHDR(&msg) != NULL);
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), 2 * sizeof(int));
	}
	return message.value;
}

static const struct pmdscope_ring_hdr *
capture_dump(uint32_t sample, uint32_t snaplen)
{
	const struct {
		struct pmdscope_tee_request hdr;
		struct pmdscope_tee_select select;
	} request = {
		.hdr = {
			.magic = PMDSCOPE_TEE_MAGIC,
			.version = PMDSCOPE_RING_VERSION,
			.hdr_size = sizeof(request.hdr),
			.snaplen = snaplen,
			.sample = sample,
			.nb_selects = 1,
			.flags = PMDSCOPE_TEE_F_LEAKED,
		},
		.select = {PMDSCOPE_TEE_ANY, PMDSCOPE_TEE_ANY, 3, 0},
	};
	const int fd = capture_connect();
	const struct pmdscope_ring_hdr *hdr;
	int fds[2];

	CHECK(write(fd, &request, sizeof(request)) == sizeof(request));
	capture_receive(fd, PMDSCOPE_TEE_ACCEPT, NULL);
	CHECK_U64(capture_receive(fd, PMDSCOPE_TEE_RING, fds), 0xffff);
	CHECK_U64(capture_receive(fd, PMDSCOPE_TEE_END, NULL), 0);
	hdr = mmap(NULL, PMDSCOPE_RING_HDR_SIZE + (1U << 20), PROT_READ, MAP_SHARED, fds[0], 0);
	CHECK(hdr != MAP_FAILED);
	CHECK_U64(hdr->lcore, 0xffff);
	close(fds[0]);
	close(fds[1]);
	close(fd);
	return hdr;
}

/* Checks and counts the records of a site; the address of the last mbuf is in *mbuf. */
static unsigned int
count_records(const struct pmdscope_ring_hdr *hdr, uint64_t id, uint64_t *mbuf)
{
	const uint8_t *data = (const uint8_t *)hdr + PMDSCOPE_RING_HDR_SIZE;
	unsigned int nb = 0;
	uint64_t at = 0;

	while (at < hdr->head) {
		const struct pmdscope_record *rec = (const struct pmdscope_record *)(data + at);
		const struct pmdscope_leak *leak = (const struct pmdscope_leak *)(rec + 1);
		const struct rte_mbuf *m = (const struct rte_mbuf *)(uintptr_t)leak->mbuf;

		CHECK_U64(rec->type, PMDSCOPE_RECORD_LEAK);
		CHECK(rec->caplen <= hdr->snaplen && rec->caplen <= rec->len);
		CHECK(leak->age_ms >= 500 && leak->age_ms < 30000);
		CHECK(strcmp(leak->pool, m->pool->name) == 0);
		CHECK(memcmp(leak + 1, rte_pktmbuf_mtod(m, const void *), rec->caplen) == 0);
		if (leak->site == id) {
			*mbuf = leak->mbuf;
			nb++;
		}
		at += rec->size;
	}
	CHECK_U64(at, hdr->head);
	return nb;
}

/* One byte of each; also of an mbuf to which the app has given a negative length. */
static void
test_short_dump(uint64_t id)
{
	const uint32_t pkt_len = app.lost->pkt_len;
	const struct pmdscope_ring_hdr *hdr;
	uint64_t mbuf = 0;

	hdr = capture_dump(0, 1);
	CHECK_U64(count_records(hdr, id, &mbuf), 1);
	app.lost->pkt_len = UINT32_MAX - 64;
	hdr = capture_dump(0, 1);
	CHECK_U64(count_records(hdr, id, &mbuf), 1);
	app.lost->pkt_len = pkt_len;
}

void
test_dump(void)
{
	const struct pmdscope_ring_hdr *hdr;
	uint64_t rx, marked, mbuf = 0;

	restart(&always);
	CHECK_U64(capture_dump(0, 0)->head, 0);
	lose(LEAK_RX, 20);
	lose(LEAK_MARKED, 1);
	WAIT_FOR(has_site("pool", line_of(LEAK_RX), "leak", 20));
	WAIT_FOR(has_site("pool", "stage reassembly", "leak", 1));
	rx = site("pool", line_of(LEAK_RX), "leak", "id");
	marked = site("pool", "stage reassembly", "leak", "id");
	hdr = capture_dump(5, 0);
	CHECK_U64(hdr->records, 5 + 1);
	CHECK_U64(count_records(hdr, rx, &mbuf), 5);
	CHECK_U64(count_records(hdr, marked, &mbuf), 1);
	CHECK_U64(mbuf, (uintptr_t)app.lost);
	/* 8 by default. */
	CHECK_U64(count_records(capture_dump(0, 0), rx, &mbuf), 8);
	test_short_dump(marked);
	check_sum("pool");
}
