#include "reports/columns.hpp"

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {
namespace {

using enum Unit;

// Grouped as reports show them: identity, counts, memory, prediction, measurement, comparison, routing, accuracy.
const std::vector<Column> kColumns{
    {"model", "model", kText, 0, "The network: built-in name, file, or imported configuration.", "",
     "model, results[]"},
    {"record", "record", kText, 1, "The file of the record that the row comes from, where several are shown.", "", "scenario"},
    {"phase", "phase", kText, 0, "train, prefill, decode or generate.", "", "scenario"},
    {"batch", "batch", kCount, 2, "Sequences processed together.", "", "scenario"},
    {"seq", "seq", kCount, 2, "Tokens per sequence that the step processes (prefill, train).", "", "scenario"},
    {"prompt", "prompt", kCount, 2, "Prompt tokens of a generation.", "", "scenario"},
    {"tokens", "tokens", kCount, 2, "Output tokens of a generation.", "", "scenario"},
    {"past", "past", kCount, 3, "Tokens that were cached before a chunk of prefill.", "", "scenario"},
    {"logits", "logits", kText, 6, "Positions whose logits are computed: all, last or none.", "", "scenario"},
    {"recompute", "recompute", kText, 5, "Activation recomputation: none, selective (attention core), full, or the names of the ops that are done again.", "", "scenario"},
    {"weight_dtype", "weights", kText, 5, "Stored type of the matrices inside the layers, where it is not that of the activations.", "", "scenario"},
    {"kv_dtype", "cache", kText, 5, "Element type of the key/value cache, where it is not that of the activations.", "", "scenario"},
    {"expert_loads", "expert loads", kText, 6, "How unevenly tokens choose experts in expectation: relative load of each, or the share of the expert of that rank.", "",
     "scenario"},
    {"fusion", "fusion", kText, 6, "Between which ops nothing passes through memory, where that is not qkv and attention: none, or names of groups.", "", "scenario"},
    {"mask", "mask", kText, 5, "`full` where the whole attention square is counted instead of the visible pairs.", "", "scenario"},
    {"context", "context", kCount, 3, "Keys visible to the new token of a decode step, itself included.", "",
     "scenario"},
    {"dtype", "dtype", kText, 4, "Element type of weights and activations.", "", "scenario"},
    {"backend", "backend", kText, 5, "What executed the ops: reference, cpu, cuda or fake.", "", "scenario"},
    {"temperature", "temperature", kNone, 2, "At which a generation's tokens were drawn from the logits; 0: always the likeliest.", "", "scenario"},
    {"threads", "threads", kCount, 6, "Worker threads of the CPU backend.", "", "scenario"},
    {"machine", "machine", kText, 4, "The machine description that predictions used.", "", "machine"},
    {"routing", "routing", kText, 5, "How a routed block chooses tokens: topk, threshold, predictor or random.", "",
     "scenario"},
    {"mla", "latent attention", kText, 5, "How latent attention works: naive (keys and values of all heads), absorbed (on latent rows), or decompress (latent cache expanded in every step).", "",
     "scenario"},
    {"capacity", "capacity", kRatio, 4, "Declared share of a sequence's tokens that a routed block processes.",
     "slots = floor(capacity * seq)", "scenario"},
    {"convention", "convention", kText, 1, "The FLOP counting convention of `convention.flops`.", "",
     "convention.name"},
    {"path", "op", kText, 0, "Place of the op in the network, such as `layers.07/mod/mlp/down`.", "", "ops[]"},
    {"part", "part", kText, 4, "Part of the model: projections, core (attention), ffn, experts, router, routing, logits, ...", "", "ops[], parts[]"},
    {"pass", "pass", kText, 6, "forward, recompute, backward or optimizer.", "", "ops[]"},
    {"implementation", "implementation", kText, 6, "The kernel that ran the op, as the backend names it.", "", "ops[]"},
    {"kind", "kind", kText, 3, "Kind of op: gemm, attention, rms_norm, top_k, ...", "", "ops[]"},
    {"shape", "shape", kText, 4, "Dimensions of the op, for a GEMM m x n x k.", "", "ops[]"},
    {"times", "times", kCount, 5, "How often the op occurs in the step with this shape.", "", "ops[]"},
    {"status", "status", kText, 1, "Why a number is missing; empty when nothing is.", "", "ops[], totals"},

    {"flops_matmul", "matmul FLOP", kFlop, 1,
     "Multiply-adds of matrix ops (GEMM, attention core), 2 FLOP each, `exact` convention, causal pairs only. Always "
     "an integer. What is executed: what a training step computes again is in it (MFU leaves that out, HFU does not).",
     "GEMM 2*m*n*k; causal attention 2*heads*(d_qk+d_v)*S(S+1)/2 per sequence", "totals, ops[]"},
    {"flops_expected", "expected FLOP", kFlop, 4,
     "Expectation of flops_matmul where the number of routed rows is random (decode).",
     "E over rows ~ Binomial(batch, p)", "totals, ops[]"},
    {"flops_executed", "executed FLOP", kFlop, 5,
     "Multiply-adds that the kernels really performed, 2 FLOP each, tile padding included where a kernel pads.", "",
     "ops[]"},
    {"convention_flops", "convention FLOP", kFlop, 1,
     "FLOP under the named convention. A string in JSON where it is not an integer.", "see fathom explain convention NAME MODEL",
     "convention.flops"},
    {"elements_vector", "vector elements", kCount, 5,
     "Elements touched once each by norms, softmax, activations, residual adds, RoPE, gather, scatter, top-k and "
     "optimizer.",
     "sum over vector ops", "totals, ops[]"},
    {"bytes_read", "read", kBytes, 4, "Bytes that the op must read once from memory: inputs and weights.",
     "sum of input tensors, each once per op", "totals, ops[]"},
    {"bytes_read_expected", "expected read", kBytes, 6,
     "Expectation of bytes_read where rows are random or weights of experts are read only if a token picks them.",
     "distinct experts: sum over e of 1 - (1 - p_e)^T", "totals, ops[]"},
    {"rows_dropped", "rows dropped", kNone, 6, "Assignments that experts without a free slot are expected to drop.", "tokens * picks - sum over e of E[min(n_e, slots)]", "ops[]"},
    {"experts_expected", "distinct experts", kNone, 6,
     "Expected number of experts that at least one token picks: those whose weights a grouped product reads.",
     "sum over e of 1 - (1 - p_e)^T; even loads: E (1 - (1 - k/E)^T)", "ops[]"},
    {"bytes_written", "written", kBytes, 5, "Bytes that the op must write: its outputs.", "sum of output tensors",
     "totals, ops[]"},
    {"bytes_moved", "bytes", kBytes, 3, "Bytes that the op must read and write, each once: the two together, in tables of pages.", "bytes_read + bytes_written", "tables of ops"},
    {"intensity", "intensity", kIntensity, 6, "Arithmetic intensity: matmul FLOP per byte moved.",
     "flops_matmul / (bytes_read + bytes_written)", "ops[]"},
    {"params_total", "params", kCount, 3, "All parameters, routers and predictors included.",
     "every matrix, bias, gain and table once; shared weights once", "totals"},
    {"params_active", "active params", kCount, 4,
     "Parameters that one token uses: of the experts those it visits; blocks routed in depth count in full.",
     "params_total - (experts - picks) * parameters of one expert, summed over layers", "totals"},
    {"flops_ratio", "FLOP ratio", kRatio, 1, "Matmul FLOP of this configuration over its dense twin.",
     "flops_matmul / flops_matmul(dense)", "totals"},

    {"kv_bytes", "KV cache", kBytes, 4, "Key/value cache of the whole scenario: all sequences at full context, of each block the rows that its route, window or chunk keeps. A run allocates lists without their windows: that is in peak_bytes.",
     "sequences * sum over layers of kept rows * bytes of a row", "totals"},
    {"kv_bytes_per_token", "KV/unrouted token", kBytes, 5, "Key/value cache of a token that takes every block, per sequence. In a routed network tokens pass blocks by: on average `kv_bytes` over batch and context.",
     "sum over layers 2*kv_heads*head_dim*dtype bytes; latent attention (kv_rank + rope_dim)*dtype bytes", "totals"},
    {"weight_bytes", "weights", kBytes, 5, "All weights that an op of this phase reads, each once, as stored.", "parameters x bytes of their type", "totals"},
    {"gradient_bytes", "gradients", kBytes, 5, "Gradients of everything that is trained.", "trained parameters x bytes of grad_dtype", "totals"},
    {"optimizer_bytes", "optimizer", kBytes, 5, "Optimizer state: two moments in f32, and an f32 master copy where weights are narrower.",
     "trained parameters x 8 (12)", "totals"},
    {"saved_bytes", "activations", kBytes, 5, "Activations and indices that the forward pass of one micro-step keeps for the backward pass.",
     "sum of tensors that a forward op writes and a backward or recomputation op reads", "totals"},
    {"run_tokens", "run tokens", kCount, 3, "Tokens of a whole training run.", "", "scenario"},
    {"run_steps", "run steps", kCount, 3, "Optimizer steps of a whole training run.", "run_tokens / (batch * seq * micro-steps), rounded up", "totals"},
    {"run_flops", "run FLOP", kFlop, 2, "Matmul FLOP of a whole training run.", "run_steps * flops_matmul", "totals"},
    {"peak_bytes", "peak memory", kBytes, 4,
     "Planned peak: parameters, caches and the largest set of tensors alive at one time.",
     "liveness plan of the op list", "totals"},
    {"arena_bytes", "allocated", kBytes, 6, "Memory that the backend allocated before the first pass: the planned peak, and its own scratch (packed weights, workspaces).", "",
     "totals"},

    {"predicted_s", "predicted", kSeconds, 0,
     "Predicted time, written down before the run; `binding` says what limits it, `provenance` where the peaks come "
     "from.",
     "", "totals, ops[]"},
    {"predicted_lo_s", "lower", kSeconds, 5, "Lower end of the prediction's 80 % interval.",
     "10 % quantile of held-out errors", "totals, ops[]"},
    {"predicted_hi_s", "upper", kSeconds, 5, "Upper end of the prediction's 80 % interval.",
     "90 % quantile of held-out errors; unbounded from a thousand times the prediction on, far outside the calibrated range", "totals, ops[]"},
    {"predicted_p50_s", "pred. p50", kSeconds, 4, "Predicted 50th percentile of the step over the random rows of routed blocks.",
     "T = full blocks + sum over routed blocks of t(n); n of each is binomial (batch, participation) and independent, the distributions of t(n) are convolved", "totals"},
    {"predicted_p95_s", "pred. p95", kSeconds, 5, "Predicted 95th percentile of the step over random rows.", "as predicted_p50_s", "totals"},
    {"predicted_p99_s", "pred. p99", kSeconds, 5, "Predicted 99th percentile of the step over random rows.", "as predicted_p50_s", "totals"},
    {"predicted_ttft_s", "pred. first token", kSeconds, 3, "Predicted time to the first token: the prefill.", "", "totals"},
    {"predicted_tpot_s", "pred. per token", kSeconds, 3, "Predicted mean time per token after the first.", "trapezoids over five points of the output", "totals"},
    {"devices", "devices", kCount, 2, "Devices of a parallel plan.", "data x tensor x pipeline", "totals"},
    {"device_bytes", "per device", kBytes, 3, "Memory of the fullest device of a parallel plan: weights, gradients, optimizer state, activations in flight, cache.", "liveness plan of one rank's op list", "totals"},
    {"communication_s", "communication", kSeconds, 2, "Communication of a parallel step that nothing hides.", "collectives and sends of the slowest stage", "totals"},
    {"bubble_s", "bubble", kSeconds, 4, "Time a pipeline's stages wait for its first and last micro-batches.", "(stages - 1) / interleave * time of a micro-batch", "totals"},
    {"concurrency", "sequences", kCount, 3, "Sequences of this context that memory holds at once. Buffers of a step are planned for the batch asked for and shared out to its sequences, so a larger batch may say a few more.", "(capacity * limit - weights - runtime) / (KV + activations per sequence)", "totals"},
    {"served_tokens_per_s", "max tokens/s", kTokenRate, 3, "Predicted tokens per second with as many sequences as memory holds, at most 1024.", "min(concurrency, 1024) / served_s", "totals"},
    {"served_s", "step at max", kSeconds, 5, "Predicted decode step with as many sequences as memory holds, at most 1024.", "E[t] over the random rows", "totals"},
    {"served_p99_s", "p99 at max", kSeconds, 6, "Its 99th percentile over the random rows.", "", "totals"},
    {"compute_s", "compute", kSeconds, 5, "Part of the prediction bound by arithmetic.", "flops_matmul / peak rate",
     "totals, ops[]"},
    {"memory_s", "memory", kSeconds, 5, "Part of the prediction bound by data movement.",
     "(bytes_read + bytes_written) / bandwidth", "totals, ops[]"},
    {"launch_s", "launch", kSeconds, 6, "Fixed cost per op: kernel launch or parallel-region entry.", "",
     "totals, ops[]"},
    {"binding", "bound by", kText, 2, "What limits the op: compute, memory or launch.", "largest of the three parts",
     "ops[]"},
    {"provenance", "source", kText, 5,
     "Where the peaks behind a prediction come from: datasheet, probed, fitted or extrapolated; of several the weakest. A calibrated prediction of a GPU stands on its datasheet too: the fit is in shares of those peaks.", "", "ops[]"},
    {"light_s", "light", kSeconds, 6,
     "Lower bound that no execution can beat: the larger of arithmetic and traffic at datasheet or probed peak.",
     "max(flops/peak, bytes/bandwidth)", "ops[]"},

    {"measured_s", "measured", kSeconds, 0, "Median measured time. Of a configuration: the whole step, end to end, in the machine state of the day. Of an op: all its uses, timed in place and normalised as "
     "normalised_s is, so that ops add up to that one; in a trace: one pass as it ran.", "median over samples", "totals, ops[]"},
    {"normalised_s", "normalised", kSeconds, 2, "Step time as the sum of ops timed in place, machine state divided out; of a part or pass: the sum of its ops (their measured_s).",
     "sum over ops of median(t/r) * reference", "totals, parts of pages"},
    {"min_s", "min", kSeconds, 6, "Fastest sample.", "", "totals, ops[]"},
    {"p50_s", "p50", kSeconds, 3, "50th percentile of the samples.", "", "totals, ops[]"},
    {"p95_s", "p95", kSeconds, 4, "95th percentile of the samples.", "", "totals, ops[]"},
    {"p99_s", "p99", kSeconds, 4, "99th percentile of the samples.", "", "totals, ops[]"},
    {"ttft_s", "first token", kSeconds, 2, "Time to first token of a generation: the prefill step.", "", "totals"},
    {"tpot_s", "per token", kSeconds, 2, "Time per output token after the first.",
     "(last - first token) / (tokens - 1)", "totals"},
    {"samples", "samples", kCount, 6, "Timed repetitions behind a median.", "", "totals, ops[]"},
    {"spread", "spread", kPercent, 3, "Relative spread of the samples.", "(p75 - p25) / median", "totals, ops[]"},
    {"noise", "A/A noise", kPercent, 4,
     "How far two interleaved measurements of the same thing differ; an error below this says nothing.",
     "|a - b| / median", "totals, ops[]"},
    {"predicted_tokens_per_s", "pred. tokens/s", kTokenRate, 5, "Predicted throughput.", "batch * tokens / predicted_s", "totals"},
    {"tokens_per_s", "tokens/s", kTokenRate, 4, "Throughput.", "batch * tokens / measured_s", "totals"},
    {"achieved_flops_per_s", "rate", kFlopRate, 3, "Achieved arithmetic rate.", "flops_matmul / measured_s",
     "totals, ops[]"},
    {"achieved_bytes_per_s", "traffic rate", kByteRate, 5, "Achieved data rate.",
     "(bytes_read + bytes_written) / measured_s", "totals, ops[]"},
    {"peak_fraction", "of peak", kPercent, 2,
     "Useful FLOPs over those that the ceiling does in the same time. A backend that can probes the ceiling between the ops, so that both "
     "are of one machine state (median over the rounds; f32: multiply-adds in registers, bf16: the matrix units fed from L2); else it is the "
     "peak of the machine file.",
     "flops_matmul / (t * ceiling rate)", "totals, ops[]"},
    {"peak_flops_per_s", "ceiling", kFlopRate, 6, "The machine's ceiling of arithmetic for this type and number of threads.", "", "totals"},
    {"peak_bytes_per_s", "memory ceiling", kByteRate, 6, "The machine's ceiling of reading main memory with this number of threads.", "", "totals"},
    {"mfu", "MFU", kPercent, 2, "Model FLOP utilisation of a step whose time is known: forward and backward FLOP of the convention, nothing recomputed.", "model FLOP / (step time * devices * peak)",
     "totals"},
    {"hfu", "HFU", kPercent, 2, "Hardware FLOP utilisation of a step whose time is known: all FLOP that run, with recomputed ones, those of a fused attention backward and expert slots that stay empty.",
     "executed FLOP / (step time * devices * peak)", "totals"},

    {"rung", "measured by", kText, 2,
     "How far the profiler got for this row: counters+activity, activity (kernel times), events (device stamps, launch gaps included) or host "
     "(its clock). Figures of different rungs are not compared with each other.",
     "", "totals, ops[]"},
    {"rung_reason", "why not more", kText, 5, "Why a higher rung was not reached.", "", "totals"},
    {"kernels", "kernels", kCount, 3, "Kernels that one pass of the list launches.", "", "totals, ops[]"},
    {"kernel_s", "kernel time", kSeconds, 1, "Time of an op's kernels on the device, in place in the step, launch gaps left out.",
     "median over traced passes of the sum over its kernels", "totals, ops[]"},
    {"kernel_error", "kernel error", kSignedPercent, 4, "Signed relative error of the prediction against kernel time.", "predicted_s / kernel_s - 1", "totals, ops[]"},
    {"copy_bytes", "copied", kBytes, 6, "Bytes of copies and fills inside the op.", "", "ops[]"},
    {"device_busy_s", "device busy", kSeconds, 5, "Time in which the device ran anything of a traced pass.", "union of all kernels, copies and fills", "totals"},
    {"device_span_s", "device span", kSeconds, 6, "From the first kernel's start to the last one's end in a traced pass.", "", "totals"},
    {"traced_s", "traced step", kSeconds, 5, "A step under tracing, launched op by op, by the host's clock; step times never come from it.", "", "totals"},
    {"profile_overhead", "tracing cost", kSignedPercent, 4, "How much longer tracing made the step.", "traced_s / measured_s - 1", "totals"},
    {"profile_passes", "traced passes", kCount, 6, "Passes of the list behind kernel times.", "", "totals"},
    {"counter_passes", "counter runs", kCount, 6, "Runs of the list that the hardware counters needed.", "", "totals"},
    {"counter_s", "under counters", kSeconds, 6, "Time of the op while counters were read; not comparable with other times.", "", "totals, ops[]"},
    {"needed_flops", "needed FLOP", kFlop, 5, "Multiply-adds of matrix ops at the rows that really ran, recomputed ones included.", "cost at executed rows", "totals, ops[]"},
    {"needed_bytes", "needed bytes", kBytes, 5, "Compulsory traffic at the rows that really ran: inputs once, outputs once.", "cost at executed rows", "totals, ops[]"},
    {"counter_flops", "counted FLOP", kFlop, 3, "FLOP by hardware counters: tensor operations, in f32 runs also multiply, add and multiply-add instructions. Padding of tiles is in it.",
     "tensor ops * flops_per_math_op + 2 ffma + fadd + fmul", "totals, ops[]"},
    {"counter_flops_ratio", "FLOP count/need", kRatio, 2, "FLOP by counters over needed FLOP; above 1 is padding.", "counter_flops / needed_flops", "totals, ops[]"},
    {"dram_bytes_read", "DRAM read", kBytes, 3, "Bytes read from device memory, by hardware counters.", "", "totals, ops[]"},
    {"dram_bytes_written", "DRAM written", kBytes, 4, "Bytes written to device memory, by hardware counters.", "", "totals, ops[]"},
    {"dram_ratio", "DRAM/need", kRatio, 2, "DRAM traffic over compulsory traffic: below 1 where caches kept operands, above 1 where they are fetched again.",
     "(dram_bytes_read + dram_bytes_written) / needed_bytes", "totals, ops[]"},
    {"dram_bytes_per_s", "DRAM rate", kByteRate, 5, "DRAM traffic by counters over kernel time by tracing.", "(dram_bytes_read + dram_bytes_written) / kernel_s", "totals, ops[]"},
    {"l2_bytes", "L2 bytes", kBytes, 5, "Bytes that the L2 cache was asked for.", "", "totals, ops[]"},
    {"sm_cycles", "SM cycles", kNone, 6, "Cycles that elapsed on the multiprocessors while the op ran, the most of any.", "", "totals, ops[]"},
    {"sm_clock_hz", "SM clock", kNone, 6, "Clock of the multiprocessors while counters were read, in Hz.", "sm_cycles / counter_s", "totals"},
    {"profile_status", "profile status", kText, 6, "Why a profiled figure is missing.", "", "ops[]"},

    {"time_ratio", "meas/pred", kRatio, 3, "Measured over predicted time; above 1 the run was slower than predicted.",
     "measured_s / predicted_s", "totals, ops[]"},
    {"error", "error", kSignedPercent, 1, "Signed relative error of the prediction; positive: predicted too slow.",
     "predicted_s / measured_s - 1", "totals, ops[]"},
    {"share", "share", kPercent, 3, "This row's share of the step's time.", "measured_s / sum of measured_s", "ops[]"},
    {"verdict", "verdict", kText, 1,
     "within: measured inside the predicted interval (without one: within 10 % of the prediction). fast, slow: measured below, above it. noisy: not graded, for the A/A noise is "
     "above 4 % of an op or 2.5 % of a step, or something disturbed the op. faster-than-light: measured below the bound that nothing can beat, so count, clock or bound is wrong. "
     "too-short: below what the clock resolves. out-of-range: outside what the prediction was fitted to. skipped: not measured.", "",
     "totals, ops[]"},
    {"predicted_ratio", "predicted ratio", kRatio, 1, "Predicted time over the dense twin's predicted time.",
     "predicted_s / predicted_s(dense)", "totals"},
    {"measured_ratio", "measured ratio", kRatio, 1, "Measured time over the dense twin's measured time.",
     "measured_s / measured_s(dense)", "totals"},
    {"ratio_noise", "noise of ratio", kPercent, 2, "How far the measured ratio of two steps may be off.", "both A/A noises in quadrature", "totals"},
    {"realised", "realised", kPercent, 1,
     "Realised fraction: time saved over FLOPs saved against the dense twin. A status when no FLOPs are saved, or when noise may put it off by half.",
     "(1 - measured_ratio) / (1 - flops_ratio)", "totals"},

    {"relative_to", "against", kText, 1, "The first model asked for in the same scenario, which a model that is not its twin is set against.", "", "totals"},
    {"relative_flops", "FLOP ratio", kRatio, 1, "Matmul FLOP (expected where rows are random) over those of the model set against.", "flops / flops(relative_to)", "totals"},
    {"relative_predicted", "predicted ratio", kRatio, 1, "Predicted time over that of the model set against.", "predicted_s / predicted_s(relative_to)", "totals"},
    {"relative_measured", "measured ratio", kRatio, 1, "Measured time over that of the model set against; the two were measured one after the other.", "measured_s / measured_s(relative_to)", "totals"},
    {"relative_noise", "noise of ratio", kPercent, 2, "How far that measured ratio may be off; drift of the machine between the two measurements is not in it.", "both A/A noises in quadrature", "totals"},

    {"samples_s", "single samples", kSeconds, 6, "Every end-to-end pass in the order taken; JSON only.", "", "totals"},
    {"rounds_s", "single rounds", kSeconds, 6, "An op's time in every round, all its uses together, normalised as measured_s is; JSON only.", "", "ops[]"},

    {"fathom_version", "made by", kText, 6, "Version and commit of the program that made the row.", "", "version"},
    {"started", "started", kText, 6, "When the run began, UTC.", "", "started"},
    {"cpu", "CPU", kText, 6, "The processor that ran the ops, as it names itself.", "", "environment"},
    {"gpu", "GPU", kText, 6, "The GPU that ran the ops, as it names itself.", "", "environment"},
    {"cores", "cores", kCount, 6, "Physical cores that the process may use.", "", "environment"},

    {"rows_declared", "rows", kCount, 4, "Rows that a routed block declares as its capacity.", "batch * slots",
     "ops[]"},
    {"rows_expected", "rows expected", kNone, 5, "Expected rows, where the number is random.", "batch * p", "ops[]"},
    {"rows_executed", "rows executed", kCount, 5, "Rows that a run really processed.", "", "ops[]"},
    {"participation", "participation", kPercent, 3, "Share of tokens that a block processed in the run.",
     "rows_executed / rows", "ops[]"},

    {"block", "block", kCount, 1, "Number of the block, from 0.", "", "rows of a trace"},
    {"token", "token", kCount, 1, "Position of the token in the first sequence, from 0.", "", "rows of a trace"},
    {"token_text", "text", kText, 1, "The token as it is read: a byte, a blank as ␣, others as hexadecimal digits.", "", "rows of a trace"},
    {"generated", "generated", kCount, 2, "Of a generation: 1 where the token was generated, 0 where it is of the prompt.", "", "rows of a trace"},
    {"routed", "routed", kCount, 2, "1 where the block chooses its tokens, 0 where every token takes it.", "", "rows of a trace"},
    {"taken", "taken", kCount, 1, "1 where the block processed the token, 0 where the token passed it by.", "", "rows of a trace"},
    {"router_weight", "router weight", kNone, 1, "The router's score of the token in this block; empty where the block is not routed.", "", "rows of a trace"},

    {"figure", "figure", kText, 1, "Which time of two records is compared, by its key.", "", "changes"},
    {"before_s", "before", kSeconds, 0, "The time in the first record.", "", "changes, ops"},
    {"after_s", "after", kSeconds, 0, "The time in the second record.", "", "changes, ops"},
    {"change", "change", kSignedPercent, 0, "Relative change of a time between two records; positive: slower.", "after_s / before_s - 1", "changes, ops"},
    {"change_noise", "noise", kPercent, 2, "How large a change two records of the same thing may show.", "both max(A/A noise, 1.86 * spread / sqrt(samples)) in quadrature", "changes, ops"},
    {"judgement", "judgement", kText, 0, "slower or faster where the change is larger than its noise, same, within noise, or no noise figure.", "", "changes, ops"},

    {"n", "n", kCount, 2, "Ops or configurations behind an accuracy figure.", "", "validation"},
    {"coverage", "coverage", kPercent, 3, "Share of ops or configurations that were predicted and graded.", "",
     "validation"},
    {"weighted_error", "weighted error", kPercent, 4, "Sum of absolute errors over the sum of measured times.", "sum |predicted_s - measured_s| / sum measured_s", "totals"},
    {"mape", "MAPE", kPercent, 1, "Mean absolute relative error.", "mean |predicted_s/measured_s - 1|", "validation"},
    {"median_error", "median error", kPercent, 1, "Median absolute relative error.", "", "validation"},
    {"p90_error", "p90 error", kPercent, 3, "90th percentile of the absolute relative error.", "", "validation"},
    {"interval_coverage", "in interval", kPercent, 4, "Share of measurements inside their interval (nominal 80 %).", "",
     "validation"},
};

}  // namespace

const std::vector<Column>& all_columns() {
  return kColumns;
}

const Column* find_column(std::string_view key) {
  const auto found = std::find_if(kColumns.begin(), kColumns.end(), [&](const Column& c) { return c.key == key; });
  return found == kColumns.end() ? nullptr : &*found;
}

const Column* find_heading(std::string_view name) {
  if (const Column* column = find_column(name)) return column;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? ' ' : c; };  // of_peak for "of peak"
  const auto same = [&](std::string_view label) { return std::equal(label.begin(), label.end(), name.begin(), name.end(), [&](char a, char b) { return lower(a) == lower(b); }); };
  const auto found = std::find_if(kColumns.begin(), kColumns.end(), [&](const Column& c) { return same(c.label); });
  return found == kColumns.end() ? nullptr : &*found;
}

const Column& column_named(std::string_view key) {
  if (const Column* column = find_column(key)) return *column;
  throw_internal("no glossary entry for column '" + std::string(key) + "' (reports/columns.cpp)");
}

const Column& lookup_column(std::string_view key, std::string_view option) {
  if (key == "convention.flops") key = "convention_flops";
  std::string_view last = key;
  if (const auto dot = key.rfind('.'); dot != std::string_view::npos) last = key.substr(dot + 1);
  if (const Column* column = find_column(last)) return *column;
  if (const Column* column = find_heading(key)) return *column;
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.key);
  throw_input("unknown column '" + std::string(key) + "'", {{}, 0, std::string(option.empty() ? key : option)}, name_hint(last, names));
}

std::string base_unit(const Column& column) {
  switch (column.unit) {
    case kFlop:
      return "FLOP (2 per MAC)";
    case kBytes:
      return "bytes";
    case kSeconds:
      return "seconds";
    case kCount:
      return "count";
    case kRatio:
      return "ratio";
    case kPercent:
      return "fraction";
    case kSignedPercent:
      return "signed fraction";
    case kText:
      return "text";
    case kNone:
      return "number";
    case kFlopRate:
      return "FLOP/s";
    case kByteRate:
      return "bytes/s";
    case kTokenRate:
      return "tokens/s";
    case kIntensity:
      return "FLOP per byte";
    case kJoules:
      return "joules";
  }
  return "";
}

}  // namespace fathom
