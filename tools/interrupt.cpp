#include "tools/interrupt.hpp"

#include <csignal>
#include <unistd.h>

namespace fathom {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

// A second Ctrl-C ends at once. A second SIGTERM does not: timeout(1) sends it to the process and then to its group, so that one end of a time
// limit may arrive twice; what will not end is killed by whoever waits.
extern "C" void on_interrupt(int signal) {
  if (g_interrupted && signal == SIGINT) _exit(130);
  g_interrupted = 1;
}

extern "C" void end_at_once(int) {
  const char words[] = "fathom: interrupted\n";
  const ssize_t written = ::write(STDERR_FILENO, words, sizeof words - 1);
  (void)written;
  _exit(130);
}

}  // namespace

void end_at_interrupts() {
  struct sigaction action = {};
  if (sigaction(SIGINT, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action = {};
  action.sa_handler = end_at_once;
  sigaction(SIGINT, &action, nullptr);
}

void catch_interrupts() {
  // The handler runs on a stack of its own. oneDNN 2.6's matrix kernels, interrupted on the ordinary one, came back with a damaged heap
  // (about one interrupt in four, AMD family 26); a signal that the process gets goes to the main thread as long as that accepts it.
  static char stack[64 * 1024];
  stack_t own = {};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  const bool ready = sigaltstack(&own, nullptr) == 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = ready ? SA_ONSTACK : 0;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

}  // namespace fathom
