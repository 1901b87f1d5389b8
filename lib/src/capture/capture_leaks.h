/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_LEAKS_H
#define PMDSCOPE_CAPTURE_LEAKS_H

/* Captures of lost mbufs: the control thread is their producer. State lock held. */

#include <stdbool.h>

#include "capture_instance.h"

struct pmdscope_capture_leaks *pmdscope_capture_leak_create(void);

/* Write for about a millisecond at most. True once every requested lost mbuf is written. */
bool pmdscope_capture_leak_tick(struct pmdscope_capture *capture);

#endif /* PMDSCOPE_CAPTURE_LEAKS_H */
