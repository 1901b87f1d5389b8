/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Ways to get packets into a file: blocks of a header and 1500 bytes are assembled in buffers of
 * 256 KiB, as in `pmdscope capture`, and written to a file of 512 MiB. All variants of a directory
 * take turns; a variant is compared with the first of its round.
 *
 *   write      write(2) to a new file: what `pmdscope capture` does
 *   again      the same once more: the noise of this measurement
 *   over       pwrite(2) over a file that is there, as of a rotation that reuses its files
 *   mapped     blocks are put together in a mapping of a file that is there
 *   direct     pwrite(2) with O_DIRECT over a file that is there
 *   uring      the same by io_uring: registered buffers, several writes under way
 *   fresh      as uring, to a new file that was preallocated with fallocate(2)
 *
 * CPU time is that of this process, and that of the whole machine, with the kernel's threads that
 * write pages back, so nothing else should run. GB/s are those until the last write has returned,
 * and until fdatasync(2) has.
 *
 * usage: pmdscope-bench-file DIRECTORY...
 */

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 7
#define FILE_SIZE (512U << 20)
#define BUFFER (256U << 10)
#define NB_BUFFERS 8
#define PACKET 1500U
#define HEAD 64U
#define PAYLOADS 256U

enum variant { WRITE, AGAIN, OVER, MAPPED, DIRECT, URING, FRESH, NB_VARIANTS };

static const char *const names[NB_VARIANTS] = { "write", "again", "over", "mapped", "direct",
	"uring", "fresh" };

enum figure { WRITTEN_GBPS, SYNCED_GBPS, PROCESS_CPU, MACHINE_CPU, NB_FIGURES };

static const char *const figures[NB_FIGURES] = { "GB/s", "GB/s with fdatasync",
	"ns/KiB of this process", "ns/KiB of the machine" };

static double results[NB_FIGURES][NB_VARIANTS][ROUNDS];
static bool refused[NB_VARIANTS];
static uint8_t *buffers, payloads[PAYLOADS][PACKET];

static void
fail(const char *what)
{
	fprintf(stderr, "file: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double
seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* CPU time of all CPUs, except steal time. */
static double
machine_seconds(void)
{
	unsigned long long user, nice, system, idle, wait, irq, softirq;
	FILE *stat = fopen("/proc/stat", "r");

	if (stat == NULL || fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
					    &system, &idle, &wait, &irq, &softirq) != 7)
		fail("/proc/stat");
	fclose(stat);
	return (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK);
}

/* Blocks that fill this many bytes; the last one is cut off. */
static void
put_blocks(uint8_t *to, size_t size)
{
	static unsigned int next;
	size_t at = 0, len;

	while (at < size) {
		len = size - at < HEAD ? size - at : HEAD;
		memset(to + at, (int)next, len);
		at += len;
		len = size - at < PACKET ? size - at : PACKET;
		memcpy(to + at, payloads[next++ % PAYLOADS], len);
		at += len;
	}
}

static void
write_all(int fd, const uint8_t *from, off_t at)
{
	size_t done;
	ssize_t len;

	for (done = 0; done < BUFFER; done += (size_t)len) {
		len = pwrite(fd, from + done, BUFFER - done, at + (off_t)done);
		if (len < 0)
			fail("pwrite");
	}
}

static void
write_plain(int fd)
{
	off_t at;

	for (at = 0; at < FILE_SIZE; at += BUFFER) {
		put_blocks(buffers, BUFFER);
		write_all(fd, buffers, at);
	}
}

static void
write_mapped(uint8_t *map)
{
	off_t at;

	for (at = 0; at < FILE_SIZE; at += BUFFER)
		put_blocks(map + at, BUFFER);
}

static void
await_write(struct io_uring *ring, unsigned int *buffer)
{
	struct io_uring_cqe *cqe;

	if (io_uring_wait_cqe(ring, &cqe) < 0 || cqe->res != BUFFER) {
		errno = cqe->res < 0 ? -cqe->res : EIO;
		fail("io_uring");
	}
	*buffer = (unsigned int)io_uring_cqe_get_data64(cqe);
	io_uring_cqe_seen(ring, cqe);
}

static void
write_uring(struct io_uring *ring, int fd)
{
	unsigned int buffer, used = 0;
	struct io_uring_sqe *sqe;
	off_t at;

	for (at = 0; at < FILE_SIZE; at += BUFFER) {
		if (used < NB_BUFFERS)
			buffer = used++;
		else
			await_write(ring, &buffer);
		put_blocks(buffers + (size_t)buffer * BUFFER, BUFFER);
		sqe = io_uring_get_sqe(ring);
		if (sqe == NULL)
			fail("io_uring_get_sqe");
		io_uring_prep_write_fixed(sqe, fd, buffers + (size_t)buffer * BUFFER, BUFFER,
				(unsigned long long)at, (int)buffer);
		io_uring_sqe_set_data64(sqe, buffer);
		if (io_uring_submit(ring) < 0)
			fail("io_uring_submit");
	}
	for (; used > 0; used--)
		await_write(ring, &buffer);
}

/* False if the kernel has no io_uring, or does not permit it. */
static bool
open_uring(struct io_uring *ring)
{
	struct iovec iov[NB_BUFFERS];
	unsigned int i;

	for (i = 0; i < NB_BUFFERS; i++)
		iov[i] = (struct iovec){ buffers + (size_t)i * BUFFER, BUFFER };
	errno = -io_uring_queue_init(NB_BUFFERS, ring, 0);
	if (errno != 0)
		return false;
	errno = -io_uring_register_buffers(ring, iov, NB_BUFFERS);
	return errno == 0;
}

static int
open_file(enum variant v, const char *path)
{
	const bool direct = v == DIRECT || v == URING || v == FRESH;
	int fd;

	if (v == WRITE || v == AGAIN || v == FRESH)
		unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	if (fd >= 0 && v == FRESH && fallocate(fd, 0, 0, FILE_SIZE) < 0)
		fail("fallocate");
	/* Otherwise the first direct write would also pay for the pages of other variants. */
	if (fd >= 0 && direct)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return fd;
}

/* Write one file; false if the file system or the kernel does not support this variant. */
static bool
measure(enum variant v, const char *path, int round)
{
	const bool by_uring = v == URING || v == FRESH;
	double wall, process, machine, written;
	struct io_uring ring;
	uint8_t *map = NULL;
	int fd = open_file(v, path);

	if (fd < 0 || (by_uring && !open_uring(&ring)))
		return false;
	if (v == MAPPED) {
		map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
				0);
		if (map == MAP_FAILED)
			fail("mmap");
	}
	wall = seconds(CLOCK_MONOTONIC);
	process = seconds(CLOCK_PROCESS_CPUTIME_ID);
	machine = machine_seconds();
	if (map != NULL)
		write_mapped(map);
	else if (by_uring)
		write_uring(&ring, fd);
	else
		write_plain(fd);
	written = seconds(CLOCK_MONOTONIC) - wall;
	if (fdatasync(fd) < 0)
		fail("fdatasync");
	wall = seconds(CLOCK_MONOTONIC) - wall;
	process = seconds(CLOCK_PROCESS_CPUTIME_ID) - process;
	machine = machine_seconds() - machine;
	results[WRITTEN_GBPS][v][round] = FILE_SIZE / written / 1e9;
	results[SYNCED_GBPS][v][round] = FILE_SIZE / wall / 1e9;
	results[PROCESS_CPU][v][round] = process * 1e9 / (FILE_SIZE >> 10);
	results[MACHINE_CPU][v][round] = machine * 1e9 / (FILE_SIZE >> 10);
	if (by_uring)
		io_uring_queue_exit(&ring);
	if (map != NULL)
		munmap(map, FILE_SIZE);
	close(fd);
	return true;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
print_figure(enum figure figure)
{
	double sorted[ROUNDS], ratios[ROUNDS];
	enum variant v;
	int i;

	for (v = WRITE; v < NB_VARIANTS; v++) {
		if (refused[v])
			continue;
		for (i = 0; i < ROUNDS; i++) {
			sorted[i] = results[figure][v][i];
			ratios[i] = sorted[i] / results[figure][WRITE][i];
		}
		qsort(sorted, ROUNDS, sizeof(double), by_value);
		qsort(ratios, ROUNDS, sizeof(double), by_value);
		printf("  %-24s %-7s %7.2f [%.2f .. %.2f]  %.2f [%.2f .. %.2f]\n", figures[figure],
				names[v], sorted[ROUNDS / 2], sorted[ROUNDS / 4],
				sorted[ROUNDS * 3 / 4], ratios[ROUNDS / 2], ratios[ROUNDS / 4],
				ratios[ROUNDS * 3 / 4]);
	}
}

static void
run(const char *directory)
{
	enum figure figure;
	enum variant v;
	char path[4096];
	int round;

	snprintf(path, sizeof(path), "%s/pmdscope-bench-file.%d", directory, (int)getpid());
	memset(refused, 0, sizeof(refused));
	for (round = 0; round < ROUNDS; round++)
		for (v = WRITE; v < NB_VARIANTS; v++) {
			if (refused[v] || measure(v, path, round))
				continue;
			refused[v] = true;
			printf("%s: no %s: %s\n", directory, names[v], strerror(errno));
		}
	unlink(path);
	printf("%s: median [quartiles]; then the ratio to write of the same round\n", directory);
	for (figure = WRITTEN_GBPS; figure < NB_FIGURES; figure++)
		print_figure(figure);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	unsigned int i;
	int arg;

	if (argc < 2) {
		fprintf(stderr, "usage: pmdscope-bench-file DIRECTORY...\n");
		return 2;
	}
	buffers = mmap(NULL, (size_t)NB_BUFFERS * BUFFER, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (buffers == MAP_FAILED)
		fail("mmap");
	for (i = 0; i < PAYLOADS; i++)
		memset(payloads[i], (int)i, PACKET);
	for (arg = 1; arg < argc; arg++)
		run(argv[arg]);
	return 0;
}
