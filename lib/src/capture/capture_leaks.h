/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_TEE_LEAK_H
#define PMDSCOPE_TEE_LEAK_H

/* Captures of lost mbufs: the control thread is their producer. State lock held. */

#include <stdbool.h>

#include "capture_instance.h"

struct pmdscope_tee_leaks *pmdscope_tee_leak_create(void);

/* Write for about a millisecond at most. True once every lost mbuf that is wanted is written. */
bool pmdscope_tee_leak_tick(struct pmdscope_tee_capture *capture);

#endif /* PMDSCOPE_TEE_LEAK_H */
