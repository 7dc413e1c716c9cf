// What must not compile: one CASE at a time; 0 is what they have in common, which compiles. `// says:` is what the compiler must print.
#include "clause.hpp"

#include <mutex>

struct plain : rcu::rcu_obj_base<plain> {};
struct other : rcu::rcu_obj_base<other> {};

#if CASE == 1 // says: one base rcu_obj_base
struct hidden : private rcu::rcu_obj_base<hidden> {
    void go() { retire(); }
};
void bad(hidden *p) { p->go(); }
#elif CASE == 2 // says: one base rcu_obj_base
struct shared : virtual rcu::rcu_obj_base<shared> {};
void bad(shared *p) { p->retire(); }
#elif CASE == 3 // says: one base rcu_obj_base
struct both : rcu::rcu_obj_base<both>, other {};
void bad(both *p) { p->rcu::rcu_obj_base<both>::retire(); }
#elif CASE == 4 // says: one base rcu_obj_base
struct stranger {};
struct wrong : rcu::rcu_obj_base<stranger> {};
void bad(wrong *p) { p->retire(); }
#elif CASE == 5 // says: protected
rcu::rcu_obj_base<plain> bad;
#elif CASE == 6 // says: protected
void bad(rcu::rcu_obj_base<plain> *p) { delete p; }
#elif CASE == 7 // says: deleted
auto bad = rcu::rcu_default_domain();
#elif CASE == 8 // says: deleted
void bad() { rcu::rcu_default_domain() = rcu::rcu_default_domain(); }
#elif CASE == 9 // says: private
rcu::rcu_domain bad{};
#elif CASE == 10 // says: well-formed
struct for_nothing {};
void bad(int *p) { rcu::rcu_retire(p, for_nothing{}); }
#elif CASE == 11 // says: move-constructible
struct stays {
    stays() = default;
    stays(stays &&) = delete;
    void operator()(int *) {}
};
void bad(int *p) { rcu::rcu_retire<int, stays>(p, {}); }
#elif CASE == 12 // says: must be valid
struct of_others {
    void operator()(other *) {}
};
struct mine : rcu::rcu_obj_base<mine, of_others> {};
void bad(mine *p) { p->retire(); }
#elif CASE == 13 // says: move-assignable
struct for_ever {
    const int state = 0;
    void operator()(void *) {}
};
struct kept : rcu::rcu_obj_base<kept, for_ever> {};
void bad(kept *p) { p->retire(); }
#elif CASE == 14 // says: incomplete
struct incomplete;
void bad(incomplete *p) { rcu::rcu_retire(p); }
#elif CASE == 15 // says: well-formed
struct has_member {};
void bad(has_member *p) { rcu::rcu_retire(p, static_cast<void (has_member::*)()>(nullptr)); }
#elif CASE == 16 // says: one base rcu_obj_base
struct first : rcu::rcu_obj_base<plain> {};
struct twice : first, rcu::rcu_obj_base<twice> {};
void bad(twice *p) { p->rcu::rcu_obj_base<twice>::retire(); }
#elif CASE == 17 // says: one base rcu_obj_base
struct guarded : protected rcu::rcu_obj_base<guarded> {
    void go() { retire(); }
};
void bad(guarded *p) { p->go(); }
#endif

int main() {}
