/*
 * Lists that readers walk in read-side critical sections while one writer at a time changes them, with the kernel's names. SPDX: MIT OR Apache-2.0
 *
 * A list is a ring of struct list_head; a table's bucket is a chain of struct hlist_node with a head of one word. Entries embed them. Writers
 * exclude each other, and wait for a grace period (or leave that to kvfree_rcu() or call_rcu()) between unlinking an entry and freeing it or
 * adding it to a list again. Readers walk forwards; only writers use `prev` and `pprev`.
 *
 *  - An added entry is complete before a reader can find it: the store that links it is a release, and the readers' loads depend on it.
 *  - Unlinking is a release too: a reader that takes the new link need not have seen the store that linked the entry behind it.
 *  - A removed entry keeps its `next`, so a reader on it returns to the list. Its back link is cleared, so removing it twice faults at once.
 *
 * Functions without effects that a reader could see (a writer's `list_empty()`, say) are those of the kernel's list.h. If another header defines
 * struct list_head and struct hlist_head, with these fields, define STILLPOINT_OWN_LISTS before including this one.
 */
#ifndef STILLPOINT_RCULIST_H
#define STILLPOINT_RCULIST_H

#include <stillpoint/rcupdate.h>

#ifdef __cplusplus
extern "C++" {
#endif

#ifndef STILLPOINT_OWN_LISTS

struct list_head {
    struct list_head *next, *prev;
};

struct hlist_node {
    struct hlist_node *next, **pprev;
};

struct hlist_head {
    struct hlist_node *first;
};

#define LIST_HEAD_INIT(name) {&(name), &(name)}
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)
#define HLIST_HEAD_INIT {STILLPOINT_NULL_}
#define HLIST_HEAD(name) struct hlist_head name = HLIST_HEAD_INIT

STILLPOINT_INLINE_ void INIT_LIST_HEAD(struct list_head *list)
{
    __atomic_store_n(&list->next, list, __ATOMIC_RELAXED);
    list->prev = list;
}

STILLPOINT_INLINE_ int list_empty(const struct list_head *head)
{
    return __atomic_load_n(&head->next, __ATOMIC_RELAXED) == head;
}

STILLPOINT_INLINE_ void INIT_HLIST_HEAD(struct hlist_head *head)
{
    __atomic_store_n(&head->first, STILLPOINT_NULL_, __ATOMIC_RELAXED);
}

STILLPOINT_INLINE_ void INIT_HLIST_NODE(struct hlist_node *node)
{
    node->next = STILLPOINT_NULL_;
    node->pprev = STILLPOINT_NULL_;
}

STILLPOINT_INLINE_ int hlist_unhashed(const struct hlist_node *node)
{
    return node->pprev == STILLPOINT_NULL_;
}

STILLPOINT_INLINE_ int hlist_empty(const struct hlist_head *head)
{
    return __atomic_load_n(&head->first, __ATOMIC_RELAXED) == STILLPOINT_NULL_;
}

#endif

/* ---- Rings ---- */

/* Makes a list empty while readers may already be looking at it. */
STILLPOINT_INLINE_ void INIT_LIST_HEAD_RCU(struct list_head *list)
{
    __atomic_store_n(&list->next, list, __ATOMIC_RELAXED);
    __atomic_store_n(&list->prev, list, __ATOMIC_RELAXED);
}

STILLPOINT_INLINE_ void stillpoint_list_add_(struct list_head *added, struct list_head *before, struct list_head *after)
{
    added->next = after;
    added->prev = before;
    rcu_assign_pointer(before->next, added);
    after->prev = added;
}

/* Adds the first entry. */
STILLPOINT_INLINE_ void list_add_rcu(struct list_head *added, struct list_head *head)
{
    stillpoint_list_add_(added, head, head->next);
}

/* Adds the last entry. */
STILLPOINT_INLINE_ void list_add_tail_rcu(struct list_head *added, struct list_head *head)
{
    stillpoint_list_add_(added, head->prev, head);
}

/* Unlinks an entry. It may be freed, or added again, after a grace period. */
STILLPOINT_INLINE_ void list_del_rcu(struct list_head *entry)
{
    entry->next->prev = entry->prev;
    rcu_assign_pointer(entry->prev->next, entry->next);
    entry->prev = STILLPOINT_NULL_;
}

/* Replaces an entry: a reader finds the old or the new one. The old one is then as after list_del_rcu(). */
STILLPOINT_INLINE_ void list_replace_rcu(struct list_head *old, struct list_head *added)
{
    added->next = old->next;
    added->prev = old->prev;
    rcu_assign_pointer(added->prev->next, added);
    added->next->prev = added;
    old->prev = STILLPOINT_NULL_;
}

/*
 * Moves all entries of `list` to the front of `head`. Readers may be on `list` meanwhile: it is emptied first, so that new readers find nothing;
 * then `sync` waits for a grace period (synchronize_rcu, say); only then are the entries linked elsewhere.
 */
STILLPOINT_INLINE_ void list_splice_init_rcu(struct list_head *list, struct list_head *head, void (*sync)(void))
{
    struct list_head *first = list->next, *last = list->prev, *after = head->next;

    if (first == list) {
        return;
    }
    INIT_LIST_HEAD_RCU(list);
    sync();
    last->next = after;
    rcu_assign_pointer(head->next, first);
    first->prev = head;
    after->prev = last;
}

/* The link itself: `rcu_dereference(list_next_rcu(list))`. */
#define list_next_rcu(list) (*(&(list)->next))

/* The entry of a link that may change meanwhile: `list_entry_rcu(head->next, struct thing, link)`. */
#define list_entry_rcu(link, type, member) STILLPOINT_AROUND_(rcu_dereference(link), type, member)

STILLPOINT_INLINE_ struct list_head *stillpoint_next_or_null_(struct list_head *head, struct list_head *at)
{
    struct list_head *next = rcu_dereference(list_next_rcu(at));
    return next == head ? STILLPOINT_NULL_ : next;
}

STILLPOINT_INLINE_ struct list_head *stillpoint_first_or_null_(struct list_head *head)
{
    return stillpoint_next_or_null_(head, head);
}

STILLPOINT_INLINE_ void *stillpoint_around_or_null_(void *link, size_t offset)
{
    return link ? STILLPOINT_CAST_(char *, link) - offset : STILLPOINT_NULL_;
}

/* Casts a void pointer. */
#ifdef __cplusplus
#define STILLPOINT_OF_VOID_(type, pointer) static_cast<type>(pointer)
#else
#define STILLPOINT_OF_VOID_(type, pointer) ((type)(pointer))
#endif

/* The first entry, or NULL. Loads the link once, unlike list_empty() followed by a load. */
#define list_first_or_null_rcu(head, type, member) \
    STILLPOINT_OF_VOID_(type *, stillpoint_around_or_null_(stillpoint_first_or_null_(head), offsetof(type, member)))
/* The entry after `at`, or NULL. */
#define list_next_or_null_rcu(head, at, type, member) \
    STILLPOINT_OF_VOID_(type *, stillpoint_around_or_null_(stillpoint_next_or_null_((head), (at)), offsetof(type, member)))

/* The kernel's loops also take a condition under which no section is needed; it is ignored. */
#define STILLPOINT_FIRST_(first, ...) first

/* Visits each entry, inside a section: `list_for_each_entry_rcu(at, head, member)`. */
#define list_for_each_entry_rcu(at, head, ...) STILLPOINT_LIST_EACH_(at, head, STILLPOINT_FIRST_(__VA_ARGS__, 0))
#define STILLPOINT_LIST_EACH_(at, head, member)                                                   \
    for ((at) = list_entry_rcu((head)->next, __typeof__(*(at)), member); &(at)->member != (head); \
         (at) = list_entry_rcu((at)->member.next, __typeof__(*(at)), member))
/* Continues after `at`, which the section has found. */
#define list_for_each_entry_continue_rcu(at, head, member)                                                       \
    for ((at) = list_entry_rcu((at)->member.next, __typeof__(*(at)), member); &(at)->member != (head); \
         (at) = list_entry_rcu((at)->member.next, __typeof__(*(at)), member))
/* Continues with `at`. */
#define list_for_each_entry_from_rcu(at, head, member) \
    for (; &(at)->member != (head); (at) = list_entry_rcu((at)->member.next, __typeof__(*(at)), member))

/* ---- Chains ---- */

#define hlist_first_rcu(head) (*(&(head)->first))
#define hlist_next_rcu(node) (*(&(node)->next))

STILLPOINT_INLINE_ void stillpoint_hlist_add_(struct hlist_node *added, struct hlist_node **place)
{
    struct hlist_node *after = *place;

    added->next = after;
    added->pprev = place;
    rcu_assign_pointer(*place, added);
    if (after) {
        after->pprev = &added->next;
    }
}

STILLPOINT_INLINE_ void hlist_add_head_rcu(struct hlist_node *added, struct hlist_head *head)
{
    stillpoint_hlist_add_(added, &head->first);
}

STILLPOINT_INLINE_ void hlist_add_behind_rcu(struct hlist_node *added, struct hlist_node *before)
{
    stillpoint_hlist_add_(added, &before->next);
}

STILLPOINT_INLINE_ void hlist_add_before_rcu(struct hlist_node *added, struct hlist_node *after)
{
    stillpoint_hlist_add_(added, after->pprev);
}

/* Adds the last node: walks the whole chain. */
STILLPOINT_INLINE_ void hlist_add_tail_rcu(struct hlist_node *added, struct hlist_head *head)
{
    struct hlist_node **place = &head->first;

    while (*place) {
        place = &(*place)->next;
    }
    stillpoint_hlist_add_(added, place);
}

/* Unlinks a node. It may be freed, or added again, after a grace period. */
STILLPOINT_INLINE_ void hlist_del_rcu(struct hlist_node *node)
{
    rcu_assign_pointer(*node->pprev, node->next);
    if (node->next) {
        node->next->pprev = node->pprev;
    }
    node->pprev = STILLPOINT_NULL_;
}

/* The same for a node that may be on no chain. Afterwards it is unhashed. */
STILLPOINT_INLINE_ void hlist_del_init_rcu(struct hlist_node *node)
{
    if (node->pprev) {
        hlist_del_rcu(node);
    }
}

STILLPOINT_INLINE_ void hlist_replace_rcu(struct hlist_node *old, struct hlist_node *added)
{
    added->next = old->next;
    added->pprev = old->pprev;
    rcu_assign_pointer(*added->pprev, added);
    if (added->next) {
        added->next->pprev = &added->next;
    }
    old->pprev = STILLPOINT_NULL_;
}

#define STILLPOINT_HLIST_ENTRY_(node, at, member)                 \
    STILLPOINT_OF_VOID_(__typeof__(at), stillpoint_around_or_null_( \
        rcu_dereference(node), offsetof(__typeof__(*(at)), member)))

#define hlist_for_each_entry_rcu(at, head, ...) STILLPOINT_HLIST_EACH_(at, head, STILLPOINT_FIRST_(__VA_ARGS__, 0))
#define STILLPOINT_HLIST_EACH_(at, head, member) \
    for ((at) = STILLPOINT_HLIST_ENTRY_((head)->first, at, member); (at); (at) = STILLPOINT_HLIST_ENTRY_((at)->member.next, at, member))
#define hlist_for_each_entry_continue_rcu(at, member) \
    for ((at) = STILLPOINT_HLIST_ENTRY_((at)->member.next, at, member); (at); (at) = STILLPOINT_HLIST_ENTRY_((at)->member.next, at, member))
#define hlist_for_each_entry_from_rcu(at, member) \
    for (; (at); (at) = STILLPOINT_HLIST_ENTRY_((at)->member.next, at, member))

#ifdef __cplusplus
}
#endif

#endif
