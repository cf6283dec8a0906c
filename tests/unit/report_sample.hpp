// A made-up report that uses every part once: for golden texts and for looking at the rendered pages. Its times are
// invented; only the FLOP counts of the two presets are real.
#pragma once

#include <cmath>
#include <string>

#include "reports/document.hpp"

namespace fathom::sample {

inline ReportTable configurations() {
  ReportTable table("configurations", "Configurations");
  for (const char* key : {"model", "flops_matmul", "flops_ratio", "predicted_s", "measured_s", "error", "verdict",
                          "realised", "peak_bytes", "spread"}) {
    table.add_column(key);
  }
  table.add_row({Cell::text("dense-60m"), Cell::count(u128{265772335104}), Cell::number(1.0), Cell::number(1.61),
                 Cell::number(1.685), Cell::number(1.61 / 1.685 - 1), Cell::text("within"),
                 Cell::status("is the baseline"), Cell::count(u128{514719744}), Cell::number(0.012)});
  table.add_row({Cell::text("mod-60m"), Cell::count(u128{189672062976}), Cell::number(0.7137), Cell::number(1.17),
                 Cell::number(1.232), Cell::number(1.17 / 1.232 - 1), Cell::text("within"), Cell::number(0.939),
                 Cell::count(u128{514728960}), Cell::number(0.018)});
  return table;
}

inline ReportTable ops() {
  ReportTable table("ops", "Ops of mod-60m");
  for (const char* key :
       {"path", "kind", "flops_matmul", "bytes_read", "predicted_s", "measured_s", "error", "binding", "verdict"})
    table.add_column(key);
  const auto row = [&](const char* path, const char* kind, u128 flops, u128 bytes, double predicted, Cell measured,
                       const char* binding, const char* verdict) {
    const Cell error = measured.is_number() ? Cell::number(predicted / measured.value() - 1) : Cell();
    table.add_row({Cell::text(path), Cell::text(kind), Cell::count(flops), Cell::count(bytes), Cell::number(predicted),
                   measured, error, Cell::text(binding), Cell::text(verdict)});
  };
  row("layers.00/attn/qkv", "gemm", 4076863488, 8699904, 24.5e-3, Cell::number(25.1e-3), "compute", "within");
  row("layers.00/attn/core", "attention", 4833411072, 14155776, 46.0e-3, Cell::number(55.2e-3), "compute", "slow");
  row("layers.00/mlp/up", "gemm", 5435817984, 10027008, 32.7e-3, Cell::number(32.9e-3), "compute", "within");
  row("layers.01/router", "router_score", 2359296, 4720896, 240e-6, Cell::number(238e-6), "memory", "within");
  row("layers.01/topk", "top_k", 0, 8192, 9e-6, Cell::status("too short"), "launch", "too-short");
  row("layers.01/mod/mlp/up", "gemm", 679477248, 5898240, 4.1e-3, Cell::number(3.2e-3), "compute", "fast");
  table.add_row({Cell::text("total"), Cell(), Cell::count(u128{15027929088}), Cell(), Cell::number(107.549e-3),
                 Cell::number(116.638e-3), Cell::number(107.549 / 116.638 - 1), Cell(), Cell()},
                true);
  table.caption = "Ops below 20 us are measured in batches; `too-short` ones are not graded.";
  return table;
}

inline XyPlot scatter() {
  XyPlot plot{"scatter",
              "Predicted against measured, per op",
              "Each mark is an op. Invented times.",
              {"measured time", Unit::kSeconds, true},
              {"predicted time", Unit::kSeconds, true},
              {},
              true,
              0.1};
  PlotSeries gemm{"gemm", {}, false, true, false}, attention{"attention", {}, false, true, false},
      vector{"vector", {}, false, true, false};
  for (int i = 0; i < 24; ++i) {
    const double x = 1e-4 * std::pow(10.0, i / 9.0);
    gemm.points.push_back({x, x * (1 + 0.08 * std::sin(i * 2.1)), {}, {}, "gemm " + std::to_string(i)});
    if (i % 3 == 0)
      attention.points.push_back({x * 2, x * 2 * (0.85 + 0.02 * std::cos(i)), x * 1.5, x * 2.1, "attention"});
    if (i % 2 == 0) vector.points.push_back({x * 0.05, x * 0.05 * (1.1 + 0.1 * std::sin(i)), {}, {}, "norm"});
  }
  plot.series = {gemm, attention, vector};
  return plot;
}

inline XyPlot latency() {
  XyPlot plot{"decode",
              "Decode latency against batch",
              "",
              {"batch", Unit::kCount, true},
              {"time per token", Unit::kSeconds, false},
              {},
              false,
              0};
  PlotSeries dense{"dense-60m", {}, true, true, false}, mod{"mod-60m, predicted", {}, true, false, true},
      measured{"mod-60m, measured", {}, true, true, false};
  for (int b = 1; b <= 64; b *= 2) {
    const double base = 6e-3 + 0.11e-3 * b;
    dense.points.push_back({double(b), base, {}, {}, ""});
    mod.points.push_back({double(b), base * (0.62 + 0.3 * (1 - std::pow(0.875, b))), {}, {}, ""});
    measured.points.push_back(
        {double(b), base * (0.66 + 0.3 * (1 - std::pow(0.875, b))), base * 0.63, base * 0.98, ""});
  }
  plot.series = {dense, mod, measured};
  return plot;
}

inline BarPlot where_time_goes() {
  return {"time",
          "Where the time goes",
          "Measured, per step.",
          "time",
          Unit::kSeconds,
          {"dense-60m", "mod-60m"},
          {{"projections", {0.62, 0.39}},
           {"attention core", {0.52, 0.31}},
           {"MLP", {0.42, 0.29}},
           {"router and gather", {0.0, 0.02}},
           {"logits and loss", {0.125, 0.222}}},
          true};
}

inline BarPlot errors() {
  return {"errors",
          "Median error by class",
          "",
          "absolute error",
          Unit::kPercent,
          {"gemm", "attention", "norms and activations"},
          {{"roofline", {0.12, 0.31, 0.18}}, {"calibrated", {0.034, 0.061, std::nan("")}}},
          false};
}

inline RoutingMap routing() {
  RoutingMap map{"routing",
                 "Routing map",
                 "Which token passes through which block.",
                 {},
                 {"The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ".", "\n", "日本"},
                 {}};
  using State = RoutingMap::State;
  for (int frame = 0; frame < 2; ++frame) {
    RoutingMap::Frame f{frame == 0 ? "capacity 1/2" : "capacity 1/4", {}, {}};
    for (int b = 0; b < 8; ++b) {
      std::vector<State> row;
      for (int t = 0; t < 12; ++t) {
        const int slot = (t * 5 + b * 7) % 12;
        row.push_back(b % 2 == 0 ? State::kFull : slot < (frame == 0 ? 6 : 3) ? State::kProcessed : State::kSkipped);
      }
      f.states.push_back(row);
    }
    map.frames.push_back(f);
  }
  for (int b = 0; b < 8; ++b) map.blocks.push_back("block " + std::to_string(b));
  return map;
}

inline RoutingMap long_routing() {
  RoutingMap map{"routing-long", "Routing map, 2048 tokens", "", {}, {}, {}};
  RoutingMap::Frame frame;
  unsigned state = 1;
  for (int b = 0; b < 12; ++b) {
    std::vector<RoutingMap::State> row;
    for (int t = 0; t < 2048; ++t) {
      state = state * 1664525u + 1013904223u;
      const bool pass = (state >> 24) % 64 < 8u + (t / 32) % 9;
      row.push_back(b % 2 == 0 ? RoutingMap::State::kFull
                    : pass     ? RoutingMap::State::kProcessed
                               : RoutingMap::State::kSkipped);
    }
    frame.states.push_back(row);
    map.blocks.push_back("layers." + std::to_string(b));
  }
  map.frames = {frame};
  return map;
}

inline Document document() {
  Document report;
  report.title = "mod-60m against dense-60m: prefill, 1 x 2048 tokens, f32";
  report.paragraph(
      "mod-60m does 71.4 % of the matmul FLOP of dense-60m. Predicted time ratio 0.7267, measured 0.7312; of the FLOPs "
      "saved, "
      "93.9 % were realised as time. Step times were predicted within 5.0 %.");
  report.code("fathom compare mod-60m dense-60m --phase prefill --backend cpu\n");
  KeyValues facts;
  facts.title = "Scenario";
  facts.add("machine", Cell::text("example <machine> & co"), "probed");
  facts.add("params_total", Cell::count(u128{54277056}));
  facts.add("capacity", Cell::number(0.125), "preset");
  facts.add_text("file", "models/caf\xe9|x.ini");
  report.add(facts);
  report.warning(
      "2 of 118 ops are noisy (A/A spread above half the target) and are not graded: `layers.03/norm`, "
      "`layers.05/norm`.");
  report.skipped("bf16: this CPU has no bf16 matmul.");
  report.note("Sequence length 2048 is the model's maximum.");
  report.heading("Result").add(configurations()).add(scatter()).add(where_time_goes());
  report.heading("Per op").add(ops()).add(errors());
  report.heading("Decode").add(latency());
  report.heading("Routing").add(routing()).add(long_routing());
  return report.glossary();
}

}  // namespace fathom::sample
