/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "log.h"

/* For the sources shared with the library: they log through the EAL. */
int pmdscope_logtype = RTE_LOGTYPE_USER1;
