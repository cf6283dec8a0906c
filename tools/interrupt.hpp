// Ctrl-C: the first one asks running work to stop after its current pass, so that finished results are kept; the second ends the program.
#pragma once

namespace fathom {

void catch_interrupts();
bool interrupted();

}  // namespace fathom
