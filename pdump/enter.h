/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ENTER_H
#define PDUMP_ENTER_H

#include "failure.h"
#include "options.h"

/*
 * Go where the app runs, as in a container: into its namespaces, with its user and groups and no
 * capability, and with no files but those of its runtime directory and hugepages. What takes more rights
 * is opened before. $RUNTIME_DIRECTORY is where its runtime directory is seen from outside.
 *
 * The program begins anew, with the same arguments, in a copy that nobody in there can change. Then this
 * returns 0 in a child process, with the options and $RUNTIME_DIRECTORY as the app has them; the parent waits
 * for the child, and ends as it does. -1 with the failure.
 */
int enter_namespaces(struct options *options, char **argv, struct failure *failure);

#endif /* PDUMP_ENTER_H */
