/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SERVER_H
#define PMDSCOPE_CAPTURE_SERVER_H

/* The connected consumers, for /pmdscope/tee. */

#include <stdbool.h>
#include <stdint.h>

#include <sys/types.h>

#include "capture_instance.h"

/*
 * A connection. Slots are static, so that an event which epoll_wait() reported before its
 * connection was closed finds a valid slot.
 */
struct pmdscope_capture_conn {
	int fd; /* -1 when free. */
	pid_t pid;
	uint64_t since_ms;
	unsigned int nb_changes;	  /* Since the last tick. */
	struct pmdscope_capture *capture; /* NULL until a request was accepted. */
	bool armed;
};

/* The i-th slot, free or not; NULL behind the last. */
const struct pmdscope_capture_conn *pmdscope_capture_conn(unsigned int i);

#endif /* PMDSCOPE_CAPTURE_SERVER_H */
