// Forward FLOPs per token, term by term, and a ledger that turns one count into another by named steps.
//
// Every published way of counting is `exact` plus a number of decisions: the mask, the router, the input table ... A preset is a
// sequence of such steps, each of which sets one term to a new value and says why. The reasons therefore sum to the
// difference exactly, whatever the network.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "models/count/rational.hpp"
#include "models/network.hpp"

namespace fathom {

enum class Term : std::uint8_t {
  kProjections, kCore, kFfn, kRouter, kLogits, kInputTable, kVectors, kSoftmax, kAdapters, kMtp, kOther,
};
inline constexpr int kTermCount = 11;
std::string_view term_name(Term term);
using Terms = std::array<Rational, kTermCount>;

struct Reason {
  std::string text;
  Rational flops;  // per token, signed
};

class Ledger {
 public:
  explicit Ledger(const Terms& terms) : terms_(terms) {}

  const Rational& operator[](Term term) const { return terms_[static_cast<size_t>(term)]; }
  const Terms& terms() const { return terms_; }
  Rational total() const;
  // Sets a term. A change of nothing is not written down; equal reasons are added up.
  void change(Term term, const Rational& value, std::string_view reason);
  void add(Term term, const Rational& difference, std::string_view reason) { change(term, (*this)[term] + difference, reason); }
  const std::vector<Reason>& reasons() const { return reasons_; }

 private:
  Terms terms_;
  std::vector<Reason> reasons_;
};

// Closed forms for a network without depth routing, and the sizes that other tools' formulas use.
// `network` must outlive it.
class Forms {
 public:
  Forms(const Network& network, std::int64_t length);

  const Network& network;
  const Rational length;  // S
  const Rational width;   // h
  const Rational layers;  // L

  // Sum over the layers of f(block), layers of one kind evaluated once.
  template <class F>
  Rational sum(F&& f) const {
    Rational total;
    for (size_t kind = 0; kind < copies_.size(); ++kind)
      if (copies_[kind] > 0) total += Rational(copies_[kind]) * f(network.kinds[kind]);
    return total;
  }
  // Every layer has the same attention and the same MLP.
  bool uniform() const;
  bool has_moe() const;
  bool has_mla() const;
  // The first layer's block: what formulas with one kind of layer look at.
  const BlockConfig& first() const { return network.block(0); }

  // Per token and layer.
  Rational projections(const BlockConfig& block) const;             // P
  static Rational pair_cost(const BlockConfig& block);              // 4nd, or 2n(d_qk + d_v)
  Rational keys(const BlockConfig& block) const;                    // average visible keys of a causal query: pairs / S
  Rational ffn(const BlockConfig& block) const;                     // dense, or chosen experts (capacity, no-ops) plus shared ones
  Rational plain_ffn(const BlockConfig& block) const;               // k experts of every token
  Rational router(const BlockConfig& block) const;                  // 2h(E + E0), 2h for a shared expert's gate
  Rational layer_without_core(const BlockConfig& block) const { return projections(block) + ffn(block) + router(block); }

  // Whole model, per token.
  Rational logits() const;     // 2hV
  Rational adapters() const;   // low-rank adapters
  // Prediction modules: the last layer again (its core over `keys_per_query` keys), a 2h -> h projection and the logits.
  Rational mtp(const Rational& keys_per_query, bool projection_and_logits, bool with_router) const;

  Terms exact() const;

 private:
  std::vector<std::int64_t> copies_;  // layers of each kind
};

// Terms of `exact` for any network: the closed forms above, or, with depth routing, the sums over the op list.
Terms exact_terms(const Network& network, std::int64_t length);

// The same from the op list, whatever the network; `full_mask` counts the whole square. Softmax elements per token go to `softmax`.
Terms list_terms(const Network& network, std::int64_t length, bool full_mask, Rational* softmax = nullptr);

}  // namespace fathom
