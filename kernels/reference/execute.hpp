// From an op and its operands to the reference kernel. Internal to the reference execution.
#pragma once

#include <string>

#include "kernels/program.hpp"
#include "kernels/reference/counting.hpp"

namespace fathom::reference {

struct Call {
  const BoundOp& bound;
  Executed& executed;
  const Selection* selection;  // null: declared rows
  const BindOptions& options;
  const StreamShape& stream;
  std::int64_t& optimizer_step;
  const std::vector<Tensor>& tensors;
  bool is_gradient(const OperandView& view) const { return tensors[static_cast<size_t>(view.at.tensor)].role == Role::kGradient; }
};

// Any op but Select, with operands loaded into counting scalars and results rounded to the tensors' types.
void run_f32(const Call& call);
void run_f64(const Call& call);
// Select decides how many rows the ops behind it have.
void run_select(const Select& op, const Call& call, Selection& selection, const std::string& path, bool f32);

double load_value(const OperandView& view, std::int64_t index);
void store_value(const OperandView& view, std::int64_t index, double value);

}  // namespace fathom::reference
