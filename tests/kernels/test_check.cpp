// `fathom check` itself: a backend that equals the reference passes, and each planted mistake is found, in the op that makes it and nowhere else.
#include <catch2/catch.hpp>

#include <functional>

#include "kernels/reference/backend.hpp"
#include "lib/error.hpp"
#include "tools/check.hpp"

using namespace fathom;

namespace {

// The reference, with something done to an op after it ran.
using Damage = std::function<void(ProgramExecution& run, const BoundOp& bound, Executed& executed)>;

class Damaged : public reference::ReferenceExecution {
 public:
  Damaged(std::shared_ptr<const Workload> workload, const BindOptions& options, Damage damage)
      : ReferenceExecution(std::move(workload), options, reference::Precision::kF64), damage_(std::move(damage)) {}

 protected:
  void execute(int instance, const BoundOp& bound, Executed& executed) override {
    ReferenceExecution::execute(instance, bound, executed);
    damage_(*this, bound, executed);
  }

 private:
  Damage damage_;
};

class DamagedBackend : public reference::ReferenceBackend {
 public:
  explicit DamagedBackend(Damage damage) : damage_(std::move(damage)) {}
  std::unique_ptr<Execution> bind(const Workload& workload, const BindOptions& options) const override {
    return std::make_unique<Damaged>(std::make_shared<Workload>(workload), options, damage_);
  }

 private:
  Damage damage_;
};

// One list per family: enough to meet every op that the tests damage.
std::vector<CheckCase> some_cases() {
  std::vector<CheckCase> chosen;
  for (const CheckCase& each : check_cases()) {
    const bool wanted = each.name == "mod, train 2 x 13" || each.name == "experts, train 2 x 9" || each.name == "mod, ragged caches, decode 5 x 12" || each.name == "window, prefill 2 x 11";
    if (wanted) chosen.push_back(each);
  }
  REQUIRE(chosen.size() >= 6);
  return chosen;
}

CheckReport check(Damage damage) {
  CheckOptions options;
  options.dtypes = {DType::kF32};
  return check_backend(DamagedBackend(std::move(damage)), options, some_cases());
}

// The kinds that failed.
std::vector<std::string> wrong(const CheckReport& report) {
  std::vector<std::string> kinds;
  for (const CheckRow& row : report.rows)
    if (!row.ok()) kinds.emplace_back(kind_names()[static_cast<size_t>(row.kind)]);
  return kinds;
}

template <class Kind>
Damage scale_output(float factor) {
  return [factor](ProgramExecution& run, const BoundOp& bound, Executed&) {
    if (!std::holds_alternative<Kind>(*bound.spec)) return;
    std::vector<float> values = run.read(bound.out[0].at);
    for (float& v : values) v *= factor;
    run.write(bound.out[0].at, values);
  };
}

}  // namespace

TEST_CASE("a backend that is the reference passes the check, counts included", "[check]") {
  const CheckReport report = check([](ProgramExecution&, const BoundOp&, Executed&) {});
  CHECK(report.ok());
  CHECK(report.failures.empty());
  for (const CheckRow& row : report.rows) {
    CHECK(row.cases > 0);
    CHECK(row.worst == 0);
  }
}

TEST_CASE("planted mistakes are found where they are made", "[check]") {
  using Kinds = std::vector<std::string>;
  CHECK(wrong(check(scale_output<Gemm>(1.0001f))) == Kinds{"gemm"});
  CHECK(wrong(check(scale_output<AttentionBackward>(0.9f))) == Kinds{"attention_backward"});
  CHECK(wrong(check(scale_output<ExpertCombine>(1.001f))) == Kinds{"expert_combine"});
  CHECK(wrong(check(scale_output<AdamW>(0.9999f))) == Kinds{"adamw"});
  // A threshold instead of the total order: of equal scores the last slots instead of the first (mutants of T1 and T2).
  CHECK(wrong(check([](ProgramExecution& run, const BoundOp& bound, Executed&) {
          if (!std::holds_alternative<Select>(*bound.spec)) return;
          std::vector<float> indices = run.read(bound.out[0].at);
          if (indices.size() < 2) return;
          std::swap(indices[0], indices[1]);  // not ascending
          run.write(bound.out[0].at, indices);
        })) == Kinds{"select"});
  // A gather that reads rows 0..C-1.
  CHECK(wrong(check([](ProgramExecution& run, const BoundOp& bound, Executed&) {
          const auto* op = std::get_if<GatherRows>(bound.spec);
          if (!op) return;
          std::vector<float> x = run.read(bound.in[0].at);
          x.resize(static_cast<size_t>(bound.out[0].rows * bound.out[0].cols));
          run.write(bound.out[0].at, x);
        })) == Kinds{"gather_rows"});
  // A number that is none, in one element.
  CHECK(wrong(check([](ProgramExecution& run, const BoundOp& bound, Executed&) {
          if (!std::holds_alternative<RmsNorm>(*bound.spec)) return;
          std::vector<float> y = run.read(bound.out[0].at);
          if (y.empty()) return;
          y[0] = std::nanf("");
          run.write(bound.out[0].at, y);
        })) == Kinds{"rms_norm"});
}

TEST_CASE("executed counts that differ are found, though all values are right", "[check]") {
  const CheckReport report = check([](ProgramExecution&, const BoundOp& bound, Executed& executed) {
    if (std::holds_alternative<Attention>(*bound.spec)) executed.pairs += 1;
  });
  CHECK(wrong(report) == std::vector<std::string>{"attention"});
  REQUIRE_FALSE(report.failures.empty());
  CHECK(report.failures[0].what.find("pairs executed") != std::string::npos);
  for (const CheckRow& row : report.rows) CHECK(row.wrong_values == 0);
}

TEST_CASE("a check may be cut to kinds and data types, and refuses unknown ones", "[check]") {
  CheckOptions options;
  options.dtypes = {DType::kBF16};
  options.kinds = {"select", "gemm"};
  const CheckReport report = check_backend(reference::ReferenceBackend(), options, some_cases());
  REQUIRE(report.rows.size() == 2);
  for (const CheckRow& row : report.rows) CHECK(row.dtype == DType::kBF16);
  options.kinds = {"gem"};
  CHECK_THROWS_AS(check_backend(reference::ReferenceBackend(), options, some_cases()), Error);
}

TEST_CASE("check: an op that fails is reported and the other lists are run; a backend that always fails is given up") {
  int failed = 0;
  const CheckReport some = check([&](ProgramExecution&, const BoundOp& bound, Executed&) {
    if (std::holds_alternative<ExpertSelect>(*bound.spec) && failed++ == 0) throw Error(ErrorKind::kEnvironment, "an illegal address");
  });
  CHECK(wrong(some) == std::vector<std::string>{"expert_select"});
  CHECK(some.gave_up.empty());
  REQUIRE(some.failures.size() == 1);
  CHECK(some.failures[0].what == "an illegal address");
  CHECK(some.failures[0].where.find("experts, train 2 x 9") == 0);
  CHECK(some.lists == static_cast<std::int64_t>(some_cases().size()));

  const CheckReport dead = check([](ProgramExecution&, const BoundOp&, Executed&) { throw_internal("the device is lost"); });
  CHECK(dead.lists == kMostBroken);
  CHECK(dead.gave_up.find("3 lists failed one after the other, the last with: ") == 0);
  CHECK_FALSE(dead.ok());

  struct Refusing : reference::ReferenceBackend {
    std::unique_ptr<Execution> bind(const Workload&, const BindOptions&) const override { throw_input("no algorithm for m 3"); }
  };
  CheckOptions options;
  options.dtypes = {DType::kF32};
  const CheckReport refused = check_backend(Refusing(), options, some_cases());
  CHECK(refused.lists == 0);
  REQUIRE(!refused.failures.empty());
  CHECK(refused.failures[0].what == "no algorithm for m 3");
  CHECK(refused.failures[0].where.find("the list cannot be bound") != std::string::npos);
}

TEST_CASE("check: what the kernels are built of is run first, and what differs there is a failure") {
  struct Parts : reference::ReferenceBackend {
    std::vector<SelfTest> tests;
    bool dead = false;
    std::vector<SelfTest> self_test() const override {
      if (dead) throw Error(ErrorKind::kEnvironment, "the device is lost");
      return tests;
    }
  };
  CheckOptions options;
  options.dtypes = {DType::kF32};
  Parts parts;
  parts.tests = {{"shuffles", 4, 0, 0, 0, ""}};
  CHECK(check_backend(parts, options, {}).ok());
  parts.tests.push_back({"votes", 4, 1, 1, 0, "case 0"});
  CHECK_FALSE(check_backend(parts, options, {}).ok());
  options.kinds = {"gather_rows"};  // single kinds: they alone are asked for
  CHECK(check_backend(parts, options, {}).parts.empty());
  options.kinds.clear();
  parts.dead = true;
  const CheckReport lost = check_backend(parts, options, {});
  CHECK_FALSE(lost.ok());
  REQUIRE(lost.parts.size() == 1);
  CHECK(lost.parts[0].first == "the device is lost");
}
