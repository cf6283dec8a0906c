// Ctrl-C: the first one asks running work to stop after its current pass, so that finished results are kept; the second ends the program.
#pragma once

namespace fathom {

void catch_interrupts();

// Until then Ctrl-C ends the program at once, with a word on stderr and exit code 130. Not where the starter had it ignored (nohup).
void end_at_interrupts();
bool interrupted();

}  // namespace fathom
