// Machines by name or path: built-in files, and fitted GPU models that stand beside a machine file or alone.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>

#include "lib/gpu/model_io.hpp"
#include "models/machine_ini.hpp"
#include "models/registry.hpp"

namespace fathom {
namespace {

const BuiltinFile* find_file(std::span<const BuiltinFile> files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(), [name](const BuiltinFile& f) { return f.name == name; });
  return found == files.end() ? nullptr : &*found;
}

// The hash line of a model file stands in its first section; reading it does not need the file parsed.
std::string hash_line(std::string_view text, const std::string& file) {
  constexpr std::string_view kKey = "\nhash = ";
  const size_t at = text.find(kKey);
  if (at == std::string_view::npos) throw_input("the file holds no fitted GPU model: it has no hash", {file, 0, "hash"});
  const size_t begin = at + kKey.size();
  return std::string(text.substr(begin, text.find_first_of("\r\n", begin) - begin));
}

void attach(Machine& machine, std::string hash, std::function<gpu::GpuModel()> load, const std::string& file) {
  if (machine.kind != MachineKind::kGpu) throw_input(fmt::format("'{}' is no GPU and cannot take a fitted GPU model", machine.name), {file, 0, ""});
  machine.gpu_fit = GpuFit(std::move(hash), std::move(load));
}

void attach(Machine& machine, gpu::GpuModel model, const std::string& file) {
  std::string hash = model.hash;
  attach(machine, std::move(hash), [model = std::move(model)] { return model; }, file);
}

// A fit without a machine file of its own: the data sheet of its chip.
Machine machine_of_fit(const std::string& path) {
  gpu::GpuModel model = gpu::read_model(path);
  const BuiltinFile* sheet = find_file(builtin_machine_files(), model.device.name);
  if (!sheet) throw_input(fmt::format("the fit is of chip '{}', of which no data sheet is built in", model.device.name), {path, 0, "name"},
                          "write a machine file of the same name beside it, and give that one");
  Machine machine = parse_machine_ini(sheet->text, model.device.name);
  attach(machine, std::move(model), path);
  return machine;
}

}  // namespace

std::vector<MachineEntry> list_machines() {
  std::vector<MachineEntry> entries;
  for (const BuiltinFile& file : builtin_machine_files()) entries.push_back({std::string(file.name), parse_machine_ini(file.text, std::string(file.name)).board});
  return entries;
}

Machine load_machine(const std::string& machine) {
  if (const BuiltinFile* file = find_file(builtin_machine_files(), machine)) {
    Machine m = parse_machine_ini(file->text, machine);
    if (const BuiltinFile* fit = find_file(builtin_machine_fits(), machine))
      attach(m, hash_line(fit->text, machine + ".gpu"), [text = fit->text, machine] { return gpu::parse_model(text, machine + ".gpu", true); }, machine + ".gpu");
    return m;
  }
  const std::filesystem::path path(machine);
  std::error_code code;
  if (!machine.empty() && std::filesystem::exists(path, code)) {
    if (path.extension() == ".gpu") return machine_of_fit(machine);
    Machine m = read_machine_ini(machine);
    std::filesystem::path beside = path;
    beside.replace_extension(".gpu");
    if (m.kind == MachineKind::kGpu && std::filesystem::exists(beside, code)) attach(m, gpu::read_model(beside.string()), beside.string());
    return m;
  }
  std::vector<std::string> names;
  for (const BuiltinFile& file : builtin_machine_files()) names.emplace_back(file.name);
  throw_input(fmt::format("'{}' is neither a built-in machine nor a file", machine.substr(0, 80)), {}, name_hint(machine, names));
}

}  // namespace fathom
