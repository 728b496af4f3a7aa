/* SPDX-License-Identifier: Apache-2.0 */
/* What a child of fork inherits. It has the memory of its parent and the calling thread alone: threads are gone, locks that
 * another thread held stay locked, and what that thread was changing stays half changed. So a child may go on with the library
 * where no call was under way when the process forked, and is refused else. */
#ifndef ONNXFUSE_BASE_FORK_H
#define ONNXFUSE_BASE_FORK_H

#include "base/status.h"

/* How many forks the process has come through as the child, since the library was first called: what was made at another count
 * was made by a parent. */
unsigned fork_count(void);
/* A call of the library begins, and ends. Refused, and then not ended, in a child that was forked during one. */
Status fork_enter(void);
void fork_leave(void);

#endif
