#include "reports/terms.hpp"

#include <algorithm>

namespace fathom {
namespace {

// By where a reader meets them.
const std::vector<ReportTerm> kTerms{
    // models
    {"Mixture-of-Depths;MoD", "A transformer in which a router lets only some tokens through a block; the others pass it by along the residual stream.", "Raposo et al., arXiv 2404.02258"},
    {"dense twin;twin", "The same network with no block routed: what a routed model is set against in ratios of FLOPs and of time.", "--with-twin runs it too"},
    {"full block", "A block that is not routed: every token passes it.", ""},
    {"expert choice", "The router's tokens are chosen per block, the best of a sequence up to its capacity, instead of each token choosing.", "Raposo et al., arXiv 2404.02258, 3.2"},
    {"mlp", "The feed-forward part of a block: two or three matrices and an activation; its ops are the part ffn.", "fathom explain ffn"},
    // routing rules
    {"topk;top-k", "Routing: of each sequence the tokens with the largest router scores pass the block, as many as its capacity says. It looks at later tokens too, so it is for training and prefill.", "--routing topk"},
    {"threshold", "Routing: a token passes the block where its router score is above a threshold, which is set so that in expectation the capacity is met. It needs no later token, so it is "
                  "the default of decode and generate; the number of rows is random there.",
     "--routing threshold"},
    {"predictor", "Of routing: a small network that tells from a token alone whether it would be among the top-k (--routing predictor). Of time: light, roofline or calibrated (--predictor). As a part of the model: the ops of that small network.",
     "fathom explain light, roofline, calibrated"},
    {"random", "Routing: tokens pass a block by chance, at its capacity. For measurements without trained routers.", "--routing random"},
    // predictors
    {"light", "Predictor: a lower bound that no execution can beat, the larger of arithmetic at peak and compulsory traffic at full bandwidth. What runs faster is counted, timed or bounded wrongly.", "max(flops / peak, bytes / bandwidth)"},
    {"roofline", "Predictor: what the probed ceilings allow. Each op takes the larger of its arithmetic at the peak rate and its traffic at the bandwidth of the memory level that holds its operands, and a launch. "
                 "Real kernels stay below ceilings, so it is too fast as a rule, and it has no interval. The plot of that name shows the two ceilings over FLOP per byte.",
     "launch + max(compute, memory)"},
    {"calibrated", "Predictor: roofline times corrected by what kernels of this machine were measured to reach (fathom calibrate), with an interval of 80 % from held-out errors.", "fathom calibrate"},
    {"interval", "The range in which 80 % of measurements are expected to lie; from errors on points that the calibration had not seen. Only the calibrated predictor has one.", "fathom explain predicted_lo_s"},
    {"calibration;calibrate", "Measuring what this machine's kernels reach over many sizes, and fitting the calibrated predictor to it; the machine file keeps both. A probe alone (seconds) gives ceilings, a calibration (minutes) gives estimates.",
     "fathom calibrate"},
    {"reference kernel", "A small kernel of fixed work that is timed between the ops of a measurement: its time tells the state of the machine, by which theirs are normalised.", "fathom explain normalised_s"},
    {"stopped_by;measuring ended by", "Why a measurement ended: the samples were steady enough (noise), as many rounds as asked were done (rounds), its time was up (timeout), or it was interrupted.", "--time, --rounds"},
    {"machine state", "How fast a machine is at the moment: clock, heat, other users. Reference kernels measure it.", ""},
    {"measured, op by op;op by op;predicted, op by op;error, op by op", "Ops timed in place, one at a time between reference kernels, and scaled to one state of the machine: that of the calibration where there was one. They add up to `normalised`; `measured` is the step end to end as it ran.",
     "fathom explain normalised_s"},
    {"times faster", "Ratio of two medians of end-to-end passes. Its error is that of both in quadrature; a median is known to the larger of its A/A noise and 1.86 spread / sqrt(samples), two standard errors.", "reports/record_faster.hpp"},
    // provenance and limits
    {"datasheet", "Provenance of a figure: the vendor's.", ""},
    {"probed", "Provenance of a figure: measured on the machine with probes of one resource each.", ""},
    {"fitted", "Provenance of a figure: from a fit to measured kernels.", ""},
    {"extrapolated", "Provenance of a figure: outside what was measured; answered by physics alone, and marked.", ""},
    {"DRAM", "Main memory, of a GPU its device memory; as a limit: the op waits for it.", ""},
    {"elements", "As a limit: element work such as exp or selection, not multiply-adds.", ""},
    // phases
    {"train", "Phase: forward, backward and optimizer of one step.", "--phase train"},
    {"prefill", "Phase: all tokens of the sequences at once, as when a prompt is read.", "--phase prefill"},
    {"decode", "Phase: one new token per sequence, with `context` visible keys.", "--phase decode"},
    {"generate", "Phase: a prefill of the prompt and one decode step per further token.", "--phase generate"},
    // validation and accuracy
    {"of;stratum", "Which items a row of statistics is about: all, a phase, a family of models, a class of ops.", ""},
    {"configuration", "A model in a scenario: phase, batch, lengths, types.", ""},
    {"dropped", "Items without a grade: not executed, noisy or too short. They are counted, never averaged.", ""},
    {"median", "Median absolute relative error; of samples: their middle.", ""},
    {"p90", "90th percentile of the absolute relative error.", ""},
    {"max", "Largest absolute relative error.", ""},
    {"bias;mean error", "Mean signed relative error; positive: predicted too slow.", "mean (predicted / measured - 1)"},
    {"geometric mean", "Geometric mean of predicted over measured; 1 is without bias.", "exp(mean log(predicted / measured))"},
    {"mean |log2|", "Mean size of the logarithm of predicted over measured: 1 is a factor of two.", "mean |log2(predicted / measured)|"},
    {"WAPE", "Sum of absolute errors over the sum of measured times: long items weigh more.", "sum |predicted - measured| / sum measured"},
    {"within noise", "Share of items whose error is no larger than their own A/A noise.", ""},
    {"noise floor", "Mean A/A noise of the items: the error that a perfect prediction would have.", ""},
    {"pairs", "Of a ranking: pairs of configurations that are ordered by time. Of attention: (query, key) pairs that are visible.", ""},
    {"ties", "Pairs whose measured times differ by less than their noise: no order to predict.", ""},
    {"tau-b", "Kendall's rank correlation with ties: 1, every pair in the right order; 0, no better than chance.", ""},
    {"chance", "The size of tau-b that two unrelated orders reach by chance (one standard deviation).", ""},
    {"top-1 regret", "How much slower the configuration is that was predicted fastest than the one that was.", ""},
    {"of three", "The same regret, averaged over all choices of three configurations.", ""},
    {"p50 of a token;p95 of a token;p99 of a token", "Percentiles of the time that a token after the first took in a generation.", "fathom explain tpot_s"},
    {"pred. p50 of a token;pred. p95 of a token;pred. p99 of a token", "The same of the decode step in the middle of the output, over its random rows.", "fathom explain predicted_tpot_s"},
    {"low", "Lower end of the interval; of a class: the 10 % quantile of measured over predicted.", ""},
    {"high", "Upper end of the interval; of a class: the 90 % quantile of measured over predicted.", ""},
    {"raw predicted", "The step predicted end to end.", ""},
    {"raw measured;raw", "The step measured end to end, in the machine state of the day.", "fathom explain measured_s"},
    {"raw error", "Error of the raw prediction against the raw measurement.", "raw predicted / raw measured - 1"},
    {"ops in range", "Share of the ops whose sizes lie inside what was calibrated.", ""},
    {"out of range", "Rows whose sizes lie outside what was calibrated; they are answered by physics alone.", ""},
    {"last cache", "Whether the cores had last caches of their own or shared one while this was measured.", ""},
    {"predicted realised", "The realised fraction that the predictions promise.", "fathom explain realised"},
    {"physics alone;physics", "The prediction before the correction that was fitted to measured kernels.", ""},
    {"residual", "What a fit leaves between its physics and the measurement, as a factor. As a part of the model: the sums of a block's output and its input.", ""},
    // calibration
    {"class", "Ops that share a calibration: products, attention, exp, streams of memory, ...", ""},
    {"type", "Element type: f32, bf16, ...", ""},
    {"points", "Measured points behind a fit.", ""},
    {"nominal", "Time of a reference kernel in the machine state of the calibration.", ""},
    {"slowest / fastest", "How far the reference kernel's time moved between the workloads.", ""},
    {"A/A spread", "How far two halves of the same samples differ.", "fathom explain noise"},
    {"probe", "A small measurement of one resource: a rate of arithmetic, a bandwidth, a launch.", ""},
    {"in", "The memory level that a probe stays in.", ""},
    {"time", "Median time of one call.", ""},
    {"mean |error|", "Mean absolute relative error of whole shapes that the fit had not seen.", ""},
    {"median |error|", "Its median.", ""},
    {"p90 |error|", "Its 90th percentile.", ""},
    // plan
    {"budget", "Training FLOPs of the plan.", ""},
    {"variant", "dense, MoD (every second block routed), or a deeper MoD with the dense model's forward FLOPs.", ""},
    {"layers", "Blocks of the network.", ""},
    {"forward / sequence", "FLOP of the forward pass over one sequence.", ""},
    {"of dense", "Forward FLOPs over those of the dense model.", ""},
    {"of optimum", "Forward FLOPs over those of the dense model that the law would train with this budget.", ""},
    {"steps", "Optimizer steps that the budget pays for.", "budget / (3 x forward x batch)"},
    {"law's loss;law", "The loss that the scaling law expects of a dense model with these parameters and tokens.", "fathom plan --law NAME"},
    {"step", "Time of one step; of a loss curve: the number of the step.", ""},
    {"wall-clock", "Time of the whole run.", "steps x step"},
    {"forward from", "Where the forward FLOPs of the law's optimum come from.", ""},
    {"isoFLOP", "Of models of several sizes: each is trained for as many steps as one budget of FLOPs pays for.", "fathom plan"},
    // audit
    {"#", "Number of the claim.", ""},
    {"claim", "What a text says about Mixture-of-Depths.", ""},
    {"claimed", "The figure that the text gives.", ""},
    {"recomputed", "What the calculator gives for the claim.", ""},
    {"value", "The calculator's figure.", ""},
    {"number", "The same figure as a plain number.", ""},
    {"condition", "Under which condition the claim holds.", ""},
    {"computed as", "The formula behind a figure.", ""},
    // check
    {"cases", "Networks in which an op was compared with the reference.", ""},
    {"case", "The network in which an op was compared.", ""},
    {"ops", "Ops of that kind that were compared; in `list`: the kinds of op.", "fathom list ops"},
    {"worst error", "Largest difference to the reference over the largest magnitude of an output.", ""},
    {"tolerance", "The largest such error that is no failure.", ""},
    {"counts", "Whether what was executed is what was counted: rows, pairs, keys, experts, multiply-adds.", ""},
    {"what", "What differs.", ""},
    {"where", "At which op, instance and element; of a column: where it stands in JSON.", ""},
    // explain, list, conventions
    {"heading", "What a table of a page writes above a column.", ""},
    {"in files", "The column's name in CSV and JSON, as --columns takes it too.", ""},
    {"column", "A figure of reports, CSV and JSON.", "fathom list columns"},
    {"unit", "The unit of the value in CSV and JSON.", ""},
    {"meaning", "What the value says.", ""},
    {"name", "The word by which something is asked for.", ""},
    {"what it is", "In one line.", ""},
    {"code", "The exit status of the program.", "fathom explain exit-codes"},
    {"says", "What that exit status says.", ""},
    {"when", "What makes a command end so.", ""},
    {"section", "The part of a network file in square brackets.", "fathom explain ini"},
    {"key", "A name in a network file or a record.", "fathom explain ini"},
    {"reason", "Why two ways of counting differ, and by how much.", ""},
    {"per sequence", "FLOP of a whole sequence.", ""},
    {"change from exact", "The difference over the exact count.", ""},
    {"term", "A summand of a convention's formula.", ""},
    {"who counts so", "The program or paper that a convention is of.", ""},
    {"forward FLOP per token", "The convention's formula.", "fathom explain convention"},
    {"exact", "The convention of fathom itself: multiply-adds of the op list, 2 FLOP each, causal pairs only.", "fathom explain convention exact"},
    {"what its ops compute", "The work of a part of the model.", ""},
    {"FLOP of one", "FLOP of the op at one of its places.", ""},
    {"together", "FLOP of all its places.", ""},
    {"FLOP", "Floating-point operations; a multiply-add is two.", ""},
    // training on a text
    {"nats per byte;loss", "Cross-entropy of the next byte.", ""},
    {"bits per byte", "The same over log 2.", ""},
    {"selected", "Share of the tokens that the block's router selected.", ""},
    {"accuracy", "Share of the tokens for which the predictor said what the router chose.", ""},
    {"balanced accuracy", "Mean of the hit rates among selected and among skipped tokens; 0.5 knows nothing.", ""},
    {"grad_dtype", "Element type of the gradients: that of compute unless it is asked for.", "--grad-dtype"},
    // GPU tables
    {"flops_per_math_op", "FLOP that one tensor operation of the hardware counters stands for; found out on the chip.", ""},
    {"chip", "The GPU that a row was measured on.", ""},
};

char plain(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? ' ' : c; }

bool same_words(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return plain(x) == plain(y); });
}

}  // namespace

const std::vector<ReportTerm>& all_terms() { return kTerms; }

const ReportTerm* find_term(std::string_view name) {
  for (const ReportTerm& term : kTerms)
    for (std::string_view rest = term.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      if (same_words(rest.substr(0, end), name)) return &term;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  return nullptr;
}

std::string_view title_of(const ReportTerm& term) { return term.names.substr(0, term.names.find(';')); }

}  // namespace fathom
