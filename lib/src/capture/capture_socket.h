/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CAPTURE_SOCKET_H
#define PMDSCOPE_CAPTURE_SOCKET_H

/* The capture socket: its path, its permissions and its messages. Never blocks. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pmdscope_ring.h"
#include "capture_ring.h"

/*
 * Listen in the runtime directory of the EAL. Members of the group may connect as well when it is
 * not NULL. The descriptor, or a negative errno (already logged).
 */
int pmdscope_capture_socket_open(const char *group);

/* Close and, if the file is still this socket, remove it. */
void pmdscope_capture_socket_close(int fd);

/* Whether the process behind a connection may capture. Sets its pid in any case. */
bool pmdscope_capture_socket_allows(int fd, pid_t *pid);

/* Send a message, its text cut to fit. 0 or a negative errno: -EAGAIN from a peer that is slow. */
int pmdscope_capture_send(int fd, uint16_t kind, uint32_t value, const char *text);

/* Send a REFUSE message with the errno, and the largest ring size that fits, or 0. */
int pmdscope_capture_send_refusal(int fd, int error, uint32_t ring_size, const char *text);

/* Send the RING message of an lcore with its descriptors, then close that of the data here. */
int pmdscope_capture_send_ring(int fd, unsigned int lcore, struct pmdscope_capture_ring *ring);

#endif /* PMDSCOPE_CAPTURE_SOCKET_H */
