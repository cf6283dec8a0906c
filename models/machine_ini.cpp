#include "models/machine_ini.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "models/ini.hpp"

namespace fathom {
namespace {

struct Unit {
  Dimension dimension;
  std::string_view base;
  std::string_view prefixes;  // for powers of 1000 upwards, ' ' = none
};

constexpr Unit kRate{Dimension::kFlopRate, "FLOP/s", " kMGTPE"};
constexpr Unit kBandwidth{Dimension::kByteRate, "B/s", " kMGTPE"};
constexpr Unit kCapacity{Dimension::kBytes, "B", " kMGTPE"};
constexpr Unit kTime{Dimension::kTime, "s", ""};
constexpr Unit kClock{Dimension::kFrequency, "Hz", " kMGTPE"};

// The shortest decimal that reads back to the same double, with a prefix that leaves 1 to 999 before the point where there is one.
std::string quantity_text(double value, const Unit& unit) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  std::string_view digits_of = text.substr(0, mark);
  const std::string_view exponent_text = text.substr(mark + 1 + (text[mark + 1] == '+'));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string digits;
  for (const char c : digits_of)
    if (c != '.') digits += c;
  // value = d.ddd x 10^exponent; move the point so that the prefix takes a multiple of three.
  int step = exponent >= 0 ? exponent / 3 : -((2 - exponent) / 3);
  char prefix = ' ';
  if (unit.prefixes.empty()) {  // seconds: m, u, n
    step = std::clamp(step, -3, 0);
    prefix = " mun"[-step];
  } else {
    step = std::clamp(step, 0, static_cast<int>(unit.prefixes.size()) - 1);
    prefix = unit.prefixes[static_cast<size_t>(step)];
  }
  const int before = exponent - 3 * step + 1;  // digits before the point
  std::string number;
  if (before <= 0) {
    number = "0." + std::string(static_cast<size_t>(-before), '0') + digits;
  } else if (before >= static_cast<int>(digits.size())) {
    number = digits + std::string(static_cast<size_t>(before) - digits.size(), '0');
  } else {
    number = digits.substr(0, static_cast<size_t>(before)) + "." + digits.substr(static_cast<size_t>(before));
  }
  return fmt::format("{} {}{}", number, prefix == ' ' ? "" : std::string(1, prefix), unit.base);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "989 TFLOP/s, datasheet: where it stands"
Figure read_figure(const IniValue& value, const Unit& unit) {
  const std::string_view text = value.text();
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) value.fail("the figure has no source", "write 'VALUE, PROVENANCE: SOURCE', such as '4.8 TB/s, datasheet: NVIDIA H200 data sheet'");
  Figure f;
  f.value = IniValue(std::string(trimmed(text.substr(0, comma))), value.where()).quantity(unit.dimension);
  const std::string_view rest = trimmed(text.substr(comma + 1));
  const size_t colon = rest.find(':');
  f.provenance = IniValue(std::string(trimmed(rest.substr(0, colon))), value.where()).parse(parse_provenance);
  if (colon != std::string_view::npos) f.source = trimmed(rest.substr(colon + 1));
  if (f.source.empty()) value.fail("the figure's provenance names no source", "say where it stands, or what probed it, after a colon");
  return f;
}

std::string figure_text(const Figure& f, const Unit& unit) { return fmt::format("{}, {}: {}", quantity_text(f.value, unit), provenance_name(f.provenance), f.source); }

double real_of(const IniValue& value) { return value.real(); }
std::string real_text(double value) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

// Keys of one section: exact names, and per-thread figures "NAME" or "NAME.THREADS".
class SectionReader {
 public:
  explicit SectionReader(const IniSection& section) : section_(section) {}

  SectionReader& figure(const char* key, const Unit& unit, std::optional<Figure>& into) {
    known_.emplace_back(key);
    if (section_.has(key)) into = read_figure(section_.get(key), unit);
    return *this;
  }
  SectionReader& per_threads(const std::string& key, const Unit& unit, PerThreads& into) {
    known_.push_back(key);
    for (const std::string& name : section_.keys()) {
      if (name != key && !(name.starts_with(key + ".") && name.size() > key.size() + 1)) continue;
      int threads = 0;
      if (name != key) {
        const std::string count = name.substr(key.size() + 1);
        const IniValue number(count, section_.get(name).where());
        threads = static_cast<int>(number.integer(1, 1 << 16));
      }
      known_.push_back(name);
      into[threads] = read_figure(section_.get(name), unit);
    }
    return *this;
  }
  // Reads a value by a function when it is there.
  SectionReader& value(const char* key, const std::function<void(const IniValue&)>& read) {
    known_.emplace_back(key);
    if (section_.has(key)) read(section_.get(key));
    return *this;
  }
  void done() const { section_.only(known_); }

 private:
  const IniSection& section_;
  std::vector<std::string> known_;
};

// The parts of "memory.L2" after the first, which `section` must have in this number.
std::vector<std::string> name_parts(const IniSection& section, size_t count, const char* form) {
  std::vector<std::string> parts;
  size_t at = section.name().find('.');
  while (at != std::string::npos) {
    const size_t next = section.name().find('.', at + 1);
    parts.push_back(section.name().substr(at + 1, next == std::string::npos ? next : next - at - 1));
    at = next;
  }
  if (parts.size() != count) throw_input(fmt::format("the section should be named {}", form), section.where());
  return parts;
}

IniValue part_value(const IniSection& section, const std::string& part) { return IniValue(part, section.where()); }

void read_machine(const IniSection& s, Machine& m) {
  SectionReader reader(s);
  reader.value("name", [&](const IniValue& v) { m.name = v.text(); })
      .value("board", [&](const IniValue& v) { m.board = v.text(); })
      .value("kind", [&](const IniValue& v) { m.kind = v.choice<MachineKind>({{"cpu", MachineKind::kCpu}, {"gpu", MachineKind::kGpu}}); })
      .value("isa", [&](const IniValue& v) { m.isa = v.text(); })
      .value("date", [&](const IniValue& v) { m.date = v.text(); })
      .value("cores", [&](const IniValue& v) { m.cores = v.integer(1, 1 << 20); })
      .figure("clock", kClock, m.clock)
      .figure("clock_max", kClock, m.clock_max)
      .figure("memory", kCapacity, m.memory)
      .done();
  for (const char* key : {"name", "kind", "cores"}) static_cast<void>(s.get(key));
}

void read_peak(const IniSection& s, Machine& m) {
  Peak p;
  p.dtype = part_value(s, name_parts(s, 1, "peak.DTYPE, such as peak.bf16")[0]).dtype();
  SectionReader reader(s);
  reader.value("unit", [&](const IniValue& v) { p.unit = v.text(); }).per_threads("rate", kRate, p.rate).per_threads("best", kRate, p.best).done();
  m.peaks.push_back(std::move(p));
}

void read_level(const IniSection& s, Machine& m) {
  MemoryLevel l;
  l.name = name_parts(s, 1, "memory.LEVEL, such as memory.L2")[0];
  SectionReader reader(s);
  reader.value("shared", [&](const IniValue& v) { l.shared = v.boolean(); }).figure("capacity", kCapacity, l.capacity).figure("claimed", kCapacity, l.claimed);
  for (int a = 0; a < kAccesses; ++a) reader.per_threads(std::string(access_name(static_cast<Access>(a))), kBandwidth, l.rate[a]);
  reader.done();
  m.levels.push_back(std::move(l));
}

void read_costs(const IniSection& s, Machine& m) {
  SectionReader reader(s);
  reader.per_threads("launch", kTime, m.launch)
      .per_threads("region", kTime, m.region)
      .figure("exp_element", kTime, m.exp_element)
      .figure("select_element", kTime, m.select_element)
      .figure("clock_read", kTime, m.clock_read)
      .done();
}

void read_curve(const IniSection& s, Machine& m) {
  const auto parts = name_parts(s, 5, "gemm.DTYPE.VARIANT.tTHREADS.nN.kK");
  const auto counted = [&](const std::string& part, char letter) {
    if (part.empty() || part[0] != letter) throw_input(fmt::format("'{}' should begin with '{}'", part, letter), s.where());
    return part_value(s, part.substr(1)).integer(1);
  };
  GemmCurve c;
  c.dtype = part_value(s, parts[0]).dtype();
  c.variant = parts[1];
  c.threads = static_cast<int>(counted(parts[2], 't'));
  c.n = counted(parts[3], 'n');
  c.k = counted(parts[4], 'k');
  SectionReader reader(s);
  reader.value("rows", [&](const IniValue& v) { for (const IniValue& e : v.list()) c.rows.push_back(e.integer(1)); })
      .value("time", [&](const IniValue& v) { for (const IniValue& e : v.list()) c.seconds.push_back(e.quantity(Dimension::kTime)); })
      .value("provenance", [&](const IniValue& v) { c.provenance = v.parse(parse_provenance); })
      .done();
  m.gemm_curves.push_back(std::move(c));
}

void read_fit(const IniSection& s, Machine& m) {
  const auto parts = name_parts(s, 3, "model.CLASS.DTYPE.tTHREADS");
  ClassFit f;
  f.name = parts[0];
  f.dtype = part_value(s, parts[1]).dtype();
  if (parts[2].empty() || parts[2][0] != 't') throw_input("the last part should be a thread count, such as t2", s.where());
  f.threads = static_cast<int>(part_value(s, parts[2].substr(1)).integer(0, 1 << 16));
  for (const std::string& key : s.keys()) {
    const IniValue v = s.get(key);
    if (key == "residual") {
      const auto list = v.list();
      if (list.size() != 2) v.fail("a residual is two ratios, the low and the high one");
      f.residual_low = list[0].real(0);
      f.residual_high = list[1].real(0);
    } else if (key == "points") {
      f.points = static_cast<int>(v.integer(0, 1 << 30));
    } else if (key.starts_with("range.")) {
      const auto list = v.list();
      if (list.size() != 2) v.fail("a range is two numbers, the low and the high end");
      f.low[key.substr(6)] = list[0].real();
      f.high[key.substr(6)] = list[1].real();
    } else {
      f.coefficients[key] = real_of(v);
    }
  }
  m.class_fits.push_back(std::move(f));
}

void write_section(std::string& out, const std::string& name) { out += fmt::format("\n[{}]\n", name); }
void write_key(std::string& out, std::string_view key, std::string_view value) {
  if (!value.empty()) out += fmt::format("{} = {}\n", key, value);
}
void write_figure(std::string& out, std::string_view key, const std::optional<Figure>& f, const Unit& unit) {
  if (f) write_key(out, key, figure_text(*f, unit));
}
void write_figures(std::string& out, std::string_view key, const PerThreads& figures, const Unit& unit) {
  for (const auto& [threads, f] : figures) write_key(out, threads == 0 ? std::string(key) : fmt::format("{}.{}", key, threads), figure_text(f, unit));
}

Machine machine_of(const IniFile& file) {
  file.only({"", "machine", "software", "cost", "noise", "reference", "peak.*", "memory.*", "gemm.*", "model.*"});
  const IniSection& head = file.get("");
  head.only({"schema"});
  const IniValue schema = head.get("schema");
  if (schema.text() != kMachineSchema) schema.fail(fmt::format("this is not a machine file of this version ('{}')", schema.text()), fmt::format("expected '{}'", kMachineSchema));
  Machine m;
  read_machine(file.get("machine"), m);
  for (const IniSection& s : file.sections()) {
    if (s.name() == "software")
      for (const std::string& key : s.keys()) m.software[key] = s.get(key).text();
    else if (s.name() == "cost")
      read_costs(s, m);
    else if (s.name() == "noise")
      for (const std::string& key : s.keys()) m.noise[key] = s.get(key).real(0);
    else if (s.name() == "reference")
      for (const std::string& key : s.keys()) m.references[key] = s.get(key).quantity(Dimension::kTime);
    else if (s.name().starts_with("peak."))
      read_peak(s, m);
    else if (s.name().starts_with("memory."))
      read_level(s, m);
    else if (s.name().starts_with("gemm."))
      read_curve(s, m);
    else if (s.name().starts_with("model."))
      read_fit(s, m);
  }
  try {
    check_machine(m);
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), {file.name(), 0, ""}, error.hint());
  }
  return m;
}

}  // namespace

Machine parse_machine_ini(std::string_view text, const std::string& name) { return machine_of(IniFile::parse(text, name)); }

Machine read_machine_ini(const std::string& path) { return machine_of(IniFile::read(path)); }

std::string write_machine_ini(const Machine& m) {
  std::string out = fmt::format("schema = {}\n", kMachineSchema);
  write_section(out, "machine");
  write_key(out, "name", m.name);
  write_key(out, "board", m.board);
  write_key(out, "kind", m.kind == MachineKind::kCpu ? "cpu" : "gpu");
  write_key(out, "isa", m.isa);
  write_key(out, "date", m.date);
  write_key(out, "cores", std::to_string(m.cores));
  write_figure(out, "clock", m.clock, kClock);
  write_figure(out, "clock_max", m.clock_max, kClock);
  write_figure(out, "memory", m.memory, kCapacity);
  if (!m.software.empty()) {
    write_section(out, "software");
    for (const auto& [key, value] : m.software) write_key(out, key, value);
  }
  for (const Peak& p : m.peaks) {
    write_section(out, fmt::format("peak.{}", dtype_name(p.dtype)));
    write_key(out, "unit", p.unit);
    write_figures(out, "rate", p.rate, kRate);
    write_figures(out, "best", p.best, kRate);
  }
  for (const MemoryLevel& l : m.levels) {
    write_section(out, "memory." + l.name);
    write_key(out, "shared", l.shared ? "true" : "false");
    write_figure(out, "capacity", l.capacity, kCapacity);
    write_figure(out, "claimed", l.claimed, kCapacity);
    for (int a = 0; a < kAccesses; ++a) write_figures(out, access_name(static_cast<Access>(a)), l.rate[a], kBandwidth);
  }
  std::string costs;
  write_figures(costs, "launch", m.launch, kTime);
  write_figures(costs, "region", m.region, kTime);
  write_figure(costs, "exp_element", m.exp_element, kTime);
  write_figure(costs, "select_element", m.select_element, kTime);
  write_figure(costs, "clock_read", m.clock_read, kTime);
  if (!costs.empty()) {
    write_section(out, "cost");
    out += costs;
  }
  if (!m.noise.empty()) {
    write_section(out, "noise");
    for (const auto& [key, value] : m.noise) write_key(out, key, real_text(value));
  }
  if (!m.references.empty()) {
    write_section(out, "reference");
    for (const auto& [key, value] : m.references) write_key(out, key, quantity_text(value, kTime));
  }
  for (const GemmCurve& c : m.gemm_curves) {
    write_section(out, fmt::format("gemm.{}.{}.t{}.n{}.k{}", dtype_name(c.dtype), c.variant, c.threads, c.n, c.k));
    std::string rows, times;
    for (size_t i = 0; i < c.rows.size(); ++i) {
      rows += fmt::format("{}{}", i ? ", " : "", c.rows[i]);
      times += (i ? ", " : "") + quantity_text(c.seconds[i], kTime);
    }
    write_key(out, "rows", rows);
    write_key(out, "time", times);
    write_key(out, "provenance", provenance_name(c.provenance));
  }
  for (const ClassFit& f : m.class_fits) {
    write_section(out, fmt::format("model.{}.{}.t{}", f.name, dtype_name(f.dtype), f.threads));
    for (const auto& [key, value] : f.coefficients) write_key(out, key, real_text(value));
    for (const auto& [key, value] : f.low) write_key(out, "range." + key, real_text(value) + ", " + real_text(f.high.at(key)));
    write_key(out, "residual", real_text(f.residual_low) + ", " + real_text(f.residual_high));
    write_key(out, "points", std::to_string(f.points));
  }
  return out;
}

}  // namespace fathom
