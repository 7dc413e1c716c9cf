/*
 * tso.pml - the store buffers of x86-TSO, shared by the models here.
 *
 * The including file first defines
 *   BUFFERS    how many threads own a store buffer (1 to 4; a thread that
 *              only ever stores with locked instructions needs none),
 *   SB_DEPTH   how many stores one buffer holds,
 *   LOCATIONS  how many memory cells are written with plain stores.
 *
 * What is modelled: a plain store goes to the tail of its thread's buffer; a
 * load takes the newest own buffered value, otherwise memory; the process
 * `memory` empties the buffers oldest first, at any moment; a locked
 * instruction empties the own buffer in the same step in which it acts; the
 * heavy barrier (membarrier) empties every other thread's buffer at some
 * moment between its begin and its end, each thread at its own moment and in
 * any order.  A full buffer makes its thread wait for `memory`.
 *
 * What is not: loads that overtake loads, or stores that overtake stores.
 * x86 shows neither; weaker machines are not the business of these models.
 *
 * Cells that are only ever changed by locked instructions are ordinary
 * globals in the models: no buffer can hold a value of theirs.
 */

byte mem[LOCATIONS];

byte sb_loc[BUFFERS * SB_DEPTH];	/* buffer t: entries t*SB_DEPTH .. */
byte sb_val[BUFFERS * SB_DEPTH];
byte sb_len[BUFFERS];

byte sb_i;				/* scratch, 0 outside a step */

/* The tso_raw_ pieces are for use inside a d_step or an atomic only. */

inline tso_raw_pop(t)
{
	mem[sb_loc[(t) * SB_DEPTH]] = sb_val[(t) * SB_DEPTH];
	sb_i = 1;
	do
	:: sb_i < sb_len[t] ->
		sb_loc[(t) * SB_DEPTH + sb_i - 1] = sb_loc[(t) * SB_DEPTH + sb_i];
		sb_val[(t) * SB_DEPTH + sb_i - 1] = sb_val[(t) * SB_DEPTH + sb_i];
		sb_i++
	:: else -> break
	od;
	sb_len[t]--;
	/* Unused entries stay 0, so that equal buffers are equal states. */
	sb_loc[(t) * SB_DEPTH + sb_len[t]] = 0;
	sb_val[(t) * SB_DEPTH + sb_len[t]] = 0;
	sb_i = 0
}

inline tso_raw_drain(t)
{
	do
	:: sb_len[t] > 0 -> tso_raw_pop(t)
	:: else -> break
	od;
	sb_i = 0
}

/* A plain store. */
inline tso_store(t, where, what)
{
	d_step {
		sb_len[t] < SB_DEPTH ->
		sb_loc[(t) * SB_DEPTH + sb_len[t]] = where;
		sb_val[(t) * SB_DEPTH + sb_len[t]] = what;
		sb_len[t]++
	}
}

/* A load of a cell that the thread itself may have stored to. */
inline tso_load(t, where, into)
{
	d_step {
		into = mem[where];
		do
		:: sb_i < sb_len[t] ->
			if
			:: sb_loc[(t) * SB_DEPTH + sb_i] == (where) ->
				into = sb_val[(t) * SB_DEPTH + sb_i]
			:: else
			fi;
			sb_i++
		:: else -> break
		od;
		sb_i = 0
	}
}

#define ALL_BUFFERS	((1 << BUFFERS) - 1)

/*
 * The heavy barrier's part on the other threads.  `todo` is a variable of the
 * caller's.  A caller with a buffer of its own runs tso_fence() first: the
 * system call starts with a full fence of the caller's.
 */
inline tso_membarrier(todo)
{
	todo = ALL_BUFFERS;
	do
	:: d_step { (todo & 1) -> tso_raw_drain(0); todo = todo & 14 }
#if BUFFERS > 1
	:: d_step { (todo & 2) -> tso_raw_drain(1); todo = todo & 13 }
#endif
#if BUFFERS > 2
	:: d_step { (todo & 4) -> tso_raw_drain(2); todo = todo & 11 }
#endif
#if BUFFERS > 3
	:: d_step { (todo & 8) -> tso_raw_drain(3); todo = todo & 7 }
#endif
	:: todo == 0 -> break
	od
}

/* A full fence of the thread's own. */
inline tso_fence(t)
{
	d_step { tso_raw_drain(t) }
}

active proctype memory()
{
end:	do
	:: d_step { sb_len[0] > 0 -> tso_raw_pop(0) }
#if BUFFERS > 1
	:: d_step { sb_len[1] > 0 -> tso_raw_pop(1) }
#endif
#if BUFFERS > 2
	:: d_step { sb_len[2] > 0 -> tso_raw_pop(2) }
#endif
#if BUFFERS > 3
	:: d_step { sb_len[3] > 0 -> tso_raw_pop(3) }
#endif
	od
}
