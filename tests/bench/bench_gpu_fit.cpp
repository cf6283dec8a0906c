// Fits each GPU's machine file from the measured tables and prints its error on held-out shapes.
//
//   bench_gpu_fit TABLES [--out FOLDER] [--chips h200,a100] [--ops gemm,...,collectives]
//                 [--date D] [--folds N] [--seed S] [--trees COUNT,DEPTH,RATE,SEEDS,FEATURE_SHARE,L2] [--clamp LN]
//                 [--no-few] [--speed]
//
// TABLES holds gemm_CHIP.csv, prefill_CHIP.csv, decode_CHIP.csv, perhaps gemm_sustained_CHIP.csv and collectives.csv. With --out, ops that
// are not listed keep what FOLDER/CHIP.gpu holds already. --speed prints predictions per second of the forms instead.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/error.hpp"
#include "lib/gpu/model_io.hpp"
#include "lib/gpu/table_fit.hpp"

using namespace fathom;
using namespace fathom::gpu;

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const auto comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct OpFile {
  const char* name;
  const char* prefix;
  const char* what;
};
constexpr OpFile kOps[] = {{"gemm", "gemm_", "bursts in a graph"}, {"gemm_sustained", "gemm_sustained_", "sustained for about a second"},
                           {"attention_prefill", "prefill_", "causal, whole prompts"}, {"attention_decode", "decode_", "one query per sequence"}};

void speed() {
  const GpuDevice& device = device_named("h200");
  const GemmParams params = gemm_prior(device);
  std::vector<GemmShape> shapes;
  std::uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    auto draw = [&](double low, double high) {
      state = mix_hash(state);
      return std::floor(low * std::pow(high / low, static_cast<double>(state >> 11) * 0x1p-53));
    };
    shapes.push_back({draw(1, 32768), draw(32, 65536), draw(32, 65536)});
  }
  double sum = 0;
  std::vector<double> fast, slow;
  for (int round = 0; round < 7; ++round) {  // alternating, so that both see the same clocks
    double start = now();
    for (const auto& s : shapes) sum += predict_gemm(s, device, params);
    fast.push_back(static_cast<double>(shapes.size()) / (now() - start));
    start = now();
    for (const auto& s : shapes) sum += reference_gemm(s, device, params).seconds;
    slow.push_back(static_cast<double>(shapes.size()) / (now() - start));
  }
  std::sort(fast.begin(), fast.end());
  std::sort(slow.begin(), slow.end());
  std::printf("tile model predictions per second and core, median of 7 [min, max] (checksum %.3g)\n", sum);
  std::printf("  fast       %.2f M [%.2f, %.2f]\n  reference  %.2f M [%.2f, %.2f]\n", fast[3] / 1e6, fast[0] / 1e6, fast[6] / 1e6, slow[3] / 1e6, slow[0] / 1e6,
              slow[6] / 1e6);
}

int run(int argc, char** argv) {
  std::string tables, out, chips = "h200,h100,a100,b200,l40s", ops = "gemm,gemm_sustained,attention_prefill,attention_decode,collectives", date = "undated";
  TableFitOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw Error(ErrorKind::kUsage, arg + " needs a value");
      return argv[++i];
    };
    if (arg == "--out") out = value();
    else if (arg == "--chips") chips = value();
    else if (arg == "--ops") ops = value();
    else if (arg == "--date") date = value();
    else if (arg == "--folds") options.folds = std::atoi(value().c_str());
    else if (arg == "--seed") options.seed = static_cast<std::uint64_t>(std::atoll(value().c_str()));
    else if (arg == "--clamp") options.clamp = std::atof(value().c_str());
    else if (arg == "--no-few") options.few_rows = false;
    else if (arg == "--trees") {
      const auto parts = split(value());
      if (parts.size() != 6) throw Error(ErrorKind::kUsage, "--trees needs six values");
      TreeOptions t;
      t.trees = std::atoi(parts[0].c_str()), t.depth = std::atoi(parts[1].c_str()), t.learning_rate = std::atof(parts[2].c_str());
      t.seeds = std::atoi(parts[3].c_str()), t.feature_share = std::atof(parts[4].c_str()), t.l2 = std::atof(parts[5].c_str());
      options.trees = t;
    } else if (arg == "--speed") return speed(), 0;
    else if (arg.starts_with("--")) throw Error(ErrorKind::kUsage, "unknown option " + arg);
    else tables = arg;
  }
  if (tables.empty()) throw Error(ErrorKind::kUsage, "give the folder of the tables");
  const auto wanted = split(ops);
  std::printf("%-5s %-17s %-15s %6s %7s %7s %7s %7s %9s %8s\n", "chip", "op", "variant", "rows", "mean%", "median%", "p90%", "bias%", "coverage", "seconds");
  for (const std::string& chip : split(chips)) {
    GpuModel model;
    const std::string file = out.empty() ? "" : out + "/" + chip + ".gpu";
    GpuModel before;
    if (!file.empty() && std::filesystem::exists(file)) {
      try {
        before = read_model(file);
      } catch (const Error& error) {
        std::fprintf(stderr, "%s: %s; its other ops are dropped\n", file.c_str(), error.message().c_str());
      }
    }
    model.device = device_named(chip);
    model.date = date;
    for (const OpFile& op : kOps) {
      const std::string table = tables + "/" + op.prefix + chip + ".csv";
      if (std::find(wanted.begin(), wanted.end(), op.name) == wanted.end()) {
        if (const OpModel* kept = before.find(op.name)) model.ops.push_back(*kept);
        continue;
      }
      if (!std::filesystem::exists(table)) continue;
      const double start = now();
      options.source = std::string("ai-dynamo/aiconfigurator commit 095f58a5 (NVIDIA, Apache-2.0), ") + op.prefix + chip + ".csv, " + op.what;
      OpModel fitted = fit_op_with_errors(read_table(table), model.device, options);
      fitted.name = op.name;
      const double seconds = now() - start;
      for (const HeldOut& h : fitted.held_out)
        std::printf("%-5s %-17s %-15s %6d %7.2f %7.2f %7.2f %7.2f %9.3f %8.1f\n", chip.c_str(), op.name, h.variant.c_str(), h.rows, h.mean, h.median, h.p90, h.bias,
                    h.coverage, seconds);
      std::fflush(stdout);
      model.ops.push_back(std::move(fitted));
    }
    if (std::find(wanted.begin(), wanted.end(), "collectives") == wanted.end()) {
      model.collectives = before.collectives;
    } else if (std::filesystem::exists(tables + "/collectives.csv")) {
      model.collectives = fit_collectives(read_collectives(tables + "/collectives.csv"), chip);
      for (const CollectiveFit& c : model.collectives)
        std::printf("%-5s %-14s %-18s %d GPUs: form %.2f %%, table with the point left out %.2f %%\n", chip.c_str(), c.op.c_str(), c.library.c_str(), c.gpus,
                    c.form_error, c.table_error);
    }
    if (!file.empty()) save_model(model, file);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n%s\n", error.where().file.c_str(), error.message().c_str(), error.hint().c_str());
    return exit_code(error.kind());
  }
}
