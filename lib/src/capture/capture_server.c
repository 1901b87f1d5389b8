/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Consumers of captures: from connect() to end-of-file. All of it on the control thread
 * with the state lock held; no call blocks.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "log.h"
#include "capture.h"
#include "capture_instance.h"
#include "capture_leaks.h"
#include "capture_server.h"
#include "capture_session.h"
#include "capture_socket.h"

/* Connections that may wait before they send a request, and for how long. */
#define PENDING_MAX 8
#define PENDING_MS 2000
/* Sampling changes that a session may request between two ticks. */
#define CHANGES_MAX 64
#define CONNS_MAX (PENDING_MAX + PMDSCOPE_CAPTURE_SLOTS)
/*
 * CPU time for connections and messages: a tenth of a core, this much at once, and at least so much
 * for each connection, as most of its cost is outside of the calls that are measured. What a
 * request takes beyond that delays later connections by half a second at most.
 */
#define BUDGET_SHARE 10
#define BUDGET_NS (INT64_C(25) * 1000000)
#define CONNECTION_NS (INT64_C(500) * 1000)
#define DEBT_NS (INT64_C(50) * 1000000)
/* How long pmdscope_capture_stop() waits for lcores to leave captures. */
#define STOP_MS 100

static struct {
	int listen_fd;
	int epfd;
	bool paused; /* No free descriptors or no budget: not accepting until a later tick. */
	int64_t budget_ns;
	uint64_t ticked_ms;
	unsigned int max_sessions;
	uint64_t max_bytes;
	uint32_t max_filter_cycles;
	uint64_t last_id;
	struct pmdscope_capture_conn conns[CONNS_MAX];
} server = { .listen_fd = -1 };

/* Static, to keep it off the control thread's stack. */
static struct pmdscope_capture_spec request_spec;

static unsigned int
count_sessions(bool armed_only)
{
	unsigned int i, n = 0;

	for (i = 0; i < CONNS_MAX; i++)
		n += server.conns[i].capture != NULL && (server.conns[i].armed || !armed_only);
	return n;
}

unsigned int
pmdscope_capture_nb_sessions(void)
{
	return count_sessions(true);
}

const struct pmdscope_capture_conn *
pmdscope_capture_conn(unsigned int i)
{
	return i < CONNS_MAX ? &server.conns[i] : NULL;
}

/* Close after reading all pending data: otherwise the peer gets a reset in place of our message. */
static void
hang_up(int fd)
{
	unsigned int i;

	for (i = 0; i < PENDING_MAX && recv(fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC) > 0; i++)
		;
	close(fd);
}

static void
conn_close(struct pmdscope_capture_conn *conn)
{
	/* close() does not remove it if a forked child still has the descriptor. */
	epoll_ctl(server.epfd, EPOLL_CTL_DEL, conn->fd, NULL);
	hang_up(conn->fd);
	conn->fd = -1;
	if (conn->capture != NULL) {
		pmdscope_capture_retire(conn->capture);
		pmdscope_rows_changed();
	}
	conn->capture = NULL;
	conn->armed = false;
}

static void
conn_refuse(struct pmdscope_capture_conn *conn, int error, uint32_t fits, const char *why)
{
	pmdscope_capture_send_refusal(conn->fd, -error, fits, why);
	conn_close(conn);
}

/* Disarm, and send the consumer the reason. Its descriptors stay readable until it closes. */
static void
session_end(struct pmdscope_capture_conn *conn, int error, const char *why)
{
	if (!conn->armed)
		return;
	pmdscope_capture_disarm(conn->capture);
	conn->armed = false;
	pmdscope_capture_send(conn->fd, PMDSCOPE_TEE_END, (uint32_t)error, why);
	PMDSCOPE_LOG(INFO, "capture %" PRIu64 " of process %d ended: %s", conn->capture->id,
			(int)conn->pid, why);
}

/*
 * Send the rings that have not been sent yet; those that the socket has no room for are sent later.
 */
static void
send_rings(struct pmdscope_capture_conn *conn)
{
	struct pmdscope_capture_ring *ring;
	unsigned int lcore;

	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		ring = conn->capture->producers[lcore].ring;
		if (ring != NULL && ring->data_fd >= 0 &&
				pmdscope_capture_send_ring(conn->fd, ring->hdr->lcore, ring) < 0)
			return;
	}
}

/* Refuse a filter with which all of them together could take more than the app permits. */
static int
check_filter(uint32_t cost, char *why, size_t size)
{
	const struct pmdscope_capture_conn *conn;
	uint32_t taken = 0;
	unsigned int i;

	for (i = 0; i < CONNS_MAX; i++) {
		conn = &server.conns[i];
		if (conn->armed)
			taken += conn->capture->spec.filter.cost;
	}
	if (cost == 0 || taken + cost <= server.max_filter_cycles)
		return 0;
	snprintf(why, size,
			"filter: up to %u cycles a packet, and %u of %u for all filters are taken "
			"(tee_filter_cycles)",
			cost, taken, server.max_filter_cycles);
	return -E2BIG;
}

/* Make room for one more session; one that has ended but not yet been closed is replaced. */
static int
make_room(char *why, size_t size)
{
	struct pmdscope_capture_conn *conn, *oldest = NULL;
	unsigned int i;

	if (pmdscope_capture_retired_bytes() >= server.max_sessions * server.max_bytes) {
		snprintf(why, size, "%" PRIu64 " MiB of ended captures are held by a stuck lcore",
				pmdscope_capture_retired_bytes() >> 20);
		return -ENOMEM;
	}
	if (count_sessions(false) < server.max_sessions)
		return 0;
	for (i = 0; i < CONNS_MAX; i++) {
		conn = &server.conns[i];
		if (conn->capture != NULL && !conn->armed &&
				(oldest == NULL || conn->since_ms < oldest->since_ms))
			oldest = conn;
	}
	if (oldest == NULL) {
		snprintf(why, size, "%u captures are open, the app's limit (tee_sessions)",
				server.max_sessions);
		return -EBUSY;
	}
	conn_close(oldest);
	return 0;
}

static int
session_open(struct pmdscope_capture_conn *conn, const void *buf, size_t len, uint32_t *fits,
		char *text, size_t size)
{
	int ret;

	ret = pmdscope_capture_request_parse(buf, len, &request_spec, text, size);
	if (ret == 0)
		ret = check_filter(request_spec.filter.cost, text, size);
	if (ret == 0)
		ret = make_room(text, size);
	if (ret == 0)
		ret = pmdscope_capture_session_open(
				&request_spec, server.max_bytes, &conn->capture, fits, text, size);
	if (ret < 0)
		return ret;
	conn->capture->id = ++server.last_id;
	conn->armed = true;
	conn->since_ms = pmdscope_capture_now_ms();
	return 0;
}

static void
handle_request(struct pmdscope_capture_conn *conn, const void *buf, size_t len)
{
	char text[PMDSCOPE_CAPTURE_TEXT] = "";
	uint32_t fits = 0;
	int ret;

	ret = session_open(conn, buf, len, &fits, text, sizeof(text));
	if (ret < 0) {
		conn_refuse(conn, ret, ret == -ENOMEM ? fits : 0, text);
		return;
	}
	ret = pmdscope_capture_send(
			conn->fd, PMDSCOPE_TEE_ACCEPT, (uint32_t)conn->capture->id, text);
	if (ret < 0) {
		conn_close(conn);
		return;
	}
	PMDSCOPE_LOG(INFO, "capture %" PRIu64 " of process %d armed, %u rings of %u bytes",
			conn->capture->id, (int)conn->pid, conn->capture->nb_rings,
			conn->capture->spec.ring_size);
	send_rings(conn);
}

/* Each ring is confirmed once, which bounds these messages. */
static void
handle_mapped(struct pmdscope_capture_conn *conn, uint32_t lcore)
{
	const int ret = pmdscope_capture_session_mapped(conn->capture, lcore);
	char why[PMDSCOPE_CAPTURE_TEXT];

	if (ret == 0)
		return;
	snprintf(why, sizeof(why), "the consumer cannot confirm a ring of lcore %u: %s", lcore,
			strerror(-ret));
	session_end(conn, -ret, why);
}

/* What a consumer may send after its request. */
static void
handle_change(struct pmdscope_capture_conn *conn, const void *buf, size_t len)
{
	struct pmdscope_tee_change change;

	if (!pmdscope_capture_change_parse(buf, len, &change) ||
			(change.kind == PMDSCOPE_TEE_SAMPLE && conn->capture->spec.leaked))
		session_end(conn, EPROTO, "an unknown message from the consumer");
	else if (change.kind == PMDSCOPE_TEE_MAPPED)
		handle_mapped(conn, change.value);
	else if (++conn->nb_changes > CHANGES_MAX)
		session_end(conn, EPROTO, "too many messages from the consumer");
	else
		pmdscope_capture_resample(conn->capture, change.value);
	if (!conn->armed)
		conn_close(conn);
}

static void
conn_readable(struct pmdscope_capture_conn *conn)
{
	/* One byte more than is valid, so that a longer request is seen to be too long. */
	static uint8_t buf[PMDSCOPE_CAPTURE_REQUEST_MAX + 1];
	const ssize_t len = recv(conn->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len <= 0) {
		conn_close(conn);
	} else if (conn->capture == NULL) {
		handle_request(conn, buf, (size_t)len);
	} else {
		handle_change(conn, buf, (size_t)len);
	}
}

static struct pmdscope_capture_conn *
free_conn(void)
{
	unsigned int i, pending = 0;
	struct pmdscope_capture_conn *found = NULL;

	for (i = 0; i < CONNS_MAX; i++) {
		if (server.conns[i].fd < 0)
			found = &server.conns[i];
		else
			pending += server.conns[i].capture == NULL;
	}
	return pending < PENDING_MAX ? found : NULL;
}

static void
conn_open(int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };
	struct pmdscope_capture_conn *conn = free_conn();
	pid_t pid;

	if (!pmdscope_capture_socket_allows(fd, &pid)) {
		pmdscope_capture_send(fd, PMDSCOPE_TEE_REFUSE, EACCES,
				"only the app's user, root and tee_group may capture");
	} else if (conn == NULL) {
		pmdscope_capture_send(fd, PMDSCOPE_TEE_REFUSE, EBUSY, "too many connections wait");
	} else {
		event.data.ptr = conn;
		*conn = (struct pmdscope_capture_conn){
			.fd = fd, .pid = pid, .since_ms = pmdscope_capture_now_ms()
		};
		if (epoll_ctl(server.epfd, EPOLL_CTL_ADD, fd, &event) == 0)
			return;
		conn->fd = -1;
	}
	hang_up(fd);
}

/* Otherwise a listening socket that cannot be served would wake the control thread continuously. */
static void
pause_accepting(bool pause)
{
	struct epoll_event event = {
		.events = pause ? 0 : EPOLLIN,
		.data.ptr = &server,
	};

	server.paused = pause;
	epoll_ctl(server.epfd, EPOLL_CTL_MOD, server.listen_fd, &event);
}

/* Later connections wait in the socket. */
static void
spend(int64_t ns)
{
	server.budget_ns = RTE_MAX(server.budget_ns - ns, -DEBT_NS);
	if (server.budget_ns <= 0 && !server.paused)
		pause_accepting(true);
}

static void
refill_budget(uint64_t now_ms)
{
	const uint64_t ms = RTE_MIN(now_ms - server.ticked_ms, UINT64_C(1000));

	server.ticked_ms = now_ms;
	server.budget_ns =
			RTE_MIN(server.budget_ns + (int64_t)ms * 1000000 / BUDGET_SHARE, BUDGET_NS);
	if (server.paused && server.budget_ns > 0)
		pause_accepting(false);
}

static void
accept_some(void)
{
	unsigned int i;
	int fd;

	for (i = 0; i < PENDING_MAX && !server.paused; i++) {
		fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			conn_open(fd);
			spend(CONNECTION_NS);
			continue;
		}
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			PMDSCOPE_LOG(WARNING, "cannot accept a capture: %s", strerror(errno));
			pause_accepting(true);
		}
		return;
	}
}

static int64_t
cpu_time_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void
pmdscope_capture_event(void *ptr, uint32_t events)
{
	struct pmdscope_capture_conn *conn = ptr;
	const int64_t begin = cpu_time_ns();

	if (server.listen_fd < 0)
		return;
	if (ptr == &server)
		accept_some();
	/* A request may come with its end-of-file; it is read first, and the sends then fail. */
	else if (conn->fd >= 0 && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
		conn_readable(conn);
	spend(cpu_time_ns() - begin);
}

static void
tick_session(struct pmdscope_capture_conn *conn, uint64_t now)
{
	char why[PMDSCOPE_CAPTURE_TEXT];
	const int error = pmdscope_capture_session_tick(conn->capture, now, why, sizeof(why));

	if (error != 0) {
		session_end(conn, error, why);
		return;
	}
	send_rings(conn);
	if (conn->capture->spec.leaked && pmdscope_capture_leak_tick(conn->capture))
		session_end(conn, 0, "all lost mbufs are written");
}

void
pmdscope_capture_tick(void)
{
	const uint64_t now = pmdscope_capture_now_ms();
	struct pmdscope_capture_conn *conn;
	unsigned int i;

	pmdscope_capture_reclaim();
	if (server.listen_fd < 0)
		return;
	refill_budget(now);
	for (i = 0; i < CONNS_MAX; i++) {
		conn = &server.conns[i];
		conn->nb_changes = 0;
		if (conn->armed)
			tick_session(conn, now);
		else if (conn->fd >= 0 && conn->capture == NULL &&
				now - conn->since_ms >= PENDING_MS)
			conn_refuse(conn, -ETIMEDOUT, 0, "no request within 2 seconds");
	}
}

int
pmdscope_capture_start(const struct pmdscope_conf *conf, int epfd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = &server };
	unsigned int i;
	int fd, ret;

	fd = pmdscope_capture_socket_open(conf->tee_group);
	if (fd < 0)
		return fd;
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) < 0) {
		ret = -errno;
		PMDSCOPE_LOG(ERR, "cannot watch the capture socket: %s", strerror(-ret));
		pmdscope_capture_socket_close(fd);
		return ret;
	}
	for (i = 0; i < CONNS_MAX; i++)
		server.conns[i] = (struct pmdscope_capture_conn){ .fd = -1 };
	server.listen_fd = fd;
	server.epfd = epfd;
	server.paused = false;
	server.budget_ns = BUDGET_NS;
	server.ticked_ms = pmdscope_capture_now_ms();
	server.max_sessions = conf->tee_sessions;
	server.max_bytes = (uint64_t)conf->tee_session_mb << 20;
	server.max_filter_cycles = conf->tee_filter_cycles;
	pmdscope_capture_barrier_init();
	return 0;
}

void
pmdscope_capture_stop(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int i;

	if (server.listen_fd < 0)
		return;
	for (i = 0; i < CONNS_MAX; i++) {
		if (server.conns[i].fd < 0)
			continue;
		session_end(&server.conns[i], ESHUTDOWN, "the app stops being observed");
		conn_close(&server.conns[i]);
	}
	epoll_ctl(server.epfd, EPOLL_CTL_DEL, server.listen_fd, NULL);
	pmdscope_capture_socket_close(server.listen_fd);
	server.listen_fd = -1;
	for (i = 0; i < STOP_MS && !pmdscope_capture_reclaim(); i++)
		nanosleep(&pause, NULL);
	if (pmdscope_capture_retired_bytes() != 0)
		PMDSCOPE_LOG(WARNING, "%" PRIu64 " bytes of captures stay with a stuck lcore",
				pmdscope_capture_retired_bytes());
}
