/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "captured_app.h"
#include "numbered.h"
#include "test.h"

/* Exit code of a test that cannot run. */
#define SKIP 77

struct captured_app app;
struct app pdump_app;

/* Path of pmdscope-pdump. */
static const char *program;

void
sleep_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

void
stop_app(void)
{
	char command[128];

	if (app.pid > 0) {
		kill(app.pid, SIGKILL);
		waitpid(app.pid, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf /var/run/dpdk/%s /dev/hugepages/%smap_*",
			app.prefix, app.prefix);
	if (app.prefix[0] != '\0' && system(command) != 0)
		fprintf(stderr, "%s failed\n", command);
}

struct report
say(const char *line)
{
	struct report r = { 0 };

	fputs(line, app.in);
	fflush(app.in);
	CHECK(fscanf(app.out, "%" SCNu64 " %u %u", &r.sent, &r.allocs, &r.zones) == 3);
	return r;
}

struct report
ask(void)
{
	return say("?\n");
}

static unsigned int
free_hugepages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned int n = 0;

	if (f == NULL || fscanf(f, "%u", &n) != 1)
		n = 0;
	if (f != NULL)
		fclose(f);
	return n;
}

/* Whether an app can run here. If not, prints the reason. */
static bool
can_start_app(void)
{
	if (free_hugepages() >= 64 && getuid() == 0 && sysconf(_SC_NPROCESSORS_ONLN) >= 2)
		return true;
	puts("needs root, two CPUs and 64 free hugepages of 2 MiB");
	return false;
}

void
start_app(char *path)
{
	int in[2], out[2];

	snprintf(app.prefix, sizeof(app.prefix), "pdump-test-%d", (int)getpid());
	CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	app.pid = fork();
	if (app.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(path, path, "--lcores", "0@0,1@1", "-m", "64", "--no-pci", "--no-telemetry",
				"--file-prefix", app.prefix, "--vdev", "net_null0", "--log-level",
				"*:error", NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	app.in = fdopen(in[1], "w");
	app.out = fdopen(out[0], "r");
	ask();
	pdump_app.pid = app.pid;
	snprintf(pdump_app.runtime_dir, sizeof(pdump_app.runtime_dir), "/var/run/dpdk/%s",
			app.prefix);
}

void
begin_test(int argc, char **argv)
{
	if (argc != 3)
		exit(2);
	if (!can_start_app())
		exit(SKIP);
	program = argv[2];
	atexit(stop_app);
	start_app(argv[1]);
}

void
start_on_two(const char *port, const char *second, struct capture *c, uint16_t dirs,
		uint32_t snaplen)
{
	struct {
		struct pmdscope_tee_request head;
		struct pmdscope_tee_select select;
	} request = {
		.head = {
			.magic = PMDSCOPE_TEE_MAGIC,
			.version = PMDSCOPE_RING_VERSION,
			.hdr_size = sizeof(struct pmdscope_tee_request),
			.snaplen = snaplen,
			.ring_size = 1 << 24,
			.lease_ms = 60000,
			.nb_selects = 1,
		},
		.select = { PMDSCOPE_TEE_ANY, PMDSCOPE_TEE_ANY, dirs, 0 },
	};
	char pid[16], fd[16];
	int fds[2];

	*c = (struct capture){ .fd = -1 };
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
	snprintf(pid, sizeof(pid), "%d", (int)app.pid);
	snprintf(fd, sizeof(fd), "%d", fds[1]);
	c->pid = fork();
	if (c->pid == 0) {
		close(fds[0]);
		execl(program, program, "--file-prefix", app.prefix, "--pid", pid, "--fd", fd,
				"--cpus", "0", "--port", port, second != NULL ? "--port" : NULL,
				second, NULL);
		_exit(127);
	}
	close(fds[1]);
	c->fd = fds[0];
	CHECK(send(c->fd, &request, sizeof(request), 0) == sizeof(request));
}

void
start_on(const char *port, struct capture *c, uint16_t dirs, uint32_t snaplen)
{
	start_on_two(port, NULL, c, dirs, snaplen);
}

void
start(struct capture *c, uint16_t dirs, uint32_t snaplen)
{
	start_on("0,1,1,net_null0", c, dirs, snaplen);
}

bool
receive(const struct capture *c, struct pmdscope_tee_message *message, int fds[2])
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { message, sizeof(*message) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf) };
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN };

	CHECK(poll(&pfd, 1, 30000) == 1);
	if (recvmsg(c->fd, &msg, 0) <= 0)
		return false;
	if (message->kind == PMDSCOPE_TEE_RING)
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), 2 * sizeof(int));
	return true;
}

void
expect_ring(struct capture *c)
{
	struct pmdscope_tee_change mapped = { .magic = PMDSCOPE_TEE_MAGIC,
		.version = PMDSCOPE_RING_VERSION,
		.kind = PMDSCOPE_TEE_MAPPED };
	struct pmdscope_tee_message m = { 0 };
	int fds[2];

	CHECK(receive(c, &m, fds));
	if (m.kind != PMDSCOPE_TEE_ACCEPT)
		fprintf(stderr, "refused: %s\n", m.text);
	CHECK(m.kind == PMDSCOPE_TEE_ACCEPT);
	memcpy(c->remark, m.text, sizeof(c->remark));
	CHECK(receive(c, &m, fds) && m.kind == PMDSCOPE_TEE_RING);
	c->hdr = mmap(NULL, PMDSCOPE_RING_HDR_SIZE + (1 << 24), PROT_READ, MAP_SHARED, fds[0], 0);
	c->tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	CHECK(c->hdr != MAP_FAILED && c->tail != MAP_FAILED);
	CHECK(c->hdr->magic == PMDSCOPE_RING_MAGIC);
	mapped.value = m.value;
	CHECK(send(c->fd, &mapped, sizeof(mapped), MSG_NOSIGNAL) == sizeof(mapped));
	close(fds[0]);
	close(fds[1]);
}

void
expect_refusal(const struct capture *c, const char *why)
{
	struct pmdscope_tee_message m = { 0 };
	int fds[2];

	CHECK(receive(c, &m, fds));
	if (m.kind != PMDSCOPE_TEE_REFUSE || strstr(m.text, why) == NULL)
		fprintf(stderr, "kind %u: %s\n", m.kind, m.text);
	CHECK(m.kind == PMDSCOPE_TEE_REFUSE && strstr(m.text, why) != NULL);
}

pid_t
worker_of(pid_t pid)
{
	char path[64];
	int child = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "r");
	if (f != NULL && fscanf(f, "%d", &child) != 1)
		child = 0;
	if (f != NULL)
		fclose(f);
	return child;
}

int
stop(struct capture *c)
{
	int status;

	if (c->hdr != NULL) {
		munmap((void *)(uintptr_t)c->hdr, PMDSCOPE_RING_HDR_SIZE + (1 << 24));
		munmap(c->tail, 4096);
	}
	close(c->fd);
	CHECK(waitpid(c->pid, &status, 0) == c->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint64_t
read_seq(const uint8_t *bytes)
{
	uint64_t seq;

	memcpy(&seq, bytes, sizeof(seq));
	return seq;
}

uint64_t
check_records(struct capture *c, uint32_t snaplen, uint64_t *next, uint64_t *missing)
{
	const uint64_t head = __atomic_load_n(&c->hdr->head, __ATOMIC_ACQUIRE);
	const uint8_t *data = (const uint8_t *)c->hdr + PMDSCOPE_RING_HDR_SIZE;
	const struct pmdscope_record *r;
	uint64_t seq, n = 0;
	uint32_t i;

	for (; c->at < head; c->at += r->size) {
		r = (const void *)(data + (c->at & (c->hdr->data_size - 1)));
		if (r->type == PMDSCOPE_RECORD_PAD)
			continue;
		CHECK(r->type == PMDSCOPE_RECORD_PACKET && r->dir == PMDSCOPE_DIR_TX);
		CHECK(r->port == 0 && r->queue == 0 && r->flags == PMDSCOPE_RECORD_F_ATTEMPT);
		seq = read_seq((const uint8_t *)(r + 1));
		CHECK_U64(r->len, numbered_len(seq));
		CHECK_U64(r->caplen, RTE_MIN(r->len, snaplen));
		for (i = 0; i < r->caplen; i++)
			CHECK(((const uint8_t *)(r + 1))[i] == numbered_byte(seq, (uint16_t)i));
		if (*next != 0) {
			CHECK(seq >= *next);
			*missing += seq - *next;
		}
		*next = seq + 1;
		n++;
	}
	__atomic_store_n(&c->tail->tail, c->at, __ATOMIC_RELEASE);
	return n;
}
