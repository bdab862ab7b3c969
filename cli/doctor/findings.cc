#include "cli/doctor/findings.h"

#include <array>
#include <cstdio>

#include "cli/doctor/amounts.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

constexpr std::array kIommuNames = {"off", "passes through", "translates"};

const char* NameOf(Iommu iommu) { return kIommuNames.at(static_cast<std::size_t>(iommu)); }

// A bound that is none is null, as one that is not known.
template <typename Amount>
Json OrNull(const std::optional<Amount>& amount) {
  return amount ? Json(*amount) : Json();
}

Json LimitJson(const std::optional<std::uint64_t>& limit) { return limit == kUnlimited ? Json() : OrNull(limit); }

std::string LimitText(const std::optional<std::uint64_t>& limit, const std::string& amount) {
  if (!limit) return "?";
  return *limit == kUnlimited ? "no limit" : amount;
}

std::string OrNone(const std::string& text) { return text.empty() ? "none" : Escaped(text); }

std::string Row(const char* what, const std::string& how) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%-20s", what);
  return name.data() + how + "\n";
}

std::string RateText(double one, double all, std::size_t threads) {
  return layercast::RateText(one) + " with one thread, " + layercast::RateText(all) + " with " +
         std::to_string(threads);
}

Json MachineJson(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cpus", machine.cpus.size()},
          {"cores", OrNull(machine.cores)},
          {"memory", machine.memory},
          {"available", machine.available},
          {"memory_limit", OrNull(machine.memory_limit)},
          {"locked_memory", LimitJson(machine.locked)},
          {"open_files", LimitJson(machine.open_files)},
          {"dev_shm", OrNull(machine.shm)},
          {"huge_pages", machine.huge_pages},
          {"shared_huge_pages", machine.shared_huge_pages},
          {"reserved_huge_pages", machine.reserved_huge_pages},
          {"numa_nodes", machine.nodes.size()},
          {"numa_nodes_used", NodesOf(machine).size()},
          {"iommu", NameOf(machine.iommu)},
          {"rdma", machine.rdma},
          {"gpus", machine.gpus}};
}

std::string CoresText(const Machine& machine) {
  std::string text = std::to_string(machine.cpus.size());
  if (machine.cores) text += ", of which the control group gives " + NumberText(*machine.cores);
  return text;
}

std::string MachineText(const Machine& machine, const std::string& instruction_set) {
  std::string rdma;
  for (const std::string& device : machine.rdma) rdma += (rdma.empty() ? "" : ", ") + device;
  std::string memory = BytesText(machine.memory) + ", " + BytesText(machine.available) + " available";
  if (machine.memory_limit) memory += ", at most " + BytesText(*machine.memory_limit);
  return Row("processor", OrNone(machine.cpu) + ", kernels for " + instruction_set) + Row("cores", CoresText(machine)) +
         Row("memory", memory) +
         Row("NUMA nodes", std::to_string(machine.nodes.size()) + ", this process runs on " +
                               std::to_string(NodesOf(machine).size())) +
         Row("locked memory", LimitText(machine.locked, BytesText(machine.locked.value_or(0)))) +
         Row("open files", LimitText(machine.open_files, std::to_string(machine.open_files.value_or(0)))) +
         Row("/dev/shm", machine.shm ? BytesText(*machine.shm) : "none") +
         Row("huge pages", OrNone(machine.huge_pages) + ", shared memory " + OrNone(machine.shared_huge_pages) + ", " +
                               std::to_string(machine.reserved_huge_pages) + " reserved") +
         Row("IOMMU", NameOf(machine.iommu)) + Row("RDMA devices", OrNone(rdma)) +
         Row("GPUs", std::to_string(machine.gpus));
}

Json LibrariesJson(const std::vector<LibraryVersion>& libraries) {
  Json all = Json::array();
  for (const LibraryVersion& each : libraries) {
    all.push_back({{"channel", each.channel},
                   {"library", each.library},
                   {"version", each.version.empty() ? Json() : Json(each.version)},
                   {"why_not", each.why_not.empty() ? Json() : Json(each.why_not)}});
  }
  return all;
}

std::string LibrariesText(const std::vector<LibraryVersion>& libraries) {
  std::string text;
  for (const LibraryVersion& each : libraries) {
    text +=
        Row(each.library.c_str(), each.version.empty() ? "not here: " + EscapedMessage(each.why_not) : each.version);
  }
  return text;
}

Json ChannelsJson(const std::vector<ChannelTrial>& trials) {
  Json all = Json::array();
  for (const ChannelTrial& trial : trials) {
    all.push_back({{"name", trial.name},
                   {"usable", trial.usable},
                   {"gb_per_s", trial.gb_per_s},
                   {"by_name", trial.by_name},
                   {"reason", trial.reason}});
  }
  return all;
}

std::string ChannelsText(const std::vector<ChannelTrial>& trials) {
  std::string text;
  for (const ChannelTrial& trial : trials) {
    if (!text.empty()) text += "; ";
    text += trial.usable ? Describe(trial) : trial.name + ": " + EscapedMessage(trial.reason);
  }
  return text;
}

Json MeasuredJson(const Measurement& measured) {
  const auto rates = [](const Rates& each) {
    return Json{{"one_thread_gb_per_s", each.one_gb_per_s}, {"all_threads_gb_per_s", each.all_gb_per_s}};
  };
  return {{"threads", measured.threads},
          {"copy", rates(measured.copy)},
          {"digest", rates(measured.digest)},
          {"channels", ChannelsJson(measured.channels)}};
}

std::string MeasuredText(const Measurement& measured) {
  const auto rates = [&](const Rates& each) {
    return RateText(each.one_gb_per_s, each.all_gb_per_s, measured.threads);
  };
  return Row("copies", rates(measured.copy)) + Row("digests", rates(measured.digest)) +
         Row("channels, loopback", ChannelsText(measured.channels));
}

Json PublisherJson(const PublisherLook& look) {
  const std::optional<PublisherProbe>& probe = look.probe;
  const auto picked = probe ? PickChannel(probe->trials) : std::nullopt;
  return {{"endpoint", look.endpoint},
          {"reachable", !look.error},
          {"version", look.version},
          {"bytes", look.bytes},
          {"same_host", probe ? Json(probe->same_host) : Json()},
          {"channels", probe ? ChannelsJson(probe->trials) : Json::array()},
          {"channel", picked ? Json(probe->trials[*picked].name) : Json()},
          {"seconds", OrNull(EstimateSeconds(look))}};
}

std::string PublisherText(const PublisherLook& look) {
  if (!look.probe) return Row("publisher", look.endpoint + (look.error ? ", cannot be used" : ", no version"));
  std::string text =
      Row("publisher", look.endpoint + ", on " + (look.probe->same_host ? "this" : "another") + " host") +
      Row("  channels", ChannelsText(look.probe->trials));
  if (const auto picked = PickChannel(look.probe->trials)) {
    text += Row("  an engine here", "takes " + WhyPicked(look.probe->trials, *picked));
  }
  if (const std::optional<double> seconds = EstimateSeconds(look)) {
    text += Row("  newest version", std::to_string(look.bytes) + " bytes: " + NumberText(*seconds) +
                                        " s on the way, for one rank that takes them all");
  }
  return text;
}

Json EngineJson(const EngineLook& look) {
  return {{"endpoint", look.endpoint},
          {"reachable", !look.error},
          {"state", look.error ? Json() : Json(look.state)},
          {"version", look.version},
          {"channel", look.channel.empty() ? Json() : Json(look.channel)}};
}

std::string EngineText(const EngineLook& look) {
  if (look.error) return Row("engine", look.endpoint + ", cannot be used");
  const std::string last = look.channel.empty() ? "" : ", last took a version by " + Escaped(look.channel);
  return Row("engine", look.endpoint + ", " + Escaped(look.state) + last);
}

}  // namespace

Json FindingsJson(const Findings& findings) {
  Json advice = Json::array();
  for (const Advice& each : findings.advice) {
    advice.push_back({{"name", each.name},
                      {"text", each.text},
                      {"command", each.command.empty() ? Json() : Json(each.command)},
                      {"fails", each.fails}});
  }
  Json machine = MachineJson(findings.machine);
  machine["instruction_set"] = findings.instruction_set;
  return {{"machine", std::move(machine)},
          {"libraries", LibrariesJson(findings.libraries)},
          {"measured", MeasuredJson(findings.measured)},
          {"publisher", findings.publisher ? PublisherJson(*findings.publisher) : Json()},
          {"engine", findings.engine ? EngineJson(*findings.engine) : Json()},
          {"advice", std::move(advice)}};
}

std::string FindingsText(const Findings& findings) {
  std::string text = MachineText(findings.machine, findings.instruction_set) + LibrariesText(findings.libraries) +
                     MeasuredText(findings.measured);
  if (findings.publisher) text += PublisherText(*findings.publisher);
  if (findings.engine) text += EngineText(*findings.engine);
  text += '\n';
  for (const Advice& each : findings.advice) {
    if (each.fails) continue;
    text += each.text + "\n";
    if (!each.command.empty()) text += "    " + each.command + "\n";
  }
  return text + (findings.advice.empty() ? "Nothing here would slow a sync down.\n" : "");
}

}  // namespace layercast::cli
