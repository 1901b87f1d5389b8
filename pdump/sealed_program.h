/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_SEALED_PROGRAM_H
#define PDUMP_SEALED_PROGRAM_H

#include "failure.h"

/*
 * Through /proc/PID/exe, processes of a container could open the file of this program, and as root write to
 * it later. So it is executed again, with the same arguments, in a copy in memory that cannot be changed; there,
 * this returns 0. -1 with the failure.
 */
int run_sealed(char **argv, struct failure *failure);

#endif /* PDUMP_SEALED_PROGRAM_H */
