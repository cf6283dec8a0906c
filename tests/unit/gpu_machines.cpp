// The committed GPU machine files: they read, say how good they are, and answer; with the public tables at hand
// (environment variable FATHOM_GPU_TABLES names their folder) a fresh 400-row fit is graded on unseen shapes.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "lib/gpu/model_io.hpp"
#include "lib/gpu/table_fit.hpp"
#include "models/registry.hpp"

using namespace fathom;
using namespace fathom::gpu;

namespace {

std::string machine_file(const std::string& chip) { return std::string(FATHOM_SOURCE_DIR) + "/models/machines/" + chip + ".gpu"; }

const HeldOut& held_out(const OpModel& op, const std::string& variant) {
  for (const HeldOut& h : op.held_out)
    if (h.variant == variant) return h;
  FAIL("no held-out variant " << variant);
  return op.held_out.front();
}

const char* tables() { return std::getenv("FATHOM_GPU_TABLES"); }

}  // namespace

TEST_CASE("committed machine files: bitwise round trip, ranges, held-out errors within the project's targets") {
  double gemm = 0, gemm_p90 = 0, prefill = 0, decode = 0;
  for (const GpuDevice& device : known_devices()) {
    INFO(device.name);
    const GpuModel model = read_model(machine_file(device.name));
    std::ifstream in(machine_file(device.name), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    CHECK(write_model(model) == text.str());
    CHECK(text.str().size() < 1500000);
    CHECK(model.device.name == device.name);
    CHECK(model.device.peak_flops == device.peak_flops);
    for (const char* name : {"gemm", "attention_prefill", "attention_decode"}) {
      INFO(name);
      const OpModel* op = model.find(name);
      REQUIRE(op);
      const HeldOut& h = held_out(*op, "calibrated");
      CHECK(h.rows == op->rows);  // every row was graded once
      CHECK(h.mean < held_out(*op, "physics").mean);
      CHECK(h.coverage > 0.75);
      CHECK(h.coverage < 0.85);
      CHECK_FALSE(op->residual.roots.empty());
    }
    const double burst = held_out(*model.find("gemm"), "calibrated").mean, few = held_out(*model.find("gemm"), "calibrated_400").mean;
    if (device.name == "l40s") {
      CHECK(burst <= 9);
    } else {
      gemm += burst / 4;
      gemm_p90 += held_out(*model.find("gemm"), "calibrated").p90 / 4;
      CHECK(few <= (device.name == "h200" || device.name == "h100" ? 6 : 8.5));
    }
    prefill += held_out(*model.find("attention_prefill"), "calibrated").mean / 5;
    decode += held_out(*model.find("attention_decode"), "calibrated").mean / 5;
    CHECK_FALSE(model.collectives.empty());
  }
  CHECK(gemm <= 5);
  CHECK(gemm_p90 <= 11);
  CHECK(prefill <= 5.5);
  CHECK(decode <= 4);
}

// They are read at every start without being hashed again: what is built in must be what was hashed.
TEST_CASE("built-in machine files are the committed ones, and their hashes are right") {
  std::size_t seen = 0;
  for (const BuiltinFile& file : builtin_machine_fits()) {
    INFO(file.name);
    const GpuModel sealed = parse_model(file.text, std::string(file.name), true);
    CHECK(sealed.hash == model_hash(file.text));
    CHECK(write_model(sealed) == file.text);
    ++seen;
  }
  CHECK(seen == known_devices().size());
}

// Utilisation above 1.05 of the datasheet peak would be a broken prediction; more work never comes out free.
TEST_CASE("committed machine files: predictions are plausible across sizes") {
  for (const GpuDevice& device : known_devices()) {
    INFO(device.name);
    const GpuModel model = read_model(machine_file(device.name));
    double before = 0;
    for (std::int64_t m = 1; m <= 8192; m *= 2) {
      TableRow row;
      row.chip = device.name;
      row.key = {m, 4096, 4096, 0, 0};
      const GpuPrediction p = predict_table({row}, model)[0];
      CHECK(p.status == RangeStatus::kInside);
      CHECK(p.low_s <= p.predicted_s);
      CHECK(p.predicted_s <= p.high_s);
      CHECK(std::abs(std::log(p.predicted_s / p.physics_s)) <= model.find("gemm")->clamp + 1e-12);
      CHECK(2.0 * static_cast<double>(m) * 4096 * 4096 / p.predicted_s < 1.05 * device.peak_flops);
      CHECK(p.predicted_s > 0.8 * before);
      before = p.predicted_s;
    }
  }
}

TEST_CASE("public tables: fresh 400-row fits reach the small-calibration targets on unseen shapes") {
  if (!tables()) {
    WARN("skipped: FATHOM_GPU_TABLES is not set");
    return;
  }
  for (const auto& [chip, target] : {std::pair{"h200", 6.0}, {"h100", 6.0}, {"a100", 8.5}, {"b200", 8.5}}) {
    INFO(chip);
    const GpuDevice& device = device_named(chip);
    std::vector<TableRow> seen, unseen;
    for (const TableRow& row : read_table(std::string(tables()) + "/gemm_" + chip + ".csv")) (fold_of(row, 4, 5) == 0 ? unseen : seen).push_back(row);
    const OpModel model = fit_op(choose_rows(seen, 400, 5), device, {});
    std::vector<double> predicted, measured;
    for (const TableRow& row : unseen) {
      predicted.push_back(predict_op(model, device, row).predicted_s);
      measured.push_back(row.time_us * 1e-6);
    }
    CHECK(error_summary("400", predicted, measured).mean <= target + 1);  // one split of one seed scatters by about a point
  }
}

// Every shared row is answered inside the calibrated range.
TEST_CASE("public tables: the committed files answer every row in range") {
  if (!tables()) {
    WARN("skipped: FATHOM_GPU_TABLES is not set");
    return;
  }
  for (const GpuDevice& device : known_devices()) {
    const GpuModel model = read_model(machine_file(device.name));
    for (const char* prefix : {"gemm_", "prefill_", "decode_"}) {
      const auto rows = read_table(std::string(tables()) + "/" + prefix + device.name + ".csv");
      for (const GpuPrediction& p : predict_table(rows, model)) REQUIRE(p.status == RangeStatus::kInside);
    }
  }
}
