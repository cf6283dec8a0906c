#include "kernels/cuda_host/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cuda_host/probe_bench.hpp"

namespace fathom::cuda {
namespace {

class Prober : public ProbeBench {
 public:
  using ProbeBench::ProbeBench;

  DeviceProbe run() {
    identity();
    allocate();
    ceilings();
    bandwidth();
    launches();
    vector_ops();
    top_k();
    products();
    attention();
    finish();
    return std::move(probe_);
  }

 private:
  void identity() {
    Machine& m = probe_.machine;
    const std::string chip = chip_of(info_);
    m.name = chip.empty() ? "this-gpu" : chip + "-measured";
    m.board = info_.name;
    m.kind = MachineKind::kGpu;
    m.isa = fmt::format("sm_{}{}", info_.major, info_.minor);
    m.cores = info_.multiprocessors;
    m.software["cublaslt"] = std::to_string(info_.cublaslt);
    m.software["driver"] = fmt::format("{}.{}", info_.driver / 1000, info_.driver % 1000 / 10);
    if (info_.clock_khz > 0) m.clock_max = Figure{static_cast<double>(info_.clock_khz) * 1e3, Provenance::kProbed, "told by the driver"};
    if (info_.memory_total > 0) m.memory = Figure{static_cast<double>(info_.memory_total), Provenance::kProbed, "told by the driver"};
    total_ = plan_.ceilings.size() + 1 + 8 + 2 + 5 + plan_.candidates.size() * 2 + plan_.rows.size() * plan_.layers.size() +
             3 * plan_.heads.size() * (plan_.lengths.size() + plan_.contexts.size());
  }

  void ceilings() {
    const auto peak = [&](DType type, const char* unit, const std::vector<std::int64_t>& sizes, double per_clock) {
      Peak found;
      found.dtype = type;
      found.unit = unit;
      for (const std::int64_t size : sizes) {
        const std::string name = fmt::format("{} product {}^3", dtype_name(type), size);
        const std::int64_t bytes = size * size * dtype_bytes(type);
        if (stopped() || !fits({bytes}, name)) continue;
        const double flops = 2.0 * std::pow(static_cast<double>(size), 3);
        if (!point(name, "", flops, "FLOP", matmul(product(size, size, size, type), plan_.tune))) continue;
        const Figure rate = figure(probe_.points.back(), fmt::format("cuBLASLt, m = n = k = {}", size));
        if (found.rate.empty() || rate.value > found.rate[0].value) found.rate[0] = rate;
      }
      if (found.rate.empty()) return;
      const double light = per_clock * info_.multiprocessors * static_cast<double>(info_.clock_khz) * 1e3;
      if (light >= found.rate[0].value)
        found.best[0] = {light, Provenance::kDatasheet, fmt::format("{} SMs x {:.0f} FLOP per clock x {:.3f} GHz", info_.multiprocessors, per_clock, static_cast<double>(info_.clock_khz) * 1e-6)};
      else
        found.best[0] = {found.rate[0].value, Provenance::kProbed, "as measured: the units' rate is not known"};
      probe_.machine.peaks.push_back(found);
    };
    peak(DType::kBF16, "tensor", plan_.ceilings, tensor_flops_per_clock(info_));
    if (!plan_.ceilings.empty()) peak(DType::kF32, "fma", {plan_.ceilings.back()}, fma_flops_per_clock(info_));
  }

  // ---- memory ----

  void level(const std::string& where, std::int64_t bytes) {
    MemoryLevel level;
    level.name = where;
    level.shared = true;
    const std::int64_t width = plan_.vector_width, row = width * 2;
    // Scores and indices of the rows must fit into the small buffers.
    const std::int64_t rows = std::min(bytes / row, kTables / 4);
    if (rows < 1) return;
    const double moved = static_cast<double>(rows * row);
    const auto take = [&](Access access, const std::string& name, double amount, const Queue& queue, const std::string& how) {
      if (stopped() || !point(name, where, amount, "B", queue)) return;
      level.rate[static_cast<int>(access)][0] = figure(probe_.points.back(), fmt::format("{} of {:.0f} MB", how, moved * 1e-6));
    };
    RouterScoreArgs read;
    read.type = DType::kBF16, read.rows = rows, read.width = width, read.x = a_.data(), read.w = b_.data(), read.scores = reinterpret_cast<float*>(floats_.data());
    take(Access::kRead, "read", moved, [this, read](Text* text) { return kernels_.router_score(handle(), &read, text); }, "row dot products");
    AddArgs copy;  // y = a + a: one array read, one written
    copy.type = DType::kBF16, copy.rows = {rows, nullptr}, copy.width = width, copy.a = copy.b = a_.data(), copy.y = c_.data();
    take(Access::kCopy, "copy", 2 * moved, [this, copy](Text* text) { return kernels_.add(handle(), &copy, text); }, "y = x + x");
    AddArgs update;  // in place
    update.type = DType::kBF16, update.rows = {rows, nullptr}, update.width = width, update.a = update.b = update.y = c_.data();
    take(Access::kUpdate, "update", 2 * moved, [this, update](Text* text) { return kernels_.add(handle(), &update, text); }, "x = x + x");
    // Every eighth row in ascending order with a hash's jitter, as a routed block takes them.
    const std::int64_t taken = std::max<std::int64_t>(1, rows / 8);
    std::vector<std::int32_t> indices(static_cast<std::size_t>(taken));
    for (std::int64_t i = 0; i < taken; ++i)
      indices[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::min(rows - 1, i * 8 + static_cast<std::int64_t>(gpu::mix_hash(static_cast<std::uint64_t>(i)) % 8)));
    upload(ints_, indices);
    GatherArgs gather;
    gather.type = DType::kBF16, gather.rows = {taken, nullptr}, gather.width = width, gather.x = a_.data(), gather.indices = reinterpret_cast<std::int32_t*>(ints_.data()), gather.y = c_.data();
    take(Access::kGather, "gather", 2.0 * static_cast<double>(taken * row), [this, gather](Text* text) { return kernels_.gather(handle(), &gather, text); }, "an eighth of the rows,");
    if (where == "L2") level.capacity = Figure{static_cast<double>(info_.l2_bytes), Provenance::kProbed, "told by the driver"};
    if (where == "DRAM" && info_.memory_total > 0) level.capacity = Figure{static_cast<double>(info_.memory_total), Provenance::kProbed, "told by the driver"};
    if (!level.rate[0].empty()) probe_.machine.levels.push_back(level);
  }

  void bandwidth() {
    // In L2: source and destination in half of it. In DRAM: far beyond it, so that nothing of the last call is found.
    if (info_.l2_bytes > 0) level("L2", std::min(bytes_, info_.l2_bytes / 4));
    level("DRAM", bytes_);
  }

  // ---- launches ----

  void launches() {
    AddArgs tiny;
    tiny.type = DType::kBF16, tiny.rows = {1, nullptr}, tiny.width = 8, tiny.a = tiny.b = a_.data(), tiny.y = c_.data();
    const Queue add = [this, tiny](Text* text) { return kernels_.add(handle(), &tiny, text); };
    if (stopped()) return;
    // From a stream that is not held: the host's pace is what is asked for.
    Text text;
    must(add(&text), "launching a kernel", text);
    must(module_.wait(handle(), &text), "launching a kernel", text);
    std::vector<double> stream, graph;
    Graph* captured = nullptr;
    std::int64_t nodes = 0;
    must(module_.begin_capture(handle(), &text), "capturing a graph", text);
    Status status = Status::kOk;
    for (int i = 0; i < plan_.launches && status == Status::kOk; ++i) status = add(&text);
    if (status != Status::kOk) {
      Text ignored;
      module_.abandon_capture(handle(), &ignored);
      must(status, "capturing a graph", text);
    }
    must(module_.end_capture(handle(), &captured, &nodes, &text), "making a graph", text);
    const auto timed = [&](const Queue& queue, int calls) {
      must(module_.record(handle(), events_[0], &text), "recording an event", text);
      for (int i = 0; i < calls; ++i) must(queue(&text), "launching a kernel", text);
      must(module_.record(handle(), events_[1], &text), "recording an event", text);
      must(module_.wait(handle(), &text), "launching a kernel", text);
      double seconds = 0;
      must(module_.elapsed(handle(), events_[0], events_[1], &seconds, &text), "reading events", text);
      return seconds / plan_.launches;
    };
    const Queue replay = [this, captured](Text* message) { return module_.launch_graph(handle(), captured, message); };
    try {
      timed(replay, 1);
      for (int i = 0; i < 9; ++i) stream.push_back(timed(add, plan_.launches)), graph.push_back(timed(replay, 1));
    } catch (...) {
      module_.free_graph(handle(), captured);
      throw;
    }
    module_.free_graph(handle(), captured);
    done_ += 2;
    for (auto* each : {&stream, &graph}) std::sort(each->begin(), each->end());
    const auto spread = [](const std::vector<double>& v) { return v[4] > 0 ? (v[6] - v[2]) / v[4] : 0; };
    probe_.points.push_back({"kernel launched from a stream", "", stream[4], spread(stream), 9, 0, ""});
    probe_.points.push_back({"kernel as a node of a graph", "", graph[4], spread(graph), 9, 0, ""});
    probe_.machine.launch[0] = {graph[4], Provenance::kProbed, fmt::format("a graph of {} kernels, 9 samples, spread {:.1f} %", plan_.launches, 100 * spread(graph))};
  }

  // ---- ops ----

  // bf16 rows of the model's width, far more than the L2 holds.
  void vector_ops() {
    const std::int64_t width = plan_.vector_width, rows = std::min(bytes_ / (width * 2), kTables / 4);
    const double one = static_cast<double>(rows * width * 2);
    NormArgs norm;
    norm.type = DType::kBF16, norm.rows = {rows, nullptr}, norm.declared_rows = rows, norm.width = norm.stride = width, norm.gains = 1;
    norm.x = a_.data(), norm.gain = b_.data(), norm.y = c_.data();
    if (!stopped()) point("rms_norm", "DRAM", 2 * one, "B", [this, norm](Text* text) { return kernels_.norm(handle(), &norm, text); });
    AddArgs add;
    add.type = DType::kBF16, add.rows = {rows, nullptr}, add.width = width, add.a = a_.data(), add.b = b_.data(), add.y = c_.data();
    if (!stopped()) point("add_residual", "DRAM", 3 * one, "B", [this, add](Text* text) { return kernels_.add(handle(), &add, text); });
    ActivationArgs act;
    act.type = DType::kBF16, act.kind = ActivationKind::kSilu, act.rows = {rows, nullptr}, act.width = width, act.x = a_.data(), act.up = b_.data(), act.y = c_.data();
    if (!stopped()) point("gated activation", "DRAM", 3 * one, "B", [this, act](Text* text) { return kernels_.activation(handle(), &act, text); });
    act.kind = ActivationKind::kGeluTanh, act.up = nullptr;
    if (!stopped()) point("gelu", "DRAM", 2 * one, "B", [this, act](Text* text) { return kernels_.activation(handle(), &act, text); });
    const std::int64_t taken = std::max<std::int64_t>(1, rows / 8);
    std::vector<std::int32_t> indices(static_cast<std::size_t>(taken));
    for (std::int64_t i = 0; i < taken; ++i) indices[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 8 % rows);
    upload(ints_, indices);
    ScatterArgs scatter;  // in place: only the selected rows are touched
    scatter.type = DType::kBF16, scatter.rows = {taken, nullptr}, scatter.all_rows = rows, scatter.width = width, scatter.x = scatter.y = c_.data(), scatter.f = a_.data();
    scatter.indices = reinterpret_cast<std::int32_t*>(ints_.data());
    if (!stopped()) point("scatter_add_rows", "DRAM", 3.0 * static_cast<double>(taken * width * 2), "B", [this, scatter](Text* text) { return kernels_.scatter(handle(), &scatter, text); });
  }

  void top_k() {
    for (const std::int64_t candidates : plan_.candidates) {
      for (const std::int64_t sequences : {std::int64_t{1}, std::int64_t{16}}) {
        const std::int64_t all = candidates * sequences;
        if (stopped() || all * 4 > kTables) continue;
        std::vector<float> scores(static_cast<std::size_t>(all));
        for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(gpu::mix_hash(i) >> 40) * 0x1p-23f - 1.0f;
        upload(floats_, scores);
        SelectArgs s;
        s.sequences = sequences, s.length = candidates, s.k = candidates / 8, s.top = true;
        s.scores = reinterpret_cast<float*>(floats_.data()), s.positions = reinterpret_cast<std::int32_t*>(b_.data());
        s.indices = reinterpret_cast<std::int32_t*>(ints_.data()), s.inverse = reinterpret_cast<std::int32_t*>(begin_.data());
        if (!fits({all * 4}, "top-k")) continue;
        point(fmt::format("top-k, {} of {} candidates", sequences, candidates), "", 0, "", [this, s](Text* text) { return kernels_.select(handle(), &s, text); });
      }
    }
  }

  void row(gpu::OpClass op, std::array<std::int64_t, 5> key, const std::string& name, double flops, const Queue& queue) {
    if (!point(name, "", flops, "FLOP", queue)) return;
    gpu::TableRow made;
    made.chip = chip_of(info_);
    made.op = op;
    made.key = key;
    made.time_us = probe_.points.back().seconds * 1e6;
    probe_.rows.push_back(made);
  }

  void products() {
    for (const auto& [n, k] : plan_.layers)
      for (const std::int64_t m : plan_.rows) {
        if (stopped()) return;
        const std::string name = fmt::format("product {} x {} x {}", m, n, k);
        if (!fits({m * k * 2, k * n * 2, m * n * 2}, name)) continue;
        const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
        row(gpu::OpClass::kGemm, {m, n, k, 0, 0}, name, flops, matmul(product(m, n, k, DType::kBF16), 0));
      }
  }

  // Ranges, then the kernel, as an op of a step runs them.
  void attend(gpu::OpClass op, std::int64_t batch, std::int64_t length, const ProbePlan::Heads& h) {
    const bool decode = op == gpu::OpClass::kDecode;
    const std::string name = fmt::format("attention {} {} x {}, {}/{} heads of {}", decode ? "decode" : "prefill", batch, length, h.heads, h.kv_heads, h.dim);
    const std::int64_t each = decode ? 1 : length, rows = batch * each, q_width = h.heads * h.dim, kv_width = 2 * h.kv_heads * h.dim;
    AttentionRangeArgs ranges;
    AttentionArgs a;
    a.type = DType::kBF16;
    a.queries = {batch, each, nullptr};
    a.row_limit = rows, a.rows_per_sequence = each, a.keys_per_sequence = length;
    a.keys = {batch, length, nullptr};
    a.heads = static_cast<int>(h.heads), a.kv_heads = static_cast<int>(h.kv_heads), a.qk_dim = a.v_dim = static_cast<int>(h.dim);
    a.scale = 1.0f / std::sqrt(static_cast<float>(h.dim));
    a.q_stride = a.o_stride = q_width, a.kv_stride = kv_width, a.v_head_stride = h.dim;
    a.splits = decode ? attention_splits(batch * h.kv_heads, length, attention_tile_dim(a), info_.multiprocessors) : 1;
    const std::int64_t partials = a.splits > 1 ? a.splits * rows * h.heads * (h.dim + 1) * 4 : 0, o_bytes = (rows * q_width * 2 + 255) / 256 * 256;
    if (!fits({rows * q_width * 2, batch * length * kv_width * 2, o_bytes + partials}, name)) return;
    if (std::max(rows, batch * length) * 4 > kTables) {
      ++done_;
      return;
    }
    a.q = a_.data(), a.k = b_.data(), a.v = b_.data() + h.kv_heads * h.dim * 2, a.o = c_.data();
    if (partials > 0) {
      a.partial_o = reinterpret_cast<float*>(c_.data() + o_bytes);
      a.partial_lse = a.partial_o + a.splits * rows * h.heads * h.dim;
    }
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = decode ? static_cast<std::int32_t>(length - 1) : static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
    upload(ints_, positions);
    ranges.queries = a.queries, ranges.row_limit = rows, ranges.keys = a.keys;
    ranges.positions = reinterpret_cast<std::int32_t*>(ints_.data());
    if (decode) {
      upload(floats_, std::vector<std::int32_t>(static_cast<std::size_t>(batch), static_cast<std::int32_t>(length)));
      ranges.counts = reinterpret_cast<std::int32_t*>(floats_.data());
    } else {
      ranges.key_positions = ranges.positions;
    }
    ranges.begin = reinterpret_cast<std::int32_t*>(begin_.data()), ranges.end = reinterpret_cast<std::int32_t*>(end_.data());
    a.begin = ranges.begin, a.end = ranges.end;
    const double keys = decode ? static_cast<double>(length) : (static_cast<double>(length) + 1) / 2;
    row(op, {batch, length, h.heads, h.kv_heads, h.dim}, name, 4.0 * static_cast<double>(rows) * keys * static_cast<double>(q_width), [this, ranges, a](Text* text) {
      const Status status = kernels_.attention_ranges(handle(), &ranges, text);
      return status == Status::kOk ? kernels_.attention(handle(), &a, text) : status;
    });
  }

  void attention() {
    for (const ProbePlan::Heads& h : plan_.heads) {
      for (const std::int64_t batch : {1, 4, 16})
        for (const std::int64_t length : plan_.lengths)
          if (!stopped()) attend(gpu::OpClass::kPrefill, batch, length, h);
      for (const std::int64_t batch : {1, 8, 64})
        for (const std::int64_t context : plan_.contexts)
          if (!stopped()) attend(gpu::OpClass::kDecode, batch, context, h);
    }
  }

  void finish() {
    if (stopped()) return;
    check_machine(probe_.machine);
  }
};

}  // namespace

std::string chip_of(const DeviceInfo& info) {
  std::string name = info.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  for (const gpu::GpuDevice& device : gpu::known_devices())
    if (name.find(device.name) != std::string::npos) return device.name;
  return {};
}

double tensor_flops_per_clock(const DeviceInfo& info) {
  switch (10 * info.major + info.minor) {
    case 80: return 2048;
    case 86: case 89: return 1024;
    case 90: return 4096;
    case 100: return 8192;
    default: return 0;
  }
}

double fma_flops_per_clock(const DeviceInfo& info) {
  if (info.major < 8) return 0;
  return info.major == 8 && info.minor == 0 ? 128 : 256;
}

DeviceProbe probe_gpu(std::shared_ptr<OpenDevice> device, const ProbePlan& plan, const std::function<void(double, const std::string&)>& progress, const std::function<bool()>& stop) {
  return Prober(std::move(device), plan, progress, stop).run();
}

}  // namespace fathom::cuda
