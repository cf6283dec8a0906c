// The presets in words: who counts so, the formula, where it was read.
#include "models/count/convention.hpp"

namespace fathom {
namespace {

constexpr std::string_view kThree = "3 x forward";

constexpr Convention kConventions[] = {
    {"exact", "every multiply-add of the model: causal pairs, logits at all positions, routers counted", "sum over layers [P + pair cost x pairs/S + FFN + routers] + 2hV",
     "per op: dX and dW where they are needed", "fathom's own definition, 2 FLOP per multiply-add", false, true},
    {"full", "torch's FlopCounterMode where it knows every op; nanotron", "exact with S keys per query", kThree,
     "pytorch/pytorch torch.utils.flop_counter; huggingface/nanotron (its function was run)", true, true},
    {"causal-half", "MaxText", "exact with S/2 keys per query, W - W^2/2S in windows, half of each chunk's square", kThree, "AI-Hypercomputer/maxtext, August 2026", true, false},
    {"palm", "PaLM; nanoGPT's MFU and llm-foundry", "2 (N_act - N_pos) + 4 L n q S; q = d, latent attention (d_qk + d_v)/2", kThree,
     "arXiv 2204.02311, appendix B (recalled, matched to nanoGPT)", false, false},
    {"kaplan", "scaling laws for neural language models", "2 N_nonembedding + 2 L S n d_v", kThree, "arXiv 2001.08361, equation 2.2 (recalled)", false, false},
    {"chinchilla", "Chinchilla, appendix F as printed", "2hV + L [6h nd + 4S nd + 3nS + 2nd h + 4hf] + 2hV", kThree, "arXiv 2203.15556, appendix F (recalled)", false, false},
    {"chinchilla-a4", "Chinchilla, the reading that gives its table of sizes", "L [2h(n+2m)d + 2nd h + 4S nd + 3nS + 2g hf]", kThree,
     "author's remark quoted in karpathy/nanoGPT's scaling notebook", false, false},
    {"nanogpt", "nanoGPT's scaling notebook", "L [24h^2 + 4Sh] + 2hV", kThree, "karpathy/nanoGPT, scaling_laws notebook (stored output)", true, false},
    {"megatron", "Megatron-LM", "2 {L A + h [gf L_d + (g f_e k + g f_s s) L_m] + hV} + L core_S / 2", kThree, "NVIDIA/Megatron-LM, August 2026", true, false},
    {"megatron-bridge", "Megatron Bridge", "megatron with W - W(W-1)/2S keys per query where W < S", kThree, "NVIDIA-NeMo/Megatron-Bridge, August 2026", true, false},
    {"megatron-3280", "Megatron-LM with its pull request 3280", "megatron with min(S, W)/2 keys per query", kThree, "NVIDIA/Megatron-LM, pull request 3280", false, false},
    {"nemo", "NeMo's formulas by family", "megatron without latent norms; GPT-3 family: 24Lh^2 + 2ShL + 2h 51200", kThree, "NVIDIA-NeMo/NeMo, September 2025", true, false},
    {"nemo-transformer", "NeMo's generic transformer formula", "L [P + core_S / 2 + 4hf (1 + k)/2] + 2hV", kThree, "NVIDIA-NeMo/NeMo, September 2025", true, false},
    {"torchtitan", "torchtitan", "2 (N_act - N_pos - untied input table) + 2 L n (d_qk + d_v) S", kThree, "pytorch/torchtitan, August 2026", false, false},
    {"torchtitan-4300", "torchtitan with its pull request 4300", "torchtitan with min(W, S) keys per query", kThree, "pytorch/torchtitan, pull request 4300, August 2026", false, false},
    {"olmo-core", "OLMo-core", "2 (attention and FFN matrices with biases, router, k experts, head, final norm) + 4 L nd min(W, S)", kThree, "allenai/OLMo-core, June 2026", false, false},
    {"litgpt", "LitGPT", "2 N_total + 4 L h S", kThree, "Lightning-AI/litgpt", false, false},
    {"verl", "verl", "layer matrices with router + 4hV + L core_S / 2; min(S, W)/2 keys per query", kThree, "volcengine/verl, January 2026 (its function was run, not for GPT-2)", true, false},
    {"gpt-neox", "GPT-NeoX", "24 L h^2 (1 + S/6h + V/16Lh)", "3 x forward, 4 x with checkpointing", "EleutherAI/gpt-neox", false, false},
    {"trl", "TRL", "L [P + 4nd S + (6hf, or 6k h f_e + 2hE)] + 2hV + (untied: 2hV)", kThree, "huggingface/trl (its function was run for Llama 3)", true, false},
    {"levanter", "Levanter", "L [2g hf (k+s) + 2hE + 2h(h + 2mh/n) + 2h^2 + 4Sh + 3Sn] + 2hV", kThree, "stanford-crfm/levanter", true, false},
    {"vllm", "vLLM's estimate of one prefill", "L (P + core over min(S, W) keys) + FFN with three matrices + 2hV/S", kThree, "vllm-project/vllm, 2026", false, false},
    {"llm-analysis", "llm-analysis with its flag for gated FFNs set rightly", "L [4h^2 + 4h^2 m/n + 4Sh + (6 or 4) hf] + 2hV", kThree, "cli99/llm-analysis, d841e40, November 2024", true, false},
    {"llm-analysis-ungated", "llm-analysis with its flag for gated FFNs unset", "L [4h^2 + 4h^2 m/n + 4Sh + 4hf] + 2hV", kThree, "cli99/llm-analysis, d841e40, November 2024", true, false},
    {"cookbook", "EleutherAI's cookbook, fractional FFN ratio", "F L [2h^2 (1 + 2m/n) + 4Sh + 2h^2] + trunc(2F g x) L h^2 k + 2F E h L + 4h + 2hV; x = f/h, F = 1",
     "the same with F = 3: logits are not multiplied", "EleutherAI/cookbook, 827ee3b, March 2026", true, false},
    {"fvcore", "fvcore, ptflops, thop: multiply-adds", "full / 2, for the ops they see", kThree, "facebookresearch/fvcore; sovrasov/flops-counter", false, false},
    {"6nd", "rule of thumb: 6 N D", "2 N_act", kThree, "stas00/ml-engineering", false, false},
    {"8nd", "rule of thumb for full recomputation: 8 N D", "2 N_act", "4 x forward, with or without recomputation; for MFU 3 x", "stas00/ml-engineering", false, false},
    {"mod-a", "Mixture-of-Depths, layers only: whole square, softmax 3, no embedding, no logits", "sum over blocks, routed ones on C rows and C^2 pairs, + 2hS per router", kThree,
     "reading of arXiv 2404.02258 (the paper does not say how it counts)", false, true},
    {"mod-b", "mod-a with logits", "mod-a + 2hV", kThree, "reading of arXiv 2404.02258", false, true},
    {"mod-c", "mod-b with a one-hot input table", "mod-b + 2hV", kThree, "reading of arXiv 2404.02258", false, true},
};

}  // namespace

std::span<const Convention> conventions() { return kConventions; }

}  // namespace fathom
