#!/usr/bin/env python3
"""Says whether an outcome is possible by the axioms of three memory models: check.py FILE...

A file is a litmus test in herd7's C dialect, without branches. For each model all candidate
executions are enumerated (what each load reads from, in which order the stores to each location
are). Looked at are those that the model's axioms allow and that meet the condition of `filter`, if
there is one. The condition of `exists` holds in one of them (Sometimes), or in none (Never). By rc11
it is a Race if two threads access a location in one of them, one of them by a plain store or load,
in no order. The line "Expect=" of a file has what is expected.

The axioms are those of the papers, written down anew here:

rc11   C11 as repaired by O. Lahav, V. Vafeiadis, J. Kang, C.-K. Hur, D. Dreyer, "Repairing
       Sequential Consistency in C/C++11", PLDI 2017; with C++20's release sequences, which hold
       read-modify-writes alone. It forbids cycles of program order and reads-from.
x86    TSO as in S. Owens, S. Sarkar, P. Sewell, "A Better x86 Memory Model: x86-TSO", TPHOLs 2009,
       in the axiomatic form of J. Alglave, L. Maranget, M. Tautschnig, "Herding Cats", TOPLAS 2014.
armv8  C. Pulte, S. Flur, W. Deacon, J. French, S. Sarkar, P. Sewell, "Simplifying ARM Concurrency",
       POPL 2018, without instruction fetches, dependencies through addresses and weaker acquires.

For x86 and armv8 the operations become what compilers make of them: a release store STLR, an acquire
load LDAR, a fence MFENCE or DMB ISH, a read-modify-write a locked instruction or LDAXR and STLXR.
Sequentially consistent loads and stores, and fences that are not, are in no file, and refused.
"""

import itertools
import re
import sys

MODELS = ("rc11", "x86", "armv8")
ORDERS = ("relaxed", "acquire", "release", "acq_rel")


class Event:
    def __init__(self, thread, kind, location=None, order="relaxed"):
        self.thread, self.kind, self.location, self.order = thread, kind, location, order
        self.value = None  # what a store writes: a number, or ("add", its load, a number)
        self.register = None
        self.other_half = None  # of a read-modify-write

    def acquires(self):
        return self.kind == "F" or self.kind == "R" and self.order in ("acquire", "acq_rel")

    def releases(self):
        return self.kind == "F" or self.kind == "W" and self.order in ("release", "acq_rel")


class Refused(Exception):
    pass


STATEMENT = re.compile(
    r"(?:int (?P<register>\w+) = )?atomic_(?P<what>load|store|exchange|fetch_add)_explicit"
    r"\((?P<location>\w+), (?:(?P<value>\d+), )?memory_order_(?P<order>\w+)\)"
)
PLAIN = re.compile(r"int (?P<register>\w+) = \*(?P<loaded>\w+)|\*(?P<stored>\w+) = (?P<value>\d+)")
TERM = re.compile(r"(?:(\d+):)?\[?(\w+)\]?=(\d+)")


def conditions(text, word, events):
    """The terms of a condition, which all have to hold: a thread or None, a name, a value."""
    found = re.search(word + r"\s*\(([^()]*)\)", text)
    terms = []
    for term in found[1].split("/\\") if found else ():
        thread, name, value = TERM.fullmatch(term.strip()).groups()
        if thread is None and not any(event.location == name for event in events):
            raise Refused(f"no thread accesses {name}")
        if thread is not None and not any(e.register == name and e.thread == int(thread) for e in events):
            raise Refused(f"no load has the register {thread}:{name}")
        terms.append((thread and int(thread), name, int(value)))
    return terms


def parse(text):
    """The events, the initial stores first; the conditions of `filter` and `exists`; what is expected."""
    expect = dict(entry.split(":") for entry in re.search(r"^Expect=(.*)$", text, re.M)[1].split())
    if set(expect) - {"relacy"} != set(MODELS) or not set(expect.values()) <= {"Never", "Sometimes", "Race"}:
        raise Refused("Expect= has to name Never, Sometimes or Race for each of " + ", ".join(MODELS))
    text = re.sub(r"\(\*.*?\*\)|//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    initial = {}
    for name, value in re.findall(r"\[?(\w+)\]? *= *(\d+) *;", re.search(r"^\{(.*?)\}", text, re.S | re.M)[1]):
        initial[name] = int(value)
    events = []
    for thread, arguments, body in re.findall(r"^P(\d+) *\((.*?)\) *\{(.*?)^\}", text, re.S | re.M):
        known = re.findall(r"\* ?(\w+)", arguments)
        for statement in filter(None, map(str.strip, body.split(";"))):
            if statement == "atomic_thread_fence(memory_order_seq_cst)":
                events.append(Event(int(thread), "F"))
                continue
            plain = PLAIN.fullmatch(statement)
            if plain:
                event = Event(int(thread), "R" if plain["loaded"] else "W", plain["loaded"] or plain["stored"], "plain")
                event.register, event.value = plain["register"], plain["value"] and int(plain["value"])
                events.append(event)
                continue
            found = STATEMENT.fullmatch(statement)
            if not found or found["location"] not in known or found["order"] not in ORDERS:
                raise Refused(f"P{thread} has a statement that is not understood: {statement}")
            halves = {"load": "R", "store": "W"}.get(found["what"], "RW")
            new = [Event(int(thread), kind, found["location"], found["order"]) for kind in halves]
            if "R" in halves:
                if not found["register"]:
                    raise Refused(f"P{thread} drops what it loads: {statement}")
                new[0].register = found["register"]
            if "W" in halves:
                number = int(found["value"])
                new[-1].value = ("add", new[0], number) if found["what"] == "fetch_add" else number
            if halves == "RW":
                new[0].other_half, new[1].other_half = new[1], new[0]
            events += new
    filtered, wanted = (conditions(text, word, events) for word in ("filter", "exists"))
    if not wanted:
        raise Refused("there is no condition of `exists`")
    locations = {e.location for e in events if e.location}
    stores = [Event(None, "W", name) for name in sorted(locations)]
    for store in stores:
        store.value = initial.get(store.location, 0)
    return stores + events, filtered, wanted, expect


class Relation(set):
    """Pairs of numbers of events."""

    def __or__(self, other):
        return Relation(set.__or__(self, other))

    def __and__(self, other):
        return Relation(set.__and__(self, other))

    def __sub__(self, other):
        return Relation(set.__sub__(self, other))

    def then(self, other):
        after = {}
        for a, b in other:
            after.setdefault(a, []).append(b)
        return Relation((a, c) for a, b in self for c in after.get(b, ()))

    def closed(self):
        closure = Relation(self)
        while True:
            more = closure.then(self) - closure
            if not more:
                return closure
            closure |= more

    def inverse(self):
        return Relation((b, a) for a, b in self)

    def between(self, left, right):
        return Relation((a, b) for a, b in self if left(a) and right(b))

    def is_acyclic(self):
        return all(a != b for a, b in self.closed())

    def is_irreflexive(self):
        return all(a != b for a, b in self)


class Execution:
    def __init__(self, events, reads_from, coherence):
        self.events = events
        numbers = range(len(events))
        self.numbers = numbers
        position = {event: number for number, event in enumerate(events)}
        self.identity = Relation((n, n) for n in numbers)
        # Program order; the initial stores come before all of it.
        self.po = Relation(
            (a, b) for a in numbers for b in numbers if a < b
            and (events[a].thread == events[b].thread if events[a].thread is not None else events[b].thread is not None)
        )
        self.rf = Relation((position[store], position[load]) for load, store in reads_from.items())
        self.co = Relation(
            (position[a], position[b]) for order in coherence for a, b in itertools.combinations(order, 2)
        )
        self.fr = Relation((a, b) for a, b in self.rf.inverse().then(self.co) if a != b)
        self.rmw = Relation((position[e], position[e.other_half]) for e in events if e.kind == "R" and e.other_half)

    def is_store(self, n):
        return self.events[n].kind == "W"

    def is_load(self, n):
        return self.events[n].kind == "R"

    def is_fence(self, n):
        return self.events[n].kind == "F"

    def is_access(self, n):
        return self.events[n].kind != "F"

    def is_atomic(self, n):
        return self.events[n].other_half is not None

    def is_atomic_access(self, n):
        return self.is_access(n) and self.events[n].order != "plain"

    def acquires(self, n):
        return self.events[n].acquires()

    def releases(self, n):
        return self.events[n].releases()

    def same_location(self, relation):
        at = [event.location for event in self.events]
        return Relation((a, b) for a, b in relation if at[a] is not None and at[a] == at[b])

    def external(self, relation):
        by = [event.thread for event in self.events]
        return Relation((a, b) for a, b in relation if by[a] is None or by[a] != by[b])

    def fenced(self):
        """Accesses with a fence between them."""
        return self.po.between(self.is_access, self.is_fence).then(self.po.between(self.is_fence, self.is_access))

    def is_coherent(self):
        communication = self.rf | self.co | self.fr
        is_one = (self.same_location(self.po) | communication).is_acyclic()
        # No store comes between the halves of a read-modify-write.
        return is_one and not (self.rmw & self.fr.then(self.co))


def x86(e):
    is_ordered = lambda a, b: not (e.is_store(a) and e.is_load(b)) or e.is_atomic(a) or e.is_atomic(b)
    kept = Relation((a, b) for a, b in e.po if e.is_access(a) and e.is_access(b) and is_ordered(a, b))
    return e.is_coherent() and (kept | e.fenced() | e.external(e.rf) | e.fr | e.co).is_acyclic()


def armv8(e):
    observed = e.external(e.rf | e.fr | e.co)
    # The only dependency: a fetch_add's store has its load's number.
    dependent = Relation((a, b) for a, b in e.rmw if isinstance(e.events[b].value, tuple))
    internal = e.rf - e.external(e.rf)
    dependencies = dependent | dependent.then(internal)
    atomics = e.rmw | internal.between(e.is_atomic, e.acquires)
    barriers = e.fenced() | e.po.between(e.acquires, e.is_access) | e.po.between(e.is_access, e.releases)
    barriers |= e.po.between(e.releases, e.acquires)
    barriers |= e.po.between(e.is_access, e.releases).then(e.co - e.external(e.co))
    # Fences acquire and release too, in C; here they are in `fenced` alone.
    barriers = barriers.between(e.is_access, e.is_access)
    return e.is_coherent() and (observed | dependencies | atomics | barriers).is_acyclic()


def happens_before(e):
    sequence = e.identity.between(e.is_store, e.is_store)
    while True:
        longer = sequence | sequence.then(e.rf).then(e.rmw)
        if longer == sequence:
            break
        sequence = longer
    # A fence releases with the stores behind it, and acquires with the loads before it.
    left = (e.identity | e.po.between(e.is_fence, e.is_store)).between(e.releases, e.is_atomic_access)
    right = (e.identity | e.po.between(e.is_load, e.is_fence)).between(e.is_atomic_access, e.acquires)
    return (e.po | left.then(sequence).then(e.rf).then(right)).closed()


def rc11(e):
    happens = happens_before(e)
    extended = (e.rf | e.co | e.fr).closed()
    if not happens.is_irreflexive() or not happens.then(extended).is_irreflexive():
        return False
    if e.rmw & e.fr.then(e.co) or not (e.po | e.rf).is_acyclic():
        return False
    elsewhere = e.po - e.same_location(e.po)
    base = e.po | elsewhere.then(happens).then(elsewhere) | e.same_location(happens) | e.co | e.fr
    # All that is sequentially consistent are fences.
    maybe = happens | e.identity
    partial = maybe.between(e.is_fence, lambda n: True).then(base).then(maybe.between(lambda n: True, e.is_fence))
    fences = (happens | happens.then(extended).then(happens)).between(e.is_fence, e.is_fence)
    return (partial | fences).is_acyclic()


def has_race(e):
    happens = happens_before(e)
    for a, b in itertools.combinations(e.numbers, 2):
        one, other = e.events[a], e.events[b]
        conflicts = one.location is not None and one.location == other.location and "W" in one.kind + other.kind
        between_threads = None not in (one.thread, other.thread) and one.thread != other.thread
        if conflicts and between_threads and "plain" in (one.order, other.order):
            if (a, b) not in happens and (b, a) not in happens:
                return True
    return False


AXIOMS = {"rc11": rc11, "x86": x86, "armv8": armv8}


def value_of(store, reads_from, beneath=()):
    """What a store writes; None if that depends on itself."""
    if not isinstance(store.value, tuple):
        return store.value
    if store in beneath:
        return None
    _, load, number = store.value
    base = value_of(reads_from[load], reads_from, (*beneath, store))
    return None if base is None else base + number


def executions(events):
    loads = [event for event in events if event.kind == "R"]
    stores = {}
    for event in events:
        if event.kind == "W":
            stores.setdefault(event.location, []).append(event)
    # The initial store is the first.
    orders = [
        [(first, *rest) for rest in itertools.permutations(others)] for first, *others in stores.values()
    ]
    for sources in itertools.product(*(stores[load.location] for load in loads)):
        reads_from = dict(zip(loads, sources))
        if any(value_of(source, reads_from) is None for source in sources):
            continue
        for coherence in itertools.product(*orders):
            yield reads_from, coherence


def holds(terms, reads_from, coherence):
    for thread, name, value in terms:
        if thread is None:
            found = next(value_of(order[-1], reads_from) for order in coherence if order[0].location == name)
        else:
            found = next(
                value_of(store, reads_from) for load, store in reads_from.items()
                if load.register == name and load.thread == thread
            )
        if found != value:
            return False
    return True


def outcomes(events, filtered, wanted):
    """For each model the verdict, and how many executions it allows that meet the filter."""
    verdicts, looked_at = dict.fromkeys(MODELS, "Never"), dict.fromkeys(MODELS, 0)
    for reads_from, coherence in executions(events):
        if not holds(filtered, reads_from, coherence):
            continue
        execution = Execution(events, reads_from, coherence)
        for model in MODELS:
            if not AXIOMS[model](execution):
                continue
            looked_at[model] += 1
            if model == "rc11" and has_race(execution):
                verdicts[model] = "Race"
            elif verdicts[model] == "Never" and holds(wanted, reads_from, coherence):
                verdicts[model] = "Sometimes"
    return verdicts, looked_at


def main(files):
    if not files:
        sys.exit(__doc__)
    wrong = 0
    print(f"{'test':32}" + "".join(f"{model:>14}" for model in MODELS))
    for file in files:
        name = file.split("/")[-1].removesuffix(".litmus")
        try:
            with open(file, encoding="utf-8") as text:
                events, filtered, wanted, expect = parse(text.read())
        except (Refused, TypeError, AttributeError) as error:
            print(f"{name:32}  cannot be read: {error}")
            wrong += 1
            continue
        verdicts, looked_at = outcomes(events, filtered, wanted)
        faults = [f"{model} was to be {expect[model]}" for model in MODELS if verdicts[model] != expect[model]]
        # Without one, "Never" would say nothing.
        faults += [f"{model} has no execution to look at" for model in MODELS if not looked_at[model]]
        words = "".join(f"{verdicts[model]:>14}" for model in MODELS)
        wrong += bool(faults)
        print(f"{name:32}{words}" + ("  " + "; ".join(faults) if faults else ""))
    print(f"{len(files) - wrong} of {len(files)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
