/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_lcore.h>

#include "clock.h"
#include "capture.h"
#include "capture_instance.h"
#include "capture_slots.h"
#include "capture_test.h"

struct rte_mempool *test_pool;
static int epfd = -1;

void
test_capture_eal(unsigned int nb_lcores)
{
	char lcores[128];
	unsigned int i;
	int len = 0;

	/* All lcores on all CPUs, as there may be more lcores than CPUs. */
	for (i = 0; i < nb_lcores; i++)
		len += snprintf(lcores + len, sizeof(lcores) - (size_t)len, "%s%u@(0-%ld)",
				i == 0 ? "" : ",", i, sysconf(_SC_NPROCESSORS_ONLN) - 1);
	test_eal(lcores);
	test_pool = rte_pktmbuf_pool_create(
			"test", 2047, 0, 0, 2048 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	CHECK(test_pool != NULL);
}

static void
start(const struct pmdscope_conf *conf)
{
	pmdscope_clock_start();
	epfd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(epfd >= 0);
	CHECK(pmdscope_capture_start(conf, epfd) == 0);
	CHECK(pmdscope_capture_socket_path()[0] == '/');
	__atomic_store_n(&pmdscope_lcores[rte_lcore_id()].polls, 1, __ATOMIC_RELAXED);
}

void
test_capture_start(unsigned int sessions, unsigned int session_mb)
{
	start(&(struct pmdscope_conf){
			.tee_sessions = sessions,
			.tee_session_mb = session_mb,
			.tee_filter_cycles = TEST_FILTER_CYCLES,
	});
}

void
test_capture_start_group(const char *group)
{
	start(&(struct pmdscope_conf){ .tee_sessions = 3,
			.tee_session_mb = 8,
			.tee_filter_cycles = TEST_FILTER_CYCLES,
			.tee_group = group });
}

void
test_capture_stop(void)
{
	pmdscope_capture_stop();
	CHECK(pmdscope_capture_socket_path()[0] == '\0');
	CHECK(pmdscope_capture_nb_sessions() == 0);
	close(epfd);
	epfd = -1;
}

void
test_pump_events(unsigned int ms)
{
	struct epoll_event events[16];
	const int n = epoll_wait(epfd, events, RTE_DIM(events), (int)ms);
	int i;

	for (i = 0; i < n; i++)
		pmdscope_capture_event(events[i].data.ptr, events[i].events);
}

void
test_pump(unsigned int ms)
{
	const uint64_t end = pmdscope_capture_now_ms() + ms;

	do {
		test_pump_events(RTE_MIN(ms, 5U));
		pmdscope_capture_tick();
	} while (pmdscope_capture_now_ms() < end);
}

bool
test_try_connect(int *fd)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", pmdscope_capture_socket_path());
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(*fd >= 0);
	if (connect(*fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
		CHECK(fcntl(*fd, F_SETFL, 0) == 0);
		return true;
	}
	CHECK(errno == EAGAIN);
	close(*fd);
	return false;
}

int
test_connect(void)
{
	unsigned int tries;
	int fd;

	for (tries = 0; !test_try_connect(&fd); tries++) {
		CHECK(tries < 1000);
		test_pump(5);
	}
	return fd;
}

struct request
test_request(void)
{
	return (struct request){
		.hdr = {
			.magic = PMDSCOPE_TEE_MAGIC,
			.version = PMDSCOPE_RING_VERSION,
			.hdr_size = sizeof(struct pmdscope_tee_request),
			.ring_size = PMDSCOPE_RING_MIN_SIZE,
			.nb_selects = 1,
		},
		.select = {
			.port = PMDSCOPE_TEE_ANY,
			.queue = PMDSCOPE_TEE_ANY,
			.dirs = PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX,
		},
	};
}

void
test_send(int fd, const struct request *req)
{
	const size_t len =
			offsetof(struct request, insns) + req->hdr.nb_insns * sizeof(req->insns[0]);

	CHECK(send(fd, req, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void
send_change(int fd, uint16_t kind, uint32_t value)
{
	const struct pmdscope_tee_change change = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = kind,
		.value = value,
	};

	CHECK(send(fd, &change, sizeof(change), MSG_NOSIGNAL) == sizeof(change));
}

void
test_resample(int fd, uint32_t sample)
{
	send_change(fd, PMDSCOPE_TEE_SAMPLE, sample);
	test_pump(1);
}

void
test_confirm(int fd, unsigned int lcore)
{
	send_change(fd, PMDSCOPE_TEE_MAPPED, lcore);
	test_pump_events(1);
}

void
test_seed(uint64_t seed)
{
	struct pmdscope_capture_producer *p;
	unsigned int i, lcore;

	for (i = 0; i < PMDSCOPE_CAPTURE_SLOTS; i++)
		for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
			if (pmdscope_capture_slots.captures[i] == NULL)
				continue;
			p = &pmdscope_capture_slots.captures[i]->producers[lcore];
			p->sampling.random = seed;
			pmdscope_sampling_begin(&p->sampling, p->sample);
		}
}

struct pmdscope_tee_message
test_receive(int fd, int fds[2])
{
	struct pmdscope_tee_message message = { 0 };
	struct iovec iov = { .iov_base = &message, .iov_len = sizeof(message) };
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;
	unsigned int tries;
	ssize_t len = -1;

	for (tries = 0; tries < 1000; tries++) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		len = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (len >= 0 || errno != EAGAIN)
			break;
		test_pump(5);
	}
	fds[0] = fds[1] = -1;
	if (len <= 0)
		return (struct pmdscope_tee_message){ 0 };
	CHECK(len == sizeof(message) && message.magic == PMDSCOPE_TEE_MAGIC);
	CHECK(message.version == PMDSCOPE_RING_VERSION);
	CHECK(message.ring_size == 0 || message.kind == PMDSCOPE_TEE_REFUSE);
	CHECK(memchr(message.text, '\0', sizeof(message.text)) != NULL);
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg != NULL) {
		CHECK(cmsg->cmsg_len == CMSG_LEN(2 * sizeof(int)));
		memcpy(fds, CMSG_DATA(cmsg), 2 * sizeof(int));
	}
	return message;
}

struct pmdscope_tee_message
test_expect(int fd, uint16_t kind)
{
	struct pmdscope_tee_message message;
	int fds[2];

	message = test_receive(fd, fds);
	if (message.kind != kind)
		fprintf(stderr, "message %u \"%s\", expected %u\n", message.kind, message.text,
				kind);
	CHECK(message.kind == kind);
	CHECK(fds[0] < 0);
	return message;
}

void
test_map(struct reader *reader, const int fds[2])
{
	size_t len;

	CHECK(fds[0] >= 0 && fds[1] >= 0);
	reader->data_fd = fds[0];
	reader->tail_fd = fds[1];
	reader->hdr = mmap(NULL, PMDSCOPE_RING_HDR_SIZE, PROT_READ, MAP_SHARED, fds[0], 0);
	CHECK(reader->hdr != MAP_FAILED);
	len = PMDSCOPE_RING_HDR_SIZE + reader->hdr->data_size;
	reader->hdr = mremap((void *)(uintptr_t)reader->hdr, PMDSCOPE_RING_HDR_SIZE, len,
			MREMAP_MAYMOVE);
	CHECK(reader->hdr != MAP_FAILED);
	reader->tail = mmap(
			NULL, sizeof(*reader->tail), PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	CHECK(reader->tail != MAP_FAILED);
	reader->pos = 0;
	reader->sample = 0;
	reader->nb_markers = 0;
	CHECK(reader->hdr->magic == PMDSCOPE_RING_MAGIC);
	CHECK(reader->hdr->version == PMDSCOPE_RING_VERSION);
	CHECK(reader->hdr->hdr_size == PMDSCOPE_RING_HDR_SIZE);
	CHECK(reader->hdr->record_size == sizeof(struct pmdscope_record));
	CHECK((reader->hdr->features & ~PMDSCOPE_RING_F_PACKET_TSC) ==
			(PMDSCOPE_RING_F_GAPS | PMDSCOPE_RING_F_RESAMPLE |
					PMDSCOPE_RING_F_IN_BURST | PMDSCOPE_RING_F_MAPPED));
}

void
test_unmap(struct reader *reader)
{
	munmap((void *)(uintptr_t)reader->hdr, PMDSCOPE_RING_HDR_SIZE + reader->hdr->data_size);
	munmap(reader->tail, sizeof(*reader->tail));
	close(reader->data_fd);
	close(reader->tail_fd);
}

void
test_detach(int fd, struct reader *reader)
{
	close(fd);
	test_unmap(reader);
	test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_capture_retired_bytes() == 0);
}

int
test_attach(const struct request *req, struct reader *reader)
{
	struct pmdscope_tee_message message;
	const int fd = test_connect();
	int fds[2];

	test_send(fd, req);
	message = test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	CHECK(message.value > 0);
	message = test_receive(fd, fds);
	CHECK(message.kind == PMDSCOPE_TEE_RING && message.value == rte_lcore_id());
	test_map(reader, fds);
	CHECK(reader->hdr->lcore == rte_lcore_id());
	test_confirm(fd, rte_lcore_id());
	return fd;
}

const struct pmdscope_record *
test_next(struct reader *reader)
{
	const struct pmdscope_ring_hdr *hdr = reader->hdr;
	const uint64_t head = __atomic_load_n(&hdr->head, __ATOMIC_ACQUIRE);
	const uint8_t *data = (const uint8_t *)hdr + PMDSCOPE_RING_HDR_SIZE;
	const struct pmdscope_record *rec;
	uint64_t at;

	CHECK(head >= reader->pos && head - reader->pos <= hdr->data_size);
	while (reader->pos < head) {
		at = reader->pos % hdr->data_size;
		rec = (const struct pmdscope_record *)(data + at);
		CHECK(rec->size % PMDSCOPE_RING_ALIGN == 0 && rec->size > 0);
		CHECK(rec->size <= hdr->data_size - at && rec->size <= head - reader->pos);
		reader->pos += rec->size;
		if (rec->type == PMDSCOPE_RECORD_PAD) {
			CHECK(at + rec->size == hdr->data_size);
			continue;
		}
		if (rec->type == PMDSCOPE_RECORD_SAMPLE) {
			CHECK(rec->size == sizeof(*rec) && rec->len >= 1);
			reader->sample = rec->len;
			reader->nb_markers++;
			continue;
		}
		CHECK(rec->type == PMDSCOPE_RECORD_PACKET);
		CHECK(rec->caplen <= rec->len && rec->caplen <= hdr->snaplen);
		CHECK(rec->size == RTE_ALIGN_CEIL(sizeof(*rec) + rec->caplen, PMDSCOPE_RING_ALIGN));
		return rec;
	}
	return NULL;
}

void
test_release(struct reader *reader)
{
	__atomic_store_n(&reader->tail->tail, reader->pos, __ATOMIC_RELEASE);
}

struct rte_mbuf *
test_packet(uint32_t len, uint8_t seed, uint16_t seg_len)
{
	struct rte_mbuf *head = NULL, *seg;
	uint32_t done = 0, part, i;

	do {
		part = RTE_MIN(len - done, seg_len);
		seg = rte_pktmbuf_alloc(test_pool);
		CHECK(seg != NULL);
		seg->data_len = (uint16_t)part;
		seg->pkt_len = part;
		for (i = 0; i < part; i++)
			rte_pktmbuf_mtod(seg, uint8_t *)[i] = (uint8_t)(seed + done + i);
		if (head == NULL)
			head = seg;
		else
			CHECK(rte_pktmbuf_chain(head, seg) == 0);
		done += part;
	} while (done < len);
	return head;
}

void
test_offer(unsigned int n, uint32_t len)
{
	struct rte_mbuf *pkt = test_packet(len, 0, 2048);

	while (n-- > 0)
		pmdscope_capture_burst(0, 0, PMDSCOPE_DIR_RX, &pkt, 1);
	rte_pktmbuf_free(pkt);
}

unsigned int
test_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}
