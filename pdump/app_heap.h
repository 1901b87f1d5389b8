/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_APP_HEAP_H
#define PDUMP_APP_HEAP_H

/* Shortens what the EAL does in the heap of the app with its locks held. */

#include <stdbool.h>
#include <stddef.h>

/* May an allocation ask the app for hugepages? That takes it milliseconds. At first it may not. */
void app_heap_may_grow(bool may);

/*
 * Fill with zeros what this thread is about to free, so that the EAL need not do that. Nobody may
 * write to it any more.
 */
void app_heap_clear_early(void *addr, size_t len);

#endif /* PDUMP_APP_HEAP_H */
