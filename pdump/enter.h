/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ENTER_H
#define PDUMP_ENTER_H

#include "failure.h"
#include "options.h"

/*
 * Enter the environment of the app, such as a container: its namespaces, with its user and groups,
 * no capability, and no files except its runtime directory and hugepages. Files that need more
 * rights are opened before. $RUNTIME_DIRECTORY leads to its runtime directory as seen from outside.
 *
 * The program is executed again, with the same arguments, in a copy that no process in there can
 * change. There this function returns 0 in a child process, with the options and $RUNTIME_DIRECTORY
 * as the app has them; the parent waits for the child, and ends as it does. -1 with the failure.
 */
int enter_namespaces(struct options *options, char **argv, struct failure *failure);

#endif /* PDUMP_ENTER_H */
