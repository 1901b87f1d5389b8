/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/membarrier.h>
#include <sys/syscall.h>

#include <rte_cycles.h>

#include "capture.h"
#include "capture_instance.h"
#include "capture_slots.h"

/* An lcore that has not left the copying code after this time is reported as stuck. */
#define STUCK_MS 1000

static struct pmdscope_capture *retired;

uint64_t
pmdscope_capture_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void
pmdscope_capture_barrier_init(void)
{
	const long ret = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);

	__atomic_store_n(&pmdscope_capture_slots.asymmetric, ret == 0, __ATOMIC_RELAXED);
}

/* The control thread's side of pmdscope_capture_enter(). Fails only for lack of kernel memory. */
static bool
barrier(void)
{
	if (pmdscope_capture_slots.asymmetric)
		return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
	rte_smp_mb();
	return true;
}

bool
pmdscope_capture_lcore_polls(unsigned int lcore)
{
	return __atomic_load_n(&pmdscope_lcores[lcore].polls, __ATOMIC_RELAXED) != 0 ||
	       __atomic_load_n(&pmdscope_capture_slots.seen[lcore], __ATOMIC_RELAXED) != 0;
}

struct pmdscope_capture *
pmdscope_capture_create(const struct pmdscope_capture_spec *spec)
{
	struct pmdscope_capture *capture;
	struct pmdscope_capture_producer *p;
	unsigned int lcore;

	capture = aligned_alloc(
			RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(sizeof(*capture), RTE_CACHE_LINE_SIZE));
	if (capture == NULL)
		return NULL;
	memset(capture, 0, sizeof(*capture));
	capture->spec = *spec;
	capture->sample = spec->sample;
	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		p = &capture->producers[lcore];
		p->sample = spec->sample;
		p->sampling.random = rte_rdtsc() + lcore;
		pmdscope_sampling_begin(&p->sampling, spec->sample);
	}
	capture->slot = PMDSCOPE_CAPTURE_SLOTS;
	capture->bytes = sizeof(*capture);
	return capture;
}

void
pmdscope_capture_resample(struct pmdscope_capture *capture, uint32_t sample)
{
	__atomic_store_n(&capture->sample, RTE_MAX(sample, 1U), __ATOMIC_RELAXED);
}

static uint32_t
ring_features(const struct pmdscope_capture_spec *spec)
{
	return PMDSCOPE_RING_F_GAPS | PMDSCOPE_RING_F_MAPPED |
	       (spec->packet_tsc ? PMDSCOPE_RING_F_PACKET_TSC : 0) |
	       (spec->leaked ? 0 : PMDSCOPE_RING_F_RESAMPLE | PMDSCOPE_RING_F_IN_BURST);
}

int
pmdscope_capture_add_ring(struct pmdscope_capture *capture, unsigned int lcore, const char **step)
{
	const struct pmdscope_capture_spec *spec = &capture->spec;
	struct pmdscope_capture_ring *ring;

	ring = pmdscope_capture_ring_create(spec->leaked ? PMDSCOPE_CAPTURE_LCORE_CONTROL : lcore,
			spec->ring_size, spec->snaplen, ring_features(spec), step);
	if (ring == NULL)
		return -errno;
	capture->nb_rings++;
	capture->bytes += pmdscope_capture_ring_bytes(spec->ring_size);
	__atomic_store_n(&capture->producers[lcore].ring, ring, __ATOMIC_RELEASE);
	return 0;
}

static void
capture_free(struct pmdscope_capture *capture)
{
	unsigned int lcore;

	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
		if (capture->producers[lcore].ring != NULL)
			pmdscope_capture_ring_free(capture->producers[lcore].ring);
	free(capture->leaks);
	free(capture);
}

bool
pmdscope_capture_arm(struct pmdscope_capture *capture)
{
	unsigned int i;

	for (i = 0; i < PMDSCOPE_CAPTURE_SLOTS; i++) {
		if (pmdscope_capture_slots.captures[i] != NULL)
			continue;
		capture->slot = i;
		__atomic_store_n(&pmdscope_capture_slots.captures[i], capture, __ATOMIC_RELEASE);
		__atomic_store_n(&pmdscope_tee_armed, &pmdscope_capture_slots, __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

void
pmdscope_capture_disarm(struct pmdscope_capture *capture)
{
	unsigned int i;

	if (capture->slot == PMDSCOPE_CAPTURE_SLOTS)
		return;
	__atomic_store_n(&pmdscope_capture_slots.captures[capture->slot], NULL, __ATOMIC_RELEASE);
	capture->slot = PMDSCOPE_CAPTURE_SLOTS;
	for (i = 0; i < PMDSCOPE_CAPTURE_SLOTS; i++)
		if (pmdscope_capture_slots.captures[i] != NULL)
			return;
	__atomic_store_n(&pmdscope_tee_armed, NULL, __ATOMIC_RELEASE);
}

/*
 * No lcore can use a disarmed capture any more: each has left the copying code since, or entered it
 * anew.
 */
static bool
unused(struct pmdscope_capture *capture)
{
	unsigned int lcore;
	uint32_t seq;

	if (!capture->fenced) {
		if (!barrier())
			return false;
		for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
			capture->seqs[lcore] = __atomic_load_n(
					&pmdscope_lcores[lcore].tee_seq, __ATOMIC_ACQUIRE);
		capture->fenced = true;
	}
	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		seq = __atomic_load_n(&pmdscope_lcores[lcore].tee_seq, __ATOMIC_ACQUIRE);
		if ((capture->seqs[lcore] & 1) != 0 && seq == capture->seqs[lcore])
			return false;
	}
	return true;
}

void
pmdscope_capture_retire(struct pmdscope_capture *capture)
{
	pmdscope_capture_disarm(capture);
	capture->retired_ms = pmdscope_capture_now_ms();
	capture->next = retired;
	retired = capture;
	pmdscope_capture_reclaim();
}

bool
pmdscope_capture_reclaim(void)
{
	struct pmdscope_capture **link = &retired;
	struct pmdscope_capture *capture;

	while ((capture = *link) != NULL) {
		if (unused(capture)) {
			*link = capture->next;
			capture_free(capture);
		} else {
			link = &capture->next;
		}
	}
	return retired == NULL;
}

uint64_t
pmdscope_capture_retired_bytes(void)
{
	const struct pmdscope_capture *capture;
	uint64_t sum = 0;

	for (capture = retired; capture != NULL; capture = capture->next)
		sum += capture->bytes;
	return sum;
}

uint64_t
pmdscope_capture_abandoned_bytes(void)
{
	const uint64_t now = pmdscope_capture_now_ms();
	const struct pmdscope_capture *capture;
	uint64_t sum = 0;

	for (capture = retired; capture != NULL; capture = capture->next)
		if (now - capture->retired_ms >= STUCK_MS)
			sum += capture->bytes;
	return sum;
}

uint64_t
pmdscope_capture_foreign_bursts(void)
{
	return __atomic_load_n(&pmdscope_capture_slots.foreign_bursts, __ATOMIC_RELAXED);
}
