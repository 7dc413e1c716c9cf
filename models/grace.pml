/*
 * grace.pml - safety of the grace period: no reader uses a freed element.
 *
 * Modelled: readers that enter and leave sections (nested ones with -DNEST);
 * updaters that unlink an element, take a cookie and wait for it by advancing
 * by themselves; helpers that advance for no particular waiter.  All of them
 * may advance at the same time, each with its own idea of g.  The readers have
 * store buffers (tso.pml); updaters and helpers store with locked
 * instructions only, so they need none.  Sequences wrap at MOD.
 *
 * Labels mirrored: [R1] [R2] [R3] [R4], [W1] [W2] [W3] [W4] [W5] [W6].
 *
 * Not modelled: sleeping and waking (wait.pml, coalesce.pml), records that come
 * and go (the set of readers is fixed), what acquire and release mean on
 * machines weaker than TSO.  The light barrier [R3] is the order of two
 * statements here; PTR_FIRST shows what its absence would do.
 *
 * Sizes (-D): READERS, SECTIONS each, UPDATERS, UPDATES each, HELPERS (one
 * advance each), BATCH (elements unlinked, each with a cookie of its own,
 * before the updater waits for the last), MOD, FIRST (where the counters
 * start).
 *
 * Choices (-D), all of them sound:
 *   ALL_OR_NOTHING  Publish g if no record is a holdout, otherwise nothing.
 *                   Without it a scan publishes the newest sequence that it
 *                   can vouch for: the minimum of g and the sequences of all
 *                   active records.
 *   FENCED          A thread that has issued the heavy barrier says so in a
 *                   third counter, `fenced`; a thread that finds it far enough
 *                   leaves out its own barrier.  A scan decides about `fenced`.
 *   NAME_ONLY       A cookie names the grace period after the newest that has
 *                   started, without starting it; the advancer starts it.
 *
 *   RENEW           Readers by quiescent states: a section ends with the
 *                   store that begins the next, or with none if no grace
 *                   period has started since.
 *
 * Broken variants (-D), each of which must fail:
 *   NO_MEMBARRIER     [W3] left out
 *   BARRIER_FIRST     [W3] before [W2]: g may be newer than the barrier
 *   FENCED_EARLY      with FENCED: said before the barrier, not after it
 *   NAME_LOW          with NAME_ONLY: the cookie names one that has started
 *   NO_WAIT           g is published without a look at the records
 *   HALF_SCAN         the scan leaves out the last record
 *   COOKIE_FIRST      the cookie is taken before the element is unlinked
 *   FREE_UNCHECKED    freed after one advance, completed not looked at ([W6])
 *   PLAIN_PUBLISH     [W5] a store instead of the CAS that keeps the maximum
 *   PTR_FIRST         the pointer is loaded before the word is stored ([R3])
 *   USE_AFTER         the element is used after the word was cleared ([R4])
 *   NEST_FRESH        an inner lock renews the sequence in the word
 *   NEST_DROP         an inner unlock clears the word
 *   RENEW_USE         with RENEW: an element is used after the next renewal
 *   RENEW_FRESH       with RENEW: [R1] after the pointer of the next section
 * and, with a MOD too small for the number of cookies, three ways to outrun
 * the wrapping comparison.
 */

#ifndef READERS
#define READERS		2
#endif
#ifndef SECTIONS
#define SECTIONS	2
#endif
#ifndef UPDATERS
#define UPDATERS	1
#endif
#ifndef UPDATES
#define UPDATES		1
#endif
#ifndef HELPERS
#define HELPERS		0
#endif
#ifndef BATCH
#define BATCH		1
#endif
#ifndef MOD
#define MOD		16
#endif
#ifndef FIRST
#define FIRST		0
#endif

#define BUFFERS		READERS
#define LOCATIONS	READERS		/* mem[r] is the word of reader r */
#ifndef SB_DEPTH
#define SB_DEPTH	3
#endif
#include "tso.pml"

/* The record word: 0, or a sequence together with a nesting of at least 1. */
#define QUIESCENT	0
#define WORD(seq, nest)	((seq) * 4 + (nest))
#define SEQ(word)	((word) / 4)

/* Is a at least as new as b?  The code looks at the sign of a - b. */
#define NOT_OLDER(a, b)	((((a) + MOD - (b)) % MOD) < MOD / 2)

byte started = FIRST;
byte completed = FIRST;
#ifdef FENCED
byte fenced = FIRST;
#endif

/* Elements are numbered in the order of their life; a freed one stays freed,
 * so that one look at the end of a section sees every use after free. */
byte ptr;		/* the element that is linked */
byte fresh = 1;		/* the next one */
byte freed;		/* one bit per element */

#define USE(e)		assert((freed & (1 << (e))) == 0)

proctype reader(byte me)
{
	byte n, s, e;
#ifdef NEST
	byte w, inner;
#endif
#ifdef RENEW
	byte own, late;
#endif

	do
	:: n == SECTIONS -> break
	:: n < SECTIONS ->
#ifdef PTR_FIRST
		e = ptr;
#endif
#ifdef RENEW_FRESH
		e = ptr;
#endif
		s = started;				/* [R1] */
#ifdef RENEW
		if
		:: own == WORD(s, 1)
		:: else ->
			own = WORD(s, 1);
			tso_store(me, me, own)		/* [R4] [R2], [R3] */
		fi;
#ifdef RENEW_USE
		if
		:: n > 0 -> USE(late)
		:: else
		fi;
#endif
#else
		tso_store(me, me, WORD(s, 1));		/* [R2], [R3] */
#endif
#if defined(PTR_FIRST) || defined(RENEW_FRESH)
		s = 0;
#else
		atomic { e = ptr; s = 0 };
#endif
#ifdef NEST
		tso_load(me, me, w);
#ifdef NEST_FRESH
		w = WORD(started, 1);
#endif
		tso_store(me, me, w + 1);
		inner = ptr;
		USE(inner);
#ifdef NEST_DROP
		tso_store(me, me, QUIESCENT);
#else
		tso_load(me, me, w);
		tso_store(me, me, w - 1);
#endif
		w = 0; inner = 0;
#endif
#ifndef USE_AFTER
		USE(e);
#endif
#ifdef RENEW
		late = e;
#else
		tso_store(me, me, QUIESCENT);		/* [R4] */
#endif
#ifdef USE_AFTER
		USE(e);
#endif
		atomic { n++; e = 0 }
	od;
#ifdef RENEW
	tso_store(me, me, QUIESCENT)			/* [R4] */
#endif
}

/* completed := max(completed, m); c is the last value seen. */
inline publish(m, c)
{
#ifdef PLAIN_PUBLISH
	d_step { assert(NOT_OLDER(m, completed)); completed = m };
#else
	c = completed;
	do
	:: NOT_OLDER(c, m) -> break
	:: else ->
		if
		:: d_step { completed == c ->		/* [W5] CAS */
			completed = m; c = m;
			/* No promise may pass what was asked for. */
			assert(NOT_OLDER(started, completed)) }
		:: d_step { completed != c -> c = completed }
		fi
	od;
#endif
	atomic { m = 0; c = 0 }
}

#ifdef HALF_SCAN
#define SCANNED		(READERS - 1)
#else
#define SCANNED		READERS
#endif

/* [W2] g := started, once that is at least goal. */
inline see_started(goal, g)
{
#ifdef NAME_ONLY
	if
	:: NOT_OLDER(started, goal)
	:: else -> started = (started + 1) % MOD	/* locked */
	fi;
#endif
	g = started
}

#ifdef FENCED
inline say_fenced(g)
{
	d_step {				/* maximum by CAS */
		if
		:: NOT_OLDER(fenced, g)
		:: else -> fenced = g
		fi
	}
}
#endif

/* One attempt at a grace period.  m starts as g and shrinks to what the scan
 * can vouch for; x is scratch. */
inline advance(goal, m, g, x)
{
#ifdef FENCED
	if
	:: NOT_OLDER(fenced, goal)
	:: else ->
		see_started(goal, g);			/* [W2] */
#ifdef FENCED_EARLY
		say_fenced(g);
#endif
		tso_membarrier(x);			/* [W3] */
		say_fenced(g)
	fi;
	g = fenced;
#else
#ifdef BARRIER_FIRST
	tso_membarrier(x);
	see_started(goal, g);
#else
	see_started(goal, g);				/* [W2] */
#ifndef NO_MEMBARRIER
	tso_membarrier(x);				/* [W3] */
#endif
#endif
#endif
	m = g;
#ifndef NO_WAIT
	x = 0;
	do
	:: d_step { x < SCANNED ->			/* [W4] */
		if
		:: mem[x] != QUIESCENT && !NOT_OLDER(SEQ(mem[x]), m) ->
			m = SEQ(mem[x])
		:: else
		fi;
		x++ }
	:: x == SCANNED -> break
	od;
	x = 0;
#endif
	if
#ifdef ALL_OR_NOTHING
	:: m != g
#endif
	:: else -> publish(m, x)
	fi;
	atomic { g = 0; m = 0; x = 0 }
}

proctype updater()
{
	byte n, i, cookie, old, m, g, x;

	do
	:: n == UPDATES -> break
	:: n < UPDATES ->
		do
		:: i < BATCH ->
#ifdef COOKIE_FIRST
			d_step { started = (started + 1) % MOD; cookie = started };
#endif
			/* unlink: swap the pointer (locked) */
			d_step { old = old | (1 << ptr); ptr = fresh; fresh++; i++ };
#ifdef NAME_ONLY
#ifdef NAME_LOW
			cookie = started;
#else
			cookie = (started + 1) % MOD;	/* [W1] adds 0 */
#endif
#endif
#if !defined(COOKIE_FIRST) && !defined(NAME_ONLY)
			d_step { started = (started + 1) % MOD;	/* [W1] */
				 cookie = started };
#endif
		:: i == BATCH -> i = 0; break
		od;
#ifdef FREE_UNCHECKED
		advance(cookie, m, g, x);
#else
		do
		:: NOT_OLDER(completed, cookie) -> break	/* [W6] */
		:: else -> advance(cookie, m, g, x)
		od;
#endif
		atomic { freed = freed | old; old = 0; cookie = 0; n++ }
	od
}

#if HELPERS > 0
proctype helper()
{
	byte goal = (FIRST + 1) % MOD, m, g, x;

	advance(goal, m, g, x)
}
#endif

init {
	byte i;

	atomic {
		for (i : 1 .. READERS) { run reader(i - 1) }
		for (i : 1 .. UPDATERS) { run updater() }
#if HELPERS > 0
		for (i : 1 .. HELPERS) { run helper() }
#endif
		i = 0
	}
}
