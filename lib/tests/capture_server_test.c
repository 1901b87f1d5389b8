/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The capture socket: who may connect, valid requests, and limits. One thread, the main lcore. */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_random.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_test.h"

static void
expect_refusal(const void *buf, size_t len, int error, const char *text)
{
	struct pmdscope_tee_message message;
	const int fd = test_connect();
	int fds[2];

	CHECK(send(fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len);
	message = test_expect(fd, PMDSCOPE_TEE_REFUSE);
	if (message.value != (uint32_t)error || strstr(message.text, text) == NULL)
		fprintf(stderr, "%u \"%s\", expected %d \"%s\"\n", message.value, message.text,
				error, text);
	CHECK(message.value == (uint32_t)error && strstr(message.text, text) != NULL);
	CHECK(test_receive(fd, fds).kind == 0);
	close(fd);
}

static void
expect_bad_field(struct request req, int error, const char *text)
{
	const size_t len =
			offsetof(struct request, insns) + req.hdr.nb_insns * sizeof(req.insns[0]);

	expect_refusal(&req, len, error, text);
}

#define BAD(field, value, error, text) \
	do { \
		struct request bad = test_request(); \
		bad.field = (value); \
		expect_bad_field(bad, error, text); \
	} while (0)

static void
test_refusals(void)
{
	static uint8_t big[65536];
	struct request req = test_request();
	unsigned int i, j;

	BAD(hdr.magic, 0, EINVAL, "magic");
	BAD(hdr.version, 2, EPROTONOSUPPORT, "version: 2, the app speaks 1");
	BAD(hdr.hdr_size, 31, EINVAL, "hdr_size");
	BAD(hdr.snaplen, 262145, EINVAL, "snaplen");
	BAD(hdr.ring_size, 65537, EINVAL, "ring_size");
	BAD(hdr.ring_size, 32768, EINVAL, "ring_size");
	BAD(hdr.ring_size, 1U << 27, EINVAL, "ring_size");
	BAD(hdr.flags, 1U << 31, EINVAL, "flags");
	BAD(hdr.flags, PMDSCOPE_TEE_F_LEAKED | PMDSCOPE_TEE_F_PACKET_TSC, EINVAL, "flags");
	BAD(hdr.flags, PMDSCOPE_TEE_F_HEADERS | PMDSCOPE_TEE_F_PACKET_TSC, EINVAL, "flags");
	BAD(hdr.nb_selects, 0, EINVAL, "nb_selects");
	BAD(hdr.nb_selects, 65, EINVAL, "nb_selects");
	BAD(hdr.nb_selects, 2, EMSGSIZE, "bytes");
	BAD(select.port, RTE_MAX_ETHPORTS, EINVAL, "selects[0].port");
	BAD(select.queue, RTE_MAX_QUEUES_PER_PORT, EINVAL, "selects[0].queue");
	BAD(select.dirs, 0, EINVAL, "selects[0].dirs");
	BAD(select.dirs, 4, EINVAL, "selects[0].dirs");
	BAD(select.reserved, 7, EINVAL, "selects[0].reserved");
	BAD(hdr.nb_insns, 1, EINVAL, "filter instruction 0");
	req.hdr.nb_insns = 513;
	expect_refusal(&req, sizeof(req), EINVAL, "nb_insns");
	expect_refusal(&req, 1, EMSGSIZE, "1 bytes");
	expect_refusal(big, sizeof(big), EINVAL, "magic");
	memcpy(big, &(struct request){ .hdr = test_request().hdr }, sizeof(req.hdr));
	expect_refusal(big, sizeof(big), EMSGSIZE, "65536 bytes");

	for (i = 0; i < 300; i++) {
		const size_t len = 1 + rte_rand_max(6000);

		for (j = 0; j < len; j++)
			big[j] = (uint8_t)rte_rand();
		expect_refusal(big, len, len < sizeof(req.hdr) ? EMSGSIZE : EINVAL, "");
	}
	CHECK(pmdscope_capture_nb_sessions() == 0);
}

/* A connection without a request is refused after this time. So a test that takes longer, on a
 * machine that pauses, has to be repeated.
 */
#define PENDING_MS 2000

/* Limits of sessions, of waiting connections and of memory, each with its own message. */
static void
test_limits(void)
{
	struct request req = test_request();
	struct pmdscope_tee_message message;
	struct reader r[3], big;
	int fds[16], fd;
	uint64_t start, refusal;
	unsigned int i;
	bool late;

	for (i = 0; i < 3; i++)
		fds[i] = test_attach(&req, &r[i]);
	expect_refusal(&req, offsetof(struct request, insns), EBUSY, "tee_sessions");
	/* All of them get every packet. */
	test_offer(7, 100);
	for (i = 0; i < 3; i++)
		CHECK(r[i].hdr->records == 7);
	CHECK(pmdscope_capture_table.count() == 3);
	/* A session that has ended is replaced by a new one. */
	r[1].tail->tail = 1 << 20;
	test_offer(1, 100);
	pmdscope_capture_tick();
	CHECK(test_expect(fds[1], PMDSCOPE_TEE_END).value == EPROTO);
	fd = test_attach(&req, &big);
	test_unmap(&big);
	close(fd);
	for (i = 0; i < 3; i++) {
		close(fds[i]);
		test_unmap(&r[i]);
	}
	test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 0);

	req.hdr.ring_size = PMDSCOPE_RING_MAX_SIZE;
	fd = test_connect();
	test_send(fd, &req);
	message = test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	CHECK(strstr(message.text, "ring_size reduced to 8388608") != NULL);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_RING);
	test_map(&big, fds);
	CHECK(big.hdr->data_size == 8 << 20);
	test_unmap(&big);
	close(fd);
	test_pump(5);

	do {
		start = pmdscope_capture_now_ms();
		for (i = 0; i < 8; i++)
			fds[i] = test_connect();
		test_pump(20);
		fd = test_connect();
		refusal = test_expect(fd, PMDSCOPE_TEE_REFUSE).value;
		late = pmdscope_capture_now_ms() - start >= PENDING_MS;
		close(fd);
		for (i = 0; i < 8; i++)
			CHECK(test_expect(fds[i], PMDSCOPE_TEE_REFUSE).value == ETIMEDOUT);
		for (i = 0; i < 8; i++)
			close(fds[i]);
		test_pump(5);
	} while (late);
	CHECK(refusal == EBUSY);
}

/* False if the client was timed out before it could be refused. */
static bool
refuses_without_descriptors(const struct rlimit *old, const struct request *req)
{
	const uint64_t connected = pmdscope_capture_now_ms();
	const int client = test_connect();
	struct rlimit none = *old;
	uint64_t start, refusal;
	unsigned int i;
	bool late;
	int last;

	/* The lowest free descriptor becomes the limit. */
	last = dup(0);
	close(last);
	none.rlim_cur = (rlim_t)last;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	test_pump_events(5);
	start = pmdscope_capture_now_ms();
	for (i = 0; i < 5; i++)
		test_pump_events(20);
	CHECK(pmdscope_capture_now_ms() - start >= 90);
	/* A request is refused with a message if there are no descriptors for its rings. */
	none.rlim_cur = (rlim_t)last + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	test_pump(5);
	test_send(client, req);
	refusal = test_expect(client, PMDSCOPE_TEE_REFUSE).value;
	late = pmdscope_capture_now_ms() - connected >= PENDING_MS;
	CHECK(setrlimit(RLIMIT_NOFILE, old) == 0);
	close(client);
	test_pump(5);
	CHECK(late || refusal == EMFILE);
	return !late;
}

/* Without descriptors the control thread neither spins nor stops serving. */
static void
test_no_descriptors(void)
{
	struct rlimit old;
	const struct request req = test_request();
	struct reader r;
	int fd;

	CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
	while (!refuses_without_descriptors(&old, &req))
		;
	fd = test_attach(&req, &r);
	close(fd);
	test_unmap(&r);
	test_pump(5);
}

/* After kill -9 of a consumer its end-of-file disarms the capture, without a tick. */
static void
test_killed(void)
{
	const struct request req = test_request();
	struct pmdscope_tee_message message;
	unsigned int i;
	pid_t pid;
	char c;
	int ready[2];

	CHECK(pipe(ready) == 0);
	const int fd = test_connect();
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		test_send(fd, &req);
		while (recv(fd, &message, sizeof(message), 0) <= 0 ||
				message.kind != PMDSCOPE_TEE_RING)
			;
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(fd);
	fcntl(ready[0], F_SETFL, O_NONBLOCK);
	while (read(ready[0], &c, 1) != 1)
		test_pump(5);
	CHECK(pmdscope_capture_nb_sessions() == 1);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	for (i = 0; i < 10 && pmdscope_capture_nb_sessions() > 0; i++)
		test_pump_events(10);
	CHECK(pmdscope_capture_nb_sessions() == 0 && pmdscope_tee_armed == NULL);
	close(ready[0]);
	close(ready[1]);
}

/* Another user is refused, unless it is in the group. */
static int
connect_as(uid_t uid, gid_t gid, gid_t extra)
{
	struct pmdscope_tee_message message = { 0 };
	const struct request req = test_request();
	struct pollfd pfd = { .events = POLLIN };
	int status, fd;
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		if (setgroups(1, &extra) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
			_exit(99);
		fd = test_connect();
		send(fd, &req, offsetof(struct request, insns), MSG_NOSIGNAL);
		pfd.fd = fd;
		if (poll(&pfd, 1, 2000) != 1 || recv(fd, &message, sizeof(message), 0) < 0)
			_exit(98);
		_exit(message.kind == PMDSCOPE_TEE_REFUSE ? (int)message.value : 0);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		test_pump(5);
	test_pump(5);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void
open_to_all(const char *path)
{
	char dir[PATH_MAX];
	char *slash;

	/* So that the check of the peer decides, not the file system. */
	CHECK(chmod(path, 0666) == 0);
	snprintf(dir, sizeof(dir), "%s", path);
	while ((slash = strrchr(dir, '/')) != dir) {
		*slash = '\0';
		if (strstr(dir, test_dir) != NULL)
			CHECK(chmod(dir, 0711) == 0);
	}
}

static void
test_credentials(void)
{
	struct stat st;

	CHECK(stat(pmdscope_capture_socket_path(), &st) == 0);
	CHECK((st.st_mode & 0777) == 0600);
	if (geteuid() != 0 || strstr(pmdscope_capture_socket_path(), test_dir) == NULL) {
		printf("not root, or a runtime directory that is shared: other users are not tried\n");
		return;
	}
	open_to_all(pmdscope_capture_socket_path());
	CHECK(connect_as(65534, 65534, 65534) == EACCES);
	CHECK(connect_as(0, 0, 0) == 0);
	test_capture_stop();
	test_capture_start_group("adm");
	CHECK(stat(pmdscope_capture_socket_path(), &st) == 0);
	CHECK((st.st_mode & 0777) == 0660 && st.st_gid == getgrnam("adm")->gr_gid);
	open_to_all(pmdscope_capture_socket_path());
	CHECK(connect_as(65534, 65534, 65534) == EACCES);
	CHECK(connect_as(65534, st.st_gid, 65534) == 0);
	CHECK(connect_as(65534, 65534, st.st_gid) == 0);
	test_capture_stop();
	test_capture_start_group("no-such-group");
	CHECK(stat(pmdscope_capture_socket_path(), &st) == 0 && (st.st_mode & 0777) == 0600);
}

/* The socket names of live apps are kept, those of dead ones are reused. */
static void
test_names(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char second[sizeof(addr.sun_path) + 2];
	char name[sizeof(addr.sun_path)];
	int other;

	snprintf(name, sizeof(name), "%s", pmdscope_capture_socket_path());
	memcpy(addr.sun_path, name, sizeof(name));
	snprintf(second, sizeof(second), "%s:1", name);
	test_capture_stop();
	CHECK(access(name, F_OK) < 0);

	other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(other, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(other, 1) == 0);
	test_capture_start(3, 8);
	CHECK(strcmp(pmdscope_capture_socket_path(), second) == 0);
	test_capture_stop();
	CHECK(access(second, F_OK) < 0 && access(name, F_OK) == 0);

	close(other);
	test_capture_start(3, 8);
	CHECK(strcmp(pmdscope_capture_socket_path(), name) == 0);
	/* Another program's socket with our name is kept. */
	CHECK(unlink(name) == 0);
	other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(bind(other, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	test_capture_stop();
	CHECK(unlink(name) == 0);
	close(other);

	/* The same for a file that is not a socket. */
	other = open(name, O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
	test_capture_start(3, 8);
	CHECK(strcmp(pmdscope_capture_socket_path(), second) == 0 && access(name, F_OK) == 0);
	close(other);
	CHECK(unlink(name) == 0);
}

/* One more message ends the session. */
static void
expect_end(const struct request *req, const void *message, size_t len)
{
	struct reader r;
	int fds[2];
	const int fd = test_attach(req, &r);

	test_resample(fd, 3);
	CHECK(pmdscope_capture_nb_sessions() == 1);
	CHECK(send(fd, message, len, MSG_NOSIGNAL) == (ssize_t)len);
	CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
	CHECK(test_receive(fd, fds).kind == 0);
	close(fd);
	test_unmap(&r);
}

/* After its request a consumer may only change the sampling, a limited number of times. */
static void
test_changes(void)
{
	const struct pmdscope_tee_change good = {
		.magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_SAMPLE,
		.value = 7,
	};
	struct request req = test_request();
	struct pmdscope_tee_change bad[5];
	uint8_t longer[sizeof(good) + 1] = { 0 };
	struct pmdscope_tee_message message;
	struct pmdscope_ring_hdr hdr;
	struct reader r;
	int fd, fds[2];
	unsigned int i;

	for (i = 0; i < RTE_DIM(bad); i++)
		bad[i] = good;
	bad[0].magic++;
	bad[1].version++;
	bad[2].kind = PMDSCOPE_TEE_ACCEPT;
	bad[3].kind++;
	bad[4].reserved = 1;
	for (i = 0; i < RTE_DIM(bad); i++)
		expect_end(&req, &bad[i], sizeof(bad[i]));
	expect_end(&req, &good, sizeof(good) - 1);
	memcpy(longer, &good, sizeof(good));
	expect_end(&req, longer, sizeof(longer));

	/* Before a request it is not a valid message. */
	expect_refusal(&good, sizeof(good), EMSGSIZE, "16 bytes");
	/* More changes than permitted between two ticks. */
	fd = test_attach(&req, &r);
	for (i = 0; i < 65 && send(fd, &good, sizeof(good), MSG_NOSIGNAL | MSG_DONTWAIT) > 0; i++)
		test_pump_events(0);
	CHECK(i == 65);
	message = test_expect(fd, PMDSCOPE_TEE_END);
	CHECK(message.value == EPROTO && strstr(message.text, "too many") != NULL);
	close(fd);
	test_unmap(&r);

	/* Lost mbufs are not sampled. */
	req.hdr.flags = PMDSCOPE_TEE_F_LEAKED;
	fd = test_connect();
	test_send(fd, &req);
	test_pump_events(5);
	CHECK(send(fd, &good, sizeof(good), MSG_NOSIGNAL) == sizeof(good));
	test_pump_events(5);
	test_expect(fd, PMDSCOPE_TEE_ACCEPT);
	CHECK(test_receive(fd, fds).kind == PMDSCOPE_TEE_RING);
	CHECK(pread(fds[0], &hdr, sizeof(hdr), 0) == sizeof(hdr));
	CHECK(hdr.features == (PMDSCOPE_RING_F_GAPS | PMDSCOPE_RING_F_MAPPED));
	close(fds[0]);
	close(fds[1]);
	CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
	close(fd);
}

static void
test_protocol(void)
{
	struct request req = test_request();
	struct reader r;
	int fd, fds[2];

	/* A second request ends the session. */
	fd = test_attach(&req, &r);
	test_send(fd, &req);
	CHECK(test_expect(fd, PMDSCOPE_TEE_END).value == EPROTO);
	CHECK(test_receive(fd, fds).kind == 0);
	close(fd);
	test_unmap(&r);
	test_changes();
	/* The consumer disconnects before its answer. */
	fd = test_connect();
	test_send(fd, &req);
	close(fd);
	test_pump(10);
	fd = test_connect();
	close(fd);
	test_pump(10);
	CHECK(pmdscope_capture_nb_sessions() == 0);
}

int
main(void)
{
	unsigned int fds;

	test_capture_eal(1);
	fds = test_open_fds();
	test_capture_start(3, 8);
	test_refusals();
	test_limits();
	test_no_descriptors();
	test_killed();
	test_protocol();
	test_names();
	test_credentials();
	test_capture_stop();
	CHECK(pmdscope_capture_abandoned_bytes() == 0);
	CHECK(test_open_fds() == fds);
	rte_eal_cleanup();
	return EXIT_SUCCESS;
}
