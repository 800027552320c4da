/* SPDX-License-Identifier: MIT */
/* remote.pml: blocks of another heap's slab come home (src/heap/remote.c), for spin. tests/pool/models/run.py runs it.
 *
 * Two heaps, SLABS slabs of two blocks, two freers. A heap's owner (whoever holds its lock) gives blocks that are at home to
 * the freers, drains its mailbox, takes a slab over from the other heap, and releases slabs that are empty, which another heap may
 * get. A freer gathers blocks of one slab and publishes them as one chain. GIVEN blocks are given in all.
 *
 * Claims: a block is in one place; a chain is as long as its count says, and all of it is taken; a slab is in one mailbox at
 * most; only the holder of its heap's lock touches what is at home in a slab; a slab that is released has no block elsewhere and is in
 * no mailbox; in the end all blocks are at home.
 *
 * Broken variants, which must be caught:
 *   BROKEN_ALWAYS_PUSH   a publisher mails the slab although it is queued
 *   BROKEN_NEXT_LATE     the drainer reads the link to the next slab after it cleared QUEUED
 *   BROKEN_NO_FORWARD    the drainer takes the blocks of a slab that belongs to the other heap by now
 *   BROKEN_TWO_STEPS     the drainer reads the word and then clears it
 *   BROKEN_EMPTY         a slab is released when nothing of it is in its remote word, whatever a freer may hold
 */
#ifndef SLABS
#define SLABS 1
#endif
#ifndef GIVEN
#define GIVEN 4
#endif
#define BLOCKS (2 * SLABS)
#define NOBODY 255

mtype = { HOME, OUT, REMOTE };
mtype where[BLOCKS];          /* block b is of slab b / 2 */
byte link[BLOCKS];            /* the next of a chain: 0, or a block + 1 */
byte first[SLABS]; byte count[SLABS]; bool queued[SLABS];  /* together the slab's word: changed in one step */
byte heap_of[SLABS]; byte mail_next[SLABS];
byte boxes[SLABS];            /* how many mailboxes it is in */
byte box[2];                  /* 0, or the newest slab + 1 */
bool held[2];                 /* a heap's lock */
byte given, gone;             /* gone: freers that have ended */
chan hand[2] = [1] of { byte };

inline lock(h) { atomic { !held[h] -> held[h] = true } }
inline unlock(h) { held[h] = false }

/* Slab s into h's mailbox. */
inline mail(h, s) {
    atomic { assert(boxes[s] == 0); boxes[s]++; head = box[h] }
    do
    :: mail_next[s] = head;
       if
       :: atomic { box[h] == head -> box[h] = s + 1 }; break
       :: atomic { else -> head = box[h] }
       fi
    od
}

/* The holder of h's lock takes in what came. */
inline drain(h) {
    atomic { at = box[h]; box[h] = 0 }
    do
    :: at == 0 -> break
    :: else ->
       s = at - 1;
#ifndef BROKEN_NEXT_LATE
       at = mail_next[s];
#endif
       atomic { assert(boxes[s] == 1); boxes[s]-- }
       if
#ifndef BROKEN_NO_FORWARD
       :: heap_of[s] != h -> mail(heap_of[s], s)
#endif
       :: else ->
#ifdef BROKEN_TWO_STEPS
          atomic { b = first[s]; n = count[s] }
          atomic { first[s] = 0; count[s] = 0; queued[s] = false }
#else
          atomic { b = first[s]; n = count[s]; first[s] = 0; count[s] = 0; queued[s] = false }
#endif
          d_step {
              assert(heap_of[s] == h && n > 0);
              do
              :: b != 0 -> assert(n > 0 && where[b - 1] == REMOTE); where[b - 1] = HOME; n--; b = link[b - 1]
              :: else -> break
              od;
              assert(n == 0)
          }
       fi
#ifdef BROKEN_NEXT_LATE
       ; at = mail_next[s]
#endif
    od;
    at = 0; s = 0; b = 0; n = 0; head = 0
}

/* A freer's group of `group` blocks, newest `newest`, oldest `oldest`, all of slab g. */
inline publish() {
    atomic { old_first = first[g]; old_count = count[g]; old_queued = queued[g] }
    do
    :: link[oldest] = old_first;
       if
       :: atomic { first[g] == old_first && count[g] == old_count && queued[g] == old_queued ->
              first[g] = newest + 1; count[g] = old_count + group; queued[g] = true;
              b = newest + 1;
              do
              :: group > 0 -> where[b - 1] = REMOTE; b = link[b - 1]; group--
              :: else -> break
              od;
              b = 0
          }; break
       :: atomic { else -> old_first = first[g]; old_count = count[g]; old_queued = queued[g] }
       fi
    od;
    if
#ifndef BROKEN_ALWAYS_PUSH
    :: old_queued
#endif
    :: else ->
       h = heap_of[g];
       mail(h, g);
       if  /* nobody is attached: it is done for them, if the lock is free */
       :: atomic { !held[h] -> held[h] = true }; drain(h); unlock(h)
       :: true
       fi
    fi;
    old_first = 0; old_count = 0; old_queued = false; h = 0; g = NOBODY
}

proctype freer(byte me) {
    byte x, g = NOBODY, group, newest, oldest, old_first, old_count, h, head, at, s, b, n;
    bool old_queued;
    do
    :: hand[me]?x ->
       if
       :: g != NOBODY && g != x / 2 -> publish()
       :: else
       fi;
       if
       :: g == NOBODY -> g = x / 2; link[x] = 0; oldest = x; group = 1
       :: else -> link[x] = newest + 1; group++
       fi;
       newest = x; x = 0
    :: g != NOBODY -> publish()
    :: given == GIVEN && empty(hand[me]) && g == NOBODY -> break
    od;
    gone++
}

#ifdef BROKEN_EMPTY
#define EMPTY(s) (first[s] == 0)
#else
#define EMPTY(s) (where[2 * s] == HOME && where[2 * s + 1] == HOME && first[s] == 0)
#endif

proctype owner(byte me) {
    byte x, head, at, s, b, n;
    do
    :: given < GIVEN -> lock(me);
       if
       :: drain(me)
       :: if  /* a block for a freer */
          :: atomic { where[0] == HOME && heap_of[0] == me -> x = 0 }
          :: atomic { where[1] == HOME && heap_of[0] == me -> x = 1 }
#if SLABS > 1
          :: atomic { where[2] == HOME && heap_of[1] == me -> x = 2 }
          :: atomic { where[3] == HOME && heap_of[1] == me -> x = 3 }
#endif
          :: true -> x = NOBODY
          fi;
          if
          :: x != NOBODY && given < GIVEN ->
             if
             :: atomic { nfull(hand[0]) && given < GIVEN -> assert(where[x] == HOME); where[x] = OUT; given++; hand[0]!x }
             :: atomic { nfull(hand[1]) && given < GIVEN -> assert(where[x] == HOME); where[x] = OUT; given++; hand[1]!x }
             :: true
             fi
          :: else
          fi;
          x = 0
       :: atomic { !held[1 - me] -> held[1 - me] = true };  /* take a slab over, unless it lies in a mailbox */
          if
          :: heap_of[0] != me && first[0] == 0 -> heap_of[0] = me
#if SLABS > 1
          :: heap_of[1] != me && first[1] == 0 -> heap_of[1] = me
#endif
          :: else
          fi;
          unlock(1 - me)
       :: EMPTY(0) && heap_of[0] == me ->  /* release; the next heap that needs one gets its descriptor */
          atomic { assert(where[0] == HOME && where[1] == HOME && first[0] == 0 && boxes[0] == 0); heap_of[0] = 1 - me }
       :: true
       fi;
       unlock(me)
    :: given >= GIVEN -> break
    od;
    gone++
}

init {
    byte head, at, s, b, n;
    atomic {
        where[0] = HOME; where[1] = HOME;
#if SLABS > 1
        where[2] = HOME; where[3] = HOME;
#endif
        run owner(0); run owner(1); run freer(0); run freer(1)
    }
    (gone == 4);
    drain(0);
    drain(1);
    drain(0);
    d_step {
        assert(box[0] == 0 && box[1] == 0);
        s = 0;
        do
        :: s < BLOCKS -> assert(where[s] == HOME); s++
        :: else -> break
        od
    }
}
