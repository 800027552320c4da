/* SPDX-License-Identifier: MIT */
/* remote.pml: blocks of another heap's slab come home (src/heap/remote.c), for spin. tests/pool/models/run.py runs it.
 *
 * Two heaps, SLABS slabs of two blocks, two freers. A heap's owner (whoever holds its lock) gives blocks that are at home to
 * the freers, drains its mailbox, takes a slab over from the other heap, and releases slabs that are empty, which another heap may
 * get. A freer gathers a group of each slab; it publishes one of them, or all, each as a chain, and then pushes those slabs that it has
 * queued, linked to each other as far as they go to the same heap. GIVEN blocks are given in all.
 *
 * Claims: a block is in one place; a chain is as long as its count says, ends with the block that is said to be its last, and all of it is taken; a slab is in one mailbox at
 * most; only the holder of its heap's lock touches what is at home in a slab; a slab that is released has no block elsewhere and is in
 * no mailbox; in the end all blocks are at home.
 *
 * CALM: freers never drain, and no slab is released; so that two slabs, which a freer may push together, can be searched to the end.
 *
 * Broken variants, which must be caught:
 *   BROKEN_ALWAYS_PUSH   a publisher mails the slab although it is queued
 *   BROKEN_NEXT_LATE     the drainer reads the link to the next slab after it cleared QUEUED
 *   BROKEN_NO_FORWARD    the drainer takes the blocks of a slab that belongs to the other heap by now
 *   BROKEN_TWO_STEPS     the drainer reads the word and then clears it
 *   BROKEN_LAST          a publisher says that its own last block is the last, whatever was in the word
 *   BROKEN_LINK_EARLY    a publisher links a slab to those that it will push before it knows that it has queued it
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
byte first[SLABS]; byte count[SLABS]; byte final[SLABS]; bool queued[SLABS];  /* together the slab's word: changed in one step */
byte heap_of[SLABS]; byte mail_next[SLABS];
byte boxes[SLABS];            /* how many mailboxes it is in */
byte box[2];                  /* 0, or the newest slab + 1 */
bool held[2];                 /* a heap's lock */
byte given, gone;             /* gone: freers that have ended */
chan hand[2] = [1] of { byte };

inline lock(h) { atomic { !held[h] -> held[h] = true } }
inline unlock(h) { held[h] = false }

/* A slab is in no mailbox until it is pushed. */
inline into_box(s) { assert(boxes[s] == 0); boxes[s]++ }

/* Slabs `newest_of` to `oldest_of` (the same, or linked) into h's mailbox. */
inline mail(h, newest_of, oldest_of) {
    head = box[h];
    do
    :: mail_next[oldest_of] = head;
       if
       :: atomic { box[h] == head -> box[h] = newest_of + 1 }; break
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
       :: heap_of[s] != h -> into_box(s); mail(heap_of[s], s, s)
#endif
       :: else ->
#ifdef BROKEN_TWO_STEPS
          atomic { b = first[s]; n = count[s]; end = final[s] }
          atomic { first[s] = 0; count[s] = 0; final[s] = 0; queued[s] = false }
#else
          atomic { b = first[s]; n = count[s]; end = final[s]; first[s] = 0; count[s] = 0; final[s] = 0; queued[s] = false }
#endif
          d_step {
              assert(heap_of[s] == h && n > 0);
              do
              :: b != 0 -> assert(n > 0 && where[b - 1] == REMOTE); assert((n == 1) == (b == end)); where[b - 1] = HOME; n--; b = link[b - 1]
              :: else -> break
              od;
              assert(n == 0)
          }
       fi
#ifdef BROKEN_NEXT_LATE
       ; at = mail_next[s]
#endif
    od;
    at = 0; s = 0; b = 0; n = 0; end = 0; head = 0
}

/* What was linked goes to its heap. */
inline deliver() {
    if
    :: post_first != 0 ->
       mail(h, post_first - 1, post_last)
#ifndef CALM
       ; if  /* nobody is attached: it is done for them, if the lock is free */
       :: atomic { !held[h] -> held[h] = true }; drain(h); unlock(h)
       :: true
       fi
#endif
    :: else
    fi;
    post_first = 0; post_last = 0; h = 0
}

/* A freer's group of slab g: blocks newest[g] to oldest[g]. */
inline publish(g) {
    atomic { old_first = first[g]; old_count = count[g]; old_final = final[g]; old_queued = queued[g] }
#ifdef BROKEN_LINK_EARLY
    mail_next[g] = post_first;
#endif
    do
    :: link[oldest[g]] = old_first;
       if
       :: atomic { first[g] == old_first && count[g] == old_count && final[g] == old_final && queued[g] == old_queued ->
              first[g] = newest[g] + 1; count[g] = old_count + group[g]; queued[g] = true;
#ifndef BROKEN_LAST
              if
              :: old_count == 0 -> final[g] = oldest[g] + 1
              :: else -> final[g] = old_final
              fi;
#else
              final[g] = oldest[g] + 1;
#endif
              b = newest[g] + 1;
              do
              :: group[g] > 0 -> where[b - 1] = REMOTE; b = link[b - 1]; group[g]--
              :: else -> break
              od;
              b = 0
          }; break
       :: atomic { else -> old_first = first[g]; old_count = count[g]; old_final = final[g]; old_queued = queued[g] }
       fi
    od;
    if
#ifndef BROKEN_ALWAYS_PUSH
    :: old_queued
#endif
    :: else ->
       if
       :: post_first != 0 && h != heap_of[g] -> deliver()
       :: else
       fi;
       atomic {
           into_box(g);
           if
           :: post_first == 0 -> post_last = g; h = heap_of[g]
           :: else
           fi
       }
#ifndef BROKEN_LINK_EARLY
       mail_next[g] = post_first;
#endif
       post_first = g + 1
    fi;
    old_first = 0; old_count = 0; old_final = 0; old_queued = false; newest[g] = 0; oldest[g] = 0
}

proctype freer(byte me) {
    byte x, group[SLABS], newest[SLABS], oldest[SLABS], old_first, old_count, old_final, post_first, post_last, h, head, at, s, b, n, end;
    bool old_queued;
    do
    :: hand[me]?x ->
       atomic {
           if
           :: group[x / 2] == 0 -> link[x] = 0; oldest[x / 2] = x
           :: else -> link[x] = newest[x / 2] + 1
           fi;
           group[x / 2]++; newest[x / 2] = x; x = 0
       }
    :: group[0] > 0 -> publish(0); deliver()
#if SLABS > 1
    :: group[1] > 0 -> publish(1); deliver()
    :: group[0] > 0 && group[1] > 0 -> publish(0); publish(1); deliver()
#endif
    :: given == GIVEN && empty(hand[me]) && group[0] == 0 &&
#if SLABS > 1
       group[1] == 0 &&
#endif
       true -> break
    od;
    gone++
}

#ifdef BROKEN_EMPTY
#define EMPTY(s) (first[s] == 0)
#else
#define EMPTY(s) (where[2 * s] == HOME && where[2 * s + 1] == HOME && first[s] == 0)
#endif

proctype owner(byte me) {
    byte x, head, at, s, b, n, end;
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
#ifndef CALM
       :: EMPTY(0) && heap_of[0] == me ->  /* release; the next heap that needs one gets its descriptor */
          atomic { assert(where[0] == HOME && where[1] == HOME && first[0] == 0 && boxes[0] == 0); heap_of[0] = 1 - me }
#endif
       :: true
       fi;
       unlock(me)
    :: given >= GIVEN -> break
    od;
    gone++
}

init {
    byte head, at, s, b, n, end;
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
