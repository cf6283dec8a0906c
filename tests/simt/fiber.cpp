#include "tests/simt/fiber.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

namespace fathom::simt {

namespace bc = boost::context;

struct Fiber {
  bc::fiber self, scheduler;
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
  bc::stack_context stack;
};

Fiber* fiber_new(std::size_t stack_bytes, void (*body)(void*), void* argument) {
  auto* fiber = new Fiber;
  fiber->body = body;
  fiber->argument = argument;
  bc::protected_fixedsize_stack allocator(stack_bytes);
  fiber->stack = allocator.allocate();
  fiber->self = bc::fiber(std::allocator_arg, bc::preallocated(fiber->stack.sp, fiber->stack.size, fiber->stack), allocator, [fiber](bc::fiber&& from) {
    fiber->scheduler = std::move(from);
    fiber->body(fiber->argument);
    return bc::fiber{};
  });
  return fiber;
}

void fiber_enter(Fiber* fiber) { fiber->self = std::move(fiber->self).resume(); }
void fiber_leave(Fiber* fiber) { fiber->scheduler = std::move(fiber->scheduler).resume(); }
const void* fiber_stack_low(const Fiber* fiber) { return static_cast<const char*>(fiber->stack.sp) - fiber->stack.size; }
std::size_t fiber_stack_size(const Fiber* fiber) { return fiber->stack.size; }

}  // namespace fathom::simt
