#include "lib/error.hpp"

#include <catch2/catch.hpp>

namespace fathom {
namespace {

TEST_CASE("error text has place, message and hint") {
  CHECK(std::string(Error(ErrorKind::kInput, "m").what()) == "m");
  CHECK(std::string(Error(ErrorKind::kInput, "m", {"f", 3, "k"}, "h").what()) == "f:3: k: m\n  hint: h");
  CHECK(std::string(Error(ErrorKind::kInput, "m", {"f", 0, ""}).what()) == "f: m");
  CHECK(std::string(Error(ErrorKind::kInput, "m", {"", 0, "k"}).what()) == "k: m");
}

TEST_CASE("exit codes") {
  CHECK(exit_code(ErrorKind::kCondition) == 1);
  CHECK(exit_code(ErrorKind::kUsage) == 2);
  CHECK(exit_code(ErrorKind::kInput) == 3);
  CHECK(exit_code(ErrorKind::kEnvironment) == 4);
  CHECK(exit_code(ErrorKind::kInternal) == 70);
}

TEST_CASE("the nearest name is found within a third of the word's letters") {
  const std::vector<std::string> names = {"width", "heads", "capacity", "layers"};
  CHECK(nearest_name("widht", names) == "width");         // a swap is one edit
  CHECK(nearest_name("with", names) == "width");          // one missing
  CHECK(nearest_name("heads_", names) == "heads");        // one too many
  CHECK(nearest_name("capasitie", names) == "capacity");  // three edits of nine letters
  CHECK(nearest_name("layer", names) == "layers");
  CHECK(nearest_name("vocabulary", names).empty());
  CHECK(nearest_name("gpt2", {"dense-60m", "gpt2-1.5b-long", "gpt2-124m"}) == "gpt2-124m");  // the shortest that begins so
  CHECK(nearest_name("matmul", {"params", "flops_matmul"}) == "flops_matmul");
  CHECK(nearest_name(std::string(81, 'x'), names).empty());
  CHECK(name_hint("widht", names) == "did you mean 'width'?");
  CHECK(nearest_name("H200", {"b200", "h100", "h200"}) == "h200");  // one letter from b200 and h100, none but its case from h200
  CHECK(nearest_name("GPT2-124M", {"gpt2-124m", "mod-tiny"}) == "gpt2-124m");
  CHECK(nearest_name("MOD-T", {"gpt2-124m", "mod-tiny"}) == "mod-tiny");
  CHECK(name_hint("zzz", names) == "known: width, heads, capacity, layers");
  CHECK(name_hint("zzz", std::vector<std::string>(13, "abcdef")).ends_with(", ..."));
}

}  // namespace
}  // namespace fathom
