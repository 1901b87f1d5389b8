/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_LAUNCH_H
#define PDUMP_LAUNCH_H

#include "failure.h"
#include "options.h"

/*
 * Give up all rights that the app lacks, before anything is read that the app controls: its user, groups and
 * namespaces, no more capabilities, and no descriptors, variables or files of the environment of this process
 * that it does not need. Until then, only what the kernel says of the app's process is used.
 *
 * In another PID namespace, this function returns in a child process; the parent waits for it, and ends as it
 * does. The program may be executed again, with the same arguments. The options and $RUNTIME_DIRECTORY, which
 * leads to the app's runtime directory as seen from here, then are as the app has them. 0, or -1 with the
 * failure.
 */
int launch(struct options *options, char **argv, struct failure *failure);

#endif /* PDUMP_LAUNCH_H */
