#include "lib/workload.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

#include "lib/error.hpp"

namespace fathom {
namespace {

// Canonical text of everything that decides what is computed; hashed into the fingerprint.
class Canonical {
 public:
  void number(std::int64_t value) { fmt::format_to(std::back_inserter(text_), "{};", value); }
  void word(std::string_view value) { fmt::format_to(std::back_inserter(text_), "{};", value); }
  void spec(const OpSpec& spec) {
    word(kind_name(spec));
    std::visit([this](const auto& op) { op.fields([this](std::string_view, const auto& value) { field(value); }); }, spec);
  }
  std::string hash() const { return fmt::format("{:016x}", XXH3_64bits(text_.data(), text_.size())); }

 private:
  void field(const Rows& rows) { number(rows.count), field(rows.probability), number(static_cast<int>(rows.source)), number(rows.each); }
  void field(const Fraction& value) { word(value.str()); }
  void field(DType type) { word(dtype_name(type)); }
  void field(u128 value) { word(to_string(value)); }
  void field(double value) { fmt::format_to(std::back_inserter(text_), "{};", value); }
  void field(std::int64_t value) { number(value); }
  void field(int value) { number(value); }
  void field(bool value) { number(value); }
  std::string text_;
};

}  // namespace

std::string_view role_name(Role role) {
  constexpr std::array<std::string_view, 8> kNames = {"input", "weight", "gradient", "optimizer_state",
                                                       "activation", "kv_cache", "index", "output"};
  return kNames[static_cast<size_t>(role)];
}

std::vector<Instance> Workload::instances() const {
  std::vector<Instance> result;
  for (size_t s = 0; s < program_.size(); ++s) {
    const Block& block = blocks_[static_cast<size_t>(program_[s].block)];
    for (int i = 0; i < block.op_count; ++i) result.push_back({static_cast<int>(s), block.first_op + i});
  }
  return result;
}

std::string Workload::path(const Instance& instance) const {
  const Step& step = program_[static_cast<size_t>(instance.step)];
  const Block& block = blocks_[static_cast<size_t>(step.block)];
  const Op& op = ops_[static_cast<size_t>(instance.op)];
  return block.layered ? fmt::format("layers.{:02}/{}/{}", step.layer, block.label, op.leaf) : fmt::format("{}/{}", block.label, op.leaf);
}

std::string Workload::path(int op) const {
  const Block& block = blocks_[static_cast<size_t>(block_of(op))];
  const std::string& leaf = ops_[static_cast<size_t>(op)].leaf;
  return block.layered ? fmt::format("layers.*/{}/{}", block.label, leaf) : fmt::format("{}/{}", block.label, leaf);
}

namespace {

void add_op(const Op& op, u128 times, Cost& sum) {
  add_cost(op.spec, declared(op.spec), times, sum);
  if (op.fused == MovedBytes{} && op.split == MovedBytes{}) return;
  sum.read = Bytes(checked_sub((sum.read + op.split.read * times).value(), (op.fused.read * times).value()));
  sum.written = Bytes(checked_sub((sum.written + op.split.written * times).value(), (op.fused.written * times).value()));
}

}  // namespace

Cost declared_cost(const Op& op) {
  Cost cost;
  add_op(op, 1, cost);
  return cost;
}

ExpectedCost expected_cost(const Op& op) {
  ExpectedCost cost = expected_cost(op.spec);
  // What is fused or split are rows of activations, in proportion to the rows that run.
  const double count = static_cast<double>(rows_of(op.spec).count);
  const double share = count > 0 ? cost.rows / count : 1.0;
  cost.read += share * (op.split.read.to_double() - op.fused.read.to_double());
  cost.written += share * (op.split.written.to_double() - op.fused.written.to_double());
  return cost;
}

Cost Workload::total() const {
  Cost sum;
  for (size_t i = 0; i < ops_.size(); ++i) add_op(ops_[i], static_cast<u128>(uses_[i]), sum);
  return sum;
}

ExpectedCost Workload::expected_total() const {
  ExpectedCost sum;
  for (size_t i = 0; i < ops_.size(); ++i) sum += expected_cost(ops_[i]) * static_cast<double>(uses_[i]);
  return sum;
}

Cost Workload::total(Part part) const {
  Cost sum;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (ops_[i].part == part) add_op(ops_[i], static_cast<u128>(uses_[i]), sum);
  return sum;
}

Cost Workload::total(Pass pass) const {
  Cost sum;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (ops_[i].pass == pass) add_op(ops_[i], static_cast<u128>(uses_[i]), sum);
  return sum;
}

bool Workload::routed() const {
  for (const Op& op : ops_)
    if (rows_of(op.spec).routed()) return true;
  return false;
}

TensorId WorkloadBuilder::tensor(std::string name, Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype) {
  workload_.tensors_.push_back(Tensor{std::move(name), role, scope, rows, cols, dtype});
  return static_cast<TensorId>(workload_.tensors_.size() - 1);
}

int WorkloadBuilder::begin_block(std::string label, bool layered) {
  workload_.blocks_.push_back(Block{std::move(label), static_cast<int>(workload_.block_of_.size()), 0, layered});
  return static_cast<int>(workload_.blocks_.size() - 1);
}

OpId WorkloadBuilder::op(std::string leaf, Part part, Pass pass, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  if (workload_.blocks_.empty()) throw_internal("an op was added before any block");
  workload_.ops_.push_back(Op{std::move(leaf), part, pass, std::move(spec), std::move(inputs), std::move(outputs), {}, {}});
  workload_.block_of_.push_back(static_cast<int>(workload_.blocks_.size() - 1));
  ++workload_.blocks_.back().op_count;
  return OpId(static_cast<int>(workload_.ops_.size() - 1));
}

void WorkloadBuilder::step(int block, int layer, int weights, int micro) { workload_.program_.push_back(Step{block, layer, weights, micro}); }

void WorkloadBuilder::restart() {
  workload_.blocks_.clear();
  workload_.program_.clear();
  workload_.block_of_.clear();
  workload_.fingerprint_.clear();
  next_op_ = next_tensor_ = 0;
}

Op& WorkloadBuilder::next_op() {
  if (workload_.blocks_.empty()) throw_internal("an op was added before any block");
  if (next_op_ == workload_.ops_.size()) workload_.ops_.emplace_back();
  workload_.block_of_.push_back(static_cast<int>(workload_.blocks_.size() - 1));
  ++workload_.blocks_.back().op_count;
  return workload_.ops_[next_op_++];
}

TensorId WorkloadBuilder::tensor_in_place(Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype) {
  if (next_tensor_ == workload_.tensors_.size()) workload_.tensors_.emplace_back();
  Tensor& tensor = workload_.tensors_[next_tensor_];
  tensor.role = role;
  tensor.scope = scope;
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.dtype = dtype;
  return static_cast<TensorId>(next_tensor_++);
}

const Workload& WorkloadBuilder::finish_in_place() {
  workload_.ops_.resize(next_op_);
  workload_.tensors_.resize(next_tensor_);
  seal();
  return workload_;
}

void WorkloadBuilder::seal() {
  Workload& w = workload_;
  const int tensors = static_cast<int>(w.tensors_.size());
  for (const Op& op : w.ops_)
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const Operand& operand : *operands)
        if (operand.tensor < 0 || operand.tensor >= tensors) throw_internal(fmt::format("op '{}' names a tensor that does not exist", op.leaf));
  block_uses_.assign(w.blocks_.size(), 0);
  for (const Step& step : w.program_) ++block_uses_.at(static_cast<size_t>(step.block));
  for (size_t b = 0; b < w.blocks_.size(); ++b)
    if (block_uses_[b] == 0) throw_internal(fmt::format("block '{}' is never run", w.blocks_[b].label));
  w.uses_.resize(w.ops_.size());
  for (size_t i = 0; i < w.ops_.size(); ++i) w.uses_[i] = block_uses_[static_cast<size_t>(w.block_of_[i])];
}

Workload WorkloadBuilder::finish() {
  seal();
  const Workload& w = workload_;
  Canonical text;
  text.number(w.stream_.sequences), text.number(w.stream_.queries), text.number(w.stream_.past), text.number(w.stream_.vocab);
  for (const Tensor& tensor : w.tensors_) {
    text.word(tensor.name), text.word(role_name(tensor.role)), text.number(static_cast<int>(tensor.scope));
    text.number(tensor.rows), text.number(tensor.cols), text.word(dtype_name(tensor.dtype));
  }
  for (const Op& op : w.ops_) {
    text.word(op.leaf), text.word(pass_name(op.pass)), text.spec(op.spec);
    for (const auto* operands : {&op.inputs, &op.outputs})
      for (const Operand& operand : *operands) text.number(operand.tensor * 2 + operand.layer_offset);
    if (op.fused != MovedBytes{} || op.split != MovedBytes{})
      for (const Bytes& bytes : {op.fused.read, op.fused.written, op.split.read, op.split.written}) text.word(bytes.str());
  }
  for (const Block& block : w.blocks_) text.word(block.label), text.number(block.op_count);
  for (const Step& step : w.program_) text.number(step.block), text.number(step.layer), text.number(step.weights), text.number(step.micro);
  workload_.fingerprint_ = text.hash();
  return std::move(workload_);
}

}  // namespace fathom
