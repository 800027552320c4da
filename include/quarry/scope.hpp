// SPDX-License-Identifier: MIT
// scope.hpp: a scope as an object, for C++17. scope.h says what a scope is.
//
//   {
//       quarry::scope scope;                                    // a frame of the thread's stack
//       int *squares = QUARRY_SCOPE_NEW(int, 100);              // ends with it, zeroed. With scope.h: t_new
//       quarry::memory_resource resource{scope.pool()};         // for containers, which end before the scope does
//       std::pmr::vector<int> v{&resource};
//   }
//
// No destructors run for what QUARRY_SCOPE_NEW makes: T should not need one. QUARRY_SCOPE itself works in C++ as well.
// Threads: a scope belongs to the thread that made it. Exceptions end scopes in order. Cost: as QUARRY_SCOPE.
#ifndef QUARRY_SCOPE_HPP
#define QUARRY_SCOPE_HPP

#include <new>

#include <quarry/pool.hpp>
#include <quarry/stack.h>

namespace quarry {

/// A frame of the calling thread's stack, or of the stack that is given. It ends with the variable, the innermost
/// first.
class scope {
  public:
    [[gnu::always_inline]] scope() noexcept : hot_(QUARRY_THREAD_STACK) { frame_ = quarry_stack_enter(hot_, &frame_); }
    explicit scope(quarry_pool_t *stack) noexcept : hot_(quarry_stack_hot_of(stack)) {
        frame_ = quarry_stack_enter(hot_, &frame_);
    }
    [[gnu::always_inline]] ~scope() { quarry_stack_leave(hot_, &frame_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    void *operator new(std::size_t) = delete;  // frames end in order only as variables

    /// The stack as a pool. Throws std::bad_alloc if the thread has none yet and there is no memory for it.
    quarry_pool_t *pool() const {
        if (hot_->stack) return &hot_->stack->pool;
        if (quarry_pool_t *p = quarry_stack_of_thread()) return p;
        detail::refused<std::bad_alloc>();
    }

  private:
    quarry_stack_hot_t *hot_;
    quarry_stack_frame_t frame_;
};

}  // namespace quarry

#endif
