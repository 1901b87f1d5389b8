/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CAPTURE_LOAD_H
#define CAPTURE_LOAD_H

/* Two lcores that produce at full speed, and consumers of all their packets. */

#include "capture_test.h"

#define LOAD_WORKERS 2
#define LOAD_BURST 32

void load_start(void);
void load_stop(void);
/* Packets offered by a worker, once it was stopped. */
uint64_t load_offered(unsigned int lcore);

/* Attach and map the rings of main lcore and workers. Returns the socket. */
int load_attach(const struct request *req, struct reader readers[1 + LOAD_WORKERS]);
void load_detach(int fd, struct reader readers[1 + LOAD_WORKERS]);
/* Check that no session and no memory of one is left. */
void load_wait_until_freed(void);
/* Check that this is a complete packet of a worker. */
void load_check_packet(const struct pmdscope_record *rec);

#endif /* CAPTURE_LOAD_H */
