// Reader of the text form described in model_io.hpp.
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/error.hpp"
#include "lib/gpu/features.hpp"
#include "lib/gpu/model_io.hpp"

namespace fathom::gpu {
namespace {

bool blank(char c) { return c == ' ' || c == '\t'; }

// The next word, taken off the front of `text`; empty at the end. Model files hold some 100 000 of them and are read at every start.
std::string_view next_word(std::string_view& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && blank(*at)) ++at;
  const char* const begin = at;
  while (at != end && !blank(*at)) ++at;
  text = {at, static_cast<std::size_t>(end - at)};
  return {begin, static_cast<std::size_t>(at - begin)};
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) parts.push_back(word);
  return parts;
}

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  GpuModel read(bool sealed) {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      std::string_view line = trim(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      ++line_;
      if (line.empty() || line.front() == '#') continue;
      if (line.front() == '[') {
        begin_section(line);
        continue;
      }
      const auto equals = line.find('=');
      if (equals == std::string_view::npos) fail("expected 'key = value'", {});
      key_ = trim(line.substr(0, equals));
      value_ = trim(line.substr(equals + 1));
      if (section_ == Section::kMachine) machine_key();
      else if (section_ == Section::kOp) op_key();
      else if (section_ == Section::kClass) class_key();
      else if (section_ == Section::kCollective) collective_key();
      else fail("a key before the first section", key_);
    }
    finish_section();
    if (!seen_machine_) fail("the file has no [machine] section", {});
    if (!sealed && model_.hash != model_hash(text_))
      fail("the hash does not match the content: " + model_.hash + " recorded, " + model_hash(text_) + " found", "hash",
           "the file was changed after it was fitted; fit it again");
    return std::move(model_);
  }

 private:
  enum class Section { kNone, kMachine, kOp, kClass, kCollective };

  [[noreturn]] void fail(const std::string& message, std::string_view key, std::string hint = {}) const {
    throw_input(message, {file_, line_, std::string(key)}, std::move(hint));
  }

  template <typename T>
  T number(std::string_view text) const {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) fail("'" + std::string(text) + "' is not a number", key_);
    return value;
  }

  std::vector<std::string_view> parts(std::size_t count) const {
    auto list = words(value_);
    if (list.size() != count) fail("expected " + std::to_string(count) + " values, found " + std::to_string(list.size()), key_);
    return list;
  }

  // Each key once; which keys were seen is checked when the section ends.
  void once() {
    for (const auto& seen : seen_)
      if (seen == key_) fail("the key is given twice", key_);
    seen_.emplace_back(key_);
  }

  void require(const std::vector<std::string>& keys) const {
    for (const auto& key : keys) {
      bool found = false;
      for (const auto& seen : seen_) found = found || seen == key;
      if (!found) fail("the section before this line has no key '" + key + "'", key);
    }
  }

  template <typename Names>
  static std::vector<std::string> list(const Names& names, std::vector<std::string> more) {
    more.insert(more.end(), names.begin(), names.end());
    return more;
  }

  std::vector<std::string> class_parameters() const {
    return op().op == OpClass::kPrefill ? list(PrefillParams::names(), {}) : list(DecodeParams::names(), {"max_split"});
  }

  void finish_section() {
    switch (section_) {
      case Section::kNone: return;
      case Section::kMachine: require({"schema", "name", "board", "peak_flop_per_s", "dram_byte_per_s", "sms", "l2_byte", "date", "hash"}); break;
      case Section::kOp:
        require({"op", "dtype", "source", "rows", "features", "clamp_ln", "base_ln"});
        if (op().op == OpClass::kGemm) {
          require(list(GemmParams::names(), {}));
          op().gemm = GemmParams::from(gemm_);
        }
        break;
      case Section::kClass:
        require(list(class_parameters(), {"kernel", "head_dim", "seq", "group", "batch", "rows"}));
        if (op().op == OpClass::kPrefill) kernel_class().prefill = PrefillParams::from(attention_);
        else kernel_class().decode = DecodeParams::from(attention_, kernel_class().decode.max_split);
        break;
      case Section::kCollective:
        require(collective_keys());
        if (collective().bytes.size() != collective().time_us.size() || collective().bytes.size() < 2) fail("size_byte and time_us need the same number of values", "size_byte");
        break;
    }
    seen_.clear();
  }

  void begin_section(std::string_view line) {
    finish_section();
    if (line.back() != ']') fail("a section ends with ']'", {});
    const auto parts = words(line.substr(1, line.size() - 2));
    if (parts.size() == 1 && parts[0] == "machine" && !seen_machine_) {
      section_ = Section::kMachine;
      seen_machine_ = true;
    } else if (parts.size() == 2 && parts[0] == "op") {
      section_ = Section::kOp;
      model_.ops.emplace_back();
      op().name = parts[1];
      op_known_ = false;
    } else if (parts.size() == 2 && parts[0] == "class" && !model_.ops.empty() && op().name == parts[1] && op().op != OpClass::kGemm) {
      section_ = Section::kClass;
      op().classes.emplace_back();
    } else if (parts.size() == 1 && parts[0] == "collective") {
      section_ = Section::kCollective;
      model_.collectives.emplace_back();
    } else {
      fail("unknown section '" + std::string(line) + "'", {}, "known: [machine], [op NAME], [class NAME] after its op, [collective]");
    }
  }

  OpModel& op() { return model_.ops.back(); }
  const OpModel& op() const { return model_.ops.back(); }
  CollectiveFit& collective() { return model_.collectives.back(); }
  AttentionClass& kernel_class() { return op().classes.back(); }

  void machine_key() {
    once();
    if (key_ == "schema") {
      if (number<int>(value_) != kModelSchema) fail("schema " + std::string(value_) + " is not " + std::to_string(kModelSchema), key_, "fit the file again");
    } else if (key_ == "name") model_.device.name = value_;
    else if (key_ == "board") model_.device.board = value_;
    else if (key_ == "peak_flop_per_s") model_.device.peak_flops = number<double>(value_);
    else if (key_ == "dram_byte_per_s") model_.device.dram_bytes_per_s = number<double>(value_);
    else if (key_ == "sms") model_.device.sms = number<double>(value_);
    else if (key_ == "l2_byte") model_.device.l2_bytes = number<double>(value_);
    else if (key_ == "date") model_.date = value_;
    else if (key_ == "hash") model_.hash = value_;
    else unknown({"schema", "name", "board", "peak_flop_per_s", "dram_byte_per_s", "sms", "l2_byte", "date", "hash"});
  }

  [[noreturn]] void unknown(const std::vector<std::string>& known) const { fail("unknown key '" + std::string(key_) + "'", key_, name_hint(key_, known)); }

  void op_key() {
    if (key_ == "tree") return read_tree();
    if (key_ == "edges") return read_edges();
    once();
    if (key_ == "op") {
      op().op = parse_op(value_);
      op_known_ = true;
      return;
    }
    if (!op_known_) fail("the first key of an op section is 'op'", key_);
    if (key_ == "dtype") op().dtype = value_;
    else if (key_ == "source") op().source = value_;
    else if (key_ == "rows") op().rows = number<int>(value_);
    else if (key_ == "clamp_ln") op().clamp = number<double>(value_);
    else if (key_ == "base_ln") op().residual.base = number<double>(value_);
    else if (key_ == "features") {
      if (number<int>(value_) != kFeatureVersion) fail("feature version " + std::string(value_) + " is not " + std::to_string(kFeatureVersion), key_, "fit the file again");
    } else if (key_.starts_with("hull_")) {
      const auto p = parts(2);
      const std::string axis(key_.substr(5));
      const auto& names = key_names(op().op);
      const std::size_t at = op().hull.size();
      if (at > names.size() || axis != (at < names.size() ? names[at] : "work")) fail("the hull's axes are the keys in order, then work", key_);
      op().hull.push_back({axis, number<double>(p[0]), number<double>(p[1])});
    } else if (key_.starts_with("held_out_") && key_.ends_with("_percent")) {
      const auto p = parts(6);
      op().held_out.push_back({std::string(key_.substr(9, key_.size() - 17)), number<int>(p[0]), number<double>(p[1]), number<double>(p[2]), number<double>(p[3]),
                               number<double>(p[4]), number<double>(p[5])});
    } else if (key_.starts_with("interval_") && key_.ends_with("_ln")) {
      const auto p = parts(3);
      op().intervals.push_back({std::string(key_.substr(9, key_.size() - 12)), number<int>(p[0]), number<double>(p[1]), number<double>(p[2])});
    } else if (op().op != OpClass::kGemm || !parameter(GemmParams::names(), gemm_)) {
      unknown(list(GemmParams::names(), {"op", "dtype", "source", "rows", "clamp_ln", "base_ln", "features", "edges", "tree"}));
    }
  }

  void class_key() {
    once();
    auto range = [&](std::int64_t& low, std::int64_t& high) {
      const auto p = parts(2);
      low = number<std::int64_t>(p[0]);
      high = p[1] == "any" ? INT64_MAX : number<std::int64_t>(p[1]);
    };
    AttentionClass& c = kernel_class();
    if (key_ == "kernel") c.kernel = value_;
    else if (key_ == "head_dim") c.head_dim = number<std::int64_t>(value_);
    else if (key_ == "seq") range(c.seq_lo, c.seq_hi);
    else if (key_ == "group") range(c.group_lo, c.group_hi);
    else if (key_ == "batch") range(c.batch_lo, c.batch_hi);
    else if (key_ == "rows") c.rows = number<int>(value_);
    else if (key_ == "max_split" && op().op == OpClass::kDecode) c.decode.max_split = number<double>(value_);
    else if (op().op == OpClass::kPrefill ? !parameter(PrefillParams::names(), attention_) : !parameter(DecodeParams::names(), attention_))
      unknown(list(class_parameters(), {"kernel", "head_dim", "seq", "group", "batch", "rows"}));
  }

  static const std::vector<std::string>& collective_keys() {
    static const std::vector<std::string> keys = {"library", "op", "gpus", "alpha_us", "sigma_us", "beta_byte_per_s", "q", "form_error_percent",
        "table_error_percent", "size_byte", "time_us"};
    return keys;
  }

  void collective_key() {
    once();
    CollectiveFit& c = collective();
    auto numbers = [&](std::vector<double>& values) {
      for (const auto word : words(value_)) values.push_back(number<double>(word));
    };
    if (key_ == "library") c.library = value_;
    else if (key_ == "op") c.op = value_;
    else if (key_ == "gpus") c.gpus = number<int>(value_);
    else if (key_ == "alpha_us") c.alpha_us = number<double>(value_);
    else if (key_ == "sigma_us") c.sigma_us = number<double>(value_);
    else if (key_ == "beta_byte_per_s") c.beta = number<double>(value_);
    else if (key_ == "q") c.q = number<double>(value_);
    else if (key_ == "form_error_percent") c.form_error = number<double>(value_);
    else if (key_ == "table_error_percent") c.table_error = number<double>(value_);
    else if (key_ == "size_byte") numbers(c.bytes);
    else if (key_ == "time_us") numbers(c.time_us);
    else unknown(collective_keys());
  }

  template <typename Names, typename Values>
  bool parameter(const Names& names, Values& values) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (key_ == names[i]) {
        values[i] = number<double>(value_);
        return true;
      }
    return false;
  }

  void read_edges() {
    const auto list = words(value_);
    const auto& names = tree_feature_names(op().op);
    auto& edges = op().residual.edges;
    if (list.empty() || edges.size() >= names.size() || list[0] != names[edges.size()]) fail("the features of 'edges' are not this version's, in order", key_);
    edges.emplace_back();
    for (std::size_t i = 1; i < list.size(); ++i) edges.back().push_back(number<double>(list[i]));
  }

  void read_tree() {
    std::string_view rest = value_;
    BoostedTrees& trees = op().residual;
    // Preorder with an explicit depth guard: a file is not trusted to be shallow.
    auto read = [&](auto&& self, int depth) -> int {
      const std::string_view token = next_word(rest);
      if (token.empty() || depth > 64) fail("the tree ends before its leaves", key_);
      const int at = static_cast<int>(trees.nodes.size());
      trees.nodes.emplace_back();
      const auto colon = token.find(':');
      if (colon == std::string_view::npos) {
        trees.nodes[at].value = static_cast<double>(number<std::int64_t>(token)) * BoostedTrees::kLeafUnit;
        return at;
      }
      const auto feature = number<std::size_t>(token.substr(0, colon)), edge = number<std::size_t>(token.substr(colon + 1));
      if (feature >= trees.edges.size() || edge >= trees.edges[feature].size()) fail("the tree names an edge that is not there", key_);
      const int left = self(self, depth + 1), right = self(self, depth + 1);
      trees.nodes[at] = {static_cast<int>(feature), trees.edges[feature][edge], left, right};
      return at;
    };
    trees.roots.push_back(read(read, 0));
    if (!next_word(rest).empty()) fail("the tree has nodes after its last leaf", key_);
  }

  std::string_view text_;
  const std::string& file_;
  GpuModel model_;
  Section section_ = Section::kNone;
  bool seen_machine_ = false, op_known_ = false;
  std::string_view key_, value_;
  std::vector<std::string> seen_;
  std::array<double, GemmParams::kCount> gemm_{};
  std::array<double, 9> attention_{};
  int line_ = 0;
};

}  // namespace

GpuModel parse_model(std::string_view text, const std::string& file, bool sealed) { return Reader(text, file).read(sealed); }

}  // namespace fathom::gpu
