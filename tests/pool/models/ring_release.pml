/* SPDX-License-Identifier: MIT */
/* ring_release.pml: release, reuse and destruction of a ring's frames (src/pool/ring.h), for spin. run.py runs it.
 *
 * The owner makes up to FRAMES frames with two records, uses again what it finds released, and destroys the ring
 * when it likes. Two threads release what they are given. A third (ROGUE) releases numbers once more.
 *
 * Claims: a frame's memory is used again only after its release; of several releases of one number exactly one
 * succeeds, on the frame it names; the ring is finished exactly once, after all frames were released, and nobody
 * touches it afterwards.
 *
 * Broken variants, which must be caught:
 *   BROKEN_COUNT_LATE     destroy counts an orphan after it can be found
 *   BROKEN_STORE          release looks and then stores, without compare-and-swap
 *   BROKEN_NO_GENERATION  (with ROGUE) a number is a record without its generation
 *   BROKEN_NO_OWN_COUNT   destroy does not count itself
 */
#ifndef FRAMES
#define FRAMES 4
#endif

mtype = { FREE, OPEN, SEALED, ORPHAN, RELEASED };
mtype state[2]; byte gen[2];  /* together a record's word: changed in one step */
byte memory[2];               /* the generation whose blocks lie there */
bool live[2];                 /* sealed, and not yet released */
byte orphans, made, ended; bool destroyed, finished;
chan handed = [FRAMES] of { byte, byte };
chan again = [FRAMES] of { byte, byte };

inline finish() { d_step { assert(!finished && !live[0] && !live[1]); finished = true } }

inline released() { live[r] = false; ended++ }

#ifdef BROKEN_NO_GENERATION
#define NAMES(r, g) (true)
#else
#define NAMES(r, g) (gen[r] == g)
#endif
#define MAY(r, g) ((state[r] == SEALED || state[r] == ORPHAN) && NAMES(r, g))

/* quarry_ring_release with its slow path: frame (r, g). What it finds when it may not is misuse, and reported. */
inline release() {
    if
#ifdef BROKEN_STORE
    :: atomic { MAY(r, g) -> s = state[r] }
       atomic { assert(gen[r] == g && live[r]); state[r] = RELEASED; released() }
#else
    :: atomic { MAY(r, g) -> s = state[r]; assert(gen[r] == g && live[r]); state[r] = RELEASED; released() }
#endif
       if
       :: s == ORPHAN ->
          atomic { assert(!finished && orphans > 0); orphans--; last = (orphans == 0) }
          if
          :: last -> finish()
          :: else
          fi
       :: else
       fi
    :: !MAY(r, g)
    fi
}

proctype releaser() {
    byte r, g; mtype s; bool last;
    do
    :: handed?r,g ->
#ifndef ROGUE
       assert(memory[r] == g);  /* the blocks are there */
#endif
       release()
    :: destroyed && empty(handed) -> break
    od
}

proctype rogue() {
    byte r, g; mtype s; bool last;
    do
    :: again?r,g -> release()
    :: destroyed && empty(again) -> break
    od
}

inline make_orphan(r) {
    if
    :: state[r] == SEALED ->
#ifndef BROKEN_COUNT_LATE
       orphans++;
#endif
       if
       :: atomic { state[r] == SEALED -> state[r] = ORPHAN }
#ifdef BROKEN_COUNT_LATE
          orphans++
#endif
       :: atomic { state[r] != SEALED ->
#ifndef BROKEN_COUNT_LATE
          orphans--
#endif
          }
       fi
    :: else
    fi
}

active proctype owner() {
    byte r; bool last;
    state[0] = FREE; state[1] = FREE;
    run releaser();
    run releaser();
#ifdef ROGUE
    run rogue();
#endif
    do
    :: made < FRAMES ->
       if
       :: r = 0
       :: r = 1
       fi;
       if
       :: atomic { state[r] == FREE || state[r] == RELEASED -> assert(!live[r]); gen[r]++; state[r] = OPEN }
          memory[r] = gen[r];
          atomic { live[r] = true; state[r] = SEALED; made++ }
#ifdef ROGUE
          again!r,gen[r];
#endif
          handed!r,gen[r]
       :: state[r] == SEALED
       fi
    :: made > 0 -> break
    od;
#ifndef BROKEN_NO_OWN_COUNT
    orphans++;
#endif
    make_orphan(0);
    make_orphan(1);
#ifndef BROKEN_NO_OWN_COUNT
    atomic { orphans--; last = (orphans == 0) }
#else
    last = (orphans == 0);
#endif
    if
    :: last -> finish()
    :: else
    fi;
    destroyed = true;
    (_nr_pr == 1);
    assert(finished && ended == made)
}
