/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_PARKED_H
#define PDUMP_PARKED_H

/*
 * Parked states: what captures have left in an app that has removed a port or a queue of theirs. The
 * app does not call these callbacks, but keeps them, and calls them again once the id of the port is
 * used again. Until then, what such a callback needs is kept: its ring, an empty pool, and mbufs that
 * are in caches of lcores. All other memory is free for further captures.
 */

#include "app.h"
#include "line_set.h"
#include "ports.h"

/*
 * Undo what can be undone by now, and add the memory of the rest to `kept`. Only for the one process
 * that captures from the app, before it takes memory.
 */
void parked_clean(const struct app *app, const struct ports *ports, struct line_set *kept);

#endif /* PDUMP_PARKED_H */
