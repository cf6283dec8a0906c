// Who reads what is written, and how wide help is.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "tools/terminal.hpp"

using namespace fathom;

TEST_CASE("a pipe is read until its reader closes it", "[tools]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK_FALSE(reader_is_gone(ends[1]));
  close(ends[0]);
  CHECK(reader_is_gone(ends[1]));
  close(ends[1]);
  const int file = open("/dev/null", O_WRONLY);
  CHECK_FALSE(reader_is_gone(file));
  close(file);
  CHECK_FALSE(reader_is_gone(-1));
}

TEST_CASE("help is as wide as --width says", "[tools]") {
  CHECK(help_width({"count", "--help", "--width", "40"}) == 40);
  CHECK(help_width({"count", "--width=72", "--help"}) == 72);
  const int otherwise = terminal_width();
  CHECK(help_width({"count", "--width", "3"}) == otherwise);
  CHECK(help_width({"--width"}) == otherwise);
}
