// Passes as captured graphs: one for the whole list, or one from selection to selection for every bucket of rows.
//
// A captured kernel keeps its arguments, so whatever a pass changes must lie in device memory (row counts, positions, tokens do) or make a new
// graph (thresholds do). The first pass is launched op by op: it loads every kernel, which a capture may not.
#include <algorithm>

#include "kernels/cuda_host/execution.hpp"
#include "kernels/cuda_host/rows.hpp"

namespace fathom::cuda {

void CudaExecution::free_graphs() {
  for (Segment& segment : segments_)
    for (auto& [bucket, captured] : segment.graphs) run_.module->free_graph(run_.device, captured.graph);
  segments_.clear();
}

// Segments end with a selection by threshold, whose count the host must know to go on; the whole list is one segment where it need not.
void CudaExecution::find_segments() {
  Segment next;
  for (int i = 0; i < instance_count(); ++i) {
    next.last = i + 1;
    const auto* select = std::get_if<Select>(bound(i).spec);
    const bool ends = mode_ == GraphMode::kBuckets && select && select->rule != RoutingRule::kTopK && select->rule != RoutingRule::kRandom;
    if (!ends) continue;
    segments_.push_back(next);
    next = Segment{i + 1, i + 1, i, {}};
  }
  if (next.last > next.first) segments_.push_back(next);
}

CudaExecution::Captured CudaExecution::capture(const Segment& segment, std::vector<Executed>& sizes) {
  Captured made;
  Text text;
  run_.host_rows = !whole();
  run_.capturing = true;
  must(run_.module->begin_capture(run_.device, &text), "capturing a graph", text);
  try {
    for (int i = segment.first; i < segment.last; ++i) {
      sizes[static_cast<std::size_t>(i)] = size_now(bound(i));
      queue(i, sizes[static_cast<std::size_t>(i)]);
      made.padded.push_back(padded_[static_cast<std::size_t>(i)]);
    }
    must(run_.module->end_capture(run_.device, &made.graph, &made.nodes, &text), "making a graph", text);
  } catch (...) {
    run_.module->abandon_capture(run_.device, &text);
    run_.host_rows = true;
    run_.capturing = false;
    throw;
  }
  run_.host_rows = true;
  run_.capturing = false;
  return made;
}

// Captures everything that a pass may need, so that no timed pass captures. Capturing runs nothing.
void CudaExecution::prepare_graphs() {
  if (mode_ == GraphMode::kNone || !ran_) return;
  const std::vector<float> now = thresholds();
  if (now != captured_thresholds_) free_graphs();
  captured_thresholds_ = now;
  if (!segments_.empty()) return;
  find_segments();
  std::vector<Executed> sizes(static_cast<std::size_t>(instance_count()));
  for (Segment& segment : segments_) {
    if (segment.select < 0) {
      segment.graphs.emplace(0, capture(segment, sizes));
      continue;
    }
    Selection& chosen = selection(bound(segment.select));
    const std::int64_t before = chosen.total;
    std::vector<std::int64_t> buckets = row_buckets(std::get<Select>(*bound(segment.select).spec).selected.count);
    buckets.push_back(0);
    for (const std::int64_t bucket : buckets) {
      chosen.total = bucket;  // products take their rows from here; kernels read the device
      segment.graphs.emplace(bucket, capture(segment, sizes));
    }
    chosen.total = before;
  }
}

void CudaExecution::queue_pass(std::vector<Executed>& sizes) {
  sizes.resize(static_cast<std::size_t>(instance_count()));
  if (mode_ == GraphMode::kNone || !ran_) return queue_all(sizes);
  prepare_graphs();
  Text text;
  for (Segment& segment : segments_) {
    std::int64_t bucket = 0;
    if (segment.select >= 0) {
      read_selection(segment.select);
      const auto& select = std::get<Select>(*bound(segment.select).spec);
      bucket = row_bucket(selection(bound(segment.select)).total, select.selected.count);
    }
    const Captured& captured = segment.graphs.at(bucket);
    if (watcher_) watcher_->begin_launch();
    must(run_.module->launch_graph(run_.device, captured.graph, &text), "launching a graph", text);
    if (watcher_) watcher_->end_launch();
    for (int i = segment.first; i < segment.last; ++i) {
      sizes[static_cast<std::size_t>(i)] = size_now(bound(i));
      padded_[static_cast<std::size_t>(i)] = captured.padded[static_cast<std::size_t>(i - segment.first)];
    }
    if (segment.select >= 0) sizes[static_cast<std::size_t>(segment.select)].rows = selection(bound(segment.select)).total;
  }
}

std::int64_t CudaExecution::graph_nodes() const {
  std::int64_t nodes = 0;
  for (const Segment& segment : segments_)
    for (const auto& [bucket, captured] : segment.graphs) nodes += captured.nodes;
  return nodes;
}

std::int64_t CudaExecution::graph_count() const {
  std::int64_t count = 0;
  for (const Segment& segment : segments_) count += static_cast<std::int64_t>(segment.graphs.size());
  return count;
}

// Waits for the count of one selection.
void CudaExecution::read_selection(int instance) {
  const SelectionBuffers& buffers = context_.selections.at(bound(instance).out[0].at);
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(buffers.select->sequences + 1));
  Text text;
  must(run_.module->download(run_.device, offsets.data(), buffers.offsets, static_cast<std::int64_t>(offsets.size()) * 4, &text), "reading the rows of a selection", text);
  take_counts(buffers, offsets.data());
  note_selection(instance);
}

void CudaExecution::take_counts(const SelectionBuffers& buffers, const std::int32_t* offsets) {
  std::vector<std::int32_t>& counts = run_.counts[buffers.index];
  counts.resize(static_cast<std::size_t>(buffers.select->sequences));
  for (std::size_t s = 0; s < counts.size(); ++s) counts[s] = offsets[s + 1] - offsets[s];
}

// Sizes of a pass whose rows only the device decided. Products ran at the declared rows: that is what they executed.
void CudaExecution::note_graph(std::vector<Executed>& sizes) {
  if (thresholds_) {
    std::vector<std::int32_t> offsets(static_cast<std::size_t>(context_.offset_count));
    Text text;
    must(run_.module->download(run_.device, offsets.data(), context_.offsets, context_.offset_count * 4, &text), "reading the rows of selections", text);
    for (const auto& [indices, buffers] : context_.selections)
      if (!buffers.fixed) take_counts(buffers, offsets.data() + (buffers.offsets - context_.offsets));
  }
  sizes.resize(static_cast<std::size_t>(instance_count()));
  for (int i = 0; i < instance_count(); ++i) {
    const bool selects = std::holds_alternative<Select>(*bound(i).spec);
    if (selects) note_selection(i);
    sizes[static_cast<std::size_t>(i)] = size_now(bound(i));
    if (selects) sizes[static_cast<std::size_t>(i)].rows = selection(bound(i)).total;
  }
}

}  // namespace fathom::cuda
