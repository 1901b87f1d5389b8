/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <rte_atomic.h>
#include <rte_lcore.h>

#include "clock.h"
#include "capture_ring.h"
#include "headroom.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Bytes that are allocated at once. */
#define STEP (UINT64_C(1) << 20)

#define SEALS_SIZE (F_SEAL_SHRINK | F_SEAL_GROW)

static size_t
page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

uint32_t
pmdscope_capture_ring_snaplen(uint32_t size, uint32_t snaplen)
{
	/* A record of at most half the ring fits next to any PAD record. */
	return RTE_MIN(snaplen, size / 2 - (uint32_t)sizeof(struct pmdscope_record));
}

uint64_t
pmdscope_capture_ring_bytes(uint32_t size)
{
	return PMDSCOPE_RING_HDR_SIZE + (uint64_t)size + page_size();
}

static int
create_memfd(const char *name)
{
	const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL ? memfd_create(name, flags) : fd;
}

/* Place memory on the lcore's NUMA node if the kernel can; otherwise access is just slower. */
static void
prefer_node(void *addr, size_t len, unsigned int lcore)
{
	/* The ring of the control thread belongs to no lcore. */
	const unsigned int node = lcore < RTE_MAX_LCORE ? rte_lcore_to_socket_id(lcore) : 0;
	const unsigned long mask = 1UL << (node % (sizeof(mask) * CHAR_BIT));

	if (lcore < RTE_MAX_LCORE && node < sizeof(mask) * CHAR_BIT)
		syscall(SYS_mbind, addr, len, MPOL_PREFERRED, &mask, sizeof(mask) * CHAR_BIT + 1,
				0);
}

/* Fill the page table now, so that the first bursts need not. */
static void
touch(volatile uint8_t *p, size_t len, int prot)
{
	const size_t page = page_size();
	size_t at;

	for (at = 0; at < len; at += page) {
		if ((prot & PROT_WRITE) != 0)
			p[at] = 0;
		else
			(void)p[at];
	}
}

/*
 * Allocate in steps, as the app and others in its cgroup may take memory meanwhile. Where a cgroup
 * has none left, fallocate() does not fail: the app is killed.
 */
static bool
allocate(int fd, size_t len, const char **step)
{
	size_t at, part;

	for (at = 0; at < len; at += part) {
		part = RTE_MIN(len - at, STEP);
		*step = "memory of the app's cgroup or host";
		errno = ENOMEM;
		if (!pmdscope_headroom_has(part))
			return false;
		*step = "fallocate";
		if (fallocate(fd, 0, (off_t)at, (off_t)part) < 0)
			return false;
	}
	return true;
}

/*
 * Size, map, allocate and seal a memfd, in the order that lets neither side fault later. NULL with
 * errno set.
 */
static void *
map_memfd(int fd, size_t len, int prot, int seals, unsigned int lcore, const char **step)
{
	void *addr;

	*step = "ftruncate";
	if (ftruncate(fd, (off_t)len) < 0)
		return NULL;
	*step = "mmap";
	addr = mmap(NULL, len, prot, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED)
		return NULL;
	prefer_node(addr, len, lcore);
	if (!allocate(fd, len, step))
		goto unmap;
	*step = "F_ADD_SEALS (needs Linux 5.1)";
	if (fcntl(fd, F_ADD_SEALS, seals) < 0)
		goto unmap;
	touch(addr, len, prot);
	return addr;
unmap:
	munmap(addr, len);
	return NULL;
}

/*
 * The sealed data memfd cannot be written in any case; opened read-only, its descriptor shows that.
 */
static void
reopen_read_only(int *fd)
{
	char path[32];
	int ro;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	if (ro < 0)
		return;
	close(*fd);
	*fd = ro;
}

static int
create_data(struct pmdscope_capture_ring *ring, unsigned int lcore, uint32_t features,
		const char **step)
{
	struct pmdscope_ring_hdr *hdr;

	*step = "memfd_create";
	ring->data_fd = create_memfd("pmdscope-ring");
	if (ring->data_fd < 0)
		return -1;
	hdr = map_memfd(ring->data_fd, PMDSCOPE_RING_HDR_SIZE + ring->size, PROT_READ | PROT_WRITE,
			F_SEAL_FUTURE_WRITE | F_SEAL_SEAL | SEALS_SIZE, lcore, step);
	if (hdr == NULL)
		return -1;
	reopen_read_only(&ring->data_fd);

	hdr->magic = PMDSCOPE_RING_MAGIC;
	hdr->version = PMDSCOPE_RING_VERSION;
	hdr->hdr_size = PMDSCOPE_RING_HDR_SIZE;
	hdr->data_size = (uint32_t)ring->size;
	hdr->record_size = sizeof(struct pmdscope_record);
	hdr->lcore = (uint16_t)lcore;
	hdr->features = features;
	hdr->snaplen = ring->snaplen;
	ring->hdr = hdr;
	ring->data = (uint8_t *)hdr + PMDSCOPE_RING_HDR_SIZE;
	pmdscope_capture_ring_anchor(ring);
	return 0;
}

static int
create_tail(struct pmdscope_capture_ring *ring, unsigned int lcore, const char **step)
{
	*step = "memfd_create";
	ring->tail_fd = create_memfd("pmdscope-tail");
	if (ring->tail_fd < 0)
		return -1;
	ring->page = map_memfd(ring->tail_fd, page_size(), PROT_READ, SEALS_SIZE, lcore, step);
	return ring->page == NULL ? -1 : 0;
}

struct pmdscope_capture_ring *
pmdscope_capture_ring_create(unsigned int lcore, uint32_t size, uint32_t snaplen, uint32_t features,
		const char **step)
{
	struct pmdscope_capture_ring *ring;
	int err;

	*step = "malloc";
	ring = calloc(1, sizeof(*ring));
	if (ring == NULL)
		return NULL;
	ring->size = size;
	ring->snaplen = pmdscope_capture_ring_snaplen(size, snaplen);
	ring->tail = &ring->taken_over;
	ring->data_fd = -1;
	ring->tail_fd = -1;
	if (create_data(ring, lcore, features, step) == 0 && create_tail(ring, lcore, step) == 0)
		return ring;
	err = errno;
	pmdscope_capture_ring_free(ring);
	errno = err;
	return NULL;
}

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void
pmdscope_capture_ring_close_data(struct pmdscope_capture_ring *ring)
{
	close_fd(&ring->data_fd);
}

int
pmdscope_capture_ring_seal_tail(struct pmdscope_capture_ring *ring)
{
	if (ring->data_fd >= 0 || ring->tail_fd < 0)
		return -EPROTO;
	if (fcntl(ring->tail_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	/* The page was allocated with the ring, and from now on cannot be removed. */
	if (lseek(ring->tail_fd, 0, SEEK_DATA) != 0)
		return -EPROTO;
	touch((volatile uint8_t *)(uintptr_t)ring->page, page_size(), PROT_READ);
	__atomic_store_n(&ring->tail, &ring->page->tail, __ATOMIC_RELEASE);
	close_fd(&ring->tail_fd);
	return 0;
}

void
pmdscope_capture_ring_take_tail(struct pmdscope_capture_ring *ring)
{
	uint64_t tail;

	if (ring->tail_fd >= 0 && pread(ring->tail_fd, &tail, sizeof(tail), 0) == sizeof(tail))
		__atomic_store_n(&ring->taken_over, tail, __ATOMIC_RELEASE);
}

void
pmdscope_capture_ring_free(struct pmdscope_capture_ring *ring)
{
	close_fd(&ring->data_fd);
	close_fd(&ring->tail_fd);
	if (ring->hdr != NULL)
		munmap(ring->hdr, PMDSCOPE_RING_HDR_SIZE + ring->size);
	if (ring->page != NULL)
		munmap((void *)(uintptr_t)ring->page, page_size());
	free(ring);
}

static void
store_anchor(struct pmdscope_anchor *to, const struct pmdscope_anchor *from)
{
	__atomic_store_n(&to->tsc, from->tsc, __ATOMIC_RELAXED);
	__atomic_store_n(&to->realtime_ns, from->realtime_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&to->raw_ns, from->raw_ns, __ATOMIC_RELAXED);
}

void
pmdscope_capture_ring_anchor(struct pmdscope_capture_ring *ring)
{
	const struct pmdscope_anchor *last = pmdscope_clock_last();
	struct pmdscope_ring_hdr *hdr = ring->hdr;
	const uint32_t seq = hdr->anchor_seq;

	if (seq != 0 && hdr->last.tsc == last->tsc)
		return;
	__atomic_store_n(&hdr->anchor_seq, seq + 1, __ATOMIC_RELAXED);
	rte_smp_wmb();
	store_anchor(&hdr->first, pmdscope_clock_first());
	store_anchor(&hdr->last, last);
	__atomic_store_n(&hdr->anchor_seq, seq + 2, __ATOMIC_RELEASE);
}
