// SPDX-License-Identifier: MIT
// pool.hpp: pools for C++17: as a std::pmr::memory_resource, as an STL allocator, and owned.
//
//   quarry::pool fifo{quarry_fifo_create(nullptr)};          // destroyed with the variable
//   quarry::memory_resource resource{fifo.get()};
//   std::pmr::vector<std::pmr::string> lines{&resource};     // every container and string on the pool
//
//   std::list<int, quarry::allocator<int>> list{fifo.get()};
//
// Both throw std::bad_alloc when the pool refuses; in a program without exceptions that ends the process. Neither owns
// the pool, which must outlive the containers.
// In a pool of frames (stack, ring) what a container gives back stays until its frame ends.
// Threads: as the pool. Cost: one indirect call for the resource, and one for the pool.
#ifndef QUARRY_POOL_HPP
#define QUARRY_POOL_HPP

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

#include <quarry/pool.h>

namespace quarry {

namespace detail {
// Throw E, where there are exceptions.
template <class E>
[[noreturn]] inline void refused() {
#ifdef __cpp_exceptions
    throw E();
#else
    std::abort();
#endif
}
}  // namespace detail

/// A pool as the standard library's memory resource.
class memory_resource final : public std::pmr::memory_resource {
  public:
    explicit memory_resource(quarry_pool_t *pool) noexcept : pool_(pool) {}
    quarry_pool_t *pool() const noexcept { return pool_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        if (void *p = quarry_pool_alloc(pool_, bytes, alignment, 0)) return p;
        detail::refused<std::bad_alloc>();
    }
    void do_deallocate(void *p, std::size_t bytes, std::size_t) override { quarry_pool_free(pool_, p, bytes); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
        auto *same = dynamic_cast<const memory_resource *>(&other);
        return same && same->pool_ == pool_;
#else
        return this == &other;  // what it is cannot be asked: then only itself
#endif
    }
    quarry_pool_t *pool_;
};

/// A pool as an allocator for containers, without the resource's virtual call. Containers that are swapped or
/// moved take the pool along with the memory; copies of a container use the pool of the original.
template <class T>
class allocator {
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    // not explicit: containers take a pool where they take an allocator
    allocator(quarry_pool_t *pool) noexcept : pool_(pool) {}
    template <class U>
    allocator(const allocator<U> &other) noexcept : pool_(other.pool()) {}

    T *allocate(std::size_t n) {
        if (n > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T))
            detail::refused<std::bad_array_new_length>();
        if (void *p = quarry_pool_alloc(pool_, n * sizeof(T), alignof(T), 0)) return static_cast<T *>(p);
        detail::refused<std::bad_alloc>();
    }
    void deallocate(T *p, std::size_t n) noexcept { quarry_pool_free(pool_, p, n * sizeof(T)); }
    quarry_pool_t *pool() const noexcept { return pool_; }

  private:
    quarry_pool_t *pool_;
};
template <class T, class U>
bool operator==(const allocator<T> &a, const allocator<U> &b) noexcept { return a.pool() == b.pool(); }
template <class T, class U>
bool operator!=(const allocator<T> &a, const allocator<U> &b) noexcept { return a.pool() != b.pool(); }

/// An owned pool.
struct pool_destroy {
    void operator()(quarry_pool_t *pool) const noexcept { quarry_pool_destroy(pool); }
};
using pool = std::unique_ptr<quarry_pool_t, pool_destroy>;

/// An object in a pool: its destructor runs and its memory goes back when the pointer ends.
template <class T>
struct object_delete {
    quarry_pool_t *pool;
    void operator()(T *object) const noexcept {
        object->~T();
        quarry_pool_free(pool, object, sizeof(T));
    }
};
template <class T>
using unique_ptr = std::unique_ptr<T, object_delete<T>>;

/// Make one. Throws std::bad_alloc, and what T's constructor throws.
template <class T, class... Args>
unique_ptr<T> make_unique(quarry_pool_t *pool, Args &&...args) {
    void *p = quarry_pool_alloc(pool, sizeof(T), alignof(T), 0);
    if (!p) detail::refused<std::bad_alloc>();
#ifdef __cpp_exceptions
    try {
        return unique_ptr<T>(::new (p) T(std::forward<Args>(args)...), object_delete<T>{pool});
    } catch (...) {
        quarry_pool_free(pool, p, sizeof(T));
        throw;
    }
#else
    return unique_ptr<T>(::new (p) T(std::forward<Args>(args)...), object_delete<T>{pool});
#endif
}

}  // namespace quarry

#endif
