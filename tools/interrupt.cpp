#include "tools/interrupt.hpp"

#include <csignal>
#include <unistd.h>

namespace fathom {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) {
  if (g_interrupted) _exit(130);
  g_interrupted = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

}  // namespace fathom
