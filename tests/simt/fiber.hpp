// Stacks and switches of the emulator, over Boost.Context. Compiled without sanitizers (tests/CMakeLists.txt).
#pragma once

#include <cstddef>

namespace fathom::simt {

struct Fiber;
// A fiber that calls body(argument) when it is first entered; body never returns. Never destroyed: fibers are kept and reused.
Fiber* fiber_new(std::size_t stack_bytes, void (*body)(void*), void* argument);
void fiber_enter(Fiber* fiber);  // from the scheduler
void fiber_leave(Fiber* fiber);  // back to it
const void* fiber_stack_low(const Fiber* fiber);
std::size_t fiber_stack_size(const Fiber* fiber);

}  // namespace fathom::simt
