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
 * After this call the EAL maps copies of these files. A copy of the configuration is made when no
 * lock in it is held. If there is no such moment, the EAL fails, and control_files_held() returns
 * the lock.
 */
void control_files_begin_attach(const struct app *app);

/* The lock that prevented the copy, or NULL. */
const char *control_files_held(void);

/*
 * The EAL is attached. 0, or -1 with the failure: EAGAIN if the app has changed its memory since,
 * so that the mappings are of no use; only another process can try again.
 */
int control_files_end_attach(struct failure *failure);

/* Update the copies before they are read. */
void control_files_refresh(void);

/*
 * Record in the app that it has another process, so that it can no longer forbid that: one atomic
 * write of one byte. 0, or -1 with the failure.
 */
int control_files_announce(struct failure *failure);

#endif /* PDUMP_CONTROL_FILES_H */
