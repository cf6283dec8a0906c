// Files and streams written so that a crash, a full disk or a closed pipe never leaves half a report behind.
#pragma once

#include <string>
#include <string_view>

namespace fathom {

// Replaces the file at `path` by `content`: written to a temporary file beside it, flushed to disk, then renamed, so
// that a reader sees the old file or the new one. A symbolic link is followed, permissions of an existing file are
// kept; pipes and devices are written directly. Missing parent folders are created. Throws an environment Error that
// names the path, the cause (disk full, read-only, no permission, is a folder) and what to do; the old file is then
// untouched.
void save_file(const std::string& path, std::string_view content);

// Reads a whole file; throws an input Error when it does not exist, cannot be read, or is larger than 256 MiB (a device that never ends). "-" is not special here.
std::string load_file(const std::string& path);

enum class StreamStatus {
  kDone,
  kClosed,  // the reader went away ("fathom ... | head"): not an error, but there is no point in writing more
};

// Writes everything to the file descriptor (stdout is 1). SIGPIPE is held back during the call, so a closed pipe is
// reported and does not end the process. Throws an environment Error on any other failure, such as a full disk.
StreamStatus write_stream(int descriptor, std::string_view content);

}  // namespace fathom
