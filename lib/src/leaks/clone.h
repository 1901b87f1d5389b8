/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CLONE_H
#define PMDSCOPE_CLONE_H

/*
 * Indirect mbufs: a clone copies the stamp of the direct mbuf, and keeps that mbuf from being
 * freed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "classify.h"

/* If a missed object is a clone, notes that its stamp may not be its own. */
void pmdscope_clone_note(struct pmdscope_mark *mark, uintptr_t object);

/* Notes in the mark of the direct mbuf that this object, if it is a clone of it, was met. */
void pmdscope_clone_pin_direct(const struct pmdscope_walk_context *ctx,
		const struct pmdscope_mark *mark, uintptr_t object);

/* This walk or the previous one has found a clone of it. */
bool pmdscope_clone_pins(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark);

/* As pmdscope_clone_pins(), by a clone that is not lost. */
bool pmdscope_clone_alive_pins(
		const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark);

#endif /* PMDSCOPE_CLONE_H */
