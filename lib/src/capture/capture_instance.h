/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_INSTANCE_H
#define PMDSCOPE_CAPTURE_INSTANCE_H

/*
 * A capture: what one session asked for and what the lcores write for it. The server
 * makes, arms, disarms and retires captures; lcores use them only while armed.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>

#include "filter.h"
#include "pmdscope_ring.h"
#include "capture_request.h"
#include "capture_ring.h"
#include "capture_sampling.h"

/*
 * The "lcore" of the ring of a capture of lost mbufs: it is written by the control thread, and is
 * number 0 of the capture's producers.
 */
#define PMDSCOPE_CAPTURE_LCORE_CONTROL 0xffffU

/* Captures that may be armed at once. */
#define PMDSCOPE_CAPTURE_SLOTS 8

/*
 * One lcore's side of a capture. The lcore alone writes it, with relaxed atomics where the control
 * thread reads along; only ring is written by the control thread, once, with release. Nothing in
 * here is shared with the consumer: what the consumer writes cannot change it.
 */
struct pmdscope_capture_producer {
	struct pmdscope_capture_ring *ring; /* NULL: every packet is dropped, and counted. */
	uint64_t head;			    /* Authoritative; that of the ring header is a copy. */
	uint64_t tail;			    /* The last tail accepted. */
	uint64_t records, dropped, filtered, sampled_out;
	struct pmdscope_sampling sampling;
	uint32_t sample; /* As last recorded in the ring. */
	uint8_t full;	 /* The last burst that was wanted did not fit. */
	uint8_t broken;	 /* The tail broke the rules; nothing is written any more. */
	uint32_t gap[RTE_MAX_ETHPORTS];
	uint64_t port_dropped[PMDSCOPE_RING_PORTS];
} __rte_cache_aligned;

/* How far a capture of lost mbufs has come; capture_leaks.c. */
struct pmdscope_capture_leaks;

/* What the control thread knows about a producer. */
struct pmdscope_capture_watch {
	uint64_t tail;	   /* The tail when it last moved... */
	uint64_t since_ms; /* ...or since when it has not moved at a full ring; 0 if neither. */
	bool listed;	   /* Has a row in /pmdscope/tee. */
};

struct pmdscope_capture {
	uint32_t sample;		   /* As of spec, until the consumer changes it. */
	struct pmdscope_capture_spec spec; /* Never changes while armed. */
	struct pmdscope_capture_producer producers[RTE_MAX_LCORE];

	/* Control thread only. */
	uint64_t id;
	unsigned int slot;
	unsigned int nb_rings;
	uint64_t bytes;	    /* Memory of the capture and its rings. */
	uint64_t max_bytes; /* Maximum for its rings. */
	bool lacks_ring;    /* No ring for an lcore that began late; logged. */
	struct pmdscope_capture_watch watch[RTE_MAX_LCORE];
	struct pmdscope_capture_leaks *leaks; /* Of a capture of lost mbufs. */

	/* Once retired. */
	struct pmdscope_capture *next;
	uint64_t retired_ms;
	bool fenced; /* seqs were taken behind a barrier. */
	uint32_t seqs[RTE_MAX_LCORE];
};

/* A disarmed capture without rings; NULL without memory. */
struct pmdscope_capture *pmdscope_capture_create(const struct pmdscope_capture_spec *spec);

/* Give an lcore its ring, armed or not. 0 or a negative errno, with the failed step in *step. */
int
pmdscope_capture_add_ring(struct pmdscope_capture *capture, unsigned int lcore, const char **step);

/* Make the lcores keep 1 packet in this many, from their next bursts on; 0 and 1 keep all. */
void pmdscope_capture_resample(struct pmdscope_capture *capture, uint32_t sample);

/* Publish it to the lcores in a free slot; false if no slot is free. */
bool pmdscope_capture_arm(struct pmdscope_capture *capture);

/* Hide it from lcores; those that use it at this moment finish. Idempotent. */
void pmdscope_capture_disarm(struct pmdscope_capture *capture);

/* Disarm and free, now or as soon as no lcore can use it any more. */
void pmdscope_capture_retire(struct pmdscope_capture *capture);

/* Free the retired captures that no lcore uses any more. True when none is left. */
bool pmdscope_capture_reclaim(void);

/* Memory of retired captures that could not be freed yet. */
uint64_t pmdscope_capture_retired_bytes(void);

/* This lcore has called pmdscope_poll(), or seen a burst while a capture was armed. */
bool pmdscope_capture_lcore_polls(unsigned int lcore);

/* Make arming possible: once, before the first capture. */
void pmdscope_capture_barrier_init(void);

/* CLOCK_MONOTONIC, milliseconds. */
uint64_t pmdscope_capture_now_ms(void);

#endif /* PMDSCOPE_CAPTURE_INSTANCE_H */
