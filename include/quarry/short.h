// SPDX-License-Identifier: MIT
// short.h: short names of the macros of pools, for a program that has no use of its own for them. QUARRY_NEW is p_new
// here.
//
//   p_     any pool: pool.h
//   t_     the scopes of the thread's stack: scope.h, which may be had alone
//   r_     the thread's ring: ring.h
//   fifo_  a FIFO without the indirect call: fifo.h
//
// No other public header defines a name that does not begin with quarry or QUARRY. tests/layers checks that.
#ifndef QUARRY_SHORT_H
#define QUARRY_SHORT_H

#include <quarry/fifo.h>
#include <quarry/ring.h>
#include <quarry/scope.h>

#define p_new(pool, T, n) QUARRY_NEW(pool, T, n)
#define p_new_raw(pool, T, n) QUARRY_NEW_RAW(pool, T, n)
#define p_new_extra(pool, T, extra) QUARRY_NEW_EXTRA(pool, T, extra)
#define p_new_extra_raw(pool, T, extra) QUARRY_NEW_EXTRA_RAW(pool, T, extra)
#define p_new_extra_field(pool, T, field, n) QUARRY_NEW_EXTRA_FIELD(pool, T, field, n)
#define p_new_extra_field_raw(pool, T, field, n) QUARRY_NEW_EXTRA_FIELD_RAW(pool, T, field, n)
#define p_renew(pool, pp, old_n, n) QUARRY_RENEW(pool, pp, old_n, n)
#define p_renew_raw(pool, pp, old_n, n) QUARRY_RENEW_RAW(pool, pp, old_n, n)
#define p_dup(pool, p, n) QUARRY_DUP(pool, p, n)
#define p_dupz(pool, s, n) QUARRY_DUPZ(pool, s, n)
#define p_strdup(pool, s) QUARRY_STRDUP(pool, s)
#define p_delete(pool, pp) QUARRY_DELETE(pool, pp)

#define r_pool() QUARRY_RING_POOL()
#define r_newframe() QUARRY_RING_NEWFRAME()
#define r_getframe() QUARRY_RING_GETFRAME()
#define r_seal() QUARRY_RING_SEAL()
#define r_release(frame) QUARRY_RING_RELEASE(frame)
#define r_checkpoint() QUARRY_RING_CHECKPOINT()
#define r_rewind(mark) QUARRY_RING_REWIND(mark)
#define r_new(T, n) QUARRY_RING_NEW(T, n)
#define r_new_raw(T, n) QUARRY_RING_NEW_RAW(T, n)
#define r_new_extra(T, extra) QUARRY_RING_NEW_EXTRA(T, extra)
#define r_new_extra_raw(T, extra) QUARRY_RING_NEW_EXTRA_RAW(T, extra)
#define r_new_extra_field(T, field, n) QUARRY_RING_NEW_EXTRA_FIELD(T, field, n)
#define r_new_extra_field_raw(T, field, n) QUARRY_RING_NEW_EXTRA_FIELD_RAW(T, field, n)
#define r_renew(pp, old_n, n) QUARRY_RING_RENEW(pp, old_n, n)
#define r_renew_raw(pp, old_n, n) QUARRY_RING_RENEW_RAW(pp, old_n, n)
#define r_dup(p, n) QUARRY_RING_DUP(p, n)
#define r_dupz(s, n) QUARRY_RING_DUPZ(s, n)
#define r_strdup(s) QUARRY_RING_STRDUP(s)

#define fifo_new(pool, T, n) QUARRY_FIFO_NEW(pool, T, n)
#define fifo_new_raw(pool, T, n) QUARRY_FIFO_NEW_RAW(pool, T, n)
#define fifo_delete(pool, pp) QUARRY_FIFO_DELETE(pool, pp)

#endif
