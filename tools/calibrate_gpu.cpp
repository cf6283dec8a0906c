#include "tools/calibrate_gpu.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "kernels/cuda_host/probe.hpp"
#include "kernels/registry.hpp"
#include "lib/error.hpp"
#include "lib/gpu/model_io.hpp"
#include "lib/gpu/table_fit.hpp"
#include "models/machine_ini.hpp"
#include "reports/save.hpp"
#include "tools/interrupt.hpp"
#include "tools/timed.hpp"

namespace fathom {
namespace {

constexpr int kLeastProducts = 30;  // fewer points cannot carry a fit

ReportTable point_table(const cuda::DeviceProbe& probe) {
  ReportTable table("probes", "Probes");
  table.caption = "Seconds of one call on the device, median; spread between quartiles.";
  table.add_column(ReportColumn{"name", "probe", Unit::kText, 0});
  table.add_column(ReportColumn{"level", "in", Unit::kText, 1});
  table.add_column(ReportColumn{"seconds", "time", Unit::kSeconds, 0, 3});
  table.add_column(ReportColumn{"spread", "spread", Unit::kPercent, 1});
  table.add_column(ReportColumn{"bytes_per_s", "rate", Unit::kByteRate, 0});
  table.add_column(ReportColumn{"flops_per_s", "rate", Unit::kFlopRate, 0});
  for (const cuda::ProbePoint& p : probe.points) {
    const double rate = p.seconds > 0 ? p.amount / p.seconds : 0;
    table.add_row({Cell::text(p.name), Cell::text(p.where), Cell::number(p.seconds), Cell::number(p.spread), p.unit == "B" ? Cell::number(rate) : Cell(), p.unit == "FLOP" ? Cell::number(rate) : Cell()});
  }
  return table;
}

}  // namespace

GpuCalibration gpu_calibration(const cuda::DeviceProbe& probe, int folds, std::uint64_t seed) {
  GpuCalibration made;
  made.document.title = fmt::format("{} calibrated", probe.machine.board);
  int products = 0;
  for (const gpu::TableRow& row : probe.rows) products += row.op == gpu::OpClass::kGemm;
  KeyValues facts;
  Machine machine = probe.machine;
  if (probe.rows.empty() || probe.rows.front().chip.empty()) {
    made.document.skipped("the fit: this chip is none of those whose data sheet is known, so predictions are bounds");
  } else if (products < kLeastProducts) {
    made.document.skipped(fmt::format("the fit: {} products were measured, {} are needed", products, kLeastProducts));
  } else {
    gpu::TableFitOptions options;
    options.folds = folds;
    options.seed = seed;
    options.source = fmt::format("{} products and {} attention calls measured by fathom calibrate", products, probe.rows.size() - static_cast<std::size_t>(products));
    gpu::GpuModel model = gpu::fit_from_table(probe.rows, options);
    model.date = utc_now().substr(0, 10);
    made.model = gpu::write_model(model);
    model.hash = gpu::model_hash(made.model);
    machine.gpu_fit = GpuFit(model.hash, [model] { return model; });
    facts.add_text("fit", model.hash);
    facts.add_text("fitted from", options.source);
  }
  machine.date = utc_now().substr(0, 10);
  made.machine = write_machine_ini(machine);
  facts.add_text("hash", machine.hash());
  made.document.add(facts);
  for (const std::string& each : probe.skipped) made.document.skipped(each);
  made.document.add(point_table(probe));
  return made;
}

int calibrate_gpu(double seconds, int folds, std::uint64_t seed, const OutputFlags& output) {
  catch_interrupts();
  backend("cuda");  // throws the reason where there is none
  std::vector<std::string> files, reports;
  for (const std::string& path : output.save) (std::filesystem::path(path).extension() == ".ini" ? files : reports).push_back(path);
  cuda::ProbePlan plan;
  plan.seconds = seconds;
  Progress progress(output.quiet);
  const double start = system_clock().now();
  const cuda::DeviceProbe probe = cuda::probe_gpu(
      cuda::the_device(), plan, [&](double share, const std::string& what) { progress.show("probing the GPU: " + what, share, system_clock().now() - start); }, interrupted);
  progress.clear();
  if (interrupted()) throw Stopped();
  GpuCalibration made = gpu_calibration(probe, folds, seed);
  for (const std::string& path : files) {
    save_file(path, made.machine);
    if (!made.model.empty()) save_file(std::filesystem::path(path).replace_extension(".gpu").string(), made.model);
  }
  if (files.empty()) made.document.paragraph("Not saved: give --save NAME.ini.");
  OutputFlags print = output;
  print.save = reports;
  return emit_document(made.document, print);
}

}  // namespace fathom
