/*
 * futex.pml - sleeping on the count of signals, shared by the models here.
 *
 * The including file first defines SLEEPERS, the number of threads that may
 * sleep; they are numbered from 0.
 *
 * Modelled: a sleeper falls asleep only if `signals` is still the one it
 * saw, compared and put to sleep in one step, as FUTEX_WAIT does; a waker
 * bumps `signals` (locked) and then, in a second step, wakes all that
 * sleep.  Not modelled: spurious returns (a sleeper always looks again when
 * it returns, so they do no harm and would only hide a lost wake-up), time
 * limits (the same), and a count of signals that wraps all the way round while a
 * thread stands between its load and its sleep.
 *
 * Broken variants (-D), each of which must fail:
 *   WAKE_FIRST   wakes before it bumps
 *   WAKE_ONE     wakes one sleeper instead of all
 *   SLEEP_BLIND  sleeps without comparing `signals`
 */

byte gen;
bool asleep[SLEEPERS];

byte fx_i;				/* scratch, 0 outside a step */

inline futex_wait(me, seen)
{
#ifdef SLEEP_BLIND
	asleep[me] = true;
#else
	d_step {
		if
		:: gen == seen -> asleep[me] = true
		:: else
		fi
	};
#endif
	!asleep[me]
}

inline futex_wake()
{
	d_step {
		do
		:: fx_i < SLEEPERS ->
			if
			:: asleep[fx_i] ->
				asleep[fx_i] = false;
#ifdef WAKE_ONE
				break
#endif
			:: else
			fi;
			fx_i++
		:: else -> break
		od;
		fx_i = 0
	}
}

inline bump_and_wake()
{
#ifdef WAKE_FIRST
	futex_wake();
	gen++
#else
	gen++;
	futex_wake()
#endif
}
