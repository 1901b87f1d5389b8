/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "page.h"
#include "capture_leaks.h"
#include "capture_session.h"
#include "headroom.h"

/* Add a row for an lcore to /pmdscope/tee. */
static void
list(struct pmdscope_capture *capture, unsigned int lcore)
{
	if (capture->watch[lcore].listed)
		return;
	capture->watch[lcore].listed = true;
	pmdscope_rows_changed();
}

static unsigned int
count_polling(void)
{
	unsigned int lcore, n = 0;

	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
		n += pmdscope_capture_lcore_polls(lcore);
	return n;
}

/* Rings of a capture that begins now. */
static unsigned int
count_rings(const struct pmdscope_capture_spec *spec)
{
	return spec->leaked ? 1 : RTE_MAX(count_polling(), 1U);
}

/* Choose a ring size that the session's memory limit allows; text describes the change. */
static int
fit_rings(struct pmdscope_capture_spec *spec, uint64_t max_bytes, char *text, size_t size)
{
	const unsigned int rings = count_rings(spec);
	const uint32_t asked_size = spec->ring_size, asked_snaplen = spec->snaplen;

	while (spec->ring_size > PMDSCOPE_RING_MIN_SIZE &&
			rings * (uint64_t)spec->ring_size > max_bytes)
		spec->ring_size /= 2;
	if (rings * (uint64_t)spec->ring_size > max_bytes) {
		snprintf(text, size,
				"ring_size: %u lcores do not fit the app's limit of %" PRIu64
				" MiB (tee_session_mb)",
				rings, max_bytes >> 20);
		return -ENOMEM;
	}
	spec->snaplen = pmdscope_capture_ring_snaplen(spec->ring_size, spec->snaplen);
	text[0] = '\0';
	if (spec->ring_size < asked_size)
		snprintf(text, size,
				"ring_size reduced to %u: %u lcores share %" PRIu64
				" MiB (tee_session_mb)",
				spec->ring_size, rings, max_bytes >> 20);
	else if (spec->snaplen < asked_snaplen)
		snprintf(text, size, "snaplen reduced to %u: half of ring_size", spec->snaplen);
	return 0;
}

static uint64_t
bytes_of(unsigned int rings, uint32_t ring_size)
{
	return sizeof(struct pmdscope_capture) + rings * pmdscope_capture_ring_bytes(ring_size);
}

/* The largest ring size of at most `most` for which there is memory, or 0. */
static uint32_t
largest_ring(unsigned int rings, uint32_t most, uint64_t usable)
{
	while (most >= PMDSCOPE_RING_MIN_SIZE && bytes_of(rings, most) > usable)
		most /= 2;
	return most >= PMDSCOPE_RING_MIN_SIZE ? most : 0;
}

/* Refuse rings that would take the last memory of the app's cgroups or of the host. */
static int
check_memory(const struct pmdscope_capture_spec *spec, uint32_t *fits, char *text, size_t size)
{
	const unsigned int rings = count_rings(spec);
	const struct pmdscope_headroom headroom = pmdscope_headroom_now();
	const uint64_t usable = pmdscope_headroom_usable(&headroom);
	int len;

	*fits = largest_ring(rings, spec->ring_size, usable);
	if (*fits == spec->ring_size)
		return 0;
	len = snprintf(text, size,
			"ring_size: no memory for %u x %u KiB: the %s has %" PRIu64
			" MiB left, %" PRIu64 " stay free; ",
			rings, spec->ring_size >> 10, headroom.cgroup ? "app's cgroup" : "host",
			headroom.bytes >> 20, (headroom.bytes - usable) >> 20);
	if (len < 0 || (size_t)len >= size)
		return -ENOMEM;
	if (*fits != 0)
		snprintf(text + len, size - (size_t)len, "%u KiB fit", *fits >> 10);
	else
		snprintf(text + len, size - (size_t)len, "no size fits");
	return -ENOMEM;
}

/* Create the rings of all lcores that poll now. */
static int
add_rings(struct pmdscope_capture *capture, char *why, size_t size)
{
	const char *step;
	unsigned int lcore;
	int ret;

	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		if (!pmdscope_capture_lcore_polls(lcore))
			continue;
		ret = pmdscope_capture_add_ring(capture, lcore, &step);
		if (ret < 0) {
			snprintf(why, size, "ring of lcore %u: %s: %s", lcore, step,
					strerror(-ret));
			return ret;
		}
		list(capture, lcore);
	}
	return 0;
}

/* The one ring of a capture of lost mbufs. */
static int
add_leak_ring(struct pmdscope_capture *capture, char *why, size_t size)
{
	const char *step = "malloc";
	int ret = -ENOMEM;

	capture->leaks = pmdscope_capture_leak_create();
	if (capture->leaks != NULL)
		ret = pmdscope_capture_add_ring(capture, 0, &step);
	if (ret < 0)
		snprintf(why, size, "ring of lost mbufs: %s: %s", step, strerror(-ret));
	else
		list(capture, 0);
	return ret;
}

int
pmdscope_capture_session_open(struct pmdscope_capture_spec *spec, uint64_t max_bytes,
		struct pmdscope_capture **result, uint32_t *fits, char *text, size_t size)
{
	struct pmdscope_capture *capture;
	int ret;

	*fits = 0;
	ret = fit_rings(spec, max_bytes, text, size);
	if (ret == 0)
		ret = check_memory(spec, fits, text, size);
	if (ret < 0)
		return ret;
	capture = pmdscope_capture_create(spec);
	if (capture == NULL) {
		snprintf(text, size, "no memory for a capture");
		return -ENOMEM;
	}
	capture->max_bytes = max_bytes;
	ret = spec->leaked ? add_leak_ring(capture, text, size) : add_rings(capture, text, size);
	if (ret == 0 && !spec->leaked && !pmdscope_capture_arm(capture)) {
		snprintf(text, size, "no free slot for a capture");
		ret = -EBUSY;
	}
	if (ret == 0) {
		*result = capture;
		return 0;
	}
	pmdscope_capture_retire(capture);
	/* The memory has been taken meanwhile. */
	if (ret == -ENOMEM && check_memory(spec, fits, text, size) == 0)
		*fits = 0;
	return ret;
}

/* A full ring whose tail has not moved for the time of the lease. */
static bool
lease_expired(struct pmdscope_capture_watch *watch, const struct pmdscope_capture_producer *p,
		uint32_t lease_ms, uint64_t now_ms)
{
	const uint64_t tail = pmdscope_capture_ring_tail(p->ring);

	if (!__atomic_load_n(&p->full, __ATOMIC_RELAXED) || tail != watch->tail ||
			tail == __atomic_load_n(&p->head, __ATOMIC_RELAXED)) {
		watch->tail = tail;
		watch->since_ms = 0;
		return false;
	}
	if (watch->since_ms == 0)
		watch->since_ms = now_ms;
	return now_ms - watch->since_ms >= lease_ms;
}

/* Only for lcores with a ring. */
static int
tick_ring(struct pmdscope_capture *capture, unsigned int lcore, uint64_t now_ms, char *why,
		size_t size)
{
	const struct pmdscope_capture_producer *p = &capture->producers[lcore];

	if (__atomic_load_n(&p->broken, __ATOMIC_RELAXED)) {
		snprintf(why, size, "lcore %u: the consumer's tail went back or beyond head",
				lcore);
		return EPROTO;
	}
	if (lease_expired(&capture->watch[lcore], p, capture->spec.lease_ms, now_ms)) {
		snprintf(why, size, "lcore %u: a full ring was not read for %u ms", lcore,
				capture->spec.lease_ms);
		return ETIMEDOUT;
	}
	pmdscope_capture_ring_take_tail(p->ring);
	pmdscope_capture_ring_anchor(p->ring);
	return 0;
}

int
pmdscope_capture_session_mapped(struct pmdscope_capture *capture, uint32_t lcore)
{
	struct pmdscope_capture_ring *ring = NULL;

	if (capture->spec.leaked && lcore == PMDSCOPE_CAPTURE_LCORE_CONTROL)
		lcore = 0;
	else if (capture->spec.leaked)
		return -EPROTO;
	if (lcore < RTE_MAX_LCORE)
		ring = capture->producers[lcore].ring;
	return ring == NULL ? -EPROTO : pmdscope_capture_ring_seal_tail(ring);
}

/*
 * Create a ring for an lcore that began to poll after the capture did. Until then its packets are
 * dropped.
 */
static void
add_late_ring(struct pmdscope_capture *capture, unsigned int lcore)
{
	const char *step = "tee_session_mb";
	int ret = -ENOMEM;

	list(capture, lcore);
	if ((capture->nb_rings + 1) * (uint64_t)capture->spec.ring_size <= capture->max_bytes)
		ret = pmdscope_capture_add_ring(capture, lcore, &step);
	if (ret < 0 && !capture->lacks_ring)
		PMDSCOPE_LOG(WARNING,
				"capture %" PRIu64 ": no ring for lcore %u, its packets count "
				"as dropped: %s: %s",
				capture->id, lcore, step, strerror(-ret));
	capture->lacks_ring |= ret < 0;
}

int
pmdscope_capture_session_tick(
		struct pmdscope_capture *capture, uint64_t now_ms, char *why, size_t size)
{
	unsigned int lcore;
	int error;

	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		if (capture->producers[lcore].ring == NULL) {
			if (!capture->spec.leaked && pmdscope_capture_lcore_polls(lcore))
				add_late_ring(capture, lcore);
			continue;
		}
		error = tick_ring(capture, lcore, now_ms, why, size);
		if (error != 0)
			return error;
	}
	return 0;
}
