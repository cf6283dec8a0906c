// The terminal that stdout and stderr belong to, and whether anybody reads them.
#pragma once

#include <string>
#include <vector>

namespace fathom {

// Columns of the terminal on the descriptor (stdout), else of $COLUMNS, else 100; at least 20.
int terminal_width(int descriptor = 1);
// Whether the terminal takes colours and moves of the cursor: TERM=dumb does not.
bool terminal_is_plain();
// The same where the command line has no --width that says otherwise: for help, which is shown before options are read.
int help_width(const std::vector<std::string>& arguments);

// Writes to stderr. A reader that went away, or a full disk, is no reason to end: what is lost is talk.
void tell(const std::string& text);

// The descriptor (stdout) is a pipe and its reader has closed it: what is still to come would be read by nobody.
bool reader_is_gone(int descriptor = 1);

}  // namespace fathom
