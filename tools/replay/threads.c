// SPDX-License-Identifier: MIT
// threads.c: instances, their threads, and the seats these sit on
//
// A thread is made by the thread the plan says, in recorded order, and joined where the plan says, or by the main of
// its instance at the end. pthread_create itself asks malloc for one small block for each thread (the vector of
// its thread-local storage, freed when it is joined): the C library offers no other way to make a thread
// whose thread-local storage allocators can use.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "replay.h"
#include "touch.h"

qy_instance_t *qy_instances;
qy_seat_t *qy_seats;
uint32_t qy_seat_count;

// All instances start at once. Waiters sleep: there may be more of them than processors.
static _Atomic uint32_t go, go_waiters;

// ---- before ------------------------------------------------------------------------------------------

static void prepare_seat(qy_seat_t *seat, size_t stack) {
    if (stack) seat->stack = qy_own_stack(stack);
    if (qy_config.timed) seat->histograms = qy_own(QY_PLAN_KINDS, sizeof *seat->histograms);
}

static void prepare_instance(qy_instance_t *instance, uint32_t number) {
    const qy_plan_head_t *head = qy_plan.head;
    instance->plan = &qy_plan;
    instance->number = number;
    instance->slots = qy_own(head->slots, sizeof *instance->slots);
    instance->actors = qy_own(head->threads, sizeof *instance->actors);
    instance->remaining = qy_own(head->epochs, sizeof *instance->remaining);
    uint32_t told = qy_config.repeats < QY_REPEATS_TOLD ? qy_config.repeats : QY_REPEATS_TOLD;
    if (!number) instance->repeat_ns = qy_own(told, sizeof *instance->repeat_ns);
    pthread_mutex_init(&instance->seats_lock, 0);
    for (uint32_t s = 0; s < head->alive; s++) {
        qy_seat_t *seat = &qy_seats[number * head->alive + s];
        // The main of instance 0 has the stack the process was given.
        prepare_seat(seat, number || s ? qy_stack_size() : 0);
        if (!s) {
            instance->main_seat = seat;
        } else {
            seat->next = instance->free_seats;
            instance->free_seats = seat;
        }
    }
    bool exact = !number && qy_config.curve_step && (qy_plan.strict || head->threads == 1);
    if (!exact) return;
    instance->curve = qy_own(head->operations[0] / qy_config.curve_step + 1, sizeof *instance->curve);
    instance->curve_next = qy_config.curve_step;
}

void qy_prepare(void) {
    uint64_t seats = (uint64_t)qy_plan.head->alive * qy_config.instances;
    if (seats > 1u << 20) qy_fail(QY_SYSTEM, "%llu threads at once are too many", (unsigned long long)seats);
    qy_seat_count = (uint32_t)seats;
    qy_seats = qy_own(seats, sizeof *qy_seats);
    qy_instances = qy_own(qy_config.instances, sizeof *qy_instances);
    for (uint32_t i = 0; i < qy_config.instances; i++) prepare_instance(&qy_instances[i], i);
}

// ---- threads of a plan -------------------------------------------------------------------------------

pthread_t qy_make_thread(qy_seat_t *seat, void *(*start)(void *), void *arg) {
    pthread_attr_t attributes;
    pthread_t handle;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, seat->stack, qy_stack_size());
    int error = pthread_create(&handle, &attributes, start, arg);
    pthread_attr_destroy(&attributes);
    if (error) qy_fail(QY_SYSTEM, "no thread: %s", strerror(error));
    return handle;
}

static void *actor_main(void *arg) {
    qy_actor_t *actor = arg;
    qy_run(actor->instance, actor->thread, actor->seat);
    return 0;
}

// SPAWNs are done one after the other, each by the thread whose turn it is; `ticket` says which is next.
void qy_spawn(qy_instance_t *instance, qy_seat_t *seat, uint32_t thread, uint32_t number) {
    qy_actor_t *actor = &instance->actors[thread];
    qy_await_word(seat, &instance->ticket, number, &instance->ticket_waiters);
    pthread_mutex_lock(&instance->seats_lock);
    qy_seat_t *given = instance->free_seats;
    if (given) instance->free_seats = given->next;
    pthread_mutex_unlock(&instance->seats_lock);
    // check.c joins threads as early as possible; a plan made by hand may come to that later than it says.
    if (!given) qy_fail(QY_REFUSED, "the plan has more threads at once than it says");
    actor->instance = instance;
    actor->thread = thread;
    actor->seat = given;
    actor->handle = qy_make_thread(given, actor_main, actor);
    qy_set_word(&actor->born, 1, &actor->born_waiters);
    qy_set_word(&instance->ticket, number + 1, &instance->ticket_waiters);
}

void qy_join(qy_instance_t *instance, qy_seat_t *seat, uint32_t thread) {
    qy_actor_t *actor = &instance->actors[thread];
    qy_await_word(seat, &actor->born, 1, &actor->born_waiters);
    uint64_t begin = qy_now_ns();
    pthread_join(actor->handle, 0);
    seat->waited_ns += qy_now_ns() - begin;
    pthread_mutex_lock(&instance->seats_lock);
    actor->seat->next = instance->free_seats;
    instance->free_seats = actor->seat;
    pthread_mutex_unlock(&instance->seats_lock);
}

// ---- repeats -----------------------------------------------------------------------------------------

static void reset(qy_instance_t *instance) {
    const qy_plan_head_t *head = instance->plan->head;
    for (uint32_t s = 0; s < head->slots; s++)
        atomic_store_explicit(&instance->slots[s].stamp, 0, memory_order_relaxed);
    for (uint32_t t = 0; t < head->threads; t++) atomic_store(&instance->actors[t].born, 0);
    for (uint32_t e = 0; e < head->epochs; e++)
        atomic_store_explicit(&instance->remaining[e], instance->plan->epoch_parts[e], memory_order_relaxed);
    atomic_store(&instance->frontier, 0);
    atomic_store(&instance->turn, 0);
    atomic_store(&instance->ticket, 0);
    qy_advance(instance);
}

void qy_leave(qy_instance_t *instance) {
    uint64_t begin = qy_now_ns();
    qy_seat_t *seat = instance->main_seat;
    for (uint32_t s = 0; s < instance->plan->head->slots; s++) {
        qy_slot_t *slot = &instance->slots[s];
        if (!slot->ptr) continue;
        if (qy_config.verify) qy_examine(seat, QY_NONE, slot->ptr, slot->size, s, atomic_load(&slot->stamp));
        instance->left_blocks++;
        instance->left_bytes += slot->size;
        atomic_fetch_sub_explicit(&seat->live, (int64_t)slot->size, memory_order_relaxed);
        free(slot->ptr);
        slot->ptr = 0;
        slot->size = 0;
    }
    instance->left_ns += qy_now_ns() - begin;
}

// What is done between two repeats is not the plan's. No other thread of the instance is there then.
static void between(qy_instance_t *instance) {
    qy_usage_t before, after;
    qy_read_usage(&before, RUSAGE_THREAD);
    qy_leave(instance);
    reset(instance);
    qy_read_usage(&after, RUSAGE_THREAD);
    qy_usage_add(&instance->between, &before, &after);
}

static void play_instance(qy_instance_t *instance) {
    for (uint32_t r = 0; r < qy_config.repeats; r++) {
        if (r) between(instance);
        else reset(instance);
        atomic_fetch_add(&qy_board->playing, 1);
        instance->start_ns = qy_now_ns();
        qy_run(instance, 0, instance->main_seat);
        for (uint32_t t = 1; t < instance->plan->head->threads; t++) {
            if (instance->plan->life[t] == QY_MADE) qy_join(instance, instance->main_seat, t);
        }
        uint64_t took = qy_now_ns() - instance->start_ns;
        atomic_fetch_sub(&qy_board->playing, 1);
        instance->play_ns += took;
        if (instance->repeat_ns && r < QY_REPEATS_TOLD) instance->repeat_ns[r] = took;
        if (qy_config.classic) qy_classic_repeat(instance);
        instance->curve_next = 0;  // one repeat's curve is enough
    }
}

static void *instance_main(void *arg) {
    qy_instance_t *instance = arg;
    qy_await_word(instance->main_seat, &go, 1, &go_waiters);
    instance->main_seat->waited_ns = 0;
    play_instance(instance);
    return 0;
}

void qy_play_all(void) {
    for (uint32_t i = 1; i < qy_config.instances; i++)
        qy_instances[i].main_handle = qy_make_thread(qy_instances[i].main_seat, instance_main, &qy_instances[i]);
    qy_sampler_go(qy_now_ns());
    qy_set_word(&go, 1, &go_waiters);
    play_instance(&qy_instances[0]);
    for (uint32_t i = 1; i < qy_config.instances; i++) pthread_join(qy_instances[i].main_handle, 0);
}
