/*
 * coalesce.pml - followers, and who leads for them.
 *
 * A follower waits on `completed` alone: it loads `signals`, counts itself
 * (locked), looks at completed again and sleeps.  It is woken only by a
 * completer.  wait.pml has followers whose cookie some leader is bound to cover.
 * This model asks what happens when no waiter is obliged to, and what it takes to
 * be safe then.
 *
 * Modelled: THREADS threads; each takes a cookie and returns when completed
 * has reached it.  A thread leads or follows.  Leading is one grace period,
 * shrunk to its ends: g is loaded, and some time later completed is raised to
 * g.  One store buffer per thread, for the sake of PLAIN_LEAVE.
 *
 *   default   A thread claims the lead (CAS) or, if
 *             there is a leader, follows.  The leader gives the lead up (locked) before it
 *             looks for followers to wake; a follower looks for a leader again after
 *             it has counted itself, sleeps only if there is a leader, and
 *             tries for the lead when it wakes.
 *   NO_LEADER   No leader: thread 0 leads for its own cookie and goes; the others
 *             follow and never lead.  Must fail: no leader covers a cookie taken
 *             after the leader's load of g.
 *
 * Labels mirrored: [W1] [W2] [W5] [W6].  Not modelled: readers, scans.
 *
 * Broken variants (-D), each of which must fail:
 *   NO_LEADER        see above
 *   LEADER_UNSEEN    a follower does not look for a leader again
 *   LEADER_LATE      the leader looks for followers before it gives the lead up
 *   PLAIN_LEAVE    the lead is given up with a plain store and no fence
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

#define LED		0	/* the cell that says whether there is a leader */

byte started;
byte completed;
byte followers;

inline wake_followers()
{
	if
	:: followers != 0 -> bump_and_wake()
	:: else
	fi
}

/* Returns with completed >= cookie: g was loaded after the cookie was taken. */
inline lead(g)
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
	bool done, leads;

	d_step { started++; cookie = started };		/* [W1] */
#ifdef NO_LEADER
	if
	:: me == 0 -> lead(g); wake_followers(); goto out
	:: else
	fi;
#endif
	do
	:: completed >= cookie -> break			/* [W6] */
	:: else ->
#ifndef NO_LEADER
		atomic {				/* CAS for the lead */
			tso_raw_drain(me);
			leads = !mem[LED];
			mem[LED] = 1
		};
		if
		:: leads ->
			leads = false;
			lead(g);
#ifdef LEADER_LATE
			wake_followers();
#endif
#ifdef PLAIN_LEAVE
			tso_store(me, LED, 0);
#else
			d_step { tso_raw_drain(me); mem[LED] = 0 };
#endif
#ifndef LEADER_LATE
			wake_followers();
#endif
			break
		:: else
		fi;
#endif
		seen = gen;
		d_step { tso_raw_drain(me); followers++ };
		done = (completed >= cookie);
#if !defined(NO_LEADER) && !defined(LEADER_UNSEEN)
		if
		:: !done -> done = !mem[LED]
		:: else
		fi;
#endif
		if
		:: !done -> futex_wait(me, seen)
		:: else
		fi;
		d_step { tso_raw_drain(me); followers--; seen = 0; done = false }
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
