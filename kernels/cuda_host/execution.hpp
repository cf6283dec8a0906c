// One workload bound to the GPU: the planned arena in device memory, the lowered calls of every op, and what a pass reports.
//
// run() queues the whole list and waits once. Rows that a top-k chooses are fixed, so nothing is read back on the way; where a threshold decides,
// the counts come back after each selection, because the products behind need them. A captured graph does without: there
// products run at the declared rows and kernels read the real count on the device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_host/device.hpp"
#include "kernels/cuda_host/lower.hpp"
#include "kernels/program.hpp"
#include "kernels/watched.hpp"

namespace fathom::cuda {

// Of an H100 or H200, where no device is there to ask.
inline constexpr int kMultiprocessors = 132;

class CudaExecution : public ProgramExecution, public WatchedExecution {
 public:
  // Without a device nothing is allocated and nothing can run: only extra_bytes() may be asked, for one of so many multiprocessors.
  CudaExecution(std::shared_ptr<const Workload> workload, const BindOptions& options, std::shared_ptr<OpenDevice> device, int multiprocessors = kMultiprocessors);
  ~CudaExecution() override;

  void begin_pass() override;
  void run() override;
  void run_instance(int instance) override;
  void reset() override;
  std::int64_t allocated_bytes() const override { return arena_.bytes() + extra_.bytes(); }
  std::int64_t extra_bytes() const { return constant_bytes_ + scratch_bytes_; }
  std::string implementation(int op) const override;
  void run_reference(int) override {}
  int reference_class(int) const override { return 0; }
  std::vector<std::string> reference_classes() const override { return {"device clock"}; }

  // timing.cpp
  bool keeps_time() const override { return true; }
  double timed_run() override;
  void timed_pass(std::span<double> seconds) override;
  std::map<std::string, double> device_state() override;
  // One op alone after the L2 was flushed, on whatever its operands hold: the cold time that explains the one in place.
  double timed_cold(int instance);

  // Watches every pass as long as this lives (null: nobody). Ops are seen while a graph is captured, not when it is replayed.
  void observe(std::unique_ptr<PassWatcher> observer) { observer_ = std::move(observer); }
  void run_watched(PassWatcher& watcher) override;

  // How passes are launched (kNone where what was asked for cannot be captured), and what has been captured so far.
  GraphMode graph_mode() const { return mode_; }
  std::int64_t graph_nodes() const;
  std::int64_t graph_count() const;

  OpenDevice& device() const { return *device_; }

 protected:
  void execute(int instance, const BoundOp& bound, Executed& executed) override;
  Flops padded_flops(int instance) const override;
  void store(const OperandView& to, std::span<const float> values) override;
  void store_ints(const OperandView& to, std::span<const std::int32_t> values) override;
  void clear(const OperandView& to) override;
  std::vector<float> load(const OperandView& from) const override;
  void restore_counts() override;

 private:
  // KV counts of several lists that lie next to each other, and their bound values behind the constants.
  struct CountRun {
    std::byte* counts = nullptr;
    std::byte* bound = nullptr;
    std::int64_t bytes = 0;
    std::vector<int> lists;
    std::vector<std::byte> image;  // what `bound` holds
  };

  struct Planned {
    Matmul product;
    PlannedProduct planned;
    MatmulChoice choice;
  };

  void lower_all(std::byte* constants, std::byte* scratch);
  void find_count_runs();
  PlannedProduct plan(const Matmul& product, int op);
  void queue(int instance, Executed& executed);      // nothing waits, but for counts that a threshold decides
  void learn(int instance, Executed& executed) const;  // what only the device knew
  void queue_all(std::vector<Executed>& sizes);
  void learn_all(std::vector<Executed>& sizes);
  void note_selection(int instance);  // from what was read of the device

  // graphs.cpp
  struct Captured {
    Graph* graph = nullptr;
    std::int64_t nodes = 0;
    std::vector<double> padded;  // of its instances
  };
  struct Segment {
    int first = 0, last = 0;     // instances
    int select = -1;             // the selection before it, which decides the bucket
    std::map<std::int64_t, Captured> graphs;
  };
  bool whole() const { return mode_ == GraphMode::kWhole && ran_; }  // the host knows no row counts
  void find_segments();
  void free_graphs();
  Captured capture(const Segment& segment, std::vector<Executed>& sizes);
  void prepare_graphs();
  void queue_pass(std::vector<Executed>& sizes);
  void read_selection(int instance);
  void take_counts(const SelectionBuffers& buffers, const std::int32_t* offsets);
  void note_graph(std::vector<Executed>& sizes);

  double between(Event* from, Event* to) const;
  Event* event(std::size_t index);
  void read_list_counts();
  const AssignedBuffers* assigned_to(const BoundOp& b) const;
  void read_experts();
  void learn_experts(int instance, Executed& executed);
  void count_pairs(int instance, const Attention& op);
  std::vector<std::int32_t> load_ints(const OperandView& from) const;
  void wait() const;
  void check_flags();

  std::shared_ptr<OpenDevice> device_;
  LoweringContext context_;
  DeviceMemory arena_;
  DeviceMemory extra_;                         // constants, then the scratch that all ops share
  std::int64_t constant_bytes_ = 0, scratch_bytes_ = 0;
  std::vector<std::vector<Call>> calls_;       // by instance
  std::vector<double> padded_;                 // by instance: FLOPs of the last run's products, tiles included; negative: no product
  std::vector<Planned> planned_;
  std::map<int, std::vector<std::pair<std::int64_t, MatmulChoice>>> choices_;  // by op: rows and what was chosen for them
  RunState run_;
  std::unique_ptr<PassWatcher> observer_;
  PassWatcher* watcher_ = nullptr;             // of this pass
  int multiprocessors_ = kMultiprocessors;
  GraphMode mode_ = GraphMode::kNone;
  bool ran_ = false, thresholds_ = false;
  std::vector<Segment> segments_;
  std::vector<float> captured_thresholds_;
  std::vector<Event*> events_;
  std::vector<CountRun> count_runs_;
  std::vector<std::vector<std::int32_t>> list_counts_;  // of kv_lists(), after the last pass
  std::map<TensorInstance, int> list_of_;               // cache -> kv_lists() index
  std::vector<std::int32_t> expert_offsets_;            // of all expert selections, after the last pass
  std::map<int, std::int64_t> keys_;                    // by instance, where pairs_ has queries over lists of all tokens
  std::map<int, u128> pairs_;                           // by instance: what a window leaves of the selected rows
};

}  // namespace fathom::cuda
