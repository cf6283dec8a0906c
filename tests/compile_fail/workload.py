"""Only the builder makes ops, a workload is immutable, and a function over op kinds handles all of them (lib/op.hpp, lib/workload.hpp)."""

from _compile_fail import Case, main

BEFORE = """#include "lib/workload.hpp"
namespace fathom {
extern const Workload workload;
extern Workload mutable_workload;
extern PerOp<double> results;
template <class... Kinds> int handle(const OpSpec& spec, Kinds... kinds) { return std::visit(overloaded{kinds...}, spec); }
template <class T> constexpr bool kAnyButGemm = !std::is_same_v<T, Gemm>;
}
"""

CASES = [
    Case("an OpId from a number", "OpId id(3);", "OpId id = workload.id(3);", ("private", "protected")),
    Case("an op added to a workload", "mutable_workload.ops().push_back(Op{});", "mutable_workload.ops().size();",
         ("discards qualifiers", "no matching member function", "passing 'const")),
    Case("an op changed in a workload", "mutable_workload.ops()[0].spec = Rope{};", "OpSpec s = mutable_workload.ops()[0].spec;",
         ("discards qualifiers", "passing 'const", "no viable overloaded")),
    Case("a visitor that forgets a kind",
         "auto known = []<class T>(const T&) requires kAnyButGemm<T> { return 0; }; handle(OpSpec{}, known);",
         "auto known = []<class T>(const T&) requires kAnyButGemm<T> { return 0; }; handle(OpSpec{}, known, [](const Gemm&) { return 1; });",
         ("no type named 'type' in 'struct std::invoke_result", "no match for call", "static assertion failed", "no matching function")),
    Case("a result read with a tensor's handle", "results[\"name\"];", "results[workload.id(0)];",
         ("no match for 'operator[]'", "invalid conversion", "no viable overloaded operator[]")),
]

if __name__ == "__main__":
    main(BEFORE, CASES)
