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

/* Numbers are below this; 0 is no site. Only the used part of the table takes memory. */
#define PMDSCOPE_SITES_MAX 4096
/* Stands for all code that takes mbufs from their pool without a stamp. */
#define PMDSCOPE_SITE_UNTRACED (PMDSCOPE_SITES_MAX - 2)

struct pmdscope_site_info {
	char name[PMDSCOPE_TEXT_MAX]; /* "file:line", or "stage NAME". */
	char function[64];	      /* Empty for a stage. */
	char operation[24];
	bool stage;
	bool hold;   /* May keep mbufs for any time. */
	bool source; /* Creates mbufs: their earlier place is unknown. */
	bool rx;     /* Packets are received here. */
	bool clones; /* Stamps the clones that it makes. */
	bool keeps;  /* Stamps as free, but the caller still has to put back. */
	bool ready;
};

/* NULL for 0 and for numbers that are not in use. */
const struct pmdscope_site_info *pmdscope_site_info(unsigned int id);

/* The highest number in use plus 1. */
unsigned int pmdscope_site_end(void);

#endif /* PMDSCOPE_SITE_H */
