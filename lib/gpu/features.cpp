#include "lib/gpu/features.hpp"

#include <algorithm>
#include <cmath>

namespace fathom::gpu {
namespace {

double lg(double x) { return std::log2(std::max(x, 1e-30)); }
// Share of whole tiles of `tile` that x fills: 1 without padding.
double fill(double x, double tile) { return x / (std::ceil(x / tile) * tile); }
// Waves of v work items per SM lost to the last one: ceil(v)/v.
double wave_loss(double v) { return std::ceil(std::max(v, 1.0)) / std::max(v, 1.0); }

// Features are stored in model files through thresholds of about three decimals: round-off of the last bits must not
// decide a branch.
void tidy(std::vector<double>& values) {
  for (double& v : values) v = std::round(v * 1e9) / 1e9;
}

}  // namespace

const std::vector<std::string>& tree_feature_names(OpClass op) {
  static const std::vector<std::string> gemm = {"lg_m", "lg_n", "lg_k", "lg_flops", "lg_bytes", "lg_intensity", "lg_pred", "lg_pred_over_roofline",
      "lg_compute_over_memory", "fixed_share", "lg_tile_area", "lg_tile_aspect", "lg_split", "lg_waves", "wave_loss", "fill_m_64", "fill_m_128", "fill_m_256",
      "fill_n_128", "fill_n_256", "lg_v_128x128", "loss_128x128", "lg_v_128x256", "loss_128x256", "loss_256x128", "lg_v_64x64", "loss_64x64",
      "lg_weights_over_l2", "lg_inputs_over_l2", "lg_outputs_over_l2", "lg_m_over_n", "odd_m", "lg_k_steps_per_tile", "hit_weights", "loss_128x192", "lg_nk", "ratio_256x128", "ratio_128x256", "ratio_128x192", "ratio_192x128", "ratio_128x128",
      "ratio_128x64", "ratio_64x128", "ratio_256x64", "ratio_64x256", "ratio_64x64", "ratio_128x32", "ratio_64x32", "ratio_64x16", "ratio_64x8"};
  static const std::vector<std::string> attention = {"lg_batch", "lg_seq", "lg_heads", "lg_kv_heads", "lg_head_dim", "lg_group", "lg_items", "lg_v", "wave_loss",
      "lg_blocks", "lg_flops", "lg_kv_bytes", "lg_io_bytes", "lg_intensity", "lg_pred", "lg_pred_over_roofline", "lg_compute_over_memory", "fixed_share", "lg_kv_over_l2",
      "lg_io_over_l2", "fill_seq_128", "fill_packed_128", "lg_split", "lg_waves", "lg_pairs", "loss_kv_pairs", "lg_pairs_over_sms", "loss_heads", "group_fill_16", "lg_query_rows",
      "lg_blocks_over_sms", "fill_packed_64", "lg_longest_over_mean"};
  return op == OpClass::kGemm ? gemm : attention;
}

void gemm_features(const GemmShape& s, const GpuDevice& d, const GemmParams& p, const GemmEstimate& e, std::vector<double>& tree) {
  const double pred_s = e.seconds;
  const double bytes = e.weight_bytes + e.activation_bytes + e.output_bytes;
  const double roofline = std::max(e.flops / d.peak_flops, bytes / d.dram_bytes_per_s);
  auto v = [&](double a, double b) { return std::ceil(s.m / a) * std::ceil(s.n / b) * s.groups / d.sms; };
  const double balance = std::clamp(lg(e.compute_s / e.memory_s), -6.0, 6.0);
  const double loss = wave_loss(e.blocks / d.sms);
  const double odd = std::fmod(s.m, 2.0);
  tree = {lg(s.m), lg(s.n), lg(s.k), lg(e.flops), lg(bytes), lg(e.flops / bytes), lg(pred_s), lg(pred_s / roofline),
          balance, e.fixed_s / pred_s, lg(e.tile_m * e.tile_n), lg(static_cast<double>(e.tile_m) / e.tile_n), lg(e.split), lg(e.waves), loss, fill(s.m, 64), fill(s.m, 128), fill(s.m, 256),
          fill(s.n, 128), fill(s.n, 256), lg(v(128, 128)), wave_loss(v(128, 128)), lg(v(128, 256)), wave_loss(v(128, 256)), wave_loss(v(256, 128)), lg(v(64, 64)), wave_loss(v(64, 64)),
          lg(e.weight_bytes / d.l2_bytes), lg(e.activation_bytes / d.l2_bytes), lg(e.output_bytes / d.l2_bytes), lg(s.m / s.n), odd, lg(s.k / e.split), e.hit_weights, wave_loss(v(128, 192)), lg(s.n * s.k)};
  // How close each other tile came: where the library chooses differently, it is among these.
  for (double seconds : tile_compute_times(s, d, p)) tree.push_back(std::clamp(lg(seconds / e.compute_s), -1.0, 3.0));
  tidy(tree);
}

void attention_features(const AttentionShape& s, OpClass op, const GpuDevice& d, const AttentionEstimate& e, std::vector<double>& tree) {
  const double bytes = e.kv_bytes + e.io_bytes, group = s.heads / s.kv_heads;
  const double roofline = std::max(e.flops / d.peak_flops, bytes / d.dram_bytes_per_s);
  const double balance = std::clamp(lg(e.compute_s / e.memory_s), -6.0, 6.0);
  const double queries = op == OpClass::kPrefill ? s.seq : 1.0;
  const double v = e.items / d.sms, loss = wave_loss(v);
  const double pairs = s.batch * s.kv_heads / d.sms, head_tiles = s.batch * s.heads * std::ceil(queries / 128.0) / d.sms;
  tree = {lg(s.batch), lg(s.seq), lg(s.heads), lg(s.kv_heads), lg(s.head_dim), lg(group), lg(e.items), lg(v), loss,
          lg(e.blocks), lg(e.flops), lg(e.kv_bytes), lg(e.io_bytes), lg(e.flops / bytes), lg(e.seconds), lg(e.seconds / roofline), balance, e.fixed_s / e.seconds, lg(e.kv_bytes / d.l2_bytes),
          lg(e.io_bytes / d.l2_bytes), fill(s.seq, 128), fill(queries * group, 128), lg(e.split), lg(e.waves), lg(s.batch * s.kv_heads), wave_loss(pairs), lg(pairs), wave_loss(head_tiles), fill(group, 16), lg(queries * group),
          lg(e.blocks / d.sms), fill(queries * group, 64), lg(e.blocks / e.items)};
  tidy(tree);
}

}  // namespace fathom::gpu
