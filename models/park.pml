/*
 * park.pml - the idle drain of kvfree: no appended object stays unseen while
 * the service thread sleeps.
 *
 * Modelled: owners that append to a buffer of their own and then look whether
 * the buffer is parked; one service thread that takes what it sees, parks the
 * buffers when it has seen everything, and sleeps.  All have store buffers.
 * An owner's slow path un-parks (a plain store) and then arms the service (a
 * locked swap, then a wake-up).  The service returns to the top when kicked.
 *
 * The model may end only with every object taken; a service thread that
 * sleeps before that, with no thread left to arm it, is an invalid end state.
 * The service also checks that an object it takes is the one appended.
 *
 * Labels mirrored: [P1] [P2] [P3], [D1] [D2] [D3].
 *
 * Not modelled: the grace period that the objects then wait for, a buffer
 * that fills up (limit is only "open" or "parked"; if the code keeps a count
 * in it, un-parking must not bring back an old one), slots used again, time
 * limits.
 *
 * Sizes (-D): OWNERS (1 or 2), APPENDS each.
 *
 * Broken variants (-D), each of which must fail:
 *   NO_PARK_BARRIER  [D2] left out
 *   LOCAL_FENCE      [D2] only a fence in the service thread itself
 *   PARK_LATE        [D1] after [D2]
 *   NO_REREAD        sleeps without reading len again ([D3])
 *   LOOK_FIRST       the owner loads limit before it stores len ([P2])
 *   LEN_FIRST        the owner stores len before the slot ([P1])
 *   ARM_FIRST        the slow path arms before it un-parks
 *   CLEAR_LATE       the service clears `kicked` after [D1], not before
 */

#ifndef OWNERS
#define OWNERS		1
#endif
#ifndef APPENDS
#define APPENDS		3
#endif

/* Owner o has buffer o; the service has the last one. */
#define SERVICE		OWNERS
#define BUFFERS		(OWNERS + 1)

/* Cells: len and limit of each owner, then the slots. */
#define LEN(o)		(o)
#define LIMIT(o)	(OWNERS + (o))
#define SLOT(o, i)	(2 * OWNERS + (o) * APPENDS + (i))
#define LOCATIONS	(2 * OWNERS + OWNERS * APPENDS)

#define OPEN		0
#define PARKED		1

#ifndef SB_DEPTH
#define SB_DEPTH	3
#endif
#include "tso.pml"

bool kicked;		/* the service has a reason to run; locked stores only */
bool dozing;		/* the service sleeps, as FUTEX_WAIT while !kicked */
byte taken[OWNERS];

#if OWNERS > 1
#define ALL_TAKEN	(taken[0] == APPENDS && taken[1] == APPENDS)
#else
#define ALL_TAKEN	(taken[0] == APPENDS)
#endif

inline arm(me)
{
	d_step { tso_raw_drain(me); kicked = true };
	dozing = false
}

proctype owner(byte me)
{
	byte n, lim;

	do
	:: n == APPENDS -> break
	:: n < APPENDS ->
#ifdef LOOK_FIRST
		tso_load(me, LIMIT(me), lim);
#endif
#ifdef LEN_FIRST
		tso_store(me, LEN(me), n + 1);
		tso_store(me, SLOT(me, n), n + 1);
#else
		tso_store(me, SLOT(me, n), n + 1);
		tso_store(me, LEN(me), n + 1);		/* [P1], [P2] */
#endif
#ifndef LOOK_FIRST
		tso_load(me, LIMIT(me), lim);		/* [P3] */
#endif
		if
		:: lim == PARKED ->
			lim = 0;
#ifdef ARM_FIRST
			arm(me);
			tso_store(me, LIMIT(me), OPEN)
#else
			tso_store(me, LIMIT(me), OPEN);
			arm(me)
#endif
		:: else
		fi;
		n++
	od
}

proctype service()
{
	byte o, l, todo;
	bool more;

	do
	:: true ->
#ifndef CLEAR_LATE
		/* A locked swap.  It stands before [D1]: an owner un-parks
		 * before it arms, so every un-parking whose arming is forgotten
		 * here is overwritten by the parking that follows. */
		d_step { tso_raw_drain(SERVICE); kicked = false };
#endif
drain:		do
		:: o < OWNERS ->
			l = mem[LEN(o)];		/* [D3] */
			do
			:: taken[o] < l ->
				d_step {
					assert(mem[SLOT(o, taken[o])] == taken[o] + 1);
					taken[o]++
				}
			:: else -> break
			od;
			atomic { o++; l = 0 }
		:: else -> o = 0; break
		od;

		/* Nothing left that it knows of: park. */
#ifdef PARK_LATE
		tso_fence(SERVICE);
		tso_membarrier(todo);
#endif
		do
		:: o < OWNERS -> tso_store(SERVICE, LIMIT(o), PARKED); o++	/* [D1] */
		:: else -> o = 0; break
		od;
#ifdef CLEAR_LATE
		atomic { tso_raw_drain(SERVICE); kicked = false };
#endif
#if !defined(NO_PARK_BARRIER) && !defined(PARK_LATE)
		tso_fence(SERVICE);			/* [D2] */
#ifndef LOCAL_FENCE
		tso_membarrier(todo);
#endif
#endif
#ifndef NO_REREAD
		do
		:: d_step { o < OWNERS ->		/* [D3] */
			if
			:: mem[LEN(o)] != taken[o] -> more = true
			:: else
			fi;
			o++ }
		:: else -> o = 0; break
		od;
#endif
		if
		:: more ->
			more = false;
			do
			:: o < OWNERS -> tso_store(SERVICE, LIMIT(o), OPEN); o++
			:: else -> o = 0; break
			od;
			goto drain
		:: else
		fi;

		d_step {				/* FUTEX_WAIT */
			if
			:: !kicked -> dozing = true
			:: else
			fi
		};
		if
		:: !dozing
		:: ALL_TAKEN -> break
		fi
	od
}

init {
	byte i;

	atomic {
		for (i : 1 .. OWNERS) { run owner(i - 1) }
		run service();
		i = 0
	}
}
