/*
 * wait.pml - no waiter sleeps for ever once the readers have left.
 *
 * Modelled: readers whose unlock looks at the wake flag; waiters that take a
 * cookie, advance, and when that was not enough flag a holdout and sleep on
 * `signals`; followers that only wait for `completed` and rely on a waiter
 * to lead it.  Every thread of the model ends by itself; one that sleeps for
 * ever shows as an invalid end state.  No time limits anywhere.
 *
 * Labels mirrored: [R1] [R2] [R4] [R5], [W1] to [W6], [S1] [S2].
 *
 * Not modelled: the elements (grace.pml), wrapping sequences (grace.pml),
 * records that come and go, a follower left without a leader (coalesce.pml).
 *
 * Sizes (-D): READERS (1 to 3), SECTIONS each, WAITERS, FOLLOWERS.
 *
 * Which record a waiter flags before it sleeps:
 *   default        one that holds back what its scan could publish, that is,
 *                  one of the oldest
 *   FLAG_ANY       any one that is older than its cookie
 *   FLAG_ALL       all that are older than its cookie; it sleeps if any of
 *                  them still is, or, with SLEEP_IF_ALL, if all of them
 *                  still are
 *   SLEEP_ON_G     with either of these: older than g instead
 *
 * Other choices (-D):
 *   ALL_OR_NOTHING Publish g if no record is older than g, otherwise nothing.
 *   EVENT          All who sleep count themselves first and load the
 *                  generation then, and all who wake do it only if the count
 *                  is not 0.  Without it waiters do not count themselves and
 *                  readers do not look; a follower counts itself second.
 *   LATE           Reader 0 enters its last section after follower 0 (without
 *                  followers: waiter 0) took its cookie, and leaves it only when
 *                  that thread has returned.  It may: a grace period must not
 *                  wait for a reader that came after it.  Without LATE all
 *                  the choices are sound; with it FLAG_ANY fails the
 *                  follower, and so does FLAG_ALL without SLEEP_IF_ALL;
 *                  SLEEP_ON_G and ALL_OR_NOTHING fail the waiter too.
 *
 * Broken variants (-D), each of which must fail:
 *   NO_SECOND_BARRIER  [S2] left out
 *   FLAG_LATE          [S1] after [S2]
 *   NO_RECHECK         sleeps without reading the flagged record again
 *   RECHECK_ANY        sleeps if any record holds it up, flagged or not
 *   GEN_LATE           `signals` is loaded after the record was re-read
 *   LOOK_FIRST         unlock looks at the flag before it clears the word
 *   FOLLOWER_EARLY        a follower looks at completed before it counts itself
 *   FOLLOWER_GEN_LATE     a follower loads `signals` after that look
 *   NO_FOLLOWER_WAKE      the completer leaves the followers asleep
 *   WAKE_FIRST, WAKE_ONE, SLEEP_BLIND   see futex.pml
 */

#ifndef READERS
#define READERS		2
#endif
#ifndef SECTIONS
#define SECTIONS	1
#endif
#ifndef WAITERS
#define WAITERS		1
#endif
#ifndef FOLLOWERS
#define FOLLOWERS		0
#endif

#define BUFFERS		READERS
#define LOCATIONS	READERS		/* mem[r] is the word of reader r */
#ifndef SB_DEPTH
#define SB_DEPTH	2
#endif
#include "tso.pml"

#define SLEEPERS	(WAITERS + FOLLOWERS)
#include "futex.pml"

/* The record word: 0, or a sequence and a nesting of 1. */
#define QUIESCENT	0
#define WORD(seq)	((seq) + 1)
#define OLDER(word, c)	((word) != QUIESCENT && (word) - 1 < (c))

byte started;
byte completed;

bool flag[READERS];	/* wake flag of each record; locked stores only */
byte sleepers;		/* waiters that count on a wake-up by `completed` */

#ifdef LATE
#if FOLLOWERS > 0
#define PATIENT		WAITERS		/* follower 0 */
#else
#define PATIENT		0		/* waiter 0 */
#endif
bool taken, returned;	/* the patient one: has its cookie; is back */
#endif

/* A new cookie [W1], and what a thread tells reader 0 about itself. */
inline take_cookie(cookie)
{
	d_step {
		started++; cookie = started;		/* [W1] */
#ifdef LATE
		if :: me == PATIENT -> taken = true :: else fi
#endif
	}
}

inline give_notice()
{
#ifdef LATE
	if
	:: me == PATIENT -> returned = true
	:: else
	fi
#else
	skip
#endif
}

inline signal()
{
	if
	:: sleepers != 0 -> bump_and_wake()
	:: else
	fi
}

proctype reader(byte me)
{
	byte n, s;
	bool f;

	do
	:: n == SECTIONS -> break
	:: n < SECTIONS ->
#ifdef LATE
		me != 0 || n + 1 < SECTIONS || taken;
#endif
		s = started;				/* [R1] */
		tso_store(me, me, WORD(s));		/* [R2], [R3] */
#ifdef LATE
		me != 0 || n + 1 < SECTIONS || returned;
#endif
#ifdef LOOK_FIRST
		f = flag[me];
		tso_store(me, me, QUIESCENT);
#else
		tso_store(me, me, QUIESCENT);		/* [R4], [R5] */
		f = flag[me];
#endif
		atomic { n++; s = 0 };
		if
		:: f ->
			/* swap the flag (locked), wake */
			d_step { tso_raw_drain(me); flag[me] = false; f = false };
#ifdef EVENT
			signal()
#else
			bump_and_wake()
#endif
		:: else
		fi
	od
}

/* The completer: maximum by CAS [W5], a full fence, then the followers. */
inline publish(m)
{
	do
	:: completed >= m -> break
	:: d_step { completed < m -> completed = m };	/* [W5] */
#if FOLLOWERS > 0 && !defined(NO_FOLLOWER_WAKE)
		signal();
#endif
		break
	od
}

#ifdef SLEEP_ON_G
#define NEED		g
#else
#define NEED		cookie
#endif

/* x := the number of the first bit in set, which is not empty */
inline first_bit(set, x)
{
	do
	:: (set & (1 << x)) -> break
	:: else -> x++
	od
}

proctype waiter(byte me)
{
	byte cookie, g, m, x, w, seen;
	byte old;		/* bit mask: records that hold this waiter up */
#ifdef SLEEP_IF_ALL
	byte flagged;
#endif

#if FOLLOWERS > 0
	/* The followers have their cookies: this one's g will cover them. */
	started >= FOLLOWERS;
#endif
	take_cookie(cookie);
	do
	:: completed >= cookie -> break			/* [W6] */
	:: else ->
		g = started;				/* [W2] */
		tso_membarrier(x);			/* [W3] */
		m = g;
		do
		:: d_step { x < READERS ->		/* [W4] */
#if defined(FLAG_ANY) || defined(FLAG_ALL)
			if
			:: OLDER(mem[x], NEED) -> old = old | (1 << x)
			:: else
			fi;
			if
			:: OLDER(mem[x], m) -> m = mem[x] - 1
			:: else
			fi;
#else
			if
			:: OLDER(mem[x], m) -> m = mem[x] - 1; old = 1 << x
			:: !OLDER(mem[x], m) && OLDER(mem[x], m + 1) && m < g ->
				old = old | (1 << x)
			:: else
			fi;
#endif
			x++ }
		:: x == READERS -> x = 0; break
		od;
#ifdef ALL_OR_NOTHING
		/* Everything or nothing: any record older than g holds up. */
		if
		:: m == g -> publish(m)
		:: else
		fi;
#else
		publish(m);
#endif
		m = 0;
#ifndef SLEEP_ON_G
		g = 0;
#endif
		if
		:: completed >= cookie -> old = 0; break
		:: completed < cookie && old == 0
#ifndef ALL_OR_NOTHING
			/* Not published, so there was an older record. */
			-> assert(false)
#endif
		:: completed < cookie && old != 0 ->
#ifndef FLAG_ALL
			if		/* any one of them will do */
			:: (old & 1) -> old = 1
			:: (old & 2) -> old = 2
			:: (old & 4) -> old = 4
			fi;
#endif
#ifdef EVENT
			sleepers++;			/* locked */
#endif
#ifndef GEN_LATE
			seen = gen;
#endif
#ifdef FLAG_LATE
			tso_membarrier(x);
#endif
			w = old;
			do
			:: d_step { w != 0 ->		/* [S1] */
				first_bit(w, x);
				flag[x] = true;		/* locked */
				w = w & ~(1 << x);
				x = 0 }
			:: w == 0 -> break
			od;
#if !defined(NO_SECOND_BARRIER) && !defined(FLAG_LATE)
			tso_membarrier(x);		/* [S2] */
#endif
#ifndef NO_RECHECK
			/* Only what was flagged before [S2] counts: the other
			 * records will not wake a waiter when they leave.  A
			 * section entered after [W3] has a sequence of at least
			 * g, so what is still old is the section seen before. */
#ifdef RECHECK_ANY
			w = ALL_BUFFERS;
#else
			w = old;
#endif
#ifdef SLEEP_IF_ALL
			flagged = old;
#endif
			old = 0;
			do
			:: d_step { w != 0 ->
				first_bit(w, x);
				if
				:: OLDER(mem[x], NEED) -> old = old | (1 << x)
				:: else
				fi;
				w = w & ~(1 << x);
				x = 0 }
			:: w == 0 -> break
			od;
#endif
#ifdef SLEEP_IF_ALL
			if
			:: old != flagged -> old = 0
			:: else
			fi;
			flagged = 0;
#endif
#ifdef GEN_LATE
			seen = gen;
#endif
			if
			:: old != 0 -> futex_wait(me, seen)
			:: else
			fi;
#ifdef EVENT
			sleepers--
#endif
		fi;
		atomic { old = 0; seen = 0; g = 0 }
	od;
	give_notice()
}

#if FOLLOWERS > 0
proctype follower(byte me)
{
	byte cookie, seen;
	bool done;

	take_cookie(cookie);
	do
	:: completed >= cookie -> break			/* [W6] */
	:: else ->
#if !defined(FOLLOWER_GEN_LATE) && !defined(EVENT)
		seen = gen;
#endif
#ifdef FOLLOWER_EARLY
		done = (completed >= cookie);
		sleepers++;
#else
		sleepers++;			/* locked */
#ifdef EVENT
		seen = gen;
#endif
		done = (completed >= cookie);
#endif
#ifdef FOLLOWER_GEN_LATE
		seen = gen;
#endif
		if
		:: !done -> futex_wait(me, seen)
		:: else
		fi;
		atomic { sleepers--; seen = 0; done = false }
	od;
	give_notice()
}
#endif

init {
	byte i;

	atomic {
		for (i : 1 .. READERS) { run reader(i - 1) }
		for (i : 1 .. WAITERS) { run waiter(i - 1) }
#if FOLLOWERS > 0
		for (i : 1 .. FOLLOWERS) { run follower(WAITERS + i - 1) }
#endif
		i = 0
	}
}
