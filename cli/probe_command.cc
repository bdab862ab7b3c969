// layercast probe: how fast each data channel is between this host and a publisher, and which one an engine here would
// take.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "src/base/utf8.h"
#include "src/session/choose/probe_publisher.h"

namespace layercast::cli {
namespace {

Json ProbeJson(const std::string& endpoint, const PublisherProbe& probe) {
  Json channels = Json::array();
  for (const ChannelTrial& trial : probe.trials) {
    channels.push_back({{"name", trial.name},
                        {"usable", trial.usable},
                        {"attaches", trial.attaches},
                        {"gb_per_s", trial.gb_per_s},
                        {"by_name", trial.by_name},
                        {"lane", trial.lane},
                        {"reason", trial.reason}});
  }
  const std::optional<std::size_t> picked = PickChannel(probe.trials);
  return {{"publisher", endpoint},
          {"name", probe.publisher},
          {"same_host", probe.same_host},
          {"channels", channels},
          {"channel", picked ? Json(probe.trials[*picked].name) : Json(nullptr)},
          {"reason", picked ? Json(WhyPicked(probe.trials, *picked)) : Json(nullptr)}};
}

std::string Line(const Json& channel) {
  std::string how = channel["reason"].get<std::string>();
  if (channel["usable"].get<bool>() && how.empty()) how = channel["attaches"].get<bool>() ? "maps" : "copies";
  if (!channel["lane"].get<std::string>().empty()) how += ", " + channel["lane"].get<std::string>();
  if (channel["by_name"].get<bool>()) how += ", taken only by --channel";
  char line[64];
  std::snprintf(line, sizeof(line), "  %-9s %10s  ", channel["name"].get<std::string>().c_str(),
                RateText(channel["gb_per_s"]).c_str());
  return line + Escaped(how) + "\n";
}

std::string ProbeText(const Json& probe) {
  std::string text = "publisher " + Escaped(probe["name"].get<std::string>()) + ", on " +
                     (probe["same_host"].get<bool>() ? "this" : "another") + " host\n";
  for (const Json& channel : probe["channels"]) text += Line(channel);
  if (probe["channel"].is_null()) return text;
  return text + "an engine here takes " + probe["channel"].get<std::string>() + ": " +
         probe["reason"].get<std::string>() + "\n";
}

class Probe final : public Subcommand {
 public:
  const char* name() const override { return "probe"; }
  const char* description() const override { return "Measures every data channel between this host and a publisher"; }

  void Declare(CLI::App& app) override {
    app.add_option("--publisher", publisher_, "Endpoint of a publisher that offers a version")
        ->check(Endpoint())
        ->required();
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    const PublisherProbe probed = ProbePublisher(publisher_, keys_.keys(), timeout_.deadline());
    const Json probe = ProbeJson(publisher_, probed);
    output.Print(probe, ProbeText(probe));
    if (!probe["channel"].is_null()) return;
    const Error none = WhyNone(probed.trials);
    throw Error(none.code(), "publisher " + publisher_ + ": " + none.what());
  }

 private:
  std::string publisher_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeProbe() { return std::make_unique<Probe>(); }

}  // namespace layercast::cli
