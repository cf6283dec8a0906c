// Files replaced whole or not at all, and closed pipes reported.
#include "reports/save.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "lib/error.hpp"

using namespace fathom;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / ("fathom-save-" + std::string(6, 'X'))).string();  // as mkdtemp wants it
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    fs::permissions(path, fs::perms::owner_all);
    fs::remove_all(path);
  }
  std::string operator/(const char* name) const { return (path / name).string(); }
  long entries() const { return std::distance(fs::directory_iterator(path), fs::directory_iterator()); }
};

}  // namespace

TEST_CASE("a file is written, replaced, and leaves no temporary behind", "[reports]") {
  Folder folder;
  const std::string file = folder / "report.md";
  save_file(file, "one\n");
  CHECK(load_file(file) == "one\n");
  fs::permissions(file, fs::perms(0640));
  save_file(file, std::string(300000, 'x'));
  CHECK(load_file(file).size() == 300000);
  CHECK((fs::status(file).permissions() & fs::perms::mask) == fs::perms(0640));
  CHECK(folder.entries() == 1);
  save_file(folder / "deep/er/report.csv", "a\n");
  CHECK(load_file(folder / "deep/er/report.csv") == "a\n");
}

TEST_CASE("a symbolic link is followed, a device is written directly", "[reports]") {
  Folder folder;
  save_file(folder / "real", "old");
  fs::create_symlink(folder / "real", folder / "link");
  save_file(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(load_file(folder / "real") == "new");
  CHECK_NOTHROW(save_file("/dev/null", "gone"));
}

TEST_CASE("failures say what and what to do, and keep the old file", "[reports]") {
  Folder folder;
  const auto check = [](const std::string& path, const char* word) {
    try {
      save_file(path, "x");
      FAIL("wrote " << path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kEnvironment);
      CHECK(error.where().file == path);
      CHECK((error.message() + error.hint()).find(word) != std::string::npos);
    }
  };
  check(folder.path.string(), "folder");
  save_file(folder / "file", "x");
  check(folder / "file/below", "folder");
  check(folder / (std::string(300, 'n').c_str()), "name");
  if (fs::exists("/dev/full")) check("/dev/full", "full");
  if (geteuid() != 0) {  // root may write anywhere
    fs::permissions(folder.path, fs::perms::owner_read | fs::perms::owner_exec);
    check(folder / "file", "permission");
    CHECK(load_file(folder / "file") == "x");
  }
  CHECK_THROWS_AS(save_file("", "x"), Error);
  CHECK_THROWS_AS(load_file(folder / "missing"), Error);
}

TEST_CASE("a closed pipe is a status, not a signal", "[reports]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  CHECK(write_stream(ends[1], "nobody reads this\n") == StreamStatus::kClosed);
  close(ends[1]);
  CHECK_THROWS_AS(write_stream(ends[1], "x"), Error);  // a bad descriptor is an error
}

TEST_CASE("a stream gets everything, however much", "[reports]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::string got;
  std::thread reader([&] {
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(ends[0], buffer, sizeof buffer)) > 0) got.append(buffer, static_cast<std::size_t>(n));
  });
  const std::string sent(1 << 20, 'y');
  CHECK(write_stream(ends[1], sent) == StreamStatus::kDone);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  CHECK(got == sent);
}
