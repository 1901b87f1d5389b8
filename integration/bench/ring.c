/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * Alternatives for moving packets through a capture ring, in TSC cycles per packet of the writing
 * and of the reading thread, each on a separate CPU. Windows of all variants are interleaved, and
 * each is compared with the first of its round.
 *
 *   as it is   what lcores and `pmdscope capture` do: small packets are copied out of the ring in
 *              parts of 256 KiB, and encoded from there; large ones are read where they are
 *   again      the same once more: the noise of this measurement
 *   view       small packets as well are read where they are
 *   ahead      as view, and the header of the packet after the next is prefetched, at a guess
 *   streamed   payloads of 512 bytes or more are written with non-temporal stores
 *   huge       the ring is in huge pages (MADV_COLLAPSE, whatever shmem_enabled says)
 *
 * usage: pmdscope-bench-ring WRITER-CPU READER-CPU
 */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <emmintrin.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_memcpy.h>
#include <rte_pause.h>
#include <rte_prefetch.h>

#include <pmdscope_ring.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define BURST 32
#define ROUNDS 15
#define RING_SIZE (8U << 20)
#define HUGE_PAGE (2U << 20)
#define PART (256U << 10)
#define FILE_SIZE (64U << 20)
#define NB_BUFFERS 256
#define WINDOW_BYTES (48U << 20)
#define READER_US 500
/* Bytes of a packet that `pmdscope capture` does not copy out of the ring. */
#define LARGE 512
#define AHEAD 2
/* In a longer burst, or read of the ring, the thread has lost its CPU. */
#define LOST_CPU_US 1000

enum variant { AS_IS, AGAIN, VIEW, VIEW_AHEAD, STREAMED, HUGE, NB_VARIANTS };

static const char *const names[NB_VARIANTS] = { "as it is", "again", "view", "ahead", "streamed",
	"huge" };

/* Shared by both sides of a window. */
struct window {
	enum variant variant;
	uint32_t size;	   /* Of a packet. */
	uint64_t interval; /* Cycles from burst to burst. */
	uint64_t packets;
	uint8_t *data;
	uint64_t head __rte_cache_aligned;
	uint64_t written, writer_cycles;
	uint64_t tail __rte_cache_aligned;
	uint64_t read, reader_cycles;
};

static uint8_t *ordinary, *huge;
static uint8_t buffers[NB_BUFFERS][2048] __rte_cache_aligned;
static uint8_t payload[2048];
static uint8_t *file, *part;
static uint64_t lost_cpu;
static double results[2][NB_VARIANTS][ROUNDS];

static void
fail(const char *what)
{
	fprintf(stderr, "ring: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void
pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		fail("sched_setaffinity");
}

static uint32_t
record_size(uint32_t caplen)
{
	return RTE_ALIGN_CEIL(
			(uint32_t)sizeof(struct pmdscope_record) + caplen, PMDSCOPE_RING_ALIGN);
}

static __rte_always_inline void
copy_streamed(uint8_t *to, const uint8_t *from, uint32_t len)
{
	uint32_t at;

	for (at = 0; at + 16 <= len; at += 16)
		_mm_stream_si128((__m128i *)(to + at),
				_mm_loadu_si128((const __m128i *)(from + at)));
	memcpy(to + at, from + at, len - at);
}

/* As in capture_write.h; false if there is no room. */
static __rte_always_inline bool
put(struct window *w, uint64_t *head, uint64_t tail, const uint8_t *pkt, const bool streamed)
{
	const uint32_t size = record_size(w->size);
	const uint64_t at = *head & (RING_SIZE - 1), left = RING_SIZE - at;
	const uint64_t pad = size > left ? left : 0;
	struct pmdscope_record *rec = (struct pmdscope_record *)(w->data + at);

	if (*head - tail + pad + size > RING_SIZE)
		return false;
	if (unlikely(pad != 0)) {
		rec->size = (uint32_t)pad;
		rec->type = PMDSCOPE_RECORD_PAD;
		*head += pad;
		rec = (struct pmdscope_record *)w->data;
	}
	if (streamed)
		copy_streamed((uint8_t *)(rec + 1), pkt, w->size);
	else
		rte_memcpy(rec + 1, pkt, w->size);
	*rec = (struct pmdscope_record){
		.size = size, .type = PMDSCOPE_RECORD_PACKET, .caplen = w->size, .len = w->size
	};
	*head += size;
	return true;
}

static __rte_always_inline void
write_packets(struct window *w, const bool streamed)
{
	uint64_t head = 0, due = rte_rdtsc(), begin, span, tail, done = 0;
	unsigned int next = 0, i;

	while (done < w->packets) {
		/* Data that a driver would have written. */
		for (i = 0; i < BURST; i++)
			rte_memcpy(buffers[(next + i) % NB_BUFFERS], payload, w->size);
		while ((begin = rte_rdtsc()) < due)
			rte_pause();
		due += w->interval;
		tail = __atomic_load_n(&w->tail, __ATOMIC_ACQUIRE);
		for (i = 0; i < BURST; i++)
			if (!put(w, &head, tail, buffers[(next + i) % NB_BUFFERS], streamed))
				break;
		if (streamed)
			_mm_sfence();
		__atomic_store_n(&w->head, head, __ATOMIC_RELEASE);
		span = rte_rdtsc() - begin;
		next += BURST;
		done += BURST;
		if (i == BURST && span < lost_cpu) {
			w->written += BURST;
			w->writer_cycles += span;
		}
	}
	__atomic_store_n(&w->head, head | 1, __ATOMIC_RELEASE);
}

static void *
writer(void *arg)
{
	struct window *w = arg;

	if (w->variant == STREAMED)
		write_packets(w, true);
	else
		write_packets(w, false);
	return NULL;
}

/* A block of a file: a header, and the bytes of the packet. */
static __rte_always_inline uint32_t
encode(const struct pmdscope_record *rec, uint64_t *at)
{
	uint8_t *to = file + *at;

	memcpy(to, rec, sizeof(*rec));
	memcpy(to + sizeof(*rec), rec + 1, rec->caplen);
	*at += rec->size;
	if (*at > FILE_SIZE - 4096)
		*at = 0;
	return rec->size;
}

/* Read packets up to `end` in place; returns their number. */
static __rte_always_inline uint64_t
read_records(const uint8_t *bytes, uint32_t end, uint64_t *at, const bool ahead)
{
	const struct pmdscope_record *rec;
	uint64_t packets = 0;
	uint32_t offset;

	for (offset = 0; offset < end; offset += rec->size) {
		rec = (const struct pmdscope_record *)(bytes + offset);
		if (ahead && offset + AHEAD * rec->size < end) {
			rte_prefetch0((const uint8_t *)rec + AHEAD * rec->size);
			rte_prefetch0((const uint8_t *)rec + AHEAD * rec->size + 64);
		}
		if (rec->type != PMDSCOPE_RECORD_PACKET)
			continue;
		encode(rec, at);
		packets++;
	}
	return packets;
}

/* Contiguous bytes; for small packets at most the size of a part. */
static uint64_t
read_some(struct window *w, uint64_t *tail, uint64_t head, uint64_t *at)
{
	const uint64_t from = *tail & (RING_SIZE - 1);
	uint32_t bytes = (uint32_t)RTE_MIN(head - *tail, RING_SIZE - from), size;
	const bool copies = w->size < LARGE && w->variant != VIEW && w->variant != VIEW_AHEAD;

	if (!copies) {
		*tail += bytes;
		return w->variant == VIEW_AHEAD ? read_records(w->data + from, bytes, at, true)
						: read_records(w->data + from, bytes, at, false);
	}
	/* Records have one size, so a part contains whole ones. */
	size = record_size(w->size);
	if (bytes > PART / size * size)
		bytes = PART / size * size;
	rte_memcpy(part, w->data + from, bytes);
	*tail += bytes;
	return read_records(part, bytes, at, false);
}

static void
read_packets(struct window *w)
{
	uint64_t head, tail = 0, at = 0, begin, span, packets;
	bool over = false;

	while (!over) {
		head = __atomic_load_n(&w->head, __ATOMIC_ACQUIRE);
		over = head & 1;
		head &= ~UINT64_C(1);
		while (tail < head) {
			begin = rte_rdtsc();
			packets = read_some(w, &tail, head, &at);
			span = rte_rdtsc() - begin;
			__atomic_store_n(&w->tail, tail, __ATOMIC_RELEASE);
			if (span < 10 * lost_cpu) {
				w->read += packets;
				w->reader_cycles += span;
			}
		}
		nanosleep(&(struct timespec){ .tv_nsec = READER_US * 1000L }, NULL);
	}
}

static void
measure(enum variant variant, uint32_t size, uint64_t interval, int round, const int cpus[2])
{
	struct window w = { .variant = variant,
		.size = size,
		.interval = interval,
		.packets = WINDOW_BYTES / record_size(size) / BURST * BURST,
		.data = variant == HUGE ? huge : ordinary };
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t set;

	pin(cpus[1]);
	CPU_ZERO(&set);
	CPU_SET(cpus[0], &set);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	if (pthread_create(&thread, &attr, writer, &w) != 0)
		fail("pthread_create");
	read_packets(&w);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	results[0][variant][round] = (double)w.writer_cycles / (double)RTE_MAX(w.written, 1U);
	results[1][variant][round] = (double)w.reader_cycles / (double)RTE_MAX(w.read, 1U);
}

/* As in the library, at an address that is suitable for huge pages. */
static uint8_t *
map_ring(bool collapse)
{
	const int fd = memfd_create("bench-ring", MFD_CLOEXEC);
	uint8_t *space = mmap(
			NULL, RING_SIZE + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *ring;

	if (fd < 0 || space == MAP_FAILED || ftruncate(fd, RING_SIZE) < 0)
		fail("memory of a ring");
	ring = RTE_PTR_ALIGN_CEIL(space, HUGE_PAGE);
	ring = mmap(ring, RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (ring == MAP_FAILED)
		fail("memory of a ring");
	memset(ring, 0, RING_SIZE);
	if (collapse && madvise(ring, RING_SIZE, MADV_COLLAPSE) < 0) {
		printf("no huge pages: MADV_COLLAPSE: %s\n", strerror(errno));
		return NULL;
	}
	return ring;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
print_side(const char *side, double of[NB_VARIANTS][ROUNDS])
{
	double sorted[ROUNDS];
	enum variant v;
	int i;

	for (v = AS_IS; v < NB_VARIANTS; v++) {
		if (of[v][0] == 0)
			continue;
		for (i = 0; i < ROUNDS; i++)
			sorted[i] = of[v][i] - (v == AS_IS ? 0 : of[AS_IS][i]);
		qsort(sorted, ROUNDS, sizeof(double), by_value);
		printf("  %s %-9s %+7.1f [%+.1f .. %+.1f]\n", side, names[v], sorted[ROUNDS / 2],
				sorted[ROUNDS / 4], sorted[ROUNDS * 3 / 4]);
	}
}

static void
run(uint32_t size, uint64_t rate, uint64_t hz, const int cpus[2])
{
	enum variant v;
	int i;

	memset(results, 0, sizeof(results));
	for (i = 0; i < ROUNDS; i++)
		for (v = AS_IS; v < NB_VARIANTS; v++)
			if ((v != HUGE || huge != NULL) && (v != STREAMED || size >= LARGE))
				measure(v, size, BURST * hz / rate, i, cpus);
	printf("%u B, %.1f Mpps\n", size, (double)rate / 1e6);
	print_side("writer", results[0]);
	print_side("reader", results[1]);
	fflush(stdout);
}

static uint64_t
measure_hz(void)
{
	const uint64_t begin = rte_rdtsc();

	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	return (rte_rdtsc() - begin) * 10;
}

int
main(int argc, char **argv)
{
	const uint64_t hz = measure_hz();
	int cpus[2];

	if (argc != 3) {
		fprintf(stderr, "usage: pmdscope-bench-ring WRITER-CPU READER-CPU\n");
		return 2;
	}
	cpus[0] = atoi(argv[1]);
	cpus[1] = atoi(argv[2]);
	lost_cpu = hz / 1000000 * LOST_CPU_US;
	memset(payload, 0x5a, sizeof(payload));
	file = malloc(FILE_SIZE);
	part = malloc(PART);
	if (file == NULL || part == NULL)
		fail("malloc");
	memset(file, 0, FILE_SIZE);
	ordinary = map_ring(false);
	huge = map_ring(true);
	printf("cycles per packet; of all but the first what is added; %d rounds\n", ROUNDS);
	run(64, 4000000, hz, cpus);
	run(1500, 500000, hz, cpus);
	run(1500, 1000000, hz, cpus);
	return 0;
}
