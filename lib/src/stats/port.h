/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PORT_H
#define PMDSCOPE_PORT_H

/* Events of ethdev ports: starts, stops, changes of the link. */

#include <stdint.h>

#include "page.h"

/* /pmdscope/ports. */
extern const struct pmdscope_table pmdscope_port_table;

/* State lock held in all of these. */
void pmdscope_port_start(void);
void pmdscope_port_stop(void);
/* A port is there, by this name; the same one or another than before. */
void pmdscope_port_see(uint16_t id, const char *device);
/* It is gone. */
void pmdscope_port_forget(uint16_t id);
/* Count what has changed since the last time. Calls no driver. */
void pmdscope_port_sample(void);

#endif /* PMDSCOPE_PORT_H */
