#include "cli/doctor/machine.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>

namespace layercast::cli {
namespace {

namespace fs = std::filesystem;

// A file of /proc or /sys; empty if it cannot be read.
std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string FirstLine(const fs::path& path) {
  const std::string text = TextOf(path);
  return text.substr(0, text.find('\n'));
}

std::optional<std::uint64_t> NumberFrom(std::string_view text) {
  std::uint64_t number = 0;
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// What stands behind `name` on the line of `text` that begins with it.
std::optional<std::string> Behind(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(" \t:", name.size());
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return std::nullopt;
}

std::uint64_t Kilobytes(const std::string& text, std::string_view name) {
  return NumberFrom(Behind(text, name).value_or("")).value_or(0) * 1024;
}

// The names in a folder, sorted.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The hard limit in /proc/self/limits: the program raises its own to that.
std::optional<std::uint64_t> HardLimit(const std::string& limits, std::string_view name) {
  std::istringstream words(Behind(limits, name).value_or(""));
  std::string soft, hard;
  if (!(words >> soft >> hard)) return std::nullopt;
  return hard == "unlimited" ? kUnlimited : NumberFrom(hard);
}

// "always [madvise] never": the word in brackets.
std::string Chosen(const std::string& choices) {
  const std::size_t begin = choices.find('[');
  const std::size_t end = choices.find(']', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return choices.substr(begin + 1, end - begin - 1);
}

// "size=65536k" among a mount's options.
std::optional<std::uint64_t> SizeOption(const std::string& options) {
  const std::size_t at = options.find("size=");
  if (at == std::string::npos) return std::nullopt;
  const std::string_view text = std::string_view(options).substr(at + 5);
  const std::optional<std::uint64_t> number = NumberFrom(text);
  if (!number) return std::nullopt;
  const std::size_t unit = std::min(text.find_first_not_of("0123456789"), text.size());
  const char letter = unit < text.size() ? text[unit] : ',';
  return *number << (letter == 'k' ? 10 : letter == 'm' ? 20 : letter == 'g' ? 30 : 0);
}

// The size of what is mounted last at /dev/shm. A tmpfs that names none has half of the memory.
std::optional<std::uint64_t> ShmSize(const fs::path& root, std::uint64_t memory) {
  std::istringstream mounts(TextOf(root / "proc/self/mountinfo"));
  std::optional<std::uint64_t> size;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word;
    for (int column = 0; column < 5; ++column) words >> word;
    const std::size_t dash = line.find(" - tmpfs ");
    if (word == "/dev/shm" && dash != std::string::npos) size = SizeOption(line.substr(dash)).value_or(memory / 2);
  }
  return size;
}

// The folder of this process's control group, of the one hierarchy of version 2.
fs::path ControlGroup(const fs::path& root) {
  const std::string path = Behind(TextOf(root / "proc/self/cgroup"), "0::/").value_or("");
  return root / "sys/fs/cgroup" / path;
}

// "150000 100000": so many microseconds of cores in so many of time.
std::optional<double> CoresOf(const fs::path& group) {
  std::istringstream words(TextOf(group / "cpu.max"));
  std::string quota;
  double period = 0;
  if (!(words >> quota >> period) || period <= 0) return std::nullopt;
  const std::optional<std::uint64_t> microseconds = NumberFrom(quota);
  return microseconds ? std::optional(static_cast<double>(*microseconds) / period) : std::nullopt;
}

std::vector<NumaNode> ReadNodes(const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const std::string& name : NamesIn(folder)) {
    if (!name.starts_with("node")) continue;
    const std::optional<std::uint64_t> number = NumberFrom(std::string_view(name).substr(4));
    std::vector<int> cpus = ParseCpuList(FirstLine(folder / name / "cpulist"));
    if (number && !cpus.empty()) nodes.push_back({static_cast<int>(*number), std::move(cpus)});
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  return nodes;
}

// Whether devices' addresses are translated, as they are where any group of devices has a domain of its own.
Iommu ReadIommu(const fs::path& root) {
  if (NamesIn(root / "sys/class/iommu").empty()) return Iommu::kOff;
  const fs::path groups = root / "sys/kernel/iommu_groups";
  for (const std::string& group : NamesIn(groups)) {
    if (FirstLine(groups / group / "type").starts_with("DMA")) return Iommu::kTranslates;
  }
  return Iommu::kPassesThrough;
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text) {
  constexpr std::uint64_t kMost = 1 << 16;
  std::vector<int> cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::optional<std::uint64_t> first = NumberFrom(range);
    const std::size_t dash = range.find('-');
    const auto last = dash == std::string::npos ? first : NumberFrom(std::string_view(range).substr(dash + 1));
    if (!first || !last || *last >= kMost) return {};
    for (std::uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

Machine ReadMachine(const fs::path& root) {
  Machine machine;
  const std::string limits = TextOf(root / "proc/self/limits");
  const std::string memory = TextOf(root / "proc/meminfo");
  const fs::path group = ControlGroup(root);
  const fs::path huge = root / "sys/kernel/mm/transparent_hugepage";
  machine.cpu = Behind(TextOf(root / "proc/cpuinfo"), "model name").value_or("");
  machine.cpus = ParseCpuList(Behind(TextOf(root / "proc/self/status"), "Cpus_allowed_list").value_or(""));
  machine.cores = CoresOf(group);
  machine.memory = Kilobytes(memory, "MemTotal");
  machine.available = Kilobytes(memory, "MemAvailable");
  machine.memory_limit = NumberFrom(FirstLine(group / "memory.max"));
  machine.locked = HardLimit(limits, "Max locked memory");
  machine.open_files = HardLimit(limits, "Max open files");
  machine.shm = ShmSize(root, machine.memory);
  machine.huge_pages = Chosen(FirstLine(huge / "enabled"));
  machine.shared_huge_pages = Chosen(FirstLine(huge / "shmem_enabled"));
  machine.reserved_huge_pages = NumberFrom(Behind(memory, "HugePages_Total").value_or("")).value_or(0);
  machine.nodes = ReadNodes(root);
  machine.iommu = ReadIommu(root);
  machine.rdma = NamesIn(root / "sys/class/infiniband");
  machine.gpus = NamesIn(root / "proc/driver/nvidia/gpus").size();
  return machine;
}

std::vector<NumaNode> NodesOf(const Machine& machine) {
  std::vector<NumaNode> nodes;
  for (const NumaNode& node : machine.nodes) {
    const auto allowed = [&](int cpu) { return std::ranges::find(machine.cpus, cpu) != machine.cpus.end(); };
    if (std::ranges::any_of(node.cpus, allowed)) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace layercast::cli
