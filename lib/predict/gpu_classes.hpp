// Rates of GPU op classes that no public table covers, from published kernels, until they are measured.
//
// Streams, fused vector ops, top-k and the backward pass of attention have no fit yet. Their prediction is bytes or FLOP over the data sheet's
// rate times the fraction that published kernels of the class reach, plus a node of a graph. It is marked `datasheet`, and its note says so.
#pragma once

#include <string_view>

#include "lib/op.hpp"

namespace fathom {

// Fractions of the data sheet's rates on one generation of GPUs.
struct GpuClassRates {
  double stream = 0.87;          // DRAM: one-load-one-store streams of 100 MB (RRZE-HPC/gpu-benches: A100 .85-.89, H100 .84, H200 copy .90)
  double own_backward = 0.25;    // tensor: attention backward by mma.sync in two kernels, useful FLOP (FlashAttention-2: .63 x 5/7 on A100; Hopper .2-.3)
};
// By instruction set: "sm_80", "sm_89", "sm_90", "sm_100"; an unknown one gets Hopper's.
GpuClassRates gpu_class_rates(std::string_view isa);

// A library's attention backward reaches this share of the utilisation of its forward (FlashAttention-2 and -3 papers: .63 of .73, .58 of .75).
inline constexpr double kLibraryBackwardShare = 0.8;

// Kernels that one op launches when it is executed by our own backend.
int gpu_kernels(const OpSpec& spec);

// Seconds of a top-k over `candidates` per row with one block of 1024 threads per row: block barriers and shared-memory passes, no bandwidth.
// 16 + 2·ceil(n/1024) barriers and 5·ceil(n/1024) loads per thread: 10 us at 2k, 40 us at 32k candidates; rows beyond the SMs wait.
double gpu_select_seconds(double candidates, double rows, double sms);

// Half-widths of the interval, as factors below and above, where no held-out errors exist.
struct FactorInterval {
  double low = 1, high = 1;
};
inline constexpr FactorInterval kStreamInterval{0.85, 1.35};
inline constexpr FactorInterval kSelectInterval{0.4, 2.2};
inline constexpr FactorInterval kOwnBackwardInterval{0.6, 1.6};
inline constexpr FactorInterval kLibraryBackwardInterval{0.75, 1.35};

// Host side of eager launches (NOTES: about 2.4-2.7 us per back-to-back kernel from one stream; latency and synchronisation estimated).
inline constexpr double kEagerLaunchSeconds = 2.5e-6;
inline constexpr double kEagerLatencySeconds = 3.5e-6;
inline constexpr double kSynchroniseSeconds = 5e-6;

}  // namespace fathom
