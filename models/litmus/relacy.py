#!/usr/bin/env python3
"""Writes the litmus tests as a C++ program for the checker Relacy: relacy.py FILE... > all.cpp

Relacy runs the threads of a test in all schedules, and lets loads find all stores that they may, by
C11's rules. What it shows is possible; what it does not show may still be: a store is never found
before it is made, and stores to one location are in the order in which they were made. So it shows
no load buffering, as rc11, and no shape that needs stores to change places. Its release sequences
are C++11's, which later stores of the same thread continue. Where a file expects another verdict of
it than of rc11 for one of these reasons, its line "Expect=" has `relacy:`.

A thread ends where its part of `filter` does not hold.
"""

import sys

import check

HEAD = """#include <cstdio>
#include <cstring>
#include <sstream>
#include <relacy/relacy.hpp>
#include <sys/wait.h>
#include <unistd.h>

template <class Test> [[noreturn]] static void look(const char *name, const char *expected)
{
    rl::test_params params;
    std::ostringstream log;
    params.search_type = rl::sched_full;
    params.output_stream = &log;
    params.progress_stream = &log;
    bool passed = rl::simulate<Test>(params);
    const char *verdict = Test::seen ? "Sometimes" : "Never";
    if (!passed)
        verdict = params.test_result == rl::test_result_data_race ? "Race" : "Error";
    bool agrees = !std::strcmp(verdict, expected), has_looked = Test::looked || !passed;
    std::printf("%-32s%14s%s%s\\n", name, verdict, agrees ? "" : "  was to be ", agrees ? "" : expected);
    if (!has_looked)
        std::printf("%-32s has no execution to look at\\n", name);
    std::fflush(stdout);
    _exit(agrees && has_looked ? 0 : 1);
}

// Each test has a process: what a race leaves behind cannot be destroyed, nor used for another test.
template <class Test> static int run(const char *name, const char *expected)
{
    pid_t child = fork();
    if (child == 0)
        look<Test>(name, expected);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) {
        std::printf("%-32s  did not run to its end\\n", name);
        return 1;
    }
    return WEXITSTATUS(status);
}
"""


def name_of(event):
    return f"t{event.thread}_{event.register}"


def operation(event):
    """The C++ of a load, a store, or the first half of a read-modify-write."""
    at, order = event.location, f"rl::mo_{event.order}"
    if event.kind == "F":
        return "rl::atomic_thread_fence(rl::mo_seq_cst, $);"
    if event.order == "plain":
        return f"{name_of(event)} = {at}($);" if event.kind == "R" else f"{at}($) = {event.value};"
    if event.other_half:
        value = event.other_half.value
        call = f"fetch_add({value[2]}" if isinstance(value, tuple) else f"exchange({value}"
        return f"{name_of(event)} = {at}.{call}, {order}, $);"
    if event.kind == "R":
        return f"{name_of(event)} = {at}.load({order}, $);"
    return f"{at}.store({event.value}, {order}, $);"


def test(number, events, filtered, wanted):
    initial = [event for event in events if event.thread is None]
    run = [event for event in events if event.thread is not None]
    threads = 1 + max(event.thread for event in run)
    plain = {event.location for event in run if event.order == "plain"}
    registers = [name_of(event) for event in run if event.register]
    lines = [f"struct test{number} : rl::test_suite<test{number}, {threads}> {{"]
    lines.append("    static bool seen, looked;")
    lines += [f"    rl::{'var' if e.location in plain else 'atomic'}<int> {e.location};" for e in initial]
    lines.append(f"    int {', '.join([*registers, *(f'end_{e.location}' for e in initial)])};")
    lines.append(f"    bool whole[{threads}];")
    lines.append("    void before() {")
    for event in initial:
        store = f"({event.value}, rl::mo_relaxed, $)" if event.location not in plain else f"($) = {event.value}"
        lines.append(f"        {event.location}{'' if event.location in plain else '.store'}{store};")
    lines += [f"        whole[{thread}] = false;" for thread in range(threads)]
    lines.append("    }")
    lines.append("    void thread(unsigned index) {")
    for thread in range(threads):
        lines.append(f"        if (index == {thread}) {{")
        for event in (event for event in run if event.thread == thread):
            if event.kind == "W" and event.other_half:
                continue
            lines.append(f"            {operation(event)}")
            for at, name, value in filtered:
                if at == thread and event.register == name:
                    lines.append(f"            if ({name_of(event)} != {value}) return;")
        lines.append(f"            whole[{thread}] = true;")
        lines.append("        }")
    lines.append("    }")
    lines.append("    void after() {")
    lines.append("        if (" + " || ".join(f"!whole[{thread}]" for thread in range(threads)) + ") return;")
    lines.append("        looked = true;")
    for event in initial:
        load = f"{event.location}($)" if event.location in plain else f"{event.location}.load(rl::mo_relaxed, $)"
        lines.append(f"        end_{event.location} = {load};")
    condition = (f"{f'end_{name}' if at is None else f't{at}_{name}'} == {value}" for at, name, value in wanted)
    lines.append(f"        seen |= {' && '.join(condition)};")
    lines.append("    }")
    lines.append("};")
    lines.append(f"bool test{number}::seen, test{number}::looked;")
    return lines


def main(files):
    if not files:
        sys.exit(__doc__)
    calls = []
    print(HEAD)
    for number, file in enumerate(files):
        with open(file, encoding="utf-8") as text:
            events, filtered, wanted, expect = check.parse(text.read())
        print("\n".join(test(number, events, filtered, wanted)))
        name = file.split("/")[-1].removesuffix(".litmus")
        calls.append(f'    wrong += run<test{number}>("{name}", "{expect.get("relacy", expect["rc11"])}");')
    print("int main()\n{\n    int wrong = 0;\n    std::setvbuf(stdout, nullptr, _IOLBF, 0);")
    print("\n".join(calls))
    print(f'    std::printf("%d of {len(files)} as expected\\n", {len(files)} - wrong);\n    return wrong != 0;\n}}')


if __name__ == "__main__":
    main(sys.argv[1:])
