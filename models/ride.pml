/*
 * ride.pml - riders, and who drives for them.
 *
 * A rider waits on `completed` alone: it loads the generation, counts itself
 * (locked), looks at completed again and sleeps.  It is woken only by a
 * completer.  wait.pml has riders whose cookie some driver is bound to cover.
 * This model asks what happens when nobody is bound to, and what it takes to
 * be safe then.
 *
 * Modelled: THREADS threads; each takes a cookie and returns when completed
 * has reached it.  A thread drives or rides.  Driving is one grace period,
 * shrunk to its ends: g is loaded, and some time later completed is raised to
 * g.  One store buffer per thread, for the sake of PLAIN_LEAVE.
 *
 *   default   A thread claims the single driver's seat (CAS) or, if the seat
 *             is taken, rides.  The driver leaves the seat (locked) before it
 *             looks for riders to wake; a rider looks at the seat again after
 *             it has counted itself, sleeps only if the seat is taken, and
 *             tries for the seat when it wakes.
 *   NO_SEAT   No seat: thread 0 drives for its own cookie and goes; the others
 *             ride and never drive.  Must fail: nobody covers a cookie taken
 *             after the driver's load of g.
 *
 * Labels mirrored: [W1] [W2] [W5] [W6].  Not modelled: readers, scans.
 *
 * Broken variants (-D), each of which must fail:
 *   NO_SEAT        see above
 *   SEAT_UNSEEN    a rider does not look at the seat again
 *   SEAT_LATE      the driver looks for riders before it leaves the seat
 *   PLAIN_LEAVE    the seat is left with a plain store and no fence
 *   WAKE_FIRST, WAKE_ONE, SLEEP_BLIND   see futex.pml
 */

#ifndef THREADS
#define THREADS		2
#endif

#define BUFFERS		THREADS
#define LOCATIONS	1
#define SB_DEPTH	1
#include "tso.pml"

#define SLEEPERS	THREADS
#include "futex.pml"

#define SEAT		0	/* the cell that says whether somebody drives */

byte started;
byte completed;
byte riders;

inline wake_riders()
{
	if
	:: riders != 0 -> bump_and_wake()
	:: else
	fi
}

/* Returns with completed >= cookie: g was loaded after the cookie was taken. */
inline drive(g)
{
	g = started;					/* [W2] */
	d_step {					/* [W5] CAS */
		tso_raw_drain(me);
		if
		:: completed < g -> completed = g
		:: else
		fi;
		g = 0
	}
}

proctype thread(byte me)
{
	byte cookie, g, seen;
	bool done, seat;

	d_step { started++; cookie = started };		/* [W1] */
#ifdef NO_SEAT
	if
	:: me == 0 -> drive(g); wake_riders(); goto out
	:: else
	fi;
#endif
	do
	:: completed >= cookie -> break			/* [W6] */
	:: else ->
#ifndef NO_SEAT
		atomic {				/* CAS for the seat */
			tso_raw_drain(me);
			seat = !mem[SEAT];
			mem[SEAT] = 1
		};
		if
		:: seat ->
			seat = false;
			drive(g);
#ifdef SEAT_LATE
			wake_riders();
#endif
#ifdef PLAIN_LEAVE
			tso_store(me, SEAT, 0);
#else
			d_step { tso_raw_drain(me); mem[SEAT] = 0 };
#endif
#ifndef SEAT_LATE
			wake_riders();
#endif
			break
		:: else
		fi;
#endif
		seen = gen;
		d_step { tso_raw_drain(me); riders++ };
		done = (completed >= cookie);
#if !defined(NO_SEAT) && !defined(SEAT_UNSEEN)
		if
		:: !done -> done = !mem[SEAT]
		:: else
		fi;
#endif
		if
		:: !done -> futex_wait(me, seen)
		:: else
		fi;
		d_step { tso_raw_drain(me); riders--; seen = 0; done = false }
	od;
out:	skip
}

init {
	byte i;

	atomic {
		for (i : 1 .. THREADS) { run thread(i - 1) }
		i = 0
	}
}
