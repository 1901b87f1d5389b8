/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "log.h"

/* For the sources that are shared with the library: what they log goes with the EAL's. */
int pmdscope_logtype = RTE_LOGTYPE_USER1;
