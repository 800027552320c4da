/* SPDX-License-Identifier: MIT */
/* fifo_page.pml: the end of a FIFO's page (src/pool/fifo.h), for spin. run.py runs it.
 *
 * One page with OWN blocks that the owner frees and B1 + B2 that two other threads free, while the owner leaves the
 * page, looks for missed ends, and (FREEZE) destroys the pool with blocks still to be freed.
 *
 * Memory is weaker than any processor's: `local` and `remote` keep their histories, and a plain load may return any value
 * that is not older than the last one this thread has read or has been shown by a read-modify-write. (Those
 * read and write the newest value.) That is C's release and acquire, for these two words.
 *
 * Claims: nobody touches the page after it was retired; it is retired at most once; no false alarm of
 * a double free; and in the end it is retired.
 *
 * Broken variants, which must be caught:
 *   BROKEN_READ_AFTER   other threads read `local` after their own increment
 *   BROKEN_OWNER_AFTER  the owner reads `remote` after it has written `local`
 *   BROKEN_NO_BIAS      leaving and freezing do not change `remote`
 *   BROKEN_NO_CLAIM     the look for missed ends does not see that another thread is ending the page
 *   BROKEN_NO_LOOK      nobody looks for missed ends
 */
#ifndef OWN
#define OWN 2
#define B1 1
#define B2 1
#endif
#define ALL (OWN + B1 + B2)

#ifdef BROKEN_NO_BIAS
#define LEFT 0
#define FROZEN 0
#else
#define LEFT 16
#define FROZEN 32
#endif
#define OPEN 200
#define ENDED 1000

short lh[16]; byte li = 0;   /* history of local, and its newest */
short rh[16]; byte ri = 0;   /* history of remote */
byte shown[16];              /* values of local that who reads this value of remote has been shown */
bool gone, lock, frozen;
byte retired, done;

inline take() { atomic { !lock -> lock = true } }
inline drop() { lock = false }
/* Under the lock. */
inline retire() { d_step { retired++; assert(retired == 1); gone = true } }

inline write_local(v) { d_step { assert(!gone); li++; lh[li] = v } }
inline change_remote(v) { rh[ri + 1] = v; shown[ri + 1] = shown[ri]; ri++ }

/* A load of local by a thread that has seen up to `mine`. */
inline read_local(l) {
    atomic {
        assert(!gone);
        do
        :: mine < li -> mine++
        :: l = lh[mine]; break
        od
    }
}

/* qy_fifo_free_remote */
inline free_as_other() {
    ends = false;
    do
    :: d_step { assert(!gone); r0 = rh[ri]; if :: shown[ri] > mine -> mine = shown[ri] :: else fi }
#ifdef BROKEN_READ_AFTER
       atomic { assert(!gone); change_remote(r0 + 1) }
       read_local(l);
       ends = (l == r0 + 1);
       break
#else
       read_local(l);
       assert(LEFT == 0 || !(r0 >= LEFT && l < OPEN / 2 && r0 >= l));  /* would be reported as a double free */
       atomic {
           assert(!gone);
           if
           :: rh[ri] == r0 ->
              ends = (l == r0 + 1);
              change_remote(r0 + 1 + (ends -> ENDED : 0));
              break
           :: else
           fi
       }
#endif
    od;
    if
    :: ends -> take(); retire(); drop()
    :: else
    fi
}

proctype other(byte n) {
    short r0, l; byte mine; bool ends;
    do
    :: n > 0 -> free_as_other(); n--
    :: else -> break
    od;
    done++
}

active proctype owner() {
    short r0, l, ol = OPEN, r; byte mine, last, n = OWN; bool ends, left, e, over;
    lh[0] = OPEN;
    run other(B1);
    run other(B2);
    do
    /* quarry_fifo_free */
    :: n > 0 && !frozen ->
#ifdef BROKEN_OWNER_AFTER
       ol--; write_local(ol);
       d_step { assert(!gone); last = ri; r = rh[ri] }
#else
       atomic {
           assert(!gone);
           do
           :: last < ri -> last++
           :: r = rh[last]; break
           od
       }
       ol--; write_local(ol);
#endif
       n--;
       assert(ol >= r || r >= ENDED);
       if
       :: left && ol == r -> take(); retire(); drop()
       :: else
       fi
    /* leave */
    :: !left ->
       take();
       ol = ALL - (OPEN - ol) + LEFT; write_local(ol);
       atomic {
#ifndef BROKEN_NO_BIAS
           change_remote(rh[ri] + LEFT); shown[ri] = li; last = ri;
#endif
           e = (rh[ri] == ol)
       }
       left = true;
       if
       :: e -> retire()
       :: else
       fi;
       drop()
    /* look_for_missed, once in a while */
    :: left && !retired && !frozen ->
       over = (n == 0 && done == 2);  /* the last look finds whatever was missed */
       take();
       if
       :: !retired ->
          atomic {
              r = rh[ri];
#ifdef BROKEN_NO_CLAIM
              r = (r >= ENDED -> r - ENDED : r);
#endif
              e = (r == ol)
          }
          if
          :: e -> retire()
          :: else
          fi
       :: else
       fi;
       drop();
       if
       :: over -> break
       :: else
       fi
#ifdef FREEZE
    /* destroy: afterwards the owner frees like the others */
    :: left && !frozen && !retired ->
       take();
       frozen = true;
       if
       :: !retired ->
          ol = ol + FROZEN; write_local(ol);
          atomic {
#ifndef BROKEN_NO_BIAS
              change_remote(rh[ri] + FROZEN); shown[ri] = li;
#endif
              e = (rh[ri] == ol)
          }
          if
          :: e -> retire()
          :: else
          fi
       :: else
       fi;
       drop()
    :: frozen && n > 0 -> mine = li; free_as_other(); n--
    :: frozen && n == 0 && done == 2 -> break
#endif
    :: retired && n == 0 && done == 2 -> break
#ifdef BROKEN_NO_LOOK
    :: left && n == 0 && done == 2 -> break
#endif
    od;
    assert(retired == 1)
}
