// The op list: an immutable, ordered program of ops over named tensors, stored by repetition.
//
// Layers that are alike share one Block of ops; the Program says which block runs at which layer. Counting multiplies a
// block's cost by its uses; executing walks the program. A tensor of layer scope exists once per layer, and an operand may
// reach into the next layer (a block writes the residual stream that the next one reads).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/cost.hpp"
#include "lib/op.hpp"

namespace fathom {

enum class Role : std::uint8_t { kInput, kWeight, kGradient, kOptimizerState, kActivation, kKvCache, kIndex, kOutput };
std::string_view role_name(Role role);

enum class Scope : std::uint8_t {
  kGlobal,   // one for the whole workload
  kLayer,    // one per layer
  kWeights,  // one per distinct weight set: layers that share weights (recursion) share it
};

using TensorId = std::int32_t;

struct Tensor {
  std::string name;  // "attn/qkv/weight"; unique within the block kinds that use it
  Role role = Role::kActivation;
  Scope scope = Scope::kGlobal;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::kF32;

  Bytes bytes() const { return Bytes(product(rows, cols, dtype_bytes(dtype))); }
};

struct Operand {
  TensorId tensor = -1;
  std::int8_t layer_offset = 0;  // 1: the instance of the next layer
};

// Only WorkloadBuilder makes one, so an OpId always belongs to a workload.
class OpId {
 public:
  int index() const { return index_; }
  friend bool operator==(OpId, OpId) = default;

 private:
  friend class Workload;
  friend class WorkloadBuilder;
  explicit OpId(int index) : index_(index) {}
  int index_;
};

// Bytes moved beside what the cost rule of an op says.
struct MovedBytes {
  Bytes read;
  Bytes written;
  friend bool operator==(const MovedBytes&, const MovedBytes&) = default;
};

struct Op {
  std::string leaf;  // "attn/qkv"; a whole path is "layers.07/mod/attn/qkv"
  Part part = Part::kProjection;
  Pass pass = Pass::kForward;
  OpSpec spec;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  MovedBytes fused{};  // less: tensors that a declared fusion keeps out of memory
  MovedBytes split{};  // more: what is moved again where this op is taken as several
};

// Exact cost at the declared size, with what fusions change.
Cost declared_cost(const Op& op);
ExpectedCost expected_cost(const Op& op);

struct Block {
  std::string label;  // "dense", "mod", "head"; backward blocks end in "/backward"
  int first_op = 0;
  int op_count = 0;
  bool layered = true;  // false: stands outside the layers (embedding, head, optimizer)
};

struct Step {
  int block = 0;
  int layer = 0;
  int weights = 0;  // weight set index (= layer unless weights are shared)
  int micro = 0;    // micro-step of a training step with gradient accumulation; activations never outlive one
};

// One executed op: step and op within the workload.
struct Instance {
  int step = 0;
  int op = 0;
};

// The stream of rows that enters the step: [sequences, queries] new tokens after `past` cached ones each; ids below `vocab`.
struct StreamShape {
  std::int64_t sequences = 1;
  std::int64_t queries = 0;
  std::int64_t past = 0;
  std::int64_t vocab = 0;
};

class Workload {
 public:
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Step>& program() const { return program_; }
  const StreamShape& stream() const { return stream_; }
  const std::string& fingerprint() const { return fingerprint_; }  // hash of everything above, 16 hex digits

  OpId id(int index) const { return OpId(index); }
  const Op& op(OpId id) const { return ops_[static_cast<size_t>(id.index())]; }
  // How often the op runs in one pass through the program.
  std::int64_t uses(int op) const { return uses_[static_cast<size_t>(op)]; }
  int block_of(int op) const { return block_of_[static_cast<size_t>(op)]; }
  // Program order, expanded. Paths are made on demand.
  std::vector<Instance> instances() const;
  std::string path(const Instance& instance) const;  // "layers.07/mod/attn/qkv", "head/logits"
  std::string path(int op) const;                    // "layers.*/mod/attn/qkv" where several layers share the op

  Cost total() const;                  // declared
  ExpectedCost expected_total() const;
  Cost total(Part part) const;
  Cost total(Pass pass) const;
  bool routed() const;  // any op with random rows

 private:
  friend class WorkloadBuilder;
  std::vector<Op> ops_;
  std::vector<Tensor> tensors_;
  std::vector<Block> blocks_;
  std::vector<Step> program_;
  StreamShape stream_;
  std::vector<std::int64_t> uses_;
  std::vector<int> block_of_;
  std::string fingerprint_;
};

// Results per op of one workload. Refuses to be read with another workload's ids.
template <class T>
class PerOp {
 public:
  PerOp() = default;
  explicit PerOp(const Workload& workload) : values_(workload.ops().size()), fingerprint_(workload.fingerprint()) {}
  bool belongs_to(const Workload& workload) const { return fingerprint_ == workload.fingerprint(); }
  size_t size() const { return values_.size(); }
  T& operator[](OpId id) { return values_.at(static_cast<size_t>(id.index())); }
  const T& operator[](OpId id) const { return values_.at(static_cast<size_t>(id.index())); }
  T& operator[](int op) { return values_.at(static_cast<size_t>(op)); }
  const T& operator[](int op) const { return values_.at(static_cast<size_t>(op)); }

 private:
  std::vector<T> values_;
  std::string fingerprint_;
};

class WorkloadBuilder {
 public:
  TensorId tensor(std::string name, Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype);
  const Tensor& at(TensorId id) const { return workload_.tensors_[static_cast<size_t>(id)]; }

  // Ops are added to the block that was begun last.
  int begin_block(std::string label, bool layered);
  OpId op(std::string leaf, Part part, Pass pass, OpSpec spec, std::vector<Operand> inputs, std::vector<Operand> outputs);
  void step(int block, int layer, int weights, int micro = 0);

  void stream(const StreamShape& shape) { workload_.stream_ = shape; }

  // The list so far, and what a fusion changes about one of its ops.
  const Workload& list() const { return workload_; }
  Op& at(OpId id) { return workload_.ops_[static_cast<size_t>(id.index())]; }

  // Checks that every op names tensors that exist and that every block is used, and seals the list.
  Workload finish();

  // For many lists one after the other: restart() begins a new one in the memory of the last, finish_in_place() seals it there, without a fingerprint. The list is
  // valid until the next restart(). Names may be empty: predictors do not read them.
  void restart();
  template <class Spec>
  void op_in_place(Part part, Pass pass, const Spec& spec, const Operand* inputs, std::size_t input_count, const Operand* outputs, std::size_t output_count) {
    Op& op = next_op();
    op.part = part;
    op.pass = pass;
    op.spec = spec;
    op.inputs.assign(inputs, inputs + input_count);
    op.outputs.assign(outputs, outputs + output_count);
    op.leaf.clear();
    op.fused = op.split = MovedBytes{};
  }
  TensorId tensor_in_place(Role role, Scope scope, std::int64_t rows, std::int64_t cols, DType dtype);
  const Workload& finish_in_place();
  // A list made elsewhere, kept in this memory.
  const Workload& keep(Workload list) { return workload_ = std::move(list); }

 private:
  Op& next_op();
  void seal();

  Workload workload_;
  std::size_t next_op_ = 0, next_tensor_ = 0;  // of a list in the memory of the last one
  std::vector<std::int64_t> block_uses_;
};

}  // namespace fathom
