// Machines and backends by name, and this machine's own file in the user's cache folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/backend.hpp"
#include "lib/machine.hpp"
#include "lib/measure.hpp"
#include "reports/record.hpp"

namespace fathom {

std::vector<std::pair<std::string, std::string>> list_machine_names();
std::vector<std::pair<std::string, std::string>> list_backend_names();

// Throws Error(kInput) when a CPU machine file was made for another instruction set than this CPU's.
void check_isa(const Machine& machine);

// Why predictions from a machine's probed rates may be far off: some were taken from fewer threads, or have spreads above 100 %, because other processes had the cores.
// The sources of the figures tell, so a machine file says it on every use. Empty: no doubt.
std::string probe_doubts(const Machine& machine);

// A built-in name, a file, or "this-machine": the CPU's file in the cache folder ($XDG_CACHE_HOME/fathom), probed now (under 20 s) when
// it is missing or was made on another CPU. Doubts about its probes (probe_doubts) go to `notes`, or else to stderr unless `quiet`.
Machine resolve_machine(const std::string& name, bool quiet, std::vector<RecordNote>* notes = nullptr);

// The built-in machine of the GPU that the CUDA backend finds; throws Error(kEnvironment) with the reason where there is none. A GPU without a
// machine file is an input error where one is `needed`, else nothing.
std::optional<Machine> this_gpu(bool needed);

// Probes this CPU now, again when rates fall with the number of threads; Error(kEnvironment) when they still do, Error(kInput) without a CPU backend.
Machine probe_this_machine(bool quiet, int threads = 0);
// "$XDG_CACHE_HOME/fathom/this-machine.ini"; empty without a home.
std::string this_machine_file();

}  // namespace fathom
