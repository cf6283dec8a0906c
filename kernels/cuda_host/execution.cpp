#include "kernels/cuda_host/execution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lib/error.hpp"

namespace fathom::cuda {
namespace {

constexpr int kTuneCandidates = 8;

// Where addresses are only computed: not null, so that arithmetic on it is defined, and aligned as the device aligns.
std::byte* nowhere() { return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40); }

std::int64_t aligned(std::int64_t bytes) { return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment; }

// The attention that an op is, or whose gradient it forms.
const Attention* attention_in(const OpSpec& spec) {
  if (const auto* backward = std::get_if<AttentionBackward>(&spec)) return &backward->forward;
  return std::get_if<Attention>(&spec);
}

}  // namespace

CudaExecution::CudaExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, std::shared_ptr<OpenDevice> device, int multiprocessors)
    : ProgramExecution(workload, options, plan_memory(*workload)), device_(std::move(device)), multiprocessors_(multiprocessors) {
  mode_ = options.graph;
  for (const Op& op : workload->ops()) {
    // An optimizer's step number is known to the host alone, so that it cannot be captured.
    if (op.pass == Pass::kOptimizer) mode_ = GraphMode::kNone;
    const auto* select = std::get_if<Select>(&op.spec);
    thresholds_ = thresholds_ || (select && select->rule != RoutingRule::kTopK && select->rule != RoutingRule::kRandom);
  }
  if (mode_ == GraphMode::kBuckets && !thresholds_) mode_ = GraphMode::kWhole;  // one bucket
  if (device_) {
    multiprocessors_ = device_->info().multiprocessors;
    arena_ = DeviceMemory(device_, std::max<std::int64_t>(1, ProgramExecution::plan().arena), "the arena");
    run_.module = &device_->module();
    run_.device = device_->device();
  }
  attach(device_ ? arena_.data() : nowhere());
  find_count_runs();
  lower_all(nowhere(), nowhere());
  if (!device_) return;
  extra_ = DeviceMemory(device_, extra_bytes(), "constants and scratch");
  lower_all(extra_.data(), extra_.data() + constant_bytes_);
  Text text;
  must(run_.module->clear(run_.device, extra_.data(), extra_.bytes(), &text), "clearing constants and scratch", text);
  for (const auto& [to, bytes] : context_.constants.contents)
    must(run_.module->upload(run_.device, to, bytes.data(), static_cast<std::int64_t>(bytes.size()), &text), "uploading constants", text);
  context_.constants.contents.clear();
  padded_.assign(static_cast<size_t>(instance_count()), -1.0);
  fill();
}

CudaExecution::~CudaExecution() {
  if (!device_) return;
  Text text;
  run_.module->wait(run_.device, &text);  // memory must not go while work is queued
  free_graphs();
  for (Event* each : events_) run_.module->free_event(run_.device, each);
}

void CudaExecution::lower_all(std::byte* constants, std::byte* scratch) {
  const bool real = device_ && extra_.bytes() > 0;
  context_ = LoweringContext{};
  context_.workload = workload_.get();
  context_.options = &options();
  context_.multiprocessors = multiprocessors_;
  context_.constants.pieces = Pieces(constants);
  std::vector<const BoundOp*> program;
  for (int i = 0; i < instance_count(); ++i) program.push_back(&bound(i));
  prepare_context(context_, program);
  calls_.clear();
  scratch_bytes_ = 0;
  for (int i = 0; i < instance_count(); ++i) {
    context_.plan = [this, real, op = bound(i).op](const Matmul& product) { return real ? plan(product, op) : PlannedProduct{}; };
    Lowering lowering(context_, bound(i), i, scratch);
    lowering.lower();
    scratch_bytes_ = std::max(scratch_bytes_, lowering.scratch_bytes());
    if (real) calls_.push_back(lowering.take_calls());
  }
  for (CountRun& run : count_runs_) run.bound = context_.constants.pieces.take<std::byte>(run.bytes);
  constant_bytes_ = context_.constants.pieces.bytes();
}

// The plan puts the counts of a tensor's copies side by side, so that restoring them is one or two copies per pass.
void CudaExecution::find_count_runs() {
  std::vector<int> order;
  for (size_t i = 0; i < kv_lists().size(); ++i) {
    order.push_back(static_cast<int>(i));
    list_of_[kv_lists()[i].cache.at] = static_cast<int>(i);
  }
  const auto counts = [this](int list) -> const OperandView& { return kv_lists()[static_cast<size_t>(list)].counts; };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return counts(a).data < counts(b).data; });
  for (const int list : order) {
    if (count_runs_.empty() || count_runs_.back().counts + count_runs_.back().bytes != counts(list).data) count_runs_.push_back({counts(list).data, nullptr, 0, {}, {}});
    count_runs_.back().bytes += aligned(counts(list).rows * 4);
    count_runs_.back().lists.push_back(list);
  }
  list_counts_.resize(kv_lists().size());
}

PlannedProduct CudaExecution::plan(const Matmul& product, int op) {
  auto known = std::find_if(planned_.begin(), planned_.end(), [&](const Planned& each) { return each.product == product; });
  if (known == planned_.end()) {
    Text text;
    Planned made{product, {}, {}};
    must(run_.module->plan_matmul(run_.device, &product, kTuneCandidates, &made.planned.plan, &made.choice, &text), "choosing a product's algorithm", text);
    const auto padded = [](std::int64_t size, std::int64_t tile) { return static_cast<double>(tile > 0 ? (size + tile - 1) / tile * tile : size); };
    made.planned.flops = 2.0 * product.batch * padded(product.m, made.choice.tile_m) * padded(product.n, made.choice.tile_n) * static_cast<double>(product.k);
    planned_.push_back(made);
    known = planned_.end() - 1;
  }
  const std::int64_t rows = product.transpose_a ? product.k : product.m;
  auto& list = choices_[op];
  if (std::none_of(list.begin(), list.end(), [&](const auto& each) { return each.first == rows; })) list.emplace_back(rows, known->choice);
  return known->planned;
}

void CudaExecution::reset() {
  run_.optimizer_step = 0;
  ProgramExecution::reset();
}

void CudaExecution::wait() const {
  Text text;
  must(run_.module->wait(run_.device, &text), "running on the GPU", text);
}

void CudaExecution::begin_pass() {
  ProgramExecution::begin_pass();
  Text text;
  must(run_.module->clear(run_.device, context_.flags, instance_count() * 4, &text), "clearing flags", text);
}

void CudaExecution::queue(int instance, Executed& executed) {
  const BoundOp& b = bound(instance);
  run_.rows = executed.rows;
  run_.padded_flops = 0;
  const bool selects = std::holds_alternative<Select>(*b.spec);
  if (selects) run_.threshold = threshold(b);
  if (observer_) observer_->begin_op(instance);
  if (watcher_) watcher_->begin_op(instance);
  for (const Call& call : calls_[static_cast<size_t>(instance)]) call(run_);
  if (watcher_) watcher_->end_op(instance);
  if (observer_) observer_->end_op(instance);
  if (std::holds_alternative<Gemm>(*b.spec)) padded_[static_cast<size_t>(instance)] = run_.padded_flops;
  if (selects) {
    note_selection(instance);
    executed.rows = selection(b).total;
  }
}

std::vector<std::int32_t> CudaExecution::load_ints(const OperandView& from) const {
  std::vector<std::int32_t> values(static_cast<size_t>(from.rows * from.cols));
  Text text;
  must(run_.module->download(run_.device, values.data(), from.data, from.rows * from.cols * 4, &text), "reading from the GPU", text);
  return values;
}

void CudaExecution::read_list_counts() {
  std::vector<std::byte> image;
  for (const CountRun& run : count_runs_) {
    image.resize(static_cast<size_t>(run.bytes));
    Text text;
    must(run_.module->download(run_.device, image.data(), run.counts, run.bytes, &text), "reading the lengths of KV lists", text);
    std::int64_t at = 0;
    for (const int list : run.lists) {
      auto& counts = list_counts_[static_cast<size_t>(list)];
      counts.resize(static_cast<size_t>(kv_lists()[static_cast<size_t>(list)].counts.rows));
      std::memcpy(counts.data(), image.data() + at, counts.size() * 4);
      at += aligned(static_cast<std::int64_t>(counts.size()) * 4);
    }
  }
}

void CudaExecution::execute(int, const BoundOp&, Executed&) { throw_internal("the CUDA execution runs instances itself"); }

void CudaExecution::run_instance(int instance) {
  Executed size = size_now(bound(instance));
  queue(instance, size);
  if (const Attention* attention = attention_in(*bound(instance).spec)) {
    count_pairs(instance, *attention);
    if (attention->cached) read_list_counts();
  }
  wait();
  if (assigned_to(bound(instance))) read_experts();
  learn_experts(instance, size);
  learn(instance, size);
  note_executed(instance, size);
}

void CudaExecution::queue_all(std::vector<Executed>& sizes) {
  sizes.resize(static_cast<size_t>(instance_count()));
  for (int i = 0; i < instance_count(); ++i) {
    sizes[static_cast<size_t>(i)] = size_now(bound(i));
    queue(i, sizes[static_cast<size_t>(i)]);
    if (const Attention* attention = attention_in(*bound(i).spec); attention && run_.host_rows) count_pairs(i, *attention);
  }
}

void CudaExecution::learn_all(std::vector<Executed>& sizes) {
  check_flags();
  if (!count_runs_.empty()) read_list_counts();
  read_experts();
  for (int i = 0; i < instance_count(); ++i) {
    learn_experts(i, sizes[static_cast<size_t>(i)]);
    learn(i, sizes[static_cast<size_t>(i)]);
    note_executed(i, sizes[static_cast<size_t>(i)]);
  }
  ran_ = true;
}

void CudaExecution::run() {
  begin_pass();
  std::vector<Executed> sizes;
  queue_pass(sizes);
  wait();
  if (whole()) note_graph(sizes);
  learn_all(sizes);
}

void CudaExecution::run_watched(PassWatcher& watcher) {
  struct Watching {
    PassWatcher*& now;
    ~Watching() { now = nullptr; }
  } const watching{watcher_ = &watcher};
  run();
}

void CudaExecution::note_selection(int instance) {
  const BoundOp& b = bound(instance);
  const auto& select = std::get<Select>(*b.spec);
  Selection& chosen = selection(b);
  const auto counted = run_.counts.find(b.selection);
  const std::int64_t slots = select.sequences > 0 ? select.selected.count / select.sequences : 0;
  chosen.per_sequence.assign(static_cast<size_t>(select.sequences), slots);
  if (counted != run_.counts.end()) std::copy(counted->second.begin(), counted->second.end(), chosen.per_sequence.begin());
  chosen.total = 0;
  for (const std::int64_t rows : chosen.per_sequence) chosen.total += rows;
}

void CudaExecution::check_flags() {
  std::vector<std::int32_t> flags(static_cast<size_t>(instance_count()));
  Text text;
  must(run_.module->download(run_.device, flags.data(), context_.flags, instance_count() * 4, &text), "reading flags", text);
  for (int i = 0; i < instance_count(); ++i) {
    const std::int32_t flag = flags[static_cast<size_t>(i)];
    if (flag == 0) continue;
    const BoundOp& b = bound(i);
    if (const auto* select = std::get_if<Select>(b.spec))
      throw_input(fmt::format("router score of token {} in sequence {} is not a number", (flag - 1) % select->length, (flag - 1) / select->length), {"", 0, workload_->path(b.op)},
                  "the activations overflowed or the weights are not finite");
    if (std::holds_alternative<KvAppend>(*b.spec)) throw_internal(fmt::format("the KV list of sequence {} is full at '{}'", flag - 1, workload_->path(b.op)));
    throw_internal(fmt::format("'{}' raised its flag on the GPU: {}", workload_->path(b.op), flag));
  }
}

Flops CudaExecution::padded_flops(int instance) const {
  const double padded = padded_[static_cast<size_t>(instance)];
  return padded < 0 ? ProgramExecution::padded_flops(instance) : Flops(static_cast<u128>(padded));
}

std::string CudaExecution::implementation(int op) const {
  const auto found = choices_.find(op);
  if (found == choices_.end() || found->second.empty()) return fmt::format("fathom sm_{}{}", device_->info().major, device_->info().minor);
  const auto& [rows, c] = found->second.back();
  std::string text = fmt::format("cublasLt {} algo {} tile {}x{} stages {} split-k {} waves {:.2f}", device_->info().cublaslt, c.algorithm, c.tile_m, c.tile_n, c.stages, c.split_k, c.waves);
  if (c.tried > 1 && c.seconds > 0) text += fmt::format(" (best of {}, {:.2f} of the first's time)", c.tried, c.seconds / c.first_seconds);
  if (found->second.size() > 1) text += fmt::format(", at {} rows, {} row counts", rows, found->second.size());
  return text;
}

// ---- contents ----

void CudaExecution::store(const OperandView& to, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(to.dtype)));
  store_values(values, to.dtype, bytes.data());
  Text text;
  must(run_.module->upload(run_.device, to.data, bytes.data(), static_cast<std::int64_t>(bytes.size()), &text), "writing to the GPU", text);
}

void CudaExecution::store_ints(const OperandView& to, std::span<const std::int32_t> values) {
  Text text;
  must(run_.module->upload(run_.device, to.data, values.data(), static_cast<std::int64_t>(values.size_bytes()), &text), "writing to the GPU", text);
}

void CudaExecution::clear(const OperandView& to) {
  Text text;
  must(run_.module->clear(run_.device, to.data, to.rows * to.cols * dtype_bytes(to.dtype), &text), "clearing a tensor", text);
}

std::vector<float> CudaExecution::load(const OperandView& from) const {
  std::vector<std::byte> bytes(static_cast<size_t>(from.rows * from.cols * dtype_bytes(from.dtype)));
  Text text;
  must(run_.module->download(run_.device, bytes.data(), from.data, static_cast<std::int64_t>(bytes.size()), &text), "reading from the GPU", text);
  return load_values(bytes.data(), from.dtype, from.rows * from.cols);
}

void CudaExecution::restore_counts() {
  Text text;
  for (const KvList& list : kv_lists())
    if (list.positions.data) store_ints(list.positions, list.bound_positions);
  for (CountRun& run : count_runs_) {
    std::vector<std::byte> image(static_cast<size_t>(run.bytes));
    std::int64_t at = 0;
    for (const int list : run.lists) {
      const auto& counts = kv_lists()[static_cast<size_t>(list)].bound_counts;
      std::memcpy(image.data() + at, counts.data(), counts.size() * 4);
      at += aligned(static_cast<std::int64_t>(counts.size()) * 4);
    }
    if (image != run.image) {
      must(run_.module->upload(run_.device, run.bound, image.data(), run.bytes, &text), "writing the lengths of KV lists", text);
      run.image = std::move(image);
    }
    must(run_.module->copy(run_.device, run.counts, run.bound, run.bytes, &text), "restoring the lengths of KV lists", text);
  }
}

}  // namespace fathom::cuda
