/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_RUNTIME_DIR_H
#define PDUMP_RUNTIME_DIR_H

#include "failure.h"

/*
 * Have the EAL use the runtime directory base/dpdk/file_prefix, by $RUNTIME_DIRECTORY. Only root and the user of
 * this process may have made it and what is above it: another user could offer files to this process that were
 * never those of its app. 0, or -1 with the failure.
 */
int runtime_dir_choose(const char *base, const char *file_prefix, struct failure *failure);

#endif /* PDUMP_RUNTIME_DIR_H */
