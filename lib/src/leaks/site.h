/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_SITE_H
#define PMDSCOPE_SITE_H

/*
 * The call sites of pmdscope_trace.h and the stages of pmdscope_stage(), by the number in their
 * stamps. Numbers never change while the process runs; any thread may look them up.
 */

#include <stdbool.h>
#include <stdint.h>

#include "page.h"

/* Numbers are below this; 0 is no site. The table is touched only as far as it is used. */
#define PMDSCOPE_SITES_MAX 4096
/* Stands for all code that takes mbufs from their pool without a stamp. */
#define PMDSCOPE_SITE_UNTRACED (PMDSCOPE_SITES_MAX - 2)

struct pmdscope_site_info {
	char name[PMDSCOPE_TEXT_MAX]; /* "file:line", or "stage NAME". */
	char function[64];	      /* Empty for a stage. */
	char operation[24];
	bool stage;
	bool hold;   /* May keep mbufs for any time. */
	bool source; /* Mbufs come into being here: where they were before is open. */
	bool rx;     /* Packets are received here. */
	bool clones; /* Stamps the clones that it makes. */
	bool keeps;  /* Stamps as free what the caller has still to put back. */
	bool ready;
};

/* NULL for 0 and for numbers that are not in use. */
const struct pmdscope_site_info *pmdscope_site_info(unsigned int id);

/* One more than the highest number in use. */
unsigned int pmdscope_site_end(void);

#endif /* PMDSCOPE_SITE_H */
