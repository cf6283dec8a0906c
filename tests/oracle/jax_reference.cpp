// The reference backend against values that make_reference.py wrote with JAX: losses, logits, gradients and three AdamW steps, in f64 to
// 1e-9 and in f32 to 1e-5 of the largest magnitude of a tensor. Behind the first AdamW step f32 is held to 1e-3: the step divides a gradient by its
// own size, which makes rounding of small gradients large.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/oracle/bound_model.hpp"

using namespace fathom;
using namespace fathom::testing;

namespace {

// Entries "index value ..." to the end of a line.
std::map<size_t, double> entries(std::istream& line) {
  std::map<size_t, double> values;
  size_t index = 0;
  for (std::string text; line >> index >> text;) values[index] = std::stod(text);
  return values;
}

struct Expected {
  double norm = 0;
  std::map<size_t, double> at;
};

struct File {
  std::map<std::string, std::string> settings;
  std::map<ParameterKey, std::vector<double>> weights;
  std::map<int, double> loss, auxiliary;
  std::map<int, std::map<size_t, double>> logits;
  std::map<int, std::map<ParameterKey, Expected>> gradients;
  std::map<ParameterKey, std::map<size_t, double>> final;

  std::int64_t integer(const std::string& key) const { return std::stoll(settings.at(key)); }
  double number(const std::string& key) const { return std::stod(settings.at(key)); }
};

File load(const std::filesystem::path& path) {
  File file;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    std::istringstream line(text);
    std::string kind, name;
    int step = 0, layer = 0;
    line >> kind;
    if (kind == "weight") {
      int rows = 0, cols = 0, number = 0;
      double offset = 0, scale = 0;
      line >> name >> layer >> rows >> cols >> offset >> scale >> number;
      auto& values = file.weights[{name, layer}];
      for (int i = 0; i < rows * cols; ++i) values.push_back(offset + scale * std::sin(0.1 * (i * i) + number));
    } else if (kind == "loss") {
      line >> step >> file.loss[step];
    } else if (kind == "auxiliary") {
      line >> step >> file.auxiliary[step];
    } else if (kind == "logits") {
      line >> step;
      file.logits[step] = entries(line);
    } else if (kind == "gradient") {
      line >> step >> name >> layer;
      Expected& expected = file.gradients[step][{name, layer}];
      line >> expected.norm;
      expected.at = entries(line);
    } else if (kind == "final") {
      line >> name >> layer;
      file.final[{name, layer}] = entries(line);
    } else {
      line >> file.settings[kind];
    }
  }
  return file;
}

Network network_of(const File& f) {
  Network n;
  n.name = "oracle";
  n.width = f.integer("width");
  n.vocab = f.integer("vocab");
  n.max_length = f.integer("length");
  n.positions = f.settings.at("positions") == "rope" ? PositionKind::kRope : PositionKind::kLearned;
  n.norm = f.settings.at("norm") == "rms" ? NormKind::kRms : NormKind::kLayer;
  n.tied = f.integer("tied") != 0;
  BlockConfig block;
  AttentionConfig a;
  a.heads = f.integer("heads");
  a.kv_heads = f.integer("kv_heads");
  a.head_dim = f.integer("head_dim");
  a.rope_dim = n.positions == PositionKind::kRope ? a.head_dim : 0;
  a.window = f.integer("window");
  a.qkv_bias = a.out_bias = f.integer("biases") != 0;
  MlpConfig m;
  m.width = f.integer("mlp");
  m.gated = f.integer("gated") != 0;
  m.bias = f.integer("biases") != 0;
  m.activation = f.settings.at("activation") == "silu" ? ActivationKind::kSilu : ActivationKind::kGeluTanh;
  block.attention = a;
  block.mlp = m;
  n.kinds = {block};
  n.layers.assign(static_cast<size_t>(f.integer("layers")), 0);
  if (f.integer("every") == 0) return n;
  Route route;
  route.slots = f.integer("slots");
  route.gate.kind = f.settings.at("gate") == "sigmoid" ? GateKind::kSigmoid : GateKind::kRaw;
  route.router_bias = f.integer("router_bias") != 0;
  route.aux_lambda = f.number("aux");
  return with_routes(n, f.integer("every"), route);
}

// Largest difference at the listed entries over the largest magnitude of the whole tensor.
double difference(const std::vector<double>& got, const std::map<size_t, double>& want) {
  double worst = 0, top = 1e-3;
  for (const double v : got) top = std::max(top, std::abs(v));
  for (const auto& [i, value] : want) worst = std::max(worst, std::isfinite(got.at(i)) ? std::abs(got.at(i) - value) : INFINITY);
  return worst / top;
}

void compare(const File& f, reference::Precision precision, double tolerance, double later) {
  const Network net = network_of(f);
  Scenario s;
  s.phase = Phase::kTrain;
  s.batch = f.integer("sequences");
  s.length = f.integer("length");
  BindOptions options;
  options.learning_rate = f.number("learning_rate");
  options.beta1 = f.number("beta1");
  options.beta2 = f.number("beta2");
  options.epsilon = f.number("epsilon");
  options.weight_decay = f.number("weight_decay");
  options.clip = f.number("clip");
  options.norm_epsilon = f.number("norm_epsilon");
  BoundModel model(net, s, options, precision);
  REQUIRE(model.weights.size() == f.weights.size());
  for (const auto& [key, values] : f.weights) model.exec->write_wide(model.weights.at(key), values);
  std::vector<double> tokens, targets;
  for (std::int64_t i = 0; i < s.batch * s.length; ++i) {
    tokens.push_back(static_cast<double>((i * 7 + 3) % net.vocab));
    targets.push_back(static_cast<double>((i * 5 + 1) % net.vocab));
  }
  model.exec->write_wide(model.tensors.at({"tokens", -1}), tokens);
  model.exec->write_wide(model.tensors.at({"targets", -1}), targets);
  const int loss_op = [&] {
    for (int i = 0;; ++i)
      if (std::holds_alternative<CrossEntropy>(*model.exec->bound(i).spec)) return i;
  }();
  const double first = tolerance;
  for (const auto& [step, loss] : f.loss) {
    CAPTURE(step);
    tolerance = step == 1 ? first : later;
    model.exec->begin_pass();
    for (int i = 0; i < model.exec->instance_count(); ++i) {
      if (i == loss_op) CHECK(difference(model.exec->read_wide(model.exec->bound(i).in[0].at), f.logits.at(step)) < tolerance);
      model.exec->run_instance(i);
    }
    CHECK(model.losses().first == Approx(loss).epsilon(tolerance));
    CHECK(model.losses().second == Approx(f.auxiliary.at(step)).epsilon(tolerance).margin(1e-12));
    for (const auto& [key, expected] : f.gradients.at(step)) {
      CAPTURE(key.first, key.second);
      const std::vector<double> got = model.gradient(key);
      double squares = 0;
      for (const double g : got) squares += g * g;
      CHECK(std::sqrt(squares) == Approx(expected.norm).epsilon(tolerance).margin(tolerance));
      CHECK(difference(got, expected.at) < tolerance);
    }
  }
  for (const auto& [key, expected] : f.final) {
    CAPTURE(key.first, key.second);
    CHECK(difference(model.exec->read_wide(model.weights.at(key)), expected) < tolerance);
  }
}

}  // namespace

TEST_CASE("dense and Mixture-of-Depths training equals automatic differentiation by JAX", "[oracle]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FATHOM_SOURCE_DIR) + "/tests/oracle/data")) {
    if (entry.path().extension() != ".txt") continue;
    const File file = load(entry.path());
    DYNAMIC_SECTION(entry.path().stem().string() << " in f64") { compare(file, reference::Precision::kWide, 1e-9, 1e-9); }
    DYNAMIC_SECTION(entry.path().stem().string() << " with f32 tensors") { compare(file, reference::Precision::kF64, 1e-5, 1e-3); }
    DYNAMIC_SECTION(entry.path().stem().string() << " in f32") { compare(file, reference::Precision::kF32, 1e-5, 1e-3); }
    ++files;
  }
  CHECK(files >= 8);
}
