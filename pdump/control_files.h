/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_CONTROL_FILES_H
#define PDUMP_CONTROL_FILES_H

/*
 * The files by which the processes of an app share the state of its memory: its configuration and
 * the arrays of its memory segments and memzones. They contain all locks of the EAL, and a process
 * that is killed while it holds one leaves it held forever.
 *
 * So this process works on private copies, whose locks no other process uses, and never takes a lock of the
 * app. The app announces changes of its memory in a message; the copies are then made again.
 */

#include "app.h"
#include "failure.h"

/*
 * From here on, what the EAL maps of these files are copies. A copy of the configuration is made
 * when no lock is held in there; without such a moment the EAL fails, and control_files_held() says
 * which lock it was.
 */
void control_files_begin_attach(const struct app *app);

/* The lock for which there was no copy, or NULL. */
const char *control_files_held(void);

/*
 * The EAL is attached. 0, or -1 with the failure: EAGAIN when the app has changed its memory since, so
 * that what was mapped is of no use; only another process can try again.
 */
int control_files_end_attach(struct failure *failure);

/* Make the copies anew, to read from. */
void control_files_refresh(void);

/*
 * Tell the app that it has another process, so that it may not forbid that any more: one atomic write of one
 * byte. 0, or -1 with the failure.
 */
int control_files_announce(struct failure *failure);

#endif /* PDUMP_CONTROL_FILES_H */
